"""Compare a table with NCCL's own choice and with MSCCL's default, size by size."""

import tuccl

host = tuccl.profile("v100x4")
table = tuccl.tune(host, "allreduce", ["64K", "4M"], options=tuccl.TuneOptions(budget=10))

comparison = table.compare(baselines=["nccl", "msccl-default"])
print(comparison.label)
for row in comparison.rows:
    print(
        f"{row.collective} {row.size}: {row.tuned_us:.1f} us, {row.baseline} {row.baseline_us:.1f} "
        f"us, {row.speedup:.2f}x, {row.fraction_of_bound:.0%} of the bound"
    )
assert comparison.regressions == 0

# Also at sizes between those that were tuned.
between = tuccl.compare(table, sizes="32K:8M:x16", baselines=["nccl"])
print(f"slowest against NCCL: {min(row.speedup for row in between.rows):.2f}x (simulated)")
