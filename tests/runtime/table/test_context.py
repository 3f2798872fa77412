"""The context of a table: what ranks shared, and why it is not for other ranks."""

from __future__ import annotations

import msgspec
import pytest

from tuccl.runtime.table.context import JobContext

BARE = JobContext({"/dev/shm": (0, 0, 0), "CMA": (0, 0, 0)}, (None, None, None))


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (BARE, ""),
        (JobContext({"/dev/shm": (0, 0, 0)}, (None,) * 3), ""),  # CMA was not tried
        (
            JobContext({"/dev/shm": (0, 0, 2), "CMA": (0, 0, 0)}, (None,) * 3),
            "ranks 0 and 2 shared /dev/shm where it was tuned, and do not here",
        ),
        (
            JobContext({"/dev/shm": (0, 0, 0), "CMA": (0, 1, 0)}, (None,) * 3),
            "ranks 0 and 1 shared CMA where it was tuned, and do not here",
        ),
        (
            JobContext({"/dev/shm": (0, 0, 0)}, (None, 2.0, None)),
            "rank 1 had all CPUs where it was tuned, and has 2 CPUs here",
        ),
        (JobContext({}, (None,) * 4), "it was tuned for 3 ranks, here are 4"),
    ],
)
def test_the_first_difference_is_named(here: JobContext, why: str) -> None:
    assert BARE.difference(here) == why


def test_ranks_that_share_more_than_before_are_other_ranks_too() -> None:
    apart = JobContext({"/dev/shm": (0, 1)}, (1.0, 1.0))
    together = JobContext({"/dev/shm": (0, 0)}, (1.05, 1.0))
    why = "ranks 0 and 1 did not share /dev/shm where it was tuned, and do here"
    assert apart.difference(together) == why
    assert apart.difference(JobContext({"/dev/shm": (0, 1)}, (1.05, 1.0))) == ""  # as good as equal


@pytest.mark.parametrize(
    "text",
    [
        b'{"shares": {"CMA": [0, 2, 2]}, "quota_cpus": [null, null, null]}',
        b'{"shares": {"CMA": [0]}, "quota_cpus": [null, null]}',
        b'{"shares": {"CMA": [0, -1]}, "quota_cpus": [null, null]}',
        b'{"shares": {"CMA": [0, 1, 1, 2]}, "quota_cpus": [null, null, null, null]}',
        b'{"shares": {}, "quota_cpus": [], "label": "bare"}',
    ],
)
def test_what_is_no_partition_of_ranks_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=JobContext)
