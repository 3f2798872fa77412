"""Times of a step's calls: those that the simulator refuses say why, and stop no other."""

from __future__ import annotations

from tuccl.groups.layout import megatron_groups
from tuccl.topology import join, load_profile
from tuccl.training.step_calls import SEND, StepCall
from tuccl.training.step_times import time_step


def test_a_call_that_is_refused_says_why_and_others_are_timed() -> None:
    """NCCL's all-to-all of 64 ranks has more blocks than an A100 has SMs."""
    calls = {
        StepCall("ep", "alltoall", 64 << 20): 4,
        StepCall("ep", "allgather", 64 << 20): 2,
        StepCall("ep", SEND, 1 << 20): 3,
    }
    done: list[tuple[int, int]] = []
    rows = time_step(
        join(load_profile("dgx-a100"), 8),
        megatron_groups("ep=64", 64),
        calls,
        progress=lambda number, count, what: done.append((number, count)),
    )
    assert [row.collective for row in rows] == ["allgather", "alltoall", SEND]
    timed, refused, sent = rows
    assert timed.us is not None and timed.step_us == 2 * timed.us and not timed.refusal
    assert refused.us is None and refused.step_us == 0 and "SMs" in refused.refusal
    assert sent.us is None and not sent.refusal
    assert done == [(0, 3), (1, 3), (3, 3)]
