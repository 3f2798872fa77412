"""Sketch files survive the round trip; damaged ones are refused in one line."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.sketches import Sketch, candidate_sketches, load_sketch, save_sketches
from tuccl.sketches.files import decode_sketch, encode_sketch, save_sketch
from tuccl.topology.fabric import join
from tuccl.topology.profiles import load_profile

SAMPLE = candidate_sketches(join(load_profile("v100x4"), 2), "allgather", 1 << 20)[0]
DATA = encode_sketch(SAMPLE)


def fields(**changes: object) -> bytes:
    """Return the sample's JSON with some of its fields changed."""
    return msgspec.json.encode(msgspec.json.decode(DATA) | changes)


def test_round_trip_and_no_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    save_sketch(SAMPLE, path)
    save_sketch(SAMPLE, path)
    assert load_sketch(path) == SAMPLE
    assert [file.name for file in tmp_path.iterdir()] == ["s.json"]
    assert path.read_bytes() == DATA


def test_a_sketch_that_breaks_a_rule_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    with pytest.raises(InputError):
        save_sketch(msgspec.structs.replace(SAMPLE, links=()), path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        save_sketch(SAMPLE, tmp_path / "no" / "s.json")
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            load_sketch(path)


def test_the_topology_must_match(tmp_path: Path) -> None:
    save_sketch(SAMPLE, tmp_path / "s.json")
    assert load_sketch(tmp_path / "s.json", join(load_profile("v100x4"), 2)) == SAMPLE
    with pytest.raises(InputError, match="make a sketch for it"):
        load_sketch(tmp_path / "s.json", join(load_profile("v100x4"), 3))


LINK = msgspec.to_builtins(SAMPLE.links[0])
PRUNED = msgspec.to_builtins(SAMPLE.pruned[0])


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"format": "tuccl-sketch/2"}, r"\$\.format"),
        ({"ranks": 0}, r"\$\.ranks"),
        ({"ranks": 9}, r"\$\.hosts"),
        ({"hosts": [0, 0, 0, 0, 2, 2, 2, 2]}, r"\$\.hosts\[4\]"),
        ({"chunks_per_rank": 0}, r"\$\.chunks_per_rank"),
        ({"align_bytes": -1}, r"\$\.align_bytes"),
        ({"extra": 1}, "extra"),
        ({"links": []}, r"\$\.links"),
        ({"links": [LINK | {"dst": 8}]}, r"\$\.links\[0\]"),
        ({"links": [LINK, LINK]}, r"\$\.links\[1\]"),
        ({"links": [LINK | {"dst": 0}]}, r"\$\.links\[0\]"),
        ({"links": [LINK | {"inter": True}]}, r"\$\.links\[0\]\.inter"),
        ({"links": [LINK | {"alpha_us": -1.0}]}, r"\$\.links\[0\]\.alpha_us"),
        ({"links": [LINK | {"beta_us_per_mb": 0.0}]}, r"\$\.links\[0\]\.beta_us_per_mb"),
        ({"links": [LINK | {"congestion": -0.5}]}, r"\$\.links\[0\]\.congestion"),
        ({"links": [LINK | {"prefer_from_bytes": -1}]}, r"\$\.links\[0\]\.prefer"),
        ({"links": [LINK | {"nics": ["a", "b"]}]}, r"\$\.links\[0\]\.nics"),
        ({"links": [LINK | {"src": "0"}]}, r"\$\.links\[0\]\.src"),
        ({"bindings": {"9": "n0/nic0"}}, r"\$\.bindings"),
        ({"bindings": {"0": "x", "4": "x"}, "groups": []}, r"\$\.bindings\.4"),
        ({"groups": [["n0/nic0", "n0/nic1"]]}, r"\$\.groups\[0\].*two NICs of one host"),
        ({"groups": [["unheard"]]}, r"\$\.groups\[0\]"),
        ({"relays": {"0": [4]}}, r"\$\.relays\.0"),
        ({"relays": {"0": [1, 1]}}, r"\$\.relays\.0"),
        ({"relays": {"8": [1]}}, r"\$\.relays\.8"),
        ({"symmetry": [[1, 3]]}, r"\$\.symmetry\[0\]"),
        ({"symmetry": [[0, 4]]}, r"\$\.symmetry\[0\]"),
        ({"symmetry": [[1, 4]]}, r"\$\.symmetry\[0\].*takes link"),
        ({"switches": [[0, 4]]}, r"\$\.switches\[0\]"),
        ({"switches": [[0, 1], [1, 2]]}, r"\$\.switches\[1\]"),
        ({"switches": [[0, 1]], "switch_strategy": ["uc"]}, r"\$\.switch_strategy\[0\]"),
        ({"switch_strategy": ["uc-min"]}, r"\$\.switch_strategy"),
        ({"pruned": [PRUNED, PRUNED]}, r"\$\.pruned\[1\]"),
        ({"pruned": [PRUNED | {"stage": "mood"}]}, r"\$\.pruned\[0\]\.stage"),
        ({"pruned": [PRUNED | {"src": 0, "dst": 1}]}, r"\$\.pruned\[0\]"),
    ],
)
def test_each_rule_is_named_with_its_place(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError, match=where) as raised:
        decode_sketch(fields(**changes), "s.json")
    assert str(raised.value).startswith("s.json: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"ranks": 2}', b"{" + DATA]
)
def test_other_files_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        decode_sketch(data)
    (tmp_path / "s.json").write_bytes(data)
    with pytest.raises(InputError):
        load_sketch(tmp_path / "s.json")


def survives(read: Callable[[bytes], Sketch], data: bytes) -> None:
    """Read damaged data: InputError in one line, or a sketch that still obeys the rules."""
    try:
        sketch = read(data)
    except InputError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1000
    else:
        assert decode_sketch(encode_sketch(sketch)) == sketch


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(DATA) - 1), st.integers(0, 255), st.integers(0, 40))
def test_damage_anywhere_raises_input_errors_only(at: int, byte: int, length: int) -> None:
    survives(decode_sketch, DATA[:at] + bytes([byte]) + DATA[at + length :])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(DATA)))
def test_truncation_raises_input_errors_only(at: int) -> None:
    survives(decode_sketch, DATA[:at])


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(msgspec.json.decode(DATA))), values)
def test_any_value_in_any_field_raises_input_errors_only(key: str, value: object) -> None:
    survives(decode_sketch, fields(**{key: value}))


def test_on_a_full_disk_all_sketches_are_written_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real: Any = tempfile.mkstemp

    def full_at_the_third(**where: object) -> object:
        if len(made) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        made.append("")
        return real(**where)

    four = [msgspec.structs.replace(SAMPLE, name=f"s{n}") for n in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", full_at_the_third)
        with pytest.raises(InputError, match=r"02-s2\.json: cannot be written: No space"):
            save_sketches(four, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    paths = save_sketches(four, tmp_path / "out")
    assert [p.name for p in paths] == ["00-s0.json", "01-s1.json", "02-s2.json", "03-s3.json"]
    assert load_sketch(paths[3]) == four[3]
