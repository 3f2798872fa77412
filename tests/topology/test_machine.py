"""Machine classes: those that ship are sound and sourced; bad files are refused in one line."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.topology import join, load_profile
from tuccl.topology.graph import Link, Node, Topology
from tuccl.topology.machine import (
    MACHINES,
    interpreter_machine_of,
    load_machine,
    machine_of,
    read_machine,
)

PLAIN: dict[str, Any] = json.loads(msgspec.json.encode(read_machine("plain")))


@pytest.mark.parametrize("name", MACHINES)
def test_each_constant_that_ships_has_a_source_and_arrives(name: str) -> None:
    file, machine = read_machine(name), load_machine(name)
    assert machine.name == file.name == name
    protocols = {"Simple": machine.simple, "LL": machine.ll, "LL128": machine.ll128}
    groups = [(file.constants, machine)] + [
        (getattr(file.protocols, p), c) for p, c in protocols.items()
    ]
    for constants, native in groups:
        for field in constants.__struct_fields__:
            constant = getattr(constants, field)
            assert constant.source
            none = math.inf if field.endswith("_gbs") else 0
            assert getattr(native, field) == (none if constant.value is None else constant.value)


def two_gpus(*models: str | None) -> Topology:
    nodes = tuple(
        Node(id=f"g{i}", kind="gpu", host="n0", rank=i, model=m) for i, m in enumerate(models)
    )
    link = Link(src="g0", dst="g1", kind="nvlink", bandwidth=25.0, latency=0.3, duplex=True)
    return Topology(name="two", nodes=nodes, links=(link,))


@pytest.mark.parametrize(
    ("models", "name"),
    [
        (("V100-SXM2-32GB", "V100-PCIE-16GB"), "v100"),
        (("A100-SXM4-40GB", "sm_80"), "a100"),
        (("H200-SXM5-141GB", "GH200-120GB"), "h100"),
        (("MI300X", "gfx942"), "mi300x"),
        (("RTX 2080 Ti", "L40S"), "rtx"),
        (("GB200", "B200-SXM6-180GB"), "b200"),
        (("MI100", "MI100"), "plain (no class for MI100)"),
        ((None, None), "plain (no class for unknown GPU)"),
        (
            ("V100-SXM2-32GB", "H100-SXM5-80GB"),
            "plain (no class for H100-SXM5-80GB, V100-SXM2-32GB)",
        ),
    ],
)
def test_gpus_get_their_class_or_a_plain_one_that_says_so(
    models: tuple[str | None, ...], name: str
) -> None:
    assert machine_of(two_gpus(*models)).name == name


def test_the_interpreter_has_classes_of_its_own_for_one_host() -> None:
    assert interpreter_machine_of(two_gpus("A100-SXM4-40GB", "A100-SXM4-40GB")).name == "cuda-a100"
    nearest = interpreter_machine_of(two_gpus("V100-SXM2-32GB", "V100-SXM2-32GB"))
    assert nearest.name == "cuda-a100 (none for v100)"
    with pytest.raises(InputError, match="2 hosts"):
        interpreter_machine_of(join(load_profile("ndv4"), 2))


def write(folder: Path, data: object) -> Path:
    path = folder / "m.json"
    path.write_text(json.dumps(data))
    return path


def test_a_users_file_is_read_by_its_path(tmp_path: Path) -> None:
    data = copy.deepcopy(PLAIN)
    data["name"] = "mine"
    data["constants"]["local_us"]["value"] = 7.5
    assert load_machine(write(tmp_path, data)).local_us == 7.5


@pytest.mark.parametrize(
    ("keys", "value", "match"),
    [
        (("format",), "tuccl-topology/1", r"\$\.format"),
        (("constants", "local_us", "value"), "fast", r"\$\.constants\.local_us\.value"),
        (("constants", "local_us", "value"), None, r"\$\.constants\.local_us\.value"),
        (("constants", "local_us", "value"), -1, "local_us"),
        (("constants", "sm_count", "value"), 1.5, r"\$\.constants\.sm_count\.value"),
        (("constants", "fifo_slots", "value"), 3, "fifo_slots"),
        (("constants", "colour"), {"value": 1, "source": ""}, "colour"),
        (("constants", "nvlink_efficiency", "value"), 1.5, "nvlink_efficiency"),
        (("protocols", "LL", "send_gbs", "value"), 0, "send_gbs"),
        (("protocols", "LL", "hop_us"), {"value": 1}, r"\$\.protocols\.LL\.hop_us"),
    ],
)
def test_a_bad_constant_is_named(
    tmp_path: Path, keys: tuple[str, ...], value: object, match: str
) -> None:
    data = copy.deepcopy(PLAIN)
    at = data
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    with pytest.raises(InputError, match=match) as caught:
        load_machine(write(tmp_path, data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["h200", "", "/", "a\0b", "x" * 5000])
def test_an_unknown_class_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match="v100, a100") as caught:
        load_machine(name)
    assert len(str(caught.value)) < 400


@given(st.data())
def test_a_file_damaged_at_any_byte_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = bytearray(json.dumps(PLAIN).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(text)
    try:
        load_machine(path)
    except InputError as error:
        assert "\n" not in str(error)
