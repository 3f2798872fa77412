"""Small machines, programs and tables made by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock
from tuccl.runtime.table.entry import Candidate, Entry, Statistics, default_candidate
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.programs import ProgramFile, program_candidate, program_file
from tuccl.runtime.table.store import save_table
from tuccl.synth import ScheduleChoice
from tuccl.topology import Link, Node, Topology, signature

RANKS = 4


def ring_allgather(
    protocol: str = "Simple",
    ranks: int = RANKS,
    copies: int = 1,
    in_place: bool = True,
    out_of_place: bool = True,
) -> Program:
    """An allgather along the ring of ranks, each share cut into ``copies`` chunks sent at once."""

    def gpu(rank: int) -> Gpu:
        def at(distance: int) -> int:
            return (rank - distance) % ranks * copies

        own = Step("cpy", "i", 0, "o", at(0), copies)
        steps = [Step("s", "i", 0, "o", at(0), copies)]
        steps += [Step("rcs", "i", 0, "o", at(d), copies) for d in range(1, ranks - 1)]
        steps += [Step("r", "i", 0, "o", at(ranks - 1), copies)]
        blocks = [
            ThreadBlock(0, (rank + 1) % ranks, (rank - 1) % ranks, 0, steps),
            ThreadBlock(1, -1, -1, 0, [own]),
        ]
        return Gpu(rank, copies, ranks * copies, 0, blocks)

    gpus = [gpu(rank) for rank in range(ranks)]
    return Program(
        *("ring", "allgather", protocol, 1, ranks * copies, gpus),
        in_place=in_place,
        out_of_place=out_of_place,
    )


def mesh(hosts: int = 1, ranks: int = RANKS, model: str = "V100-SXM2-32GB") -> Topology:
    """Hosts of ``ranks / hosts`` GPUs, all joined by NVLink, a NIC each on one switch."""
    each = ranks // hosts
    nodes = [
        Node(f"n{r // each}/gpu{r % each}", "gpu", host=f"n{r // each}", rank=r, model=model)
        for r in range(ranks)
    ]
    gpus = list(nodes)
    links = [
        Link(a.id, b.id, "nvlink", 50.0, 0.7, duplex=True)
        for a in gpus
        for b in gpus
        if a.host == b.host and a.id < b.id
    ]
    if hosts > 1:
        nodes.append(Node("leaf", "switch"))
        for host in range(hosts):
            nic = f"n{host}/nic0"
            nodes.append(Node(nic, "nic", host=f"n{host}"))
            links.append(Link(nic, "leaf", "network", 12.5, 1.3, duplex=True))
            links.extend(
                Link(gpu.id, nic, "pcie", 12.0, 0.5, duplex=True)
                for gpu in gpus
                if gpu.host == f"n{host}"
            )
    return Topology(f"mesh {hosts}x{each}", tuple(nodes), tuple(links))


def time_of(us: float) -> Statistics:
    return Statistics.of((us,))


def candidate(
    file: ProgramFile, us: float, knobs: Knobs | None = None, method: str = "ring", safe: int = 0
) -> Candidate:
    made = program_candidate(
        file,
        knobs or Knobs(file.program.protocol),
        on="sim",
        stats=time_of(us),
        choice=ScheduleChoice("", method, 0),
    )
    return msgspec.structs.replace(made, max_safe_bytes=safe or made.max_safe_bytes)


def entry(
    min_bytes: int,
    max_bytes: int | None,
    *candidates: Candidate,
    default_us: float = 10.0,
    placement: str = "any",
) -> Entry:
    default = default_candidate("sim", time_of(default_us))
    return Entry(
        collective="allgather",
        reduction_class="none",
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        placement=placement,  # type: ignore[arg-type]
        candidates=(*candidates, default),
    )


def table_of(topology: Topology, *entries: Entry, name: str = "made by hand") -> LookupTable:
    return LookupTable(
        name=name,
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=entries,
        tuned_on="simulated on a mesh",
        baseline="nccl 2.19",
    )


def files() -> dict[str, ProgramFile]:
    """Three programs: LL for small sizes, Simple in two chunkings for large ones."""
    return {
        "LL": program_file(ring_allgather("LL")),
        "Simple": program_file(ring_allgather("Simple")),
        "halves": program_file(ring_allgather("Simple", copies=2, in_place=False)),
    }


def usual_table(topology: Topology) -> tuple[LookupTable, list[ProgramFile]]:
    """Entries that use a hole, a program for one placement, and one safe only below a size."""
    made = files()
    table = table_of(
        topology,
        entry(512, 4096, candidate(made["LL"], 5.0)),
        entry(4096, 65536),
        entry(65536, 1 << 20, candidate(made["halves"], 6.0), candidate(made["Simple"], 7.0)),
        entry(1 << 20, 1 << 30, candidate(made["Simple"], 7.0, safe=1 << 25)),
    )
    return table, list(made.values())


HAND = SimpleNamespace(
    ring_allgather=ring_allgather,
    mesh=mesh,
    time_of=time_of,
    candidate=candidate,
    entry=entry,
    table_of=table_of,
    files=files,
    usual_table=usual_table,
    ranks=RANKS,
)


@pytest.fixture(scope="session")
def hand() -> SimpleNamespace:
    """Makers of small machines, programs, entries and tables."""
    return HAND


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a saved table."""
    topology = mesh()
    table, programs = usual_table(topology)
    save_table(table, tmp_path / "table", topology, programs)
    return tmp_path / "table"
