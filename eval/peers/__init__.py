"""Other libraries' collectives timed in the same run: Gloo, Open MPI, MPICH."""

from tuccl.eval.peers.peer import PEERS, GlooPeer, MpiPeer, Peer, PeerCall

__all__ = [
    "PEERS",
    "GlooPeer",
    "MpiPeer",
    "Peer",
    "PeerCall",
]
