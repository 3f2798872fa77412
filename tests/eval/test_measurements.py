"""Reading measured times: nccl-tests' text and JSON, CSV, and what is none of these."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.eval.measurements import Measured, read_measurements

TEXT = """\
# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid   6899 on host0 device  0 [0x07] NVIDIA A100
node0:12:12 [0] NCCL INFO 24 coll channels
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           0             0     float     sum      -1     0.10    0.00    0.00      0     0.11    0.00    0.00      0
        1024           256     float     sum      -1    36.07    0.03    0.05      0    35.77    0.03    0.05    N/A
     1048576        262144     float     sum      -1    74.78   14.02   24.54      0    76.17   13.77   24.09      0
# Avg bus bandwidth    : 12.3
"""
JSON = """\
{"version": 1, "nccl_version": "2.28.3", "results": [
 {"size": 1024, "out_of_place": {"time": 36.07, "alg_bw": 0.03}, "in_place": {"time": 35.77}},
 {"size": 1048576, "out_of_place": {"time": 74.78}, "in_place": null}]}
"""


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        (TEXT, None, ((1024, 36.07), (1048576, 74.78))),
        (TEXT, "in-place", ((1024, 35.77), (1048576, 76.17))),
        (JSON, None, ((1024, 36.07), (1048576, 74.78))),
        (JSON, "in-place", ((1024, 35.77),)),
        ("size_bytes,time_us_oop,time_us_ip\n8,1.5,2.5\n", None, ((8, 1.5),)),
        ("size_bytes,time_us_oop,time_us_ip\n8,1.5,2.5\n", "time_us_ip", ((8, 2.5),)),
        ("size_bytes,time_us\n8,\n16,2\n", None, ((16, 2.0),)),
    ],
)
def test_times_are_read_by_size(
    tmp_path: Path, text: str, column: str | None, expected: tuple[tuple[int, float], ...]
) -> None:
    path = tmp_path / "table"
    path.write_text(text)
    assert read_measurements(path, column).rows == tuple(Measured(*row) for row in expected)


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("", None, "no measured sizes"),
        ("hello", None, "no measured sizes"),
        ('{"results": [{"size": "x"}]}', None, r"\$.results"),
        ("{", None, "JSON"),
        ("size_bytes,us\n8,1\n", None, "no column time_us_oop or"),
        ("size_bytes,time_us\n8,1\n", "busbw", "no column busbw"),
        ("size_bytes,time_us\neight,1\n", None, r"table:2: size 'eight'"),
        ("size_bytes,time_us\n8,nan\n", None, "neither below zero"),
        (TEXT, "time_us_ip", "in-place and out-of-place"),
        ("\x00\xff", None, "not text"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(
    tmp_path: Path, text: str, column: str | None, why: str
) -> None:
    path = tmp_path / "table"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=why) as caught:
        read_measurements(path, column)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing: No such file"):
        read_measurements(tmp_path / "missing")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_are_a_table_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "table"
    for start in (b"", b"size_bytes,time_us\n", b'{"results": [', b"1024 256 float sum -1 "):
        path.write_bytes(start + data)
        try:
            rows = read_measurements(path).rows
        except InputError:
            continue
        assert all(row.nbytes > 0 and row.us > 0 for row in rows)
