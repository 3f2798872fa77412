"""Other libraries' collectives timed in the same run: Gloo, Open MPI, MPICH."""

from tuccl.eval.peers.peer import PEERS, GlooRanks, Peer, PeerCall, mpi_peer

__all__ = [
    "PEERS",
    "GlooRanks",
    "Peer",
    "PeerCall",
    "mpi_peer",
]
