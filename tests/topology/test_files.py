"""topology.json: the same value back, whole files only, one clear line for anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.topology import (
    PROFILES,
    decode_topology,
    encode_topology,
    join,
    load_profile,
    load_topology,
    save_topology,
)

SMALL = encode_topology(load_profile("v100x4"))


@pytest.mark.parametrize("name", PROFILES)
def test_what_is_written_reads_back(name: str, tmp_path: Path) -> None:
    t = join(load_profile(name), 2)
    target = tmp_path / "t.json"
    save_topology(t, target)
    assert load_topology(target) == t
    assert target.read_bytes() == encode_topology(load_topology(target))
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


def test_the_example_of_the_format_is_read() -> None:
    t = decode_topology(
        b"""{"format": "tuccl-topology/1", "name": "pair",
        "nodes": [{"id": "n0/gpu0", "kind": "gpu", "host": "n0", "rank": 0, "model": "V100"},
                  {"id": "n0/gpu1", "kind": "gpu", "host": "n0", "rank": 1},
                  {"id": "n0/nic0", "kind": "nic", "host": "n0"},
                  {"id": "leaf0", "kind": "switch"}],
        "links": [{"src": "n0/gpu0", "dst": "n0/gpu1", "kind": "nvlink", "bandwidth": 25.0,
                   "latency": 0.7, "duplex": true}]}"""
    )
    assert (t.ranks, t.links[0].latency, t.nics_of("n0")) == (2, 0.7, ("n0/nic0",))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b'"kind":"gpu"', b'"kind":"tpu"', "$.nodes[0].kind"),
        (b'"rank":1', b'"rank":"one"', "$.nodes[1].rank"),
        (b'"rank":1', b'"rank":0', "$.nodes[1].rank"),
        (b'"bandwidth":15.76', b'"bandwidth":-1', "$.links[0].bandwidth"),
        (b'"bandwidth":15.76', b'"bandwidth":1e999', "$.links[0].bandwidth"),
        (b'"bandwidth":15.76,', b"", "$.links[0]"),
        (b'"duplex":true', b'"colour":"red"', "$.links[0]"),
        (b"tuccl-topology/1", b"tuccl-topology/9", "$.format"),
        (b'"id":"gpu1"', b'"id":"gpu0"', "$.nodes[1].id"),
        (b'"dst":"cpu0"', b'"dst":"cpu9"', "$.links[0].dst"),
    ],
)
def test_a_fault_is_named_with_its_place(old: bytes, new: bytes, expected: str) -> None:
    with pytest.raises(InputError) as error:
        decode_topology(SMALL.replace(old, new, 1), "some/file.json")
    assert str(error.value).startswith("some/file.json: ")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "likely"),
    [
        (b'"kind":"nvlink"', b'"kind":"ib"', "network"),
        (b'"kind":"nic"', b'"kind":"ib"', "nic"),
        (b'"kind":"nvlink"', b'"kind":"nvlnk"', "nvlink"),
        (b'"kind":"cpu"', b'"kind":"numa"', None),
    ],
)
def test_an_unknown_kind_names_those_allowed_and_the_likely_one(
    old: bytes, new: bytes, likely: str | None
) -> None:
    with pytest.raises(InputError) as error:
        decode_topology(SMALL.replace(old, new, 1), "f.json")
    text = str(error.value)
    assert "expected one of" in text
    assert "nvlink, pcie, xgmi" in text or "gpu, nic, nvswitch" in text
    assert (f"did you mean {likely!r}?" in text) if likely else ("did you mean" not in text)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "empty"),
        (b"\n<system version='1'/>", "probe --from"),
        (b"<!-- x --><graphs version='1'/>", "graph file"),
        (b"[1, 2]", "tuccl-topology/1"),
        (b"[" * 100_000, "tuccl-topology/1"),
        (b"\xff\xfe", "tuccl-topology/1"),
    ],
)
def test_other_kinds_of_file_are_distinguished(data: bytes, expected: str) -> None:
    with pytest.raises(InputError, match=r"f\.json") as error:
        decode_topology(data, "f.json")
    assert expected in str(error.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, Path("a\0b")):
        with pytest.raises(InputError, match="cannot be read"):
            load_topology(path)
    with pytest.raises(InputError, match="cannot be written"):
        save_topology(load_profile("v100x4"), tmp_path / "no" / "t.json")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(SMALL) - 1), st.binary(max_size=3), st.integers(0, 40))
def test_a_damaged_file_is_read_or_refused_in_one_line(at: int, put: bytes, cut: int) -> None:
    damaged = SMALL[:at] + put + SMALL[at + cut :]
    try:
        t = decode_topology(damaged)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        assert len(str(error)) < 1000
    else:
        assert t.ranks > 0


def test_a_misspelt_key_names_the_likely_one() -> None:
    with pytest.raises(InputError, match="did you mean 'bandwidth'"):
        decode_topology(SMALL.replace(b'"bandwidth"', b'"bandwith"', 1), "f.json")
