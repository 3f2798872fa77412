"""Every method's programs on machines of 2 to 16 ranks, and the ways in which to run them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from reference_fabrics import cube_mesh, host_line, ndv2_pair, random_fabric, torus
from tests.safety import safe_bytes
from tuccl.errors import Infeasible
from tuccl.execution import Call
from tuccl.planners import chunk_counts
from tuccl.program import Knobs, Program, element_bytes
from tuccl.runtime.executors.executor import MSCCL_LOOP, StepLoop
from tuccl.sketches import Sketch, candidate_sketches, full_mesh
from tuccl.synth import (
    METHODS,
    Collective,
    Problem,
    find_method,
    lower,
    make_schedule,
    msccl_default,
    searched_methods,
)
from tuccl.synth.baseline.nccl import nccl_program
from tuccl.topology import Topology, join, keep_gpus, load_profile

DATATYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("half", "float", "double", "bfloat16"),
)
OPS = ("sum", "prod", "min", "max", "avg")
# NCCL's own rings, trees and sends are programs too, with passes and credit of their own.
NCCL = {
    "nccl-ring": ("allgather", "allreduce", "broadcast", "reduce", "reduce-scatter"),
    "nccl-tree": ("allreduce",),
    "nccl-p2p": ("alltoall", "gather", "scatter"),
}
DEFAULTS = {"msccl-default": tuple(sorted(METHODS["allpairs"].collectives))}
PAIRS = tuple(
    (method, name)
    for method, names in (
        *((m, tuple(sorted(find_method(m).collectives))) for m in searched_methods(unordered=True)),
        *DEFAULTS.items(),
        *NCCL.items(),
    )
    for name in names
)
_MADE_FOR = 1 << 20  # bytes


def _cluster(profile: str, hosts: tuple[int, ...], fabric: str = "single") -> Topology:
    """Return hosts with so many GPUs each of a known machine."""
    one = keep_gpus(load_profile(profile), range(max(hosts)))
    if len(hosts) == 1:
        return one
    whole = join(one, len(hosts), fabric, up_gbs=10.0 if fabric == "clos" else None)
    return keep_gpus(
        whole, [host * max(hosts) + n for host, count in enumerate(hosts) for n in range(count)]
    )


# Of 2 to 16 ranks: alone, even and uneven hosts, hosts of one, tori, meshes without a switch,
# a line of hosts, switches between hosts.
FEW_SHAPES = (
    *("ndv4 2", "dgx-1v 5", "ndv4 1+1", "ndv4 2+1", "v100x4 2+2", "ndv4 1+1+1+1", "ndv2 4+3"),
    *("dgx-1v 3+3 rail", "torus 3x3", "cube-mesh", "random 3", "ndv5 4+4+2 clos", "ndv4 2+2+2+2"),
)
SOLVED_SHAPES = ("ndv4 2", "ndv4 2+1", "v100x4 2+2", "dgx-1v 5")  # by a solver
ALL_SHAPES = (
    *dict.fromkeys(
        (
            *FEW_SHAPES,
            *("ndv4 8+4", "dgx-2 9+4", "torus 3x5", "dgx-h100 7+7"),
            *(f"ndv4 {n}" for n in range(2, 9)),
            *(f"dgx-2 {n}" for n in range(9, 17)),
            *(f"dgx-1v {n}" for n in range(2, 9)),
            *(f"ndv2 {n}+{n}" for n in range(1, 9)),
            *(f"ndv4 {n}+{n - 1}" for n in range(2, 9)),
            *("ndv5 2+2+2 rail", "dgx-h100 4+4+4+4 clos", "ndv4 5+5+5", "ndv4 1+1+1+1+1 rail"),
            *("ndv4 8+1", "ndv4 8+2", "ndv2 8+5", "v100x4 4+4+4+2", "ndv4 6+4+2", "ndv4 3+1+2"),
            *("torus 3x4", "torus 4x4", "host-line", "ndv2-pair"),
            *(f"random {seed}" for seed in range(8)),
        )
    ),
)


@cache
def topology(shape: str) -> Topology:
    kind, _, rest = shape.partition(" ")
    fabrics: dict[str, Callable[[], Topology]] = {
        "torus": lambda: torus(*map(int, rest.split("x"))),
        "random": lambda: random_fabric(random.Random(int(rest))),
        "cube-mesh": cube_mesh,
        "host-line": host_line,
        "ndv2-pair": ndv2_pair,
    }
    if kind in fabrics:
        return fabrics[kind]()
    hosts, _, fabric = rest.partition(" ")
    return _cluster(kind, tuple(int(n) for n in hosts.split("+")), fabric or "single")


@cache
def sketches(shape: str, name: str) -> tuple[Sketch, ...]:
    """Return the candidate sketches, the full mesh first."""
    t = topology(shape)
    return (full_mesh(t), *candidate_sketches(t, name, _MADE_FOR))


@dataclass(frozen=True)
class Recipe:
    """How a program is made: `sketch` counts from the full mesh, the last ones fall together."""

    method: str
    name: str
    shape: str
    sketch: int = 0
    parts: int = 1
    instances: int = 1
    protocol: str = "Simple"
    place: str = "last"  # of the root

    @property
    def collective(self) -> Collective:
        ranks = topology(self.shape).ranks
        root = {"first": 0, "middle": ranks // 2, "last": ranks - 1}[self.place]
        return Collective(self.name, ranks, root)


@cache
def program(recipe: Recipe) -> Program | None:
    """Return the program; None where the method cannot make it."""
    t, call = topology(recipe.shape), recipe.collective
    try:
        if recipe.method in NCCL:
            if "nic" not in {node.kind for node in t.nodes} and len(t.hosts) > 1:
                return None  # NCCL's rings go from host to host by NICs
            kind = recipe.method.removeprefix("nccl-")
            return nccl_program(t, call, kind, recipe.instances, recipe.protocol)
        if recipe.method in DEFAULTS:
            form: Any = "faithful" if recipe.sketch % 2 else "robust"
            schedule = msccl_default(t, call, form)
        else:
            able = sketches(recipe.shape, recipe.name)
            schedule = make_schedule(
                Problem(call, able[min(recipe.sketch, len(able) - 1)], recipe.parts, _MADE_FOR, t),
                recipe.method,
            )
        return lower(schedule, protocol=recipe.protocol, instances=recipe.instances)
    except Infeasible:
        return None


@dataclass(frozen=True)
class Way:
    """How a program is run."""

    protocol: str
    buffer_bytes: int
    count: str
    datatype: str
    op: str
    delay_us: int

    def nbytes(self, program: Program) -> int:
        """Return the size: one byte, primes, one element more than all chunks, several passes."""
        width = element_bytes(self.datatype)
        return {
            "byte": 1,
            "prime": 1009,
            "rest": (program.nchunks * 3 + 1) * width,
            "large prime": 65537 * width,
            "huge": 33_554_467,
        }[self.count]


COUNTS = ("byte", "prime", "rest", "large prime")
# What a machine needs not meet in a few runs: it shapes the program, these the run.
LOOSE = tuple(
    frozenset(("shape", name))
    for name in ("count", "buffer_bytes", "datatype", "op", "delay_us", "in_place")
)


def factors(names: Sequence[str], shapes: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return the values of all that a run of a method's program can vary in."""
    return {
        "name": names,
        "shape": shapes,
        "sketch": (0, 1, 2),
        "parts": (1, 2, 3),
        "instances": (1, 2),
        "place": ("first", "middle", "last"),
        "protocol": ("Simple", "LL", "LL128"),
        "buffer_bytes": (1 << 12, 1 << 16, 1 << 22),
        "count": COUNTS,
        "datatype": DATATYPES,
        "op": OPS,
        "delay_us": (0, 200),
        "in_place": (False, True),
    }


@dataclass(frozen=True)
class Trial:
    """A program and one way to run it."""

    recipe: Recipe
    program: Program
    way: Way
    call: Call


def trials(covered: Any, method: str, every: int = 1) -> Iterator[Trial]:  # noqa: ANN401
    """Yield what `covered` chooses of `factors`, as far as `method` can do it: one of `every`."""
    following = 0
    for seed, choice in enumerate(covered):
        if seed < following:
            continue
        way = Way(*(choice[field.name] for field in fields(Way)))
        shaped = {f.name: choice[f.name] for f in fields(Recipe) if f.name != "method"}
        recipe = Recipe(method, **shaped)
        if program(recipe) is None:  # by those options, or not at all
            recipe = replace(recipe, sketch=0, parts=1, instances=1)
        made = program(recipe)
        if made is None:
            covered.refuse(choice, "name", "shape")
            continue
        way = safe_way(recipe, made, way)
        able = placements(made)
        following = seed + every
        in_place = choice["in_place"] if choice["in_place"] in able else able[0]
        yield Trial(recipe, made, way, call_of(recipe, made, way, in_place, seed))


def safe_way(recipe: Recipe, made: Program, way: Way) -> Way:
    """Return `way`, with the usual buffer and one byte by the program's protocol if unsafe."""
    if recipe.method in NCCL:
        return way
    knobs, width = Knobs(way.protocol, buffer_bytes=way.buffer_bytes), element_bytes(way.datatype)
    padded = -(-way.nbytes(made) // (made.nchunks * width)) * made.nchunks * width
    if padded <= safe_bytes(made, knobs, recipe.collective.root):
        return way
    return replace(way, protocol=recipe.protocol, buffer_bytes=1 << 22, count="byte")


def placements(made: Program) -> tuple[bool, ...]:
    """Return whether in place, for each way that the program claims."""
    return (False,) * made.out_of_place + (True,) * made.in_place


def call_of(recipe: Recipe, made: Program, way: Way, in_place: bool, seed: int) -> Call:
    """Return a call that runs and checks the program once."""
    # A tree's passes are as small as keeps all hops busy; sends and trees take a slot a transfer.
    loop = StepLoop(1 << 12, 1) if recipe.method in ("nccl-tree", "nccl-p2p") else MSCCL_LOOP
    return Call(
        *(made, Knobs(way.protocol, buffer_bytes=way.buffer_bytes), way.nbytes(made)),
        datatype=way.datatype,
        op=way.op,
        root=recipe.collective.root,
        in_place=in_place,
        checked=1,
        seed=seed,
        delay_us=way.delay_us,
        pass_bytes=loop.pass_bytes,
        transfer_slots=loop.transfer_slots,
    )


def input_counts(recipe: Recipe, made: Program, way: Way) -> list[int]:
    """Return the elements of each rank's send buffer, padding included."""
    width = element_bytes(way.datatype)
    elements = -(-way.nbytes(made) // width)
    chunk = -(-elements // made.nchunks)
    call = recipe.collective
    return [
        chunk * chunk_counts(call.name, made.nchunks, call.ranks, rank, call.root)[0]
        for rank in range(call.ranks)
    ]
