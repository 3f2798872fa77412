"""Other libraries' collectives timed in the same run: Gloo, Open MPI, MPICH."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.eval.peers.peer import PEERS, GlooRanks, Peer, PeerCall, mpi_peer

__all__ = [
    "PEERS",
    "GlooRanks",
    "Peer",
    "PeerCall",
    "mpi_peer",
]

make_lazy(__name__)
