"""Tune: search sketch, method, chunks and knobs together, size by size, into a table."""

import tuccl

host = tuccl.profile("v100x4")

# `on` says what times candidates: the simulator here; "nccl-tests" or "mpi" on a cluster.
options = tuccl.TuneOptions(budget=10, seed=0)
table = tuccl.tune(host, ["allgather", "allreduce"], "64K:4M:x64", on="sim", options=options)

print(f"{table.result.evaluations} evaluations, {table.result.label}")
for row in table.result.tuned:
    chosen, us = (row.best, row.best_us) if row.best_us else ("the default", row.default_us)
    print(f"{row.collective} {row.size}: {us:.1f} us, default {row.default_us:.1f} us: {chosen}")

# Nothing enters a table that does not beat the default.
assert all(row.best_us is None or row.best_us <= row.default_us for row in table.result.tuned)
