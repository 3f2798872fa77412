"""Calls from logs: NCCL's own of a job, and the rows of nccl-tests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tuccl.errors import InputError
from tuccl.runtime.jobs.nccl_log import LogLine, log_lines
from tuccl.runtime.nccl_tests.output import TestsOutput, read_json, read_text
from tuccl.runtime.workload.calls import Call, collective_name, whole_bytes

_CALL = re.compile(
    r"(\w+): opCount [0-9a-f]+ .*\bcount (\d{1,18}) datatype (\d{1,3}) "
    r"op \d+ .*\[nranks=(\d{1,9})\]"
)
# Bytes of ncclDataType_t, by number (nccl.h).
_ELEMENT_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
_TEST = re.compile(r"\b(\w{1,80})_perf\b")
_TABLE = re.compile(r"(?m)^# nThread")


def calls_of_nccl_log(lines: Iterable[str], where: str) -> list[Call]:
    """Return the calls in a log of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL, of one GPU.

    All GPUs of a group log the same call; so those of the GPU whose calls move the most bytes
    stand for the job.

    Raises:
        InputError: a line names a datatype that NCCL has not.

    Notes:
        NVIDIA/nccl src/enqueue.cc (ncclEnqueueCheck).
    """
    by_gpu: dict[tuple[str, int, int], list[Call]] = {}
    for number, line in enumerate(log_lines(lines), start=1):
        if not isinstance(line, LogLine) or (match := _CALL.match(line.text)) is None:
            continue
        datatype, ranks = int(match[3]), int(match[4])
        if datatype >= len(_ELEMENT_BYTES):
            raise InputError(f"{where}:{number}: datatype {match[3][:20]}: expected one of NCCL's")
        name = collective_name(match[1])
        nbytes = whole_bytes(name, int(match[2]), _ELEMENT_BYTES[datatype], ranks)
        gpu = by_gpu.setdefault((line.host, line.pid, line.device), [])
        gpu.append(Call(name, nbytes, ranks=ranks))
    return max(by_gpu.values(), key=lambda calls: sum(c.nbytes for c in calls), default=[])


def calls_of_tests_text(text: str, where: str) -> list[Call]:
    """Return one call for each row that nccl-tests printed, with its time; several tables may be.

    Raises:
        InputError: a row holds something else than times, or nothing names a table's collective.
    """
    starts = [match.start() for match in _TABLE.finditer(text)] or [0]
    ends = [*starts[1:], len(text)]
    calls: list[Call] = []
    name = _last_test(where)
    for before, start, end in zip([0, *starts], starts, ends, strict=False):
        name = _last_test(text[before:start]) or name
        calls += _calls(read_text(text[start:end], where), name, where)
    return calls


def calls_of_tests_json(text: str, where: str) -> list[Call]:
    """Return one call for each result that nccl-tests wrote with ``-J``, with its time.

    Raises:
        InputError: it is something else, or does not say which test it is of.
    """
    read = read_json(text, where)
    return list(_calls(read, _last_test(" ".join(read.args[:1])) or _last_test(where), where))


def _last_test(text: str) -> str:
    """The last test that ``text`` names, like ``all_reduce_perf``; "" for none."""
    return next((collective_name(n) for n in reversed(_TEST.findall(text))), "")


def _calls(output: TestsOutput, name: str, where: str) -> Iterator[Call]:
    if output.rows and not name:
        raise InputError(
            f"{where}: nothing says of which test these rows are; expected a line before them "
            "or a file name with its name, like all_reduce_perf"
        )
    for row in output.rows:
        us = row.time_us if row.time_us is not None else row.time_us_ip
        yield Call(name, row.nbytes, 1, us, output.ranks or None)
