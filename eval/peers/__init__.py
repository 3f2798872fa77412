"""Other libraries' collectives timed in the same run: Gloo, Open MPI, MPICH."""

from tuccl.eval.peers.peer import PEERS, GlooPeer, MpiPeer, OwnCall, Peer
from tuccl.eval.peers.race import LONG_US, Contender, Standing, contest, screened

__all__ = [
    "LONG_US",
    "PEERS",
    "Contender",
    "GlooPeer",
    "MpiPeer",
    "OwnCall",
    "Peer",
    "Standing",
    "contest",
    "screened",
]
