"""MSCCL++ as the user has it: its executor_test.py runs plans on real GPUs."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.mscclpp.executor import MscclppExecutor
    from tuccl.runtime.mscclpp.run import ExecutorTest, find_executor_test, run_executor_test

__all__ = ["ExecutorTest", "MscclppExecutor", "find_executor_test", "run_executor_test"]

make_lazy(__name__)
