"""Other libraries' collectives timed in the same run: Gloo, Open MPI, MPICH."""

from tuccl.eval.peers.peer import PEERS, GlooPeer, MpiPeer, Peer, PeerCall
from tuccl.eval.peers.race import LONG_US, Competitor, RaceResult, prescreen, race

__all__ = [
    "LONG_US",
    "PEERS",
    "Competitor",
    "GlooPeer",
    "MpiPeer",
    "Peer",
    "PeerCall",
    "RaceResult",
    "prescreen",
    "race",
]
