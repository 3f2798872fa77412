"""Keep a table, and ask it which candidate a call gets, and why."""

import tempfile
from pathlib import Path

import tuccl

host = tuccl.profile("v100x4")
tuned = tuccl.tune(host, "allgather", ["64K", "4M"], options=tuccl.TuneOptions(budget=10))

with tempfile.TemporaryDirectory() as folder:
    tuned.save(Path(folder, "table"))
    table = tuccl.load_table(Path(folder, "table"))

# One call: by speed, or by the SMs (thread blocks) that it takes from computation.
for prefer in ("speed", "sms"):
    choice = table.select("allgather", "4M", prefer=prefer)
    print(f"{prefer}: {choice.candidate.name} on {choice.candidate.sms} SMs: {choice.reason}")

# A size that was never tuned gets the runtime's default.
assert table.select("allgather", "1G").candidate.is_default

# All calls: each range of sizes with its choice.
for row in table.explain():
    print(f"{row.collective} {row.placement} [{row.min_bytes}, {row.max_bytes}): {row.candidate}")
