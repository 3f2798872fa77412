"""Calls of all groups of a kind as one call of their parent communicator, whose GPUs may relay."""

from __future__ import annotations

from tuccl.errors import InputError
from tuccl.groups.layout import Groups
from tuccl.synth import Collective


def parent_call(name: str, groups: Groups, ranks: int) -> Collective:
    """Return the collective of all ranks that does what ``name`` does in each group.

    >>> parent_call("allgather", ((0, 2), (1, 3)), 4).groups
    (2, 2)

    Raises:
        InputError: it is no allgather, or the groups are no axis of a grid of all ranks.

    Notes:
        After PCCL (Won et al., arXiv 2606.07019). NCCL and MSCCL launch a communicator's kernels on
        its members alone, so only tuccl's interpreters run such a program.
    """
    first = groups[0]
    stride = first[1] - first[0] if len(first) > 1 else 1
    call = Collective(name, ranks, groups=(len(first), stride))
    if {tuple(call.members(rank)) for rank in range(ranks)} != set(groups):
        raise InputError("groups: expected one axis of a grid of all ranks, each in rising order")
    return call
