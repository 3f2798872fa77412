"""Large clusters: a small part of the machine nominates what is tried on all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from tuccl.errors import InputError
from tuccl.sketches import Sketch
from tuccl.sketches.candidates import pruned_sketches
from tuccl.sketches.parameters import MOST_MESHED, SketchSpace, with_chunks
from tuccl.sketches.rails import RAILS, rails
from tuccl.synth import Collective, ScheduleChoice, find_method
from tuccl.synth.methods import searched_methods
from tuccl.topology import Topology, keep_gpus
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.searches.space import Point

_HOSTS = 4
_MOST_RANKS = 64  # that are searched as a whole by default
_UNIT = 16  # bytes for each rank of the least size: four elements
_STEP = 4  # from one size of the part to the next
_SHARE_S = 1 / 3  # of a time limit, for the part
_NEIGHBOURS = 4  # points of each of the two
# Of a budget, for every second size and for the rest: farther from those searched, more is new.
_FINE_SHARE, _LAST_SHARE = 0.6, 0.3
_MOST_FACTOR = 257  # between sizes that are searched first, a bit over as many
_FEWEST = 8  # evaluations of a task, where its budget has as many


@dataclass(frozen=True)
class Nomination:
    """The best points of a call on ``ranks`` ranks, of each method one, the fastest first.

    Of fewer ranks than the machine has they are a part's.
    """

    ranks: int
    collective: str
    nbytes: int
    points: tuple[Point, ...]


def small_part(topology: Topology, options: TuneOptions) -> tuple[Topology, TuneOptions] | None:
    """Return the part that nominates candidates for all of ``topology``, and its tune's options.

    None where the whole machine is searched: by default where it is small, or its hosts make no
    part. The part is the root's host and others that are far from it by number, since neighbours
    may share a switch. It has the kind of sketches that the whole machine has.

    Raises:
        InputError: the options name a part, and the hosts are too few or differ in their GPUs, or
            the sketches are given.
    """
    hosts = options.part
    if hosts is None:
        hosts = _HOSTS if topology.ranks > _MOST_RANKS else 0
    if not hosts:
        return None
    gpus = [topology.gpus_of(host) for host in topology.hosts]
    if why := _unfit(gpus, hosts, options):
        if options.part:
            raise InputError(f"part of {hosts} hosts: {why}")
        return None
    first = next(place for place, ranks in enumerate(gpus) if options.root in ranks)
    step = len(gpus) // hosts
    places = sorted((first + number * step) % len(gpus) for number in range(hosts))
    kept = [rank for place in places for rank in gpus[place]]
    part = keep_gpus(topology, kept)
    sketches: tuple[Sketch, ...] = ()
    if part.ranks <= MOST_MESHED < topology.ranks:  # a part of more has rails by itself
        space = SketchSpace(part, 1, on_rails=True)
        sketches = *pruned_sketches(space, "allgather", 1), with_chunks(rails(part), 1)
    seconds = options.seconds and options.seconds * _SHARE_S
    root = kept.index(options.root)
    return part, replace(options, part=0, root=root, sketches=sketches, seconds=seconds)


def _unfit(gpus: Sequence[Sequence[int]], hosts: int, options: TuneOptions) -> str:
    """Return why so many hosts, with ``gpus`` on each of all, are no part; empty: they are one."""
    if len(gpus) < 2 * hosts:
        return f"expected at most half of the cluster's {len(gpus)}"
    if len(set(map(len, gpus))) > 1:
        return "the hosts have different numbers of GPUs, so a part says little; leave it out"
    if options.sketches:
        return "the sketches given are for all ranks; leave one of the two out"
    return ""


def part_tasks(
    tasks: Sequence[tuple[str, int, int]], ranks: int, of_part: int
) -> list[tuple[str, int, int]]:
    """Return the tasks of a part of ``of_part`` ranks for ``tasks`` of a machine of ``ranks``.

    >>> part_tasks([("allgather", 1 << 20, 100)], 128, 16)
    [('allgather', 65536, 50), ('allgather', 262144, 50), ('allgather', 1048576, 50)]
    """
    sizes: dict[str, dict[int, int]] = {}
    for collective, nbytes, budget in tasks:
        of_collective = sizes.setdefault(collective, {})
        for size in _sizes_alike(nbytes, ranks, of_part):
            of_collective[size] = max(part_budget(budget), of_collective.get(size, 0))
    return [(name, size, of[size]) for name, of in sizes.items() for size in sorted(of)]


def levels(tasks: Sequence[tuple[str, int, int]]) -> list[list[tuple[str, int, int]]]:
    """Return the tasks in parts: each nominates what is tried at the sizes of the next.

    Of a collective's sizes every eighth, then every fourth and the last, every second, the rest.
    Where eight take more than a factor of 256, every fourth is first; so is a last one that is
    farther than that from one that is.

    >>> tasks = [("allgather", 1 << power, 100) for power in range(10, 21)]
    >>> [[nbytes >> 10 for _, nbytes, _ in level] for level in levels(tasks)]
    [[1, 256], [16, 1024], [4, 64], [2, 8, 32, 128, 512]]
    """
    parts: list[list[tuple[str, int, int]]] = [[], [], [], []]
    for name in dict.fromkeys(name for name, _, _ in tasks):
        of = [task for task in tasks if task[0] == name]
        sizes = [nbytes for _, nbytes, _ in of]
        last = len(of) - 1
        step = 8 if (sizes[-1] / sizes[0]) ** (8 / max(last, 1)) < _MOST_FACTOR else 4
        for place, task in enumerate(of):
            level = 4 - (place % step & -(place % step)).bit_length() if place % step else 0
            if place == last and level:
                level = int(sizes[place] < _MOST_FACTOR * sizes[place // step * step])
            parts[level].append(task)
    return [part for part in parts if part]


def fine_budget(budget: int, *, last: bool) -> int:
    """Return the evaluations of a task of `levels` after the first, of ``budget``.

    >>> fine_budget(100, last=False), fine_budget(100, last=True), fine_budget(10, last=True)
    (60, 30, 8)
    """
    return min(budget, max(int(budget * (_LAST_SHARE if last else _FINE_SHARE)), _FEWEST))


def least_budget(budget: int) -> int:
    """Return the evaluations of a size that is searched again, from what its neighbours found."""
    return min(budget, _FEWEST)


def part_budget(budget: int, ranks: int = 0) -> int:
    """Return the evaluations of a task on a part, or on the whole of ``ranks``, of ``budget``.

    Half of them on the part. On more than 128 ranks fewer, for each takes longer.

    >>> [part_budget(100, ranks) for ranks in (0, 128, 512, 1024)]
    [50, 100, 25, 12]
    """
    share = min(MOST_MESHED / ranks, 1.0) if ranks else 0.5
    return min(budget, max(int(budget * share), _FEWEST))


def _sizes_alike(nbytes: int, ranks: int, of_part: int) -> list[int]:
    """Return the sizes on a part that a call of ``nbytes`` on the whole machine may be like.

    Those that have as many bytes for each rank, as many in all, and some between; of one grid.
    """
    unit = of_part * _UNIT
    least, most = (
        max(round(math.log(size / unit, _STEP)), 0) for size in (nbytes * of_part / ranks, nbytes)
    )
    return [unit * _STEP**power for power in range(least, most + 1)]


def nominated_points(
    nominations: Sequence[Nomination],
    collective: Collective,
    nbytes: int,
    sketches: Sequence[Sketch],
) -> list[Point]:
    """Return the points that are worth a try for a call on the whole machine, the best first.

    They are those of sizes on a part that it may be like, a point of each method before others:
    what is slow on few hosts may win on many, and those that few ranks are not tried with, on the
    last sketch by the knobs of the best. Or of this size and the two next to it, on the whole
    machine. Where that has no sketch of a point's name, the point is for one of the same kind (as
    ``mesh-congestion-3``), else for the last.
    """
    own = [each for each in nominations if each.collective == collective.name]
    whole = [each for each in own if each.ranks == collective.ranks]
    same = [each for each in whole if each.nbytes == nbytes]
    below = [each for each in whole if each.nbytes < nbytes]
    above = [each for each in whole if each.nbytes > nbytes]
    alike = [
        each
        for each in own
        if each.ranks < collective.ranks
        and each.nbytes in _sizes_alike(nbytes, collective.ranks, each.ranks)
    ]
    beside = [each.points[:_NEIGHBOURS] for each in [*same, *below[-1:], *above[:1]]]
    points = zip_longest(*beside, *(each.points for each in alike))
    names = [sketch.name for sketch in sketches]
    found = dict.fromkeys(
        replace(point, choice=replace(point.choice, sketch=name))
        for point in chain.from_iterable(points)
        if point is not None
        for name in _alike(point.choice.sketch, names)
    )
    if not alike or not found:
        return list(found)
    best, part = next(iter(found)), min(each.ranks for each in alike)
    larger = [
        replace(best, choice=ScheduleChoice(names[-1], method.name, 1))
        for method in map(find_method, searched_methods())
        if part < method.least_ranks and method.suits(collective)
    ]
    firsts: dict[str, Point] = {}
    for point in found:
        firsts.setdefault(point.choice.method, point)
    return list(dict.fromkeys([*larger, *firsts.values(), *found]))


def _alike(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """The sketches that a point of ``name`` is tried on: pruned rails, and rails themselves."""
    kind = name.rstrip("-0123456789")
    of_kind = (other for other in names if other.rstrip("-0123456789") == kind)
    found = name if name in names else next(of_kind, names[-1])
    return (found, names[-1]) if names[-1] == RAILS else (found,)
