"""Process groups: the communicators that a job makes of its ranks, by kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import product
from math import prod

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded, write_file

FORMAT = "tuccl-groups/1"
MEGATRON_ORDER = "tp-cp-ep-dp-pp"
_MOST_BYTES = 1 << 26
_MOST_RANKS = 1 << 16
_AXIS = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,39})=([1-9][0-9]{0,5})")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")  # the name of a folder and of a word
_MEGATRON_AXES = (*MEGATRON_ORDER.split("-"), "etp")
# Kinds by name: the axes that a group of theirs spans, and Megatron's name.
_DENSE = {
    "tp": (("tp",), "TENSOR_MODEL_PARALLEL_GROUP"),
    "cp": (("cp",), "CONTEXT_PARALLEL_GROUP"),
    "dp": (("dp",), "DATA_PARALLEL_GROUP"),
    "dp-cp": (("dp", "cp"), "DATA_PARALLEL_GROUP_WITH_CP"),
    "pp": (("pp",), "PIPELINE_MODEL_PARALLEL_GROUP"),
}
_EXPERT = {
    "ep": (("ep",), "EXPERT_MODEL_PARALLEL_GROUP"),
    "etp": (("tp",), "EXPERT_TENSOR_PARALLEL_GROUP"),
    "edp": (("dp",), "EXPERT_DATA_PARALLEL_GROUP"),
}

MEGATRON_KINDS = {**_DENSE, **_EXPERT}
"""Kinds by name: the axes that a group spans, and Megatron's description."""

Groups = tuple[tuple[int, ...], ...]


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Groups of one kind, such as tensor parallel ones: disjoint, the ranks of each in order.

    Attributes:
        name: "tp", "dp" and so on, or the name of a mesh's dimension.
        groups: Ranks of each group, in the order of the communicator.
        desc: The framework's name.
    """

    name: str
    groups: Groups
    desc: str = ""


class ProcessGroups(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT
):
    """The groups of a job of ``ranks`` ranks, by kind. Kinds overlap, groups of a kind do not."""

    ranks: int
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        """Refuse ranks that there are not, groups of a kind that overlap, a name used twice."""
        if not 1 <= self.ranks <= _MOST_RANKS:
            raise ValueError(f"{self.ranks} ranks: expected 1 to {_MOST_RANKS}")
        names = [kind.name for kind in self.kinds]
        if len(set(names)) != len(names):
            raise ValueError("a kind is there twice")
        for name in names:
            if not _KIND.fullmatch(name):
                raise ValueError(
                    f"kind {name[:40]!r}: expected a letter, then letters, digits, _ and -"
                )
        for kind in self.kinds:
            members = [rank for group in kind.groups for rank in group]
            if not all(kind.groups) or len(set(members)) != len(members):
                raise ValueError(f"kind {kind.name[:40]!r}: an empty group, or a rank twice")
            if not all(0 <= rank < self.ranks for rank in members):
                raise ValueError(f"kind {kind.name[:40]!r}: expected ranks 0 to {self.ranks - 1}")

    def kind(self, name: str) -> Kind:
        """Return the kind called ``name``.

        Raises:
            InputError: there is none.
        """
        found = next((kind for kind in self.kinds if kind.name == name), None)
        if found is None:
            known = ", ".join(kind.name for kind in self.kinds) or "none"
            raise InputError(f"no groups {name[:40]!r}: this job has {known}")
        return found


def megatron_groups(layout: str, ranks: int, order: str = MEGATRON_ORDER) -> ProcessGroups:
    """Return the groups that Megatron-LM makes for a layout like "tp=8,pp=2".

    Args:
        layout: Sizes by axis: tp, cp, dp, pp, and of the experts ep and etp. Missing ones are 1,
            dp follows from the ranks, etp is tp.
        ranks: Of the whole job.
        order: Axes, the first varies fastest.

    >>> megatron_groups("tp=2,dp=2", 4).kind("dp").groups
    ((0, 2), (1, 3))

    Raises:
        InputError: an axis is not known, or the sizes do not make the ranks.

    Notes:
        megatron/core/parallel_state.py, ``RankGenerator``: dense layers lie on a grid without ep,
        experts on one without cp; both have the same pipeline groups.
    """
    sizes = _axes(layout, "--layout", _MEGATRON_AXES)
    axes = order.split("-")
    if sorted(axes) != sorted(MEGATRON_ORDER.split("-")):
        raise InputError(f"--order {order[:60]!r}: expected each of {MEGATRON_ORDER} once")
    tp, cp, ep, pp = (sizes.get(name, 1) for name in ("tp", "cp", "ep", "pp"))
    dense = {"tp": tp, "cp": cp, "ep": 1, "dp": _left(ranks, tp * cp * pp, layout), "pp": pp}
    if sizes.get("dp", dense["dp"]) != dense["dp"]:
        raise InputError(
            f"--layout {layout[:60]!r}: tp, cp, dp and pp make {tp * cp * pp * sizes['dp']} ranks; "
            f"the machine has {ranks}"
        )
    if "etp" in sizes and ep == 1:
        raise InputError(f"--layout {layout[:60]!r}: etp is of experts; add ep")
    found = _kinds(_DENSE, {axis: dense[axis] for axis in axes}, with_cp=cp > 1)
    if ep > 1:
        etp = sizes.get("etp", tp)
        expert = {"tp": etp, "cp": 1, "ep": ep, "dp": _left(ranks, etp * ep * pp, layout), "pp": pp}
        shape = {axis: expert[axis] for axis in axes}
        if spanning_groups(shape, ("pp",)) != spanning_groups(
            {axis: dense[axis] for axis in axes}, ("pp",)
        ):
            raise InputError(
                f"--layout {layout[:60]!r}, --order {order}: pipeline groups of dense layers and "
                "of experts differ; Megatron wants pp last"
            )
        found += _kinds(_EXPERT, shape)
    return ProcessGroups(ranks, tuple(found))


def mesh_groups(mesh: str, ranks: int) -> ProcessGroups:
    """Return the groups of PyTorch's DeviceMesh for "dp=2,tp=4", whose last dimension is fastest.

    >>> mesh_groups("dp=2,tp=2", 4).kind("tp").groups
    ((0, 1), (2, 3))

    Raises:
        InputError: it is no mesh, or has not as many ranks.
    """
    shape = dict(reversed(_axes(mesh, "--mesh").items()))
    if prod(shape.values()) != ranks:
        raise InputError(
            f"--mesh {mesh[:60]!r}: {prod(shape.values())} ranks; the machine has {ranks}"
        )
    kinds = (
        Kind(name, spanning_groups(shape, (name,)), f"mesh_{name}") for name in reversed(shape)
    )
    return ProcessGroups(ranks, tuple(kind for kind in kinds if len(kind.groups[0]) > 1))


def spanning_groups(shape: Mapping[str, int], axes: Iterable[str]) -> Groups:
    """Return the groups of ranks of a grid that span ``axes``, in the order of their ranks.

    ``shape`` has the size of each axis; the first varies fastest.

    >>> spanning_groups({"tp": 2, "dp": 3}, ("dp",))
    ((0, 2, 4), (1, 3, 5))
    """
    inner, outer = list[range](), list[range]()
    stride, chosen = 1, set(axes)
    for axis, size in shape.items():
        steps = range(0, stride * size, stride)
        (inner if axis in chosen else outer).append(steps)
        stride *= size
    members = [sum(offsets) for offsets in product(*reversed(inner))]
    return tuple(
        tuple(sum(offsets) + member for member in members) for offsets in product(*reversed(outer))
    )


def read_groups(path: str | os.PathLike[str]) -> ProcessGroups:
    """Return the groups in a file (``tuccl-groups/1``).

    Raises:
        InputError: it cannot be read, or contradicts itself.
    """
    place = printable_path(path)
    try:
        return msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=ProcessGroups)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = decode_reason(error, ProcessGroups)
        raise InputError(f'{place}: {reason}; expected groups, "format": "{FORMAT}"') from None


def save_groups(groups: ProcessGroups, path: str | os.PathLike[str]) -> None:
    """Write groups to a file, whole or not at all.

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    write_file(path, msgspec.json.format(msgspec.json.encode(groups), indent=1) + b"\n")


def _kinds(
    known: Mapping[str, tuple[tuple[str, ...], str]],
    shape: Mapping[str, int],
    *,
    with_cp: bool = False,
) -> list[Kind]:
    """The kinds whose groups have more than one rank; dp-cp where it is not dp."""
    found = []
    for name, (axes, desc) in known.items():
        groups = spanning_groups(shape, axes)
        if len(groups[0]) > 1 and (name != "dp-cp" or with_cp):
            found.append(Kind(name, groups, desc))
    return found


def _left(ranks: int, others: int, layout: str) -> int:
    if ranks % others:
        raise InputError(f"--layout {layout[:60]!r}: {ranks} ranks do not divide by {others}")
    return ranks // others


def _axes(text: str, option: str, known: Iterable[str] = ()) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for word in text.split(","):
        match = _AXIS.fullmatch(word.strip())
        if match is None or match[1] in sizes or (known and match[1] not in known):
            names = ", ".join(known) or "any"
            raise InputError(
                f"{option} {text[:60]!r}: expected NAME=SIZE,..., each name once, sizes above 0; "
                f"NAME: {names}"
            )
        sizes[match[1]] = int(match[2])
    return sizes
