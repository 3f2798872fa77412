"""Export a table to runtimes: XML for MSCCL, execution plans for MSCCL++."""

import tempfile
from pathlib import Path

import tuccl

host = tuccl.profile("dgx-a100")
options = tuccl.TuneOptions(budget=6)
table = tuccl.tune(host, "allgather", ["64K", "4M"], options=options)

with tempfile.TemporaryDirectory() as folder:
    for dialect in ("executor", "mscclpp"):
        exported = table.export(dialect, Path(folder, dialect))
        print(f"{dialect}: {', '.join(file.name for file in exported.files) or 'nothing to load'}")
        for note in exported.notes:
            print(f"  note: {note}")

    # One program, without a table: plans that the MSCCL++ executor loads.
    ring = tuccl.synthesize(host, "allreduce", "1M", method="ring", protocol="Simple").best
    plans = tuccl.export(ring.program, "mscclpp", Path(folder, "ring")).files
    assert any(file.suffix == ".json" for file in plans)
