"""A sketch as a point: the parameters of its pruning stages, and the sketches that they name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.binding import bind
from tuccl.sketches.checks import checked
from tuccl.sketches.congestion import prune_congested, with_congestion
from tuccl.sketches.full_mesh import nvlink_pairs, unmarked_mesh
from tuccl.sketches.grouping import Grouping, group
from tuccl.sketches.rails import rails
from tuccl.sketches.size import (
    NVLINK_FIRST_BYTES,
    PACKET_BYTES,
    aligned_chunks,
    for_size,
    prefer_links,
)
from tuccl.sketches.sketch import Sketch
from tuccl.sketches.symmetry import symmetries
from tuccl.sketches.transformation import transform
from tuccl.topology.graph import Topology

MOST_MESHED = 128
"""Ranks above which the full mesh has more links than can be looked at."""
_CROWDS = (8, 4, 2, 1)  # links to each other host that leave by one NIC; inside: by one GPU
_NUMBER = r"\d{1,6}(?:\.\d{1,3})?"


@dataclass(frozen=True)
class SketchParameters:
    """Parameters of the stages that prune the full mesh.

    The name says all of it: what the links between hosts join, then every other field that has not
    its default. ``one`` is a connection for each pair of NICs, ``paired`` one for each GPU,
    ``split`` a connection to another GPU than sends back.

    >>> SketchParameters.of("pairs-2-free-congestion-3-nvlink").connections
    2
    >>> SketchParameters(bound=True, congestion=1.0).name
    'paired-congestion-1'

    Attributes:
        bound: Links between hosts join NICs of one group (stages 1 to 3); else all GPUs.
        connections: GPUs of each NIC that take part; 0: all. Of `bound` sketches.
        split: The GPU that receives for a NIC is another than sends. Of few `connections`.
        free: Any sender may carry any chunk out of its host; else a relay carries those of the
            GPUs bound to its NIC. Of few `connections`.
        own: A relay sends its own chunks first, which a solver alone heeds. Where one carries.
        congestion: The score that links between hosts may have, on one host those inside it.
        inside: The score that links inside hosts may have, where there are several.
        nvlink: Inside hosts NVLink alone, where that joins their GPUs.
        few: Of schedules as short, a solver takes one with few connections inside hosts. Behind
            switches, as all of TACCL's switch strategies.
        many: It takes one with many.
        symmetry: Rotations that a solver's schedules keep; None: all that the sketch has.
    """

    bound: bool = False
    connections: int = 0
    split: bool = False
    free: bool = False
    own: bool = False
    congestion: float | None = None
    inside: float | None = None
    nvlink: bool = False
    few: bool = False
    many: bool = False
    symmetry: int | None = None

    @property
    def name(self) -> str:
        """Return the name, from which `of` makes the same parameters."""
        base = "full-mesh" if self == SketchParameters() else "mesh"
        if self.bound:
            base = {0: "paired", 1: "one"}.get(self.connections, f"pairs-{self.connections}")
        for each in fields(self)[2:]:
            value = getattr(self, each.name)
            if value is True:
                base = "split" if (base, each.name) == ("one", "split") else f"{base}-{each.name}"
            elif value != each.default:
                base += f"-{each.name}-{value:g}"
        return base

    @classmethod
    def of(cls, name: str) -> SketchParameters:
        """Return the parameters that ``name`` stands for.

        Raises:
            InputError: no parameters have that name.
        """
        suffixes = "".join(
            f"(?P<{each.name}>-{each.name})?"
            if each.default is False
            else f"(?:-{each.name}-(?P<{each.name}>{_NUMBER}))?"
            for each in fields(cls)[2:]
        )
        base = r"(full-mesh|mesh|paired|one|split|pairs-(\d{1,4}))"
        match = re.fullmatch(base + suffixes, name)
        if match is not None:
            base, pairs = match[1], match[2]
            given: dict[str, Any] = {
                each: value[0] == "-" or (int(value) if value.isdecimal() else float(value))
                for each, value in match.groupdict().items()
                if value is not None
            }
            given |= {"split": True} if base == "split" else {}
            found = cls("mesh" not in base, int(pairs or base in ("one", "split")), **given)
            if found.name == name:
                return found
        raise InputError(
            f"sketch {name[:60]!r}: expected a name like one, paired, pairs-2-free or "
            "mesh-congestion-3-nvlink"
        )


class _PrunedMeshes:
    """The mesh of a topology and what stages leave of it, each made once for calls of any size.

    Attributes:
        notes: Why there are no `bound` sketches, if there are none.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.notes: tuple[str, ...] = ()
        self._pruned: dict[SketchParameters, Sketch] = {}
        self._sketches: dict[tuple[SketchParameters, int], Sketch] = {}
        self.mesh = prefer_links(self._mesh(), nvlink_pairs(topology), NVLINK_FIRST_BYTES)

    def _mesh(self) -> Sketch:
        return with_congestion(unmarked_mesh(self.topology), self.topology)

    @cached_property
    def irregular(self) -> bool:
        """Return whether GPUs or NICs differ in their links, or GPUs share all of theirs."""
        joined = defaultdict(list)
        for link in self.topology.links:
            for src, _ in link.directions():
                joined[src].append((link.kind, link.bandwidth))
        shapes = {
            (node.kind, *sorted(joined[node.id]))
            for node in self.topology.nodes
            if node.kind in ("gpu", "nic")
        }
        kinds = {kind for kind, *_ in shapes}
        return len(shapes) > len(kinds) or not nvlink_pairs(self.topology)

    @cached_property
    def nvlink_mesh(self) -> Sketch:
        """Return the mesh with NVLink alone inside hosts, where that joins their GPUs."""
        preferred = for_size(self.mesh, NVLINK_FIRST_BYTES)
        return self.mesh if preferred is self.mesh else with_congestion(preferred, self.topology)

    @cached_property
    def binding(self) -> tuple[dict[int, str], Grouping] | None:
        """Return each GPU's NIC and the groups of NICs; None: there are none."""
        if self.mesh.nhosts < 2:
            return None
        try:
            bindings = bind(self.topology)
            if not self._has_pairs(bindings):
                return None
            return bindings, group(self.topology, bindings)
        except InputError as error:
            # Hosts may be joined by other means than NICs; then only the mesh itself can be pruned.
            self.notes = (f"no NIC groups: {error}",)
            return None

    def _has_pairs(self, bindings: dict[int, str]) -> bool:
        """Return whether links that join NICs of one group may be fewer than those of the mesh."""
        return True

    def sketch(self, parameters: SketchParameters, nbytes: int) -> Sketch:
        """Return the sketch for calls of ``nbytes`` bytes; sizes of as many chunks share it."""
        key = parameters, _chunks(self.mesh, nbytes)
        if key not in self._sketches:
            made = with_congestion(self.pruned(parameters), self.topology)
            made = with_chunks(made, nbytes)
            made = replace(made, symmetry=made.symmetry[: parameters.symmetry])
            if parameters.few or parameters.many:
                strategy = "uc-min" if parameters.few else "uc-max"
                made = replace(made, switch_strategy=(strategy,) * len(made.switches))
            self._sketches[key] = checked(made)
        return self._sketches[key]

    def pruned(self, parameters: SketchParameters) -> Sketch:
        """Return what the stages leave of the mesh, with the name of ``parameters``."""
        if parameters not in self._pruned:
            name = self.mesh.name if parameters == SketchParameters() else parameters.name
            self._pruned[parameters] = replace(self._prune(parameters), name=name)
        return self._pruned[parameters]

    def _prune(self, parameters: SketchParameters) -> Sketch:
        sketch = self.nvlink_mesh if parameters.nvlink else self.mesh
        if self.notes:
            sketch = replace(sketch, notes=self.notes)
        if parameters.bound:
            sketch = self._bound(sketch, parameters)
        if parameters.congestion is not None:
            inter = sketch.nhosts > 1
            sketch = prune_congested(sketch, self.topology, parameters.congestion, inter=inter)
        if parameters.inside is not None:
            sketch = prune_congested(sketch, self.topology, parameters.inside, inter=False)
        return sketch

    def _bound(self, mesh: Sketch, parameters: SketchParameters) -> Sketch:
        if self.binding is None:
            raise InputError(
                f"sketch {parameters.name!r}: topology {self.topology.name[:60]!r} has no NICs to "
                "bind GPUs to; take a mesh"
            )
        bindings, grouping = self.binding
        sketch = transform(
            self.topology,
            bindings,
            grouping,
            connections=parameters.connections or None,
            split=parameters.split,
            mesh=mesh,
        )
        sketch = replace(sketch, own_chunks_first=parameters.own)
        return replace(sketch, relays={}) if parameters.free else sketch


class _PrunedRails(_PrunedMeshes):
    """The same with `rails` for a mesh: links between hosts join equal places alone."""

    def _mesh(self) -> Sketch:
        return rails(self.topology)

    def _has_pairs(self, bindings: dict[int, str]) -> bool:
        return len(set(bindings.values())) < len(bindings)


class SketchSpace:
    """The sketches of a topology for calls of a size, each made at its first use.

    Of more than 128 ranks, and with ``on_rails``, their mesh is `rails`.

    Attributes:
        axes: By parameter, the values worth a try on this machine, from more links to fewer or the
            reverse. A parameter with one value is left out.
    """

    def __init__(
        self, topology: Topology, nbytes: int, solver: bool = False, *, on_rails: bool = False
    ) -> None:
        """Find out what the machine leaves to choose, for arrays of ``nbytes`` bytes.

        With ``solver`` also in what TACCL's solver alone heeds.

        Raises:
            InputError: the mesh is `rails`, and there are none.
        """
        self.nbytes = nbytes
        on_rails |= topology.ranks > MOST_MESHED
        self._meshes = topology.derived(_PrunedRails if on_rails else _PrunedMeshes)
        axes = self._axes(solver)
        self.axes = {name: values for name, values in axes.items() if len(values) > 1}

    @property
    def mesh(self) -> Sketch:
        """Return the full mesh, or `rails`, of any size."""
        return self._meshes.mesh

    @property
    def irregular(self) -> bool:
        """Return whether GPUs or NICs differ in their links, or GPUs share all of theirs."""
        return self._meshes.irregular

    def _axes(self, solver: bool) -> dict[str, tuple[Any, ...]]:
        several = self.mesh.nhosts > 1
        most = 1
        if self._meshes.binding is not None:
            bound_to = list(self._meshes.binding[0].values())
            most = max(map(bound_to.count, set(bound_to)))
        counts = [1 << power for power in range(most.bit_length()) if 1 << power < most]
        return {
            "bound": (False, True) if self._meshes.binding is not None else (False,),
            "connections": (*counts, 0),
            "split": (False, True) if most > 1 else (False,),
            "free": (False, True) if most > 1 else (False,),
            "own": (False, True) if solver and most > 1 else (False,),
            "congestion": (None, *self._scores(several)),
            "inside": (None, *self._scores(inter=False)) if several else (None,),
            "nvlink": (False, True) if self._meshes.nvlink_mesh is not self.mesh else (False,),
            "few": (False, True) if solver and self.mesh.switches else (False,),
            "many": (False, True) if solver and self.mesh.switches else (False,),
            "symmetry": (None, *range(len(symmetries(self.mesh)) if solver else 0)),
        }

    def _scores(self, inter: bool) -> Iterator[float]:
        """Yield the scores that some link of the mesh is above."""
        if not inter and self.mesh.switches:
            return  # behind a switch a GPU's links share nothing but its own port
        worst = max((link.congestion for link in self.mesh.links if link.inter == inter), default=0)
        exits = self._exits if inter else 1
        yield from (score for links in _CROWDS if worst > (score := links * exits - 1.0))

    @property
    def _exits(self) -> int:
        return max(1, self.mesh.nhosts - 1)

    def links_per_exit(self, score: float) -> float:
        """Return how many links to each other host leave by a NIC at a congestion ``score``.

        On one host: how many leave a GPU.
        """
        return (score + 1.0) / self._exits

    def normal(self, parameters: SketchParameters) -> SketchParameters:
        """Return the parameters without those that say nothing beside the others."""
        values = {each.name: getattr(parameters, each.name) for each in fields(parameters)}
        for each in fields(parameters):
            if each.name not in self.axes:
                values[each.name] = each.default
        if not values["bound"]:
            values["connections"] = 0
        if not values["connections"]:
            values |= {"split": False, "free": False}
        values["own"] &= bool(values["connections"]) and not values["free"]
        values["many"] &= not values["few"]
        return SketchParameters(**values)

    def __contains__(self, name: object) -> bool:
        """Return whether ``name`` stands for parameters that are worth a try here."""
        try:
            parameters = self._parameters(str(name))
        except InputError:
            return False
        return self.normal(parameters) == parameters and all(
            getattr(parameters, axis) in values for axis, values in self.axes.items()
        )

    def sketch(self, name: str) -> Sketch:
        """Return the sketch of a name; it carries congestion scores and symmetries.

        Raises:
            InputError: the name has no parameters, or not here.
        """
        return self._meshes.sketch(self._parameters(name), self.nbytes)

    def _parameters(self, name: str) -> SketchParameters:
        if name == self.mesh.name:
            return SketchParameters()
        parameters = SketchParameters.of(name)
        if parameters == SketchParameters():
            raise InputError(
                f"sketch {name}: {self.mesh.ranks} ranks have more links than can be looked at; "
                f"take {self.mesh.name}"
            )
        return parameters

    def pruned(self, parameters: SketchParameters) -> Sketch:
        """Return what the stages leave of the mesh, with the name of ``parameters``."""
        return self._meshes.pruned(parameters)


def with_chunks(sketch: Sketch, nbytes: int, *, symmetry_known: bool = False) -> Sketch:
    """Return `sketch` with its symmetries, and with the chunks that suit `nbytes`."""
    return replace(
        sketch,
        symmetry=sketch.symmetry if symmetry_known else symmetries(sketch),
        chunks_per_rank=_chunks(sketch, nbytes),
        align_bytes=PACKET_BYTES,
    )


def _chunks(sketch: Sketch, nbytes: int) -> int:
    """Return the chunks of each rank that suit `nbytes`."""
    chunks = 2 if nbytes >= NVLINK_FIRST_BYTES else 1
    return aligned_chunks(max(1, nbytes // sketch.ranks), chunks, PACKET_BYTES)
