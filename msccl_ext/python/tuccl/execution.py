"""Real data: programs run by threads of this process, and by groups of processes over sockets."""

from tuccl._native import (
    BoundProgram,
    Call,
    Group,
    GroupChoices,
    PeerListener,
    ProgressThread,
    RankResult,
    RendezvousServer,
    Request,
    read_result,
    run_in_threads,
)

__all__ = [
    "BoundProgram",
    "Call",
    "Group",
    "GroupChoices",
    "PeerListener",
    "ProgressThread",
    "RankResult",
    "RendezvousServer",
    "Request",
    "read_result",
    "run_in_threads",
]
