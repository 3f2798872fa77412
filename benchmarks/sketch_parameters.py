"""Prints what the parameters of sketches gain over a list of sketches, simulated.

    .venv/bin/python benchmarks/sketch_parameters.py [--processes 2] [--seeds 3] [--only PCIe]
        [--write]

Each cell is searched by the default search with 100 and with 400 evaluations: over the candidates
by name alone, without those that prune crowded links inside hosts (`stages`); over all candidates
(`list`); and with the parameters as dimensions (`parameters`). A gain is the time by the stages
with as many evaluations over that of the column, the median of the seeds.

Then the gain of each axis, the median of the seeds: over the time without moving along it
(candidates keep their values on it), and over that without it (candidates that lie on it are gone
too). An axis gains where either is over 0.5 % in a cell of an irregular machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import dataclass
from itertools import pairwise, product
from statistics import geometric_mean, median

from msgspec.structs import replace
from report import publish

from tuccl.cli.output import columns
from tuccl.runtime import SimExecutor
from tuccl.sketches import Sketch
from tuccl.sketches.candidates import searched_sketches
from tuccl.sketches.parameters import SketchParameters, SketchSpace
from tuccl.synth import Collective
from tuccl.topology import Link, Topology, join, load_profile
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.joint_search import aligned_size
from tuccl.tuning.policy_training import NoStudy
from tuccl.tuning.programs import ProgramCache, sketches_by_name
from tuccl.tuning.searches.descent import DescentSearch
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.sketch_axes import ParameterAxes
from tuccl.tuning.searches.space import Dimension, Space
from tuccl.units import format_bytes

COLLECTIVES = ("allgather", "allreduce")
SIZES = (64 << 10, 4 << 20)
BUDGETS = (100, 400)
_GAIN = 0.005


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


@dataclass(frozen=True)
class Cell:
    """A call and what searches of it end with: times in us by space, seed and budget."""

    machine: str
    collective: str
    nbytes: int
    irregular: bool
    found: str
    us: dict[str, list[list[float]]]

    @property
    def row(self) -> list[object]:
        """The row of the table."""
        figures: list[object] = []
        for number, _ in enumerate(BUDGETS):
            stages, *others = (
                median(times[number] for times in self.us[name])
                for name in ("stages", "list", "parameters")
            )
            figures += [f"{stages:.1f}", *(f"{stages / us:.3f}" for us in others)]
        return [self.machine, self.collective, format_bytes(self.nbytes), *figures, self.found]

    def gains(self, space: str, number: int) -> list[float]:
        """The gains of all axes over a space with a budget, seed by seed."""
        pairs = zip(self.us[space], self.us["parameters"], strict=True)
        return [without[number] / whole[number] for without, whole in pairs]


def cell(topology: Topology, collective: str, size: int, irregular: bool, seeds: int) -> Cell:
    """Return the figures of a cell."""
    nbytes = aligned_size(size, topology.ranks)
    cache = ProgramCache(topology, Collective(collective, topology.ranks))
    executor = SimExecutor(topology)
    sketches, wider = searched_sketches(topology, collective, nbytes)
    assert wider is not None
    stages = tuple(sketch for sketch in sketches if "-inside-" not in sketch.name)
    sketch_of = sketches_by_name(sketches, wider)
    evaluate = Evaluator(executor, cache, sketch_of, nbytes, NoStudy())
    spaces = {"stages": (stages, None), "list": (sketches, None), "parameters": (sketches, wider)}
    for axis in wider.axes:
        spaces |= {axis: (sketches, wider), f"no {axis}": without_axis(sketches, wider, axis)}
    us: dict[str, list[list[float]]] = {}
    found = ""
    for name, (some, space_of) in spaces.items():
        for seed in range(seeds):
            space = cache.space(some, nbytes, wider=space_of)
            assert space is not None
            search = DescentSearch(without(space, name), seed=seed)
            times = us.setdefault(name, [])
            times.append([])
            for spent, budget in pairwise((0, *BUDGETS)):
                run_search(search, evaluate, budget - spent)
                times[-1].append(search.best_us)
            if name == "parameters" and search.best is not None:
                found = f"{search.best.choice.method} on {search.best.choice.sketch}"
    return Cell(topology.name, collective, nbytes, irregular, found, us)


def without(space: Space, axis: str) -> Space:
    """Return the space after no search moves along ``axis`` of its sketches any more.

    Sketches keep the value that they have on it; a name that is no axis changes nothing.
    """

    def others(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
        return tuple(dimension for dimension in dimensions if dimension.name != axis)

    space.dimensions = others(space.dimensions)
    if isinstance(space.sketch_axes, ParameterAxes):
        space.sketch_axes.dimensions = others(space.sketch_axes.dimensions)
    return space


def without_axis(
    sketches: Sequence[Sketch], wider: SketchSpace, axis: str
) -> tuple[tuple[Sketch, ...], SketchSpace]:
    """Return the candidates that have the default on ``axis``, and the space without it."""
    default = getattr(SketchParameters(), axis)
    rest = copy(wider)
    rest.axes = {name: values for name, values in wider.axes.items() if name != axis}
    kept = (s for s in sketches if getattr(SketchParameters.of(s.name), axis) == default)
    return tuple(kept), rest


def print_axes(cells: Sequence[Cell]) -> None:
    """Print the gain of moving along every axis and of having it, and the axes that never gain."""
    axes = list(dict.fromkeys(axis for c in cells for axis in c.us if f"no {axis}" in c.us))
    print("\ngain of moving along an axis; candidates keep their values on it\n")
    gaining = print_gains(cells, axes)
    print("\ngain of an axis and of the candidates that lie on it\n")
    gaining |= print_gains(cells, [f"no {axis}" for axis in axes])
    never = [axis for axis in axes if not gaining & {axis, f"no {axis}"}]
    print(f"\nnever gain on an irregular machine: {', '.join(never) or 'none'}")


def print_gains(cells: Sequence[Cell], spaces: Sequence[str]) -> set[str]:
    """Print the gain of all axes over each of ``spaces``, and return those that it is clear in."""
    rows, clear = [], set()
    for name in spaces:
        own = [c for c in cells if name in c.us]
        row: list[object] = [name.removeprefix("no "), len(own)]
        for number, _ in enumerate(BUDGETS):
            gains = {id(c): median(c.gains(name, number)) for c in own}
            best = max(own, key=lambda c: gains[id(c)])
            where = f"{best.machine} {best.collective} {format_bytes(best.nbytes)}"
            every = list(gains.values())
            row += [f"{geometric_mean(every):.4f}", f"{min(every):.3f}", f"{max(every):.3f}", where]
            if any(gains[id(c)] > 1 + _GAIN for c in own if c.irregular):
                clear.add(name)
        rows.append(row)
    head = ["axis", "cells"]
    for budget in BUDGETS:
        head += [f"mean ({budget})", "least", "most", "where"]
    print(columns(head, rows))
    return clear


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    chosen = list(machines())
    jobs = [
        (topology, collective, size, topology is not chosen[-1], args.seeds)
        for topology, collective, size in product(chosen, COLLECTIVES, SIZES)
        if args.only in topology.name
    ]
    with ProcessPoolExecutor(args.processes) as pool:
        cells = list(pool.map(cell, *zip(*jobs, strict=True)))
    header = ["machine", "collective", "size", "stages us (100)", "list", "parameters"]
    print("Simulated: time by the stages in us, and the gains over it; 100 and 400 evaluations.\n")
    header += ["stages us (400)", "list", "parameters", "found"]
    print(columns(header, [each.row for each in cells]))
    print_axes(cells)


if __name__ == "__main__":
    publish(main, "Simulated")
