"""Runs a few small checked calls on the first GPU: what test_sanitizer.py has watched."""

from __future__ import annotations

from tuccl.execution import Call
from tuccl.program import Knobs
from tuccl.runtime.executors.cuda import CudaExecutor
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import keep_gpus, load_profile


def main() -> None:
    """Print how many runs there were, and how many elements came out wrong."""
    program = lower(
        msccl_default(keep_gpus(load_profile("dgx-2"), range(2)), Collective("allreduce", 2))
    )
    executor = CudaExecutor(2, timeout_s=120, devices=(0,))
    runs = wrong = 0
    for protocol in ("Simple", "LL", "LL128"):
        for threads in (32, 96):
            for in_place in (False, True):
                knobs = Knobs(protocol, 1, threads, buffer_bytes=1 << 14)
                call = Call(program, knobs, 10_007, in_place=in_place, checked=1)
                wrong += sum(result.wrong for result in executor.run(call))
                runs += 1
    print(f"{runs} runs, {wrong} wrong")


if __name__ == "__main__":
    main()
