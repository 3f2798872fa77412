"""One reader for every record of a job's calls: its content says what it is."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.runtime.workload.calls import Call, Workload, workload_of
from tuccl.runtime.workload.execution_trace import calls_of_execution_trace
from tuccl.runtime.workload.list_reader import (
    AICB_GROUP,
    calls_of_aicb,
    calls_of_json,
    calls_of_table,
)
from tuccl.runtime.workload.logs import (
    calls_of_nccl_log,
    calls_of_tests_json,
    calls_of_tests_text,
)

_MOST_BYTES = 1 << 30
_MOST_KINDS = 100_000
_GZIP = b"\x1f\x8b"


class _Keys(msgspec.Struct):
    """The keys that distinguish JSON files; ``nodes`` and ``results`` are not looked into."""

    format: str = ""
    nodes: msgspec.Raw = msgspec.Raw(b"")
    results: msgspec.Raw = msgspec.Raw(b"")


def read_workload(path: str | Path, ranks: int) -> Workload:
    """Return the calls of a job on ``ranks`` ranks that the file ``path`` records.

    The file is a list of calls (JSON ``tuccl-workload/1``, CSV or TSV), a PyTorch execution
    trace, nccl-tests' output (text or ``-J``), an NCCL log with NCCL_DEBUG_SUBSYS=COLL, or an
    AICB workload, compressed by gzip or not; docs/reference/files.md says what is taken from each.

    Raises:
        InputError: the file cannot be read, is none of these, or has no call on ``ranks`` ranks.
    """
    path = Path(path)
    calls = _calls(_content(path), str(path))
    workload = workload_of(path.stem, calls, ranks)
    if not workload.calls:
        left_out = workload.left_out_text() or "it has no calls"
        raise InputError(f"{path}: nothing to tune for {ranks} ranks: {left_out}")
    if len(workload.calls) > _MOST_KINDS:
        raise InputError(f"{path}: over {_MOST_KINDS} different calls; expected the calls of a job")
    return workload


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    if content.startswith(_GZIP):
        content = _decompressed(content, path)
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path}: over {_MOST_BYTES >> 20} MiB; cut out a few steps of the job")
    return content


def _decompressed(content: bytes, path: Path) -> bytes:
    """The content of a gzip file, as execution traces often are, up to one byte over the limit."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{path}: a damaged gzip file; expected a workload") from None


def _calls(content: bytes, where: str) -> list[Call]:
    if content.lstrip()[:1] == b"{":
        return _json_calls(content, where)
    text = content.decode("utf-8-sig", errors="replace")
    if AICB_GROUP in text.partition("\n")[0]:
        return calls_of_aicb(text, where)
    if calls := calls_of_tests_text(text, where):
        return calls
    if calls := calls_of_nccl_log(text.splitlines(), where):
        return calls
    if "NCCL INFO" in text:
        raise InputError(
            f"{where}: an NCCL log without calls; expected one with NCCL_DEBUG=INFO and "
            "NCCL_DEBUG_SUBSYS=COLL"
        )
    return calls_of_table(text, where)


def _json_calls(content: bytes, where: str) -> list[Call]:
    try:
        keys = msgspec.json.decode(content, type=_Keys)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{where}: {error}; expected a workload") from None
    if bytes(keys.nodes):
        return calls_of_execution_trace(content, where)
    if bytes(keys.results):
        return calls_of_tests_json(content.decode(errors="replace"), where)
    return calls_of_json(content, where)
