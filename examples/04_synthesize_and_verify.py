"""Synthesize a program, write it as MSCCL XML, and prove that it is right."""

import tempfile
from pathlib import Path

import tuccl

cluster = tuccl.profile("v100x4", nodes=2)

# Without `method` all methods are tried; the fastest in simulation comes first.
found = tuccl.synthesize(cluster, "allgather", "16M", method="packing")
best = found.best
print(f"{best.method}, {best.knobs.protocol}, {best.knobs.channels} channels")
print(f"{best.time_us:.1f} us simulated, {best.hops} messages in a row")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "allgather.xml")
    tuccl.write_program(best.program, path)
    program = tuccl.read_program(path)

# The proof covers the result on every rank, deadlock, races and the limits of the runtime.
report = tuccl.verify(program, dialect="executor")
assert report.ok, report.errors
print(f"proved: {program.collective} on {program.ngpus} ranks")

# RCCL has lower limits: what it would refuse is said, not raised.
for error in tuccl.verify(program, dialect="rccl").errors[:2]:
    print(f"rccl: {error.message}")
