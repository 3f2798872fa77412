"""Other libraries on the same ranks, timed alike: Gloo, Open MPI and MPICH."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.libraries.beside import libraries_beside
    from tuccl.runtime.libraries.library import LIBRARIES, Library, LibraryCall

__all__ = ["LIBRARIES", "Library", "LibraryCall", "libraries_beside"]

make_lazy(__name__)
