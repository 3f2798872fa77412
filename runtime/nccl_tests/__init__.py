"""The user's own nccl-tests as an executor."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.nccl_tests.executor import NcclTestsExecutor
    from tuccl.runtime.nccl_tests.run import NcclTests, find_nccl_tests

__all__ = [
    "NcclTests",
    "NcclTestsExecutor",
    "find_nccl_tests",
]

make_lazy(__name__)
