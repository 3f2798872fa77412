"""InfraGraph files with accelerators: hosts and switches of one file become a machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.topology import Topology, all_paths, path, read_cluster, read_fabric
from tuccl.topology.nics import nearest_nics
from tuccl.topology.readers.fabrics import describes_fabric
from tuccl.topology.show import path_class

Write = Callable[[Any], Path]


def edge(first: str, second: str, link: str, scheme: str = "many2many") -> dict[str, Any]:
    ends = ({"component": first}, {"component": second})
    return {"ep1": ends[0], "ep2": ends[1], "link": link, "scheme": scheme}


def server(nic: str = "nic") -> dict[str, Any]:
    """A host of four GPUs behind two NVSwitches, two PCIe switches and slots."""
    components = [
        ("cpu", 2, "cpu", "AMD EPYC"),
        ("gpu", 4, "xpu", "NVIDIA A100 SXM4"),
        ("nvsw", 2, "switch", "NVSwitch"),
        ("pcisw", 2, "switch", "PCIe switch"),
        ("slot", 4, "custom", "PCIe slot"),
        ("nvme", 2, "custom", "NVMe SSD"),
        (nic, 4, "nic" if nic == "nic" else "device", "NIC"),
    ]
    inside = ".pcie[0]" if nic != "nic" else ""
    return {
        "name": "server",
        "components": [
            dict(zip(("name", "count", "choice", "description"), part, strict=True))
            for part in components
        ],
        "links": [{"name": name} for name in ("nvlink_3", "pcie_gen4", "fabric")],
        "edges": [
            edge("gpu", "nvsw", "nvlink_3"),
            edge("nvsw", "cpu[0]", "pcie_gen4"),
            edge("cpu", "cpu", "fabric"),
            edge("cpu", "pcisw", "pcie_gen4", "one2one"),
            edge("gpu[0:2]", "pcisw[0]", "pcie_gen4"),
            edge("gpu[2:4]", "pcisw[1]", "pcie_gen4"),
            edge("slot[0:2]", "pcisw[0]", "pcie_gen4"),
            edge("slot[2:4]", "pcisw[1]", "pcie_gen4"),
            edge(f"{nic}{inside}", "slot", "pcie_gen4", "one2one"),
            edge("nvme", "pcisw[1]", "pcie_gen4"),
        ],
    }


CARD: dict[str, Any] = {
    "name": "cx7",
    "components": [
        {"name": "pcie", "count": 1, "choice": "custom"},
        {"name": "asic", "count": 1, "choice": "cpu"},
        {"name": "port", "count": 1, "choice": "port"},
    ],
    "links": [{"name": "ic"}],
    "edges": [edge("pcie", "asic", "ic"), edge("asic", "port", "ic")],
}


def infrastructure(hosts: int = 2, nic: str = "nic") -> dict[str, Any]:
    switch = {
        "name": "leaf",
        "components": [{"name": "port", "count": 16, "choice": "port"}],
        "links": [],
        "edges": [],
    }
    port = f"{nic}[0:4]" if nic == "nic" else f"{nic}[0:4].port[0]"
    cable = edge(port, "port[0:16]", "200g", "one2one")
    cable["ep1"]["instance"], cable["ep2"]["instance"] = f"host[0:{hosts}]", "leaf[0]"
    return {
        "name": "pod",
        "devices": [server(nic), switch, *([] if nic == "nic" else [CARD])],
        "links": [{"name": "200g", "physical": {"bandwidth": {"gigabits_per_second": 200}}}],
        "instances": [
            {"name": "host", "device": "server", "count": hosts},
            {"name": "leaf", "device": "leaf", "count": 1},
        ],
        "edges": [cable],
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes an InfraGraph and returns its path."""

    def file(value: object) -> Path:
        target = tmp_path / "pod.json"
        target.write_text(value if isinstance(value, str) else json.dumps(value))
        return target

    return file


def rates(t: Topology, kind: str) -> dict[frozenset[str], float]:
    return {frozenset((x.src, x.dst)): x.bandwidth for x in t.links if x.kind == kind}


def test_one_host_has_its_gpus_nics_and_switches(write: Write) -> None:
    t, warnings = read_cluster(write(infrastructure(hosts=1)))
    assert (t.ranks, len(t.nics_of("n0"))) == (4, 4)
    # Two switches to the same GPUs are one, and share all NVLinks of a GPU.
    expected = {frozenset((f"gpu{n}", "nvswitch0")): 300.0 for n in range(4)}
    assert rates(t, "nvlink") == expected
    assert path_class(t, path(t, 0, 3)) == "NVS"
    assert set(rates(t, "pcie").values()) == {31.52}
    assert nearest_nics(t, 0) == ("nic0", "nic1")
    assert nearest_nics(t, 3) == ("nic2", "nic3")
    # Slots and disks are no parts of paths.
    assert sum(node.kind == "pcie" for node in t.nodes) == 2
    assert t.gpus[0].model == "A100"
    assert all(link.assumed for link in t.links)
    assert "were assumed" in warnings[0]


@pytest.mark.parametrize("nic", ["nic", "cx7"])
def test_hosts_are_joined_by_the_switches_of_the_file(write: Write, nic: str) -> None:
    t, _ = read_cluster(write(infrastructure(3, nic)))
    assert t.hosts == ("host.0", "host.1", "host.2")
    assert t.ranks == 12
    network = rates(t, "network")
    assert len(network) == 12
    assert set(network.values()) == {25.0}
    assert len(all_paths(t)) == 12 * 11
    assert path(t, 0, 11).nics[0] in ("host.0/nic0", "host.0/nic1")


def test_what_the_service_answers_is_read(write: Write) -> None:
    import yaml

    alone, _ = read_cluster(write(infrastructure()))
    graph = {"infrastructure": infrastructure(), "annotations": {"nodes": []}}
    for value in (graph, {"choice": "infragraph", "infragraph": graph}):
        assert read_cluster(write(value))[0] == alone
        assert read_cluster(write(yaml.safe_dump(value)))[0] == alone


def test_a_cable_from_a_switch_to_itself_is_left_out_and_reported(write: Write) -> None:
    value = infrastructure()
    loop = edge("port[14]", "port[15]", "200g", "one2one")
    loop["ep1"]["instance"] = loop["ep2"]["instance"] = "leaf[0]"
    value["edges"].append(loop)
    t, warnings = read_cluster(write(value))
    assert len(rates(t, "network")) == 8
    assert any("1 cables between hosts, from a switch to itself" in text for text in warnings)


def test_it_serves_as_a_fabric_file_too(write: Write) -> None:
    file = write(infrastructure(2, "cx7"))
    assert not describes_fabric(file)
    fabric, _ = read_fabric(file)
    assert fabric.describe() == (
        "pod: 1 switch in 1 tier, 8 adapters, 2 named hosts, 8 cables; connected"
    )
    assert {adapter.device for adapter in fabric.adapters} == {f"cx7.{n}" for n in range(4)}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"gpu[0:2]"', '"gpu[0:9]"', r"device 'server', \$\.edges\[4\]: .*out of range"),
        ('"link": "fabric"', '"link": "bus"', "no link 'bus'"),
        ('"name": "nvme"', '"name": "slot"', "duplicate component name"),
        ('"choice": "cpu"', '"choice": "device"', "no device 'cpu'"),
        ('"name": "leaf", "comp', '"name": "server", "comp', "duplicate device name"),
    ],
)
def test_what_contradicts_itself_is_refused(write: Write, old: str, new: str, reason: str) -> None:
    text = json.dumps(infrastructure())
    assert old in text
    with pytest.raises(InputError, match=rf"pod\.json: .*{reason}"):
        read_cluster(write(text.replace(old, new, 1)))


def test_a_device_that_is_part_of_itself_is_refused(write: Write) -> None:
    value = infrastructure(2, "cx7")
    part = {"name": "server", "count": 1, "choice": "device"}
    value["devices"][-1]["components"].append(part)
    with pytest.raises(InputError, match="part of itself"):
        read_cluster(write(value))


def test_devices_in_devices_do_not_grow_without_bound(write: Write) -> None:
    value = infrastructure(1)
    for depth in range(30):
        inner = [{"name": f"d{n}", "count": 9, "choice": "device"} for n in range(depth)]
        leaf = {"name": "gpu", "count": 1, "choice": "xpu"}
        value["devices"].append({"name": f"d{depth}", "components": [*inner, leaf], "edges": []})
    value["instances"][0]["device"] = "d29"
    with pytest.raises(InputError, match="at most"):
        read_cluster(write(value))


@pytest.mark.parametrize("step", [1, -1])
def test_devices_in_devices_are_refused_beyond_a_depth(write: Write, step: int) -> None:
    value = infrastructure(1)
    for depth in range(1500)[::step]:
        inner = [{"name": f"d{depth - 1}", "count": 1, "choice": "device"}] if depth else []
        value["devices"].append({"name": f"d{depth}", "components": inner, "edges": []})
    with pytest.raises(InputError, match="nested over 32 devices deep"):
        read_cluster(write(value))


def test_a_device_of_many_is_read_once(write: Write) -> None:
    value = infrastructure(1)
    for depth in range(30):
        parts = [{"name": f"d{n}", "count": 0, "choice": "device"} for n in range(depth)]
        gpu = {"name": "gpu", "count": 1, "choice": "xpu"}
        value["devices"].append({"name": f"d{depth}", "components": [*parts, gpu], "edges": []})
    value["instances"][0]["device"] = "d29"
    value["edges"] = []
    assert read_cluster(write(value))[0].ranks == 1


def test_a_gpu_that_nothing_joins_is_refused(write: Write) -> None:
    value = infrastructure(1)
    value["devices"][0]["edges"] = [
        e for e in value["devices"][0]["edges"] if "gpu" not in e["ep1"]["component"]
    ]
    with pytest.raises(InputError, match="cannot be reached"):
        read_cluster(write(value))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = bytearray(json.dumps(infrastructure(2, "cx7")).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 6))] = data.draw(st.binary(max_size=3))
    file = tmp_path_factory.mktemp("infragraph") / "damaged.json"
    file.write_bytes(bytes(text))
    try:
        cluster, _ = read_cluster(file)
    except InputError as error:
        assert len(str(error)) < 800
    else:
        assert isinstance(cluster, Topology)
