"""Process groups from the execution traces of a PyTorch job."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.groups.layout import MEGATRON_KINDS, Kind, ProcessGroups
from tuccl.runtime.workload.execution_trace import groups_of_execution_trace

_MOST_BYTES = 1 << 30
_MESH = "mesh_"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_-]+")


def trace_groups(paths: Sequence[str | os.PathLike[str]], ranks: int) -> ProcessGroups:
    """Return the groups of a job of ``ranks`` ranks that the traces of some of its ranks list.

    A rank's trace has the groups that it is in. Groups of one description are of one kind: those
    of Megatron and of a DeviceMesh get the names that layouts and meshes have. Groups whose ranks
    a trace does not say are left out, and groups of one rank.

    Args:
        paths: Execution traces, one of each rank that is to be known.
        ranks: Of the whole job.

    Raises:
        InputError: a file is no such trace, groups of a kind overlap, or no groups are listed.
    """
    kinds: dict[tuple[str, str], dict[tuple[int, ...], None]] = {}
    for path in paths:
        place = printable_path(path)
        for group in groups_of_execution_trace(read_bounded(path, _MOST_BYTES), place):
            whole = not group.ranks and group.size == ranks
            members = tuple(range(ranks)) if whole else tuple(group.ranks)
            if len(members) > 1:
                desc = group.pg_desc.partition(":")[0]
                kinds.setdefault((_kind_of(desc, len(members)), desc), {})[members] = None
    if not kinds:
        raise InputError(
            f"{', '.join(map(printable_path, paths))}: list no groups with their ranks; record "
            "execution traces from before init_process_group on"
        )
    try:
        return ProcessGroups(
            ranks, tuple(Kind(name, tuple(found), desc) for (name, desc), found in kinds.items())
        )
    except ValueError as error:
        raise InputError(f"{', '.join(map(printable_path, paths))}: {error}") from None


def _kind_of(desc: str, size: int) -> str:
    known = next((name for name, (_, own) in MEGATRON_KINDS.items() if own == desc), None)
    plain = _NOT_IN_NAMES.sub("-", desc.removeprefix(_MESH).lower()).strip("-")[:40]
    return known or plain or f"of-{size}"
