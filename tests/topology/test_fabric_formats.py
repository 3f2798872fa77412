"""Slurm's, Kubernetes' and InfraGraph's files: the same fabric from each, damage refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.topology import Fabric, join_hosts, load_profile, read_fabric

Write = Callable[[str], Path]

SLURM = """# A rack of two leaves
SwitchName=leaf0 Nodes=gpu[01-02]
switchname = leaf1 nodes=gpu[03-04] LinkSpeed=100  # arbitrary units
SwitchName=core Switches=leaf[0-1]
"""
SLURM_YAML = """---
- topology: flat
  flat: true
- topology: racks
  cluster_default: true
  tree:
    switches:
      - switch: leaf0
        nodes: gpu[01-02]
      - switch: leaf1
        nodes: gpu[03-04]
      - switch: core
        children: leaf[0-1]
- topology: other
  block:
    block_sizes: [2, 4]
    blocks: [{block: b1, nodes: "gpu[01-02]"}, {block: b2, nodes: "gpu[03-04]"}]
"""
BLOCKS = "BlockName=b1 Nodes=gpu[01-02]\nBlockName=b2 \\\n  Nodes=gpu[03-04]\nBlockSizes=2,4\n"
FAMILIES = {
    "topograph": ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"),
    "topograph 2025": ("network.topology.nvidia.com/tier-0", "network.topology.nvidia.com/tier-1"),
    "nvidia": ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"),
    "aws": ("topology.k8s.aws/network-node-layer-3", "topology.k8s.aws/network-node-layer-2"),
    "google": ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    "oracle": ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
}


def kubernetes(labels: tuple[str, ...], *more: dict[str, str], top: str = "core") -> str:
    items = []
    for number in range(4):
        values = (f"leaf{number // 2}", top)
        extra = more[number] if number < len(more) else {}
        of_node = {**dict(zip(labels, values, strict=False)), **extra}
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"gpu0{number + 1}", "labels": of_node},
            }
        )
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"})


def infragraph(nics: int = 8) -> dict[str, object]:
    def edge(ep1: tuple[str, str], ep2: tuple[str, str], link: str, scheme: str) -> object:
        ends = [dict(zip(("instance", "component"), ep, strict=True)) for ep in (ep1, ep2)]
        return {"ep1": ends[0], "ep2": ends[1], "link": link, "scheme": scheme}

    return {
        "name": "pod",
        "devices": [
            {
                "name": "server",
                "components": [
                    {"name": "gpu", "count": 8, "choice": "xpu"},
                    {"name": "nic", "count": nics, "choice": "nic"},
                    {"name": "mgmt", "count": 1, "choice": "custom", "custom": {"type": "mgmt"}},
                ],
                "links": [],
                "edges": [],
            },
            {
                "name": "switch",
                "components": [
                    {"name": "asic", "count": 1, "choice": "cpu"},
                    {"name": "port", "count": 64, "choice": "port"},
                ],
                "links": [],
                "edges": [],
            },
        ],
        "links": [
            {"name": "host", "physical": {"bandwidth": {"gigabits_per_second": 400}}},
            {"name": "up", "physical": {"bandwidth": {"gigabytes_per_second": 100}}},
        ],
        "instances": [
            {"name": "host", "device": "server", "count": 4},
            {"name": "leaf", "device": "switch", "count": 2},
            {"name": "core", "device": "switch", "count": 1},
        ],
        "edges": [
            edge(("host[0:2]", "nic"), ("leaf[0]", "port[0:16]"), "host", "one2one"),
            edge(("host[2:4]", "nic[0:8]"), ("leaf[1]", "port[0:16]"), "host", "one2one"),
            edge(("leaf", "port[62]"), ("core", "port[0]"), "up", "many2many"),
            edge(("host[0]", "mgmt"), ("core[0]", "port[60]"), "host", "one2one"),
        ],
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a fabric file and returns its path."""

    def file(text: str) -> Path:
        target = tmp_path / "pod.txt"
        target.write_text(text)
        return target

    return file


def shape(fabric: Fabric) -> tuple[list[int], set[tuple[str, str]], set[frozenset[str]]]:
    tiers = sorted(fabric.tiers.values())
    places = {(a.host or "", a.switch) for a in fabric.adapters}
    return tiers, places, {frozenset((t.src, t.dst)) for t in fabric.trunks}


def test_slurm_and_every_family_of_labels_give_one_fabric(write: Write) -> None:
    expected = shape(read_fabric(write(SLURM))[0])
    assert expected[0] == [1, 1, 2]
    assert ("gpu04", "leaf1") in expected[1]
    assert frozenset(("leaf0", "core")) in expected[2]
    assert shape(read_fabric(write(SLURM_YAML))[0]) == expected
    assert shape(read_fabric(write("\ufeff" + SLURM.replace("\n", "\r\n")))[0]) == expected
    for name, labels in FAMILIES.items():
        fabric, warnings = read_fabric(write(kubernetes(labels)))
        assert shape(fabric) == expected, name
        assert not warnings


def test_blocks_meet_in_a_switch_that_is_assumed(write: Write) -> None:
    fabric, warnings = read_fabric(write(BLOCKS))
    assert sorted(fabric.tiers.values()) == [1, 1, 2]
    assert fabric.hosts == ("gpu01", "gpu02", "gpu03", "gpu04")
    assert any("one switch is assumed" in text for text in warnings)
    as_yaml = f"- topology: o{SLURM_YAML.partition('- topology: other')[2]}"
    again, warnings = read_fabric(write(as_yaml))
    assert (shape(again), len(warnings)) == (shape(fabric), 1)
    assert not read_fabric(write("BlockName=b Nodes=a,c\n"))[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SwitchName=a Nodes=h[1-\n", r"txt:1: .*h\[1-"),
        ("SwitchName=a Nodes=h[2-1]\n", r"txt:1: .*rising"),
        ("SwitchName=a Nodes=h[0-99999999]\n", "more than 65536 names"),
        (
            "".join(f"SwitchName=s{n} Nodes=h[1-65536]\n" for n in range(150)),
            "txt:3: more than 131072",
        ),
        (f"SwitchName=a Nodes={'h' * 256}[1-9]\n", "txt:1: .*at most 255 characters"),
        ("SwitchName=a Nodes=h\n" + "long name\\\n" * 100000, "txt:100001: .*expected SwitchName"),
        ("SwitchName=a Nodes=h1,\n", "ends in a comma"),
        ("SwitchName=a Switches=b\n", "'b', which no line defines"),
        ("SwitchName=a Nodes=h\nSwitchName=a Nodes=i\n", "txt:2: duplicate 'a'"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=h\n", "a loop"),
        ("SwitchName=a Switches=a Nodes=h\n", "a loop"),
        ("SwitchName=a Nodes=h,h\n", "duplicate name below .a."),
        ("SwitchName=a Speed=3\n", "txt:1: .*expected SwitchName"),
        ("SwitchName=a\n", "no host"),
        ("SwitchName=a Nodes=h\nBlockName=b Nodes=h\n", "switches and blocks"),
        ("SwitchName=a Nodes=h\nNodes=i\n", "txt:2: expected SwitchName"),
    ],
)
def test_slurm_lines_that_make_no_sense_are_refused(write: Write, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_fabric(write(text))


def test_slurm_lines_are_joined_and_names_counted_in_yaml_too(write: Write) -> None:
    joined, _ = read_fabric(
        write("SwitchName=a \\\n  # none\nSwitchName=b\\\n Nodes=h[1-2] \\\n\n")
    )
    assert joined.hosts == ("h1", "h2")
    switches = "".join(f"    - switch: s{n}\n      nodes: h[1-65536]\n" for n in range(150))
    with pytest.raises(InputError, match="more than 131072 names"):
        read_fabric(write(f"- topology: t\n  tree:\n    switches:\n{switches}"))


def test_a_slurm_file_without_its_last_line_end_may_be_cut(write: Write) -> None:
    _, warnings = read_fabric(write(SLURM.rstrip()))
    assert any("may be cut" in text for text in warnings)


def test_a_file_of_several_parts_may_be_cut(write: Write) -> None:
    _, warnings = read_fabric(write(SLURM.partition("SwitchName=core")[0]))
    assert any("2 parts that no cable joins" in text for text in warnings)
    with pytest.raises(InputError, match="kind"):
        read_fabric(write("apiVersion: v1\nitems:\n- metadata:\n    name: a\n"))


def test_zones_stand_above_switches_that_nothing_else_joins(write: Write) -> None:
    zone = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}
    labels = FAMILIES["nvidia"]
    joined = read_fabric(write(kubernetes(labels, zone, zone, zone, zone)))[0]
    assert len(joined.switches) == 3
    apart = read_fabric(write(kubernetes(labels[:1], zone, zone, zone, zone)))[0]
    assert set(apart.switches) == {"leaf0", "leaf1", "z1"}
    only, warnings = read_fabric(write(kubernetes((), zone, zone, zone, zone)))
    assert only.switches == ("z1",)
    assert any("zones or regions only" in text for text in warnings)


def test_nodes_without_labels_are_counted(write: Write) -> None:
    clique = {"nvidia.com/gpu.clique": "c.1"}
    _, warnings = read_fabric(write(kubernetes(FAMILIES["aws"], clique)))
    assert any("1 NVLink domains" in text for text in warnings)
    empty = dict.fromkeys(FAMILIES["aws"], "")
    _, warnings = read_fabric(write(kubernetes(FAMILIES["aws"], empty)))
    assert any("1 of 4 nodes have no such label" in text for text in warnings)
    with pytest.raises(InputError, match="no label of the 4 nodes names a switch"):
        read_fabric(write(kubernetes(())))


def test_infragraph_in_json_and_yaml(write: Write) -> None:
    import yaml

    fabric, warnings = read_fabric(write(json.dumps(infragraph())))
    assert fabric.describe() == (
        "pod: 3 switches in 2 tiers (2 + 1), 32 adapters, 4 named hosts, 34 cables; connected"
    )
    assert ("host.3", "leaf.1") in shape(fabric)[1]
    assert {adapter.gbs for adapter in fabric.adapters} == {50.0}
    assert {trunk.gbs for trunk in fabric.trunks} == {100.0}
    assert "1 cables" in warnings[0]
    again, _ = read_fabric(write(yaml.safe_dump(infragraph())))
    assert again == fabric
    cluster, _ = join_hosts([load_profile("dgx-h100")] * 2, ["host.1", "host.2"], fabric)
    links = {(x.src, x.dst): x.bandwidth for x in cluster.links if x.kind == "network"}
    assert links["host.2/nic3", "leaf.1"] == 50.0
    assert links["leaf.1", "core.0"] == 100.0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"nic[0:8]"', '"nic[0:9]"', r"edges\[1\].*out of range, there are 8"),
        ('"nic[0:8]"', '"gpus[0]"', r"edges\[1\].*expected one of gpu, mgmt, nic"),
        ('"link": "up"', '"link": "down"', "no link 'down'"),
        ('"many2many"', '"ring"', "ring is not read"),
        ('"count": 4', '"count": -4', "count -4"),
        ('"count": 4', '"count": "4"', "Expected `int`"),
        ('"device": "server"', '"device": "none"', "no device"),
        ('"gigabits_per_second": 400', '"gigabits_per_second": -1', "positive rate"),
    ],
)
def test_infragraph_that_makes_no_sense_is_refused(
    write: Write, old: str, new: str, reason: str
) -> None:
    text = json.dumps(infragraph())
    assert old in text
    with pytest.raises(InputError, match=reason):
        read_fabric(write(text.replace(old, new, 1)))


def test_yaml_aliases_are_refused(write: Write) -> None:
    bomb = "devices: []\ninstances: &a [1]\nedges: [*a, *a]\n"
    with pytest.raises(InputError, match="aliases"):
        read_fabric(write(bomb))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = data.draw(
        st.sampled_from(
            [
                SLURM,
                BLOCKS,
                kubernetes(FAMILIES["aws"]),
                json.dumps(infragraph()),
                "devices:\ninstances:\n",
            ]
        )
    )
    text = bytearray(whole.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=4))
    file = tmp_path_factory.mktemp("fabric") / "damaged.txt"
    file.write_bytes(bytes(text))
    try:
        fabric, _ = read_fabric(file)
    except InputError as error:
        assert len(str(error)) < 800
    else:
        assert isinstance(fabric, Fabric)


def test_json_that_was_cut_anywhere_is_refused(write: Write) -> None:
    for text in (kubernetes(FAMILIES["aws"]), json.dumps(infragraph())):
        for end in range(0, len(text), 31):
            with pytest.raises(InputError):
                read_fabric(write(text[:end]))


def test_hosts_of_labels_join_with_all_their_nics(write: Write) -> None:
    fabric, _ = read_fabric(write(kubernetes(FAMILIES["nvidia"])))
    host = load_profile("dgx-h100")
    cluster, warnings = join_hosts([host, host], ["gpu01", "gpu03"], fabric)
    assert not warnings
    links = [x for x in cluster.links if x.kind == "network"]
    assert sum(x.dst == "leaf0" for x in links) == 8
    assert {x.bandwidth for x in links if x.dst == "core"} == {400.0}
    assert all(x.assumed for x in links if x.dst == "core")
    assert msgspec.json.encode(cluster)
