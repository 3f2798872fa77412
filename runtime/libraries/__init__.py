"""Other libraries on the same ranks, timed alike: Gloo, Open MPI and MPICH."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.libraries.library import LIBRARIES, Library, LibraryCall
    from tuccl.runtime.libraries.start import start_libraries

__all__ = ["LIBRARIES", "Library", "LibraryCall", "start_libraries"]

make_lazy(__name__)
