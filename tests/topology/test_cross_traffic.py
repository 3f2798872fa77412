"""Cross traffic: what a file says, its flows, what it leaves; one clear line for anything else."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.topology import (
    CrossTraffic,
    flows,
    join,
    keep_gpus,
    load_cross_traffic,
    load_profile,
    path,
    residual,
)
from tuccl.topology.cross_traffic import Source

FOUR = join(load_profile("ndv2"), 4)  # NICs of 12.5 GB/s
EXAMPLE = b"""{"format": "tuccl-cross/1", "seed": 3, "sources": [
  {"from": "n0/nic0", "to": "leaf0", "kind": "long", "load": 0.8, "streams": 4, "start_s": 1},
  {"from": "leaf0", "to": "n0/nic0", "kind": "web", "gbs": 2.0, "gaps": "poisson-us"},
  {"from": "leaf0", "to": "n0/nic0", "kind": "burst", "load": 0.3, "period_us": 5000},
  {"from": ["n1/nic0", "n2/nic0"], "to": "n0/nic0", "kind": "incast", "nbytes": 4096, "load": 0.5},
  {"from": "n0/nic0", "to": "leaf0", "kind": "rate", "schedule": [[0, 0.8], [2, 0.0]]},
  {"from": "leaf0", "to": "n0/nic0", "kind": "trace", "flows": [[0, 10], [5.5, 20]]}]}"""


def written(folder: Path, data: bytes) -> Path:
    target = folder / "cross.json"
    target.write_bytes(data)
    return target


def source(kind: str, **fields: object) -> CrossTraffic:
    ends = {"origin": "n0/nic0", "to": "n1/nic0"} | fields
    return CrossTraffic((Source(kind=kind, **ends),))  # type: ignore[arg-type]


def offered(cross: CrossTraffic, seconds: float) -> float:
    """Bytes a us that the flows of so many seconds bring."""
    return sum(flow.nbytes for flow in flows(cross, FOUR, seconds)) / (seconds * 1e6)


def test_the_example_of_the_format_is_read(tmp_path: Path) -> None:
    cross = load_cross_traffic(written(tmp_path, EXAMPLE))
    assert [each.kind for each in cross.sources] == [
        *("long", "web", "burst", "incast", "rate", "trace")
    ]
    assert cross.sources[3].origins == ("n1/nic0", "n2/nic0")
    assert [each.link_efficiency for each in cross.sources] == [0.95, 0.9, 0.9, 0.9, 1.0, 0.9]
    assert cross.changes_s == (0.0, 2.0)


def test_a_trace_file_lies_beside_the_description(tmp_path: Path) -> None:
    (tmp_path / "calls.txt").write_text("2\n1.5 100\n3 200\n")
    text = b"""{"format": "tuccl-cross/1", "sources": [
      {"from": "n0/nic0", "to": "leaf0", "kind": "trace", "file": "calls.txt", "start_s": 1}]}"""
    drawn = flows(load_cross_traffic(written(tmp_path, text)), FOUR, 2)
    assert [(flow.start_us, flow.nbytes) for flow in drawn] == [(1e6 + 1.5, 100), (1e6 + 3, 200)]


@pytest.mark.parametrize("rows", ["", "2\n1 2\n", "1\n1 x\n", "2\n5 1\n1 1\n", "1\nnan 4", "\xff"])
def test_a_bad_trace_file_is_one_line_with_its_name(tmp_path: Path, rows: str) -> None:
    (tmp_path / "calls.txt").write_bytes(rows.encode("latin-1"))
    text = b"""{"format": "tuccl-cross/1", "sources": [
      {"from": "n0/nic0", "to": "leaf0", "kind": "trace", "file": "calls.txt"}]}"""
    with pytest.raises(InputError, match=r"^\S+calls\.txt: ?[^\n]+$"):
        load_cross_traffic(written(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"tuccl-cross/1", b"tuccl-cross/9", "$.format"),
        (b'"seed": 3', b'"seed": -1', "$.seed"),
        (b'"long"', b'"webb"', "$.sources[0].kind"),
        (b'"load": 0.8', b'"load": 0', "$.sources[0].load"),
        (b'"load": 0.8', b'"load": 1e999', "$.sources[0].load"),
        (b'"load": 0.8', b'"load": 0.8, "gbs": 1', "$.sources[0]: a long source"),
        (b'"gbs": 2.0', b'"start_s": 0', "$.sources[1]: a web source takes one of load"),
        (b'"gbs": 2.0', b'"gbs": 2.0, "streams": 2', "$.sources[1].streams: a web source has none"),
        (b'"gbs": 2.0', b'"gbs": 2.0, "color": 2', "$.sources[1]"),
        (b'"n1/nic0", "n2/nic0"', b'"n1/nic0", "n1/nic0"', "$.sources[3].to"),
        (b'["n1/nic0", "n2/nic0"]', b"[]", "$.sources[3].from"),
        (b'"from": "leaf0"', b'"from": ["leaf0"]', "$.sources[1].from"),
        (b'"to": "leaf0"', b'"to": "n0/nic0"', "$.sources[0].to"),
        (b"[2, 0.0]", b"[2, 1.5]", "$.sources[4].schedule[1][1]"),
        (b"[0, 0.8]", b"[3, 0.8]", "$.sources[4].schedule[1][0]"),
        (b"[5.5, 20]", b"[-1, 20]", "$.sources[5].flows[1][0]"),
        (b'"flows": [[0, 10], [5.5, 20]]', b'"file": "../x"', "$.sources[5].file"),
        (b'"flows": [[0, 10], [5.5, 20]]', b'"file": "x"', "cannot be read"),
    ],
)
def test_a_fault_is_named_with_its_place(
    tmp_path: Path, old: bytes, new: bytes, expected: str
) -> None:
    assert old in EXAMPLE
    with pytest.raises(InputError) as error:
        load_cross_traffic(written(tmp_path, EXAMPLE.replace(old, new, 1)))
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@given(st.integers(0, len(EXAMPLE) - 1), st.integers(0, len(EXAMPLE) - 1), st.binary(max_size=3))
def test_mutations_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, first: int, last: int, middle: bytes
) -> None:
    data = EXAMPLE[:first] + middle + EXAMPLE[last:]
    target = written(tmp_path_factory.getbasetemp(), data)
    try:
        cross = load_cross_traffic(target)
        flows(cross, FOUR, 1e-3)
        residual(FOUR, cross)
    except InputError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"origin": "n9/nic0"}, "no node 'n9/nic0'"),
        ({"origin": "n0/gpu0"}, "no NIC and no switch"),
    ],
)
def test_ends_must_be_of_the_network(fields: dict[str, str], expected: str) -> None:
    for use in (lambda c: flows(c, FOUR, 1), lambda c: residual(FOUR, c)):
        with pytest.raises(InputError, match=expected):
            use(source("web", load=0.5, **fields))


@pytest.mark.parametrize(
    ("kind", "fields"), [("web", {}), ("burst", {}), ("incast", {"nbytes": 1 << 20})]
)
def test_the_mean_of_the_flows_is_the_load(kind: str, fields: dict[str, int]) -> None:
    assert offered(source(kind, load=0.4, **fields), 20) == pytest.approx(0.4 * 12.5e3, rel=0.05)


def test_gaps_of_whole_microseconds_are_nearly_equal() -> None:
    starts = [f.start_us for f in flows(source("web", load=0.4, gaps="poisson-us"), FOUR, 2)]
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert max(gaps) < 2 * min(gaps)
    assert all(gap == int(gap) for gap in gaps)


def test_flow_sizes_follow_the_web_search_distribution() -> None:
    sizes = sorted(f.nbytes for f in flows(source("web", load=0.4), FOUR, 20))
    assert sum(sizes) / len(sizes) == pytest.approx(2.37e6, rel=0.05)
    assert sizes[0] == 6 * 1460
    assert sizes[len(sizes) // 2] == 53 * 1460
    assert sizes[-1] == 20000 * 1460
    scaled = [f.nbytes for f in flows(source("web", load=0.4, mean_bytes=2.37e4), FOUR, 1)]
    assert min(scaled) == pytest.approx(60 * 1.46, rel=0.02)


def test_a_tenth_of_a_period_has_three_times_the_load() -> None:
    period, rate = 10_000.0, 0.3 * 12.5e3
    drawn = flows(source("burst", load=0.3), FOUR, 0.5)
    first = [f for f in drawn if f.start_us % period <= period / 10 + 1e-6]
    assert len(first) == 100
    assert sum(f.nbytes for f in first) == pytest.approx(3 * rate * 0.5e6 / 10)
    assert sum(f.nbytes for f in drawn) == pytest.approx(rate * 0.5e6)
    assert (len(drawn) - len(first)) / 50 >= 8


def test_long_flows_share_their_rate_and_do_not_end() -> None:
    drawn = flows(source("long", load=0.8, streams=4, start_s=1), FOUR, 2)
    assert [(f.start_us, f.nbytes, f.cap_gbs) for f in drawn] == [(1e6, math.inf, 2.5)] * 4
    assert flows(source("long"), FOUR, 1)[0].cap_gbs == math.inf


@given(st.sampled_from(["web", "burst", "incast"]), st.integers(0, 99), st.floats(0.01, 0.2))
def test_a_longer_list_begins_alike_and_a_seed_gives_one_list(
    kind: str, seed: int, seconds: float
) -> None:
    cross = msgspec.structs.replace(source(kind, load=0.4), seed=seed)
    short, long = flows(cross, FOUR, seconds), flows(cross, FOUR, 2 * seconds)
    assert short == long[: len(short)]
    assert all(f.start_us >= seconds * 1e6 for f in long[len(short) :])
    assert long == flows(cross, FOUR, 2 * seconds)


def test_too_many_flows_are_refused() -> None:
    with pytest.raises(InputError, match=r"\$\.sources\[0\]: over 1048576 flows"):
        flows(source("web", gbs=1.0, mean_bytes=1.0), FOUR, 100)


def test_a_rate_leaves_the_rest_of_each_link_on_its_path() -> None:
    left = residual(FOUR, source("rate", schedule=((0, 0.5), (2, 0.9), (4, 1.0))), at_s=1)
    assert path(left, 0, 8).bandwidth == 6.25
    assert path(left, 8, 0).bandwidth == path(left, 0, 16).bandwidth * 2 == 12.5
    cross = source("rate", schedule=((0, 0.5), (2, 0.9), (4, 1.0)))
    assert path(residual(FOUR, cross, 3), 16, 8).bandwidth == pytest.approx(1.25)
    assert path(residual(FOUR, cross), 16, 8).bandwidth == 0.125
    assert residual(FOUR, source("rate", load=0.5, start_s=1), at_s=0.5) == FOUR


def test_flows_leave_what_their_mean_does() -> None:
    assert path(residual(FOUR, source("web", gbs=2.5)), 0, 8).bandwidth == 10
    assert path(residual(FOUR, source("long", streams=3)), 0, 8).bandwidth == 12.5 / 4
    both = CrossTraffic((*source("web", gbs=2.5).sources, *source("burst", load=0.2).sources))
    assert path(residual(FOUR, both), 0, 8).bandwidth == 7.5


def test_load_changes_no_path() -> None:
    two_nics = join(keep_gpus(load_profile("v100x4"), [0]), 2)
    busy = CrossTraffic((Source("n0/nic0", "leaf0", "rate", load=0.8),))
    for ranks in ((0, 1), (1, 0)):
        before, after = path(two_nics, *ranks), path(residual(two_nics, busy), *ranks)
        assert before.nics == after.nics == (f"n{ranks[0]}/nic0", f"n{ranks[1]}/nic0")
    assert path(residual(two_nics, busy), 0, 1).bandwidth == pytest.approx(2.5)
