"""Prints what the parameters of sketches gain over a list of sketches, simulated.

    .venv/bin/python benchmarks/sketch_parameters.py [--processes 2] [--write]

Each cell is searched by the default search with 100 and with 400 evaluations: over the candidates
by name alone, without those that prune crowded links inside hosts (`stages`); over all candidates
(`list`); and with the parameters as dimensions (`parameters`). A gain is the time by the stages
with as many evaluations over that of the column.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from msgspec.structs import replace
from report import publish

from tuccl.cli.output import columns
from tuccl.runtime import SimExecutor
from tuccl.sketches.candidates import searched_sketches
from tuccl.synth import Collective
from tuccl.topology import Link, Topology, join, load_profile
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.joint_search import aligned_size
from tuccl.tuning.policy_training import NoStudy
from tuccl.tuning.programs import ProgramCache, sketches_by_name
from tuccl.tuning.searches.descent import DescentSearch
from tuccl.tuning.searches.search import run_search
from tuccl.units import format_bytes

COLLECTIVES = ("allgather", "allreduce")
SIZES = (64 << 10, 4 << 20)
BUDGETS = (100, 400)


def changed(topology: Topology, change: Callable[[Link], Link | None], name: str) -> Topology:
    """Return the topology with every link changed, or gone."""
    links = tuple(new for link in topology.links if (new := change(link)) is not None)
    return Topology(name, topology.nodes, links)


def of_ranks(topology: Topology, ranks: range, name: str) -> Topology:
    """Return the topology with the GPUs of ``ranks`` alone."""
    number = {topology.gpus[rank].id: place for place, rank in enumerate(ranks)}
    gone = {gpu.id for gpu in topology.gpus} - number.keys()
    nodes = tuple(
        node if node.kind != "gpu" else replace(node, rank=number[node.id])
        for node in topology.nodes
        if node.id not in gone
    )
    links = tuple(link for link in topology.links if not {link.src, link.dst} & gone)
    return Topology(name, nodes, links)


def machines() -> Iterator[Topology]:
    """Yield irregular machines, then a regular one."""
    dgx, roce = join(load_profile("dgx-1v"), 2), join(load_profile("a100x8-roce"), 2)
    failed = next(link for link in dgx.links if link.kind == "nvlink")
    yield changed(dgx, lambda link: None if link == failed else link, "2x dgx-1v, a link failed")
    nic = next(node.id for node in roce.nodes if node.kind == "nic")

    def slower(link: Link) -> Link:
        if link.kind != "network" or nic not in (link.src, link.dst):
            return link
        return replace(link, bandwidth=link.bandwidth / 2)

    yield changed(roce, slower, "2x a100x8-roce, a NIC at half")
    yield changed(
        join(load_profile("v100x4"), 2),
        lambda link: None if link.kind == "nvlink" else link,
        "2x v100x4 on PCIe",
    )
    yield join(load_profile("rtx2080tix4"), 2)
    yield of_ranks(dgx, range(4, 12), "half of each of 2x dgx-1v")
    yield join(load_profile("v100x4"), 2)


def row(cell: tuple[Topology, str, int]) -> list[object]:
    """Return the figures of a cell."""
    topology, collective, size = cell
    nbytes = aligned_size(size, topology.ranks)
    cache = ProgramCache(topology, Collective(collective, topology.ranks))
    executor = SimExecutor(topology)
    sketches, wider = searched_sketches(topology, collective, nbytes)
    stages = tuple(sketch for sketch in sketches if "-inside-" not in sketch.name)
    figures: list[object] = [topology.name, collective, format_bytes(nbytes)]
    found = ""
    for budget in BUDGETS:
        first = 0.0
        for number, (some, space_of) in enumerate(
            ((stages, None), (sketches, None), (sketches, wider))
        ):
            space = cache.space(some, nbytes, wider=space_of)
            assert space is not None
            sketch_of = sketches_by_name(some, space_of)
            evaluate = Evaluator(executor, cache, sketch_of, nbytes, NoStudy())
            search = DescentSearch(space)
            run_search(search, evaluate, budget)
            first = first or search.best_us
            figures.append(f"{first / search.best_us:.3f}" if number else f"{first:.1f}")
            assert search.best is not None
            found = f"{search.best.choice.method} on {search.best.choice.sketch}"
    return [*figures, found]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    cells = list(product(machines(), COLLECTIVES, SIZES))
    with ProcessPoolExecutor(args.processes) as pool:
        rows = list(pool.map(row, cells))
    header = ["machine", "collective", "size", "stages us (100)", "list", "parameters"]
    print("Simulated: time by the stages in us, and the gains over it; 100 and 400 evaluations.\n")
    print(columns([*header, "stages us (400)", "list", "parameters", "found"], rows))


if __name__ == "__main__":
    publish(main, "Simulated")
