"""Fabric files: what is read, what is refused, and where hosts have their places in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.fabric_renderings import (
    fat_tree,
    ibnetdiscover,
    infragraph_json,
    kubernetes_json,
    slurm_conf,
)
from tuccl.errors import InputError
from tuccl.topology import (
    Fabric,
    Topology,
    all_paths,
    join_hosts,
    load_profile,
    path,
    read_fabric,
    signature,
)
from tuccl.topology.cabling import host_order
from tuccl.topology.switches import Adapter, Trunk, united

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a fabric file and returns its path."""

    def file(text: str | bytes) -> Path:
        target = tmp_path / "fabric.out"
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    return file


def named(profile: str, devices: int = 8, guid: int | None = None) -> Topology:
    """The host of a profile, its NICs with names and GUIDs."""
    host = load_profile(profile)
    nics = [node for node in host.nodes if node.kind == "nic"]
    nodes = [node for node in host.nodes if node.kind != "nic"]
    for number, nic in enumerate(nics):
        name = f"mlx5_{number}" if number < devices else f"eth{number}"
        of_nic = None if guid is None else f"{guid + number:016x}"
        nodes.append(msgspec.structs.replace(nic, device=name, guid=of_nic))
    return msgspec.structs.replace(host, nodes=tuple(nodes))


def network(t: Topology) -> dict[tuple[str, str], float]:
    return {(x.src, x.dst): x.bandwidth for x in t.links if x.kind == "network"}


def test_the_public_capture_is_read_whole(shared_data: Path) -> None:
    file = shared_data / "topologies" / "fabric" / "ibnetdiscover_example.out"
    fabric, warnings = read_fabric(file)
    assert (len(fabric.switches), len(fabric.adapters), len(fabric.parts)) == (40, 582, 1)
    assert sum(trunk.cables for trunk in fabric.trunks) == 532
    assert sum(adapter.aggregation for adapter in fabric.adapters) == 40
    assert {adapter.gbs for adapter in fabric.adapters} == {50.0}
    assert "A09-P1-IBLEAF-04-04" in fabric.switches
    assert fabric.tiers["A10-P1-IBSPINE-01"] == 2
    assert "a05-p1-dgx-01-c04" in fabric.hosts
    assert not warnings
    assert "40 switches in 2 tiers (31 + 9), 582 adapters" in fabric.describe()


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4), st.integers(0, 3), st.integers(1, 6), st.integers(1, 3), st.integers(1, 2)
)
def test_ibnetdiscover_gives_back_the_fabric(
    tmp_path_factory: pytest.TempPathFactory,
    leaves: int,
    spines: int,
    hosts: int,
    nics: int,
    n: int,
) -> None:
    fabric = fat_tree(leaves, spines, hosts, nics, cables=n)
    file = tmp_path_factory.mktemp("fabric") / "tree.out"
    file.write_text(ibnetdiscover(fabric))
    back, warnings = read_fabric(file)
    assert bool(warnings) == (len(fabric.parts) > 1)
    assert set(back.switches) == set(fabric.switches)
    assert set(back.adapters) == set(fabric.adapters)
    ends = {(frozenset((t.src, t.dst)), t.gbs, t.cables) for t in fabric.trunks}
    assert {(frozenset((t.src, t.dst)), t.gbs, t.cables) for t in back.trunks} == ends
    assert back.hosts == fabric.hosts


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 8))
def test_four_descriptions_give_one_fabric(
    tmp_path_factory: pytest.TempPathFactory, leaves: int, hosts: int
) -> None:
    fabric = fat_tree(leaves, 1, max(hosts, leaves))
    file = tmp_path_factory.mktemp("fabric") / "tree"
    racks = []
    for render in (ibnetdiscover, slurm_conf, kubernetes_json, infragraph_json):
        file.write_text(render(fabric))
        back, _ = read_fabric(file)
        assert sorted(back.tiers.values()) == sorted(fabric.tiers.values())
        assert len(back.trunks) == len(fabric.trunks)
        number = {host: n for n, host in enumerate(back.hosts)}
        on: dict[str, set[int]] = {}
        for adapter in back.adapters:
            on.setdefault(adapter.switch, set()).add(number[adapter.host or ""])
        racks.append(sorted(map(sorted, on.values())))
    assert all(rack == racks[0] for rack in racks)


def test_a_file_that_was_cut_anywhere_is_refused(write: Write) -> None:
    text = ibnetdiscover(fat_tree(2, 1, 2))
    for end in range(0, len(text.rstrip()), 7):
        with pytest.raises(InputError):
            read_fabric(write(text[:end]))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = bytearray(ibnetdiscover(fat_tree(2, 1, 2)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=4))
    file = tmp_path_factory.mktemp("fabric") / "damaged.out"
    file.write_bytes(bytes(text))
    try:
        fabric, _ = read_fabric(file)
    except InputError as error:
        assert len(str(error)) < 600
    else:
        assert isinstance(fabric, Fabric)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("4xNDR", "4xBDR", "speed 'BDR'"),
        ("4xNDR", "0xNDR", "width '0x'"),
        ("[1]", "[x]", "no line of ibnetdiscover"),
        ('[2]\t"S-', '[1]\t"S-', "duplicate port"),
    ],
)
def test_a_bad_line_is_named(write: Write, old: str, new: str, reason: str) -> None:
    text = ibnetdiscover(fat_tree(2, 2, 2)).replace(old, new, 1)
    with pytest.raises(InputError, match=rf"fabric\.out:\d+: .*{reason}"):
        read_fabric(write(text))


ODD = """#
# Initiated from node 0008f10403960558 port 0008f10403960559

Chassis 1 (guid 0x8f1040041000)

# Spine Nodes
vendid=0x8f1
devid=0x5a06
sysimgguid=0x8f10400411f59\t\t# Chassis 1
switchguid=0x5442ba00003080(5442ba00003080)\t# ISR9024 spine 1
Switch\t24 "S-005442ba00003080"\t\t# "ISR9024 Voltaire" base port 0 lid 6 lmc 0
[22][ext 3]\t"H-0008f10403961354"[1](8f10403961355) \t\t# "MT23108 InfiniHost Mellanox" lid 4 4xSDR
[8]\t"H-0008f10403960558"[2](8f1040396055a) \t\t# "localhost HCA-1" lid 14 4xFDR10 s=4 w=2 v=4
[12]\t"H-0008f10403960558"[1](8f10403960559) \t\t# "localhost HCA-1" lid 10 2xHDR
[13]\t"R-0008f10403960777"[1](8f10403960778) \t\t# "a router" lid 11 ????? slot 2

vendid=0x8f1
devid=0x5a06
rtguid=0x8f10403960777
Rt\t1 "R-0008f10403960777"\t\t# "a router"
[1](8f10403960778) \t"S-005442ba00003080"[13]\t\t# lid 11 lmc 0 "ISR9024 Voltaire" lid 6 ?????

vendid=0x2c9
devid=0x5a44
caguid=0x8f10403961354
Ca\t2 "H-0008f10403961354"\t\t# "MT23108 InfiniHost Mellanox"
[1](8f10403961355) \t"S-005442ba00003080"[22][ext 3]\t\t# lid 4 lmc 1 "ISR9024 Voltaire" lid 6 4xSDR

vendid=0x2c9
devid=0x5a44
caguid=0x8f10403960558
Ca\t2 "H-0008f10403960558"\t\t# "localhost HCA-1" (scp)
[1](8f10403960559) \t"S-005442ba00003080"[12]\t\t# lid 10 lmc 1 "ISR9024 Voltaire" lid 6 2xHDR
[2](8f1040396055a) \t"S-005442ba00003080"[8]\t\t# lid 14 lmc 1 "ISR9024 Voltaire" lid 6 4xFDR10
"""


def test_old_and_odd_lines_are_read(write: Write) -> None:
    fabric, warnings = read_fabric(write(ODD))
    assert fabric.switches == ("ISR9024 Voltaire",)
    rates = {adapter.guids[0]: adapter.gbs for adapter in fabric.adapters}
    assert rates == {
        "0008f10403961355": 1.0,
        "0008f10403960559": 12.5,
        "0008f1040396055a": 5.0,
    }
    assert {adapter.host for adapter in fabric.adapters} == {None}
    assert any("1 routers are left out" in text for text in warnings)
    assert any("unknown rate" in text for text in warnings)
    assert read_fabric(write("\ufeff" + ODD.replace("\n", "\r\n")))[0] == fabric
    assert read_fabric(write(ODD.replace("\t", "    ")))[0] == fabric


def test_a_guid_that_is_there_twice_is_refused(write: Write) -> None:
    text = ibnetdiscover(fat_tree(1, 0, 2))
    stanza = next(part for part in text.split("\n\n") if "\nCa\t" in part)
    with pytest.raises(InputError, match=r"duplicate GUID .*, first in .*:\d+"):
        read_fabric(write(text + "\n\n" + stanza))


def test_a_host_without_a_switch_says_what_to_do(write: Write) -> None:
    with pytest.raises(InputError, match="no switch; run ibnetdiscover on a host whose port"):
        read_fabric(write('vendid=0x2c9\ncaguid=0x1\nCa\t1 "H-b8e92403009ca838"\t\t# "a HCA-1"\n'))


def test_a_cable_to_its_own_switch_is_a_loop(write: Write) -> None:
    guid, end = "ec0d000000000000", '# "a" lid 3 4xNDR'
    text = (
        f'vendid=0x2c9\nSwitch\t4 "S-{guid}"\t\t# "a" base port 0 lid 3 lmc 0\n'
        f'[1]\t"S-{guid}"[2]\t\t{end}\n[2]\t"S-{guid}"[1]\t\t{end}\n'
    )
    with pytest.raises(InputError, match="loop"):
        read_fabric(write(text))


def test_nics_find_their_places_by_name() -> None:
    fabric = fat_tree(16, 2, 4, nics=8)
    cluster, warnings = join_hosts([named("dgx-h100")] * 2, ["node01", "node03.example"], fabric)
    assert not warnings
    assert network(cluster)["node01/nic3", "leaf3"] == 50.0
    assert network(cluster)["node03.example/nic3", "leaf11"] == 50.0
    # Two spines are one way; each leaf has two cables to them.
    assert network(cluster)["leaf3", "spine0 and 1 more"] == 100.0
    assert [hop.dst for hop in path(cluster, 3, 11).hops][2:5] == [
        "leaf3",
        "spine0 and 1 more",
        "leaf11",
    ]


@pytest.mark.parametrize("backwards", [False, True])
def test_nics_find_their_places_by_guid(backwards: bool) -> None:
    fabric = fat_tree(8, 1, 4, nics=8)
    host = named("dgx-h100", guid=0x2C5E000000000010)  # the second of the fabric
    if backwards:
        nodes = [
            msgspec.structs.replace(n, guid=bytes.fromhex(n.guid)[::-1].hex()) if n.guid else n
            for n in host.nodes
        ]
        host = msgspec.structs.replace(host, nodes=tuple(nodes))
    cluster, _ = join_hosts([host, named("dgx-h100")], ["other", "node04"], fabric)
    assert network(cluster)["other/nic5", "leaf5"] == 50.0


def test_node_descriptions_count_from_one() -> None:
    adapters = tuple(
        Adapter(f"H-{n}", "leaf", 50.0, host, f"HCA-{n + 1}", (f"{host[-1]}{n:015x}",))
        for host in ("h1", "h2")
        for n in range(8)
    )
    fabric = Fabric(
        "f", ("leaf",), tuple(msgspec.structs.replace(a, id=a.guids[0]) for a in adapters)
    )
    cluster, warnings = join_hosts([named("dgx-h100")] * 2, ["h1", "h2"], fabric)
    assert not warnings
    assert len(network(cluster)) == 16


def test_nics_without_a_place_are_left_out_and_named() -> None:
    cluster, warnings = join_hosts(
        [named("dgx-h100")] * 2, ["node01", "node02"], fat_tree(4, 1, 2, nics=4)
    )
    assert cluster.nics_of("node01") == tuple(f"node01/nic{n}" for n in range(4))
    [warning] = warnings
    assert "nic7 (mlx5_7) of node01, node02" in warning
    assert len(all_paths(cluster)) == 16 * 15


def test_a_host_without_a_place_is_refused() -> None:
    fabric = fat_tree(2, 1, 4)
    with pytest.raises(InputError, match=r"host 'gpu9' has no place in it.*'node01'.*--names"):
        join_hosts([named("ndv2")] * 2, ["node01", "gpu9"], fabric)
    with pytest.raises(InputError, match="it lists mlx5_0 there, but neither by GUID nor by name"):
        join_hosts([named("ndv2"), load_profile("dgx-h100")], ["node01", "node02"], fabric)


def test_hosts_that_no_cable_joins_are_refused() -> None:
    fabric = msgspec.structs.replace(fat_tree(2, 1, 4), trunks=())
    assert len(fabric.parts) == 3
    assert "3 parts that no cable joins" in fabric.describe()
    with pytest.raises(InputError, match="no cable joins host 'node04' with 'node01'"):
        join_hosts([named("ndv2")] * 2, ["node01", "node04"], fabric)
    # Rails are parts of their own: their hosts join them.
    rails = msgspec.structs.replace(fat_tree(8, 0, 2, nics=8), trunks=())
    assert len(rails.parts) == 8
    cluster, _ = join_hosts([named("dgx-h100")] * 2, ["node01", "node02"], rails)
    assert len(all_paths(cluster)) == 16 * 15


def test_several_files_are_one_fabric_of_several_parts() -> None:
    whole = msgspec.structs.replace(fat_tree(8, 0, 2, nics=8), trunks=())
    rails = [
        Fabric(leaf, (leaf,), tuple(a for a in whole.adapters if a.switch == leaf))
        for leaf in whole.switches
    ]
    assert set(united(rails).adapters) == set(whole.adapters)
    cluster, _ = join_hosts([named("dgx-h100")] * 2, ["node01", "node02"], united(rails))
    assert len(network(cluster)) == 16
    with pytest.raises(InputError, match=r"duplicate .*'leaf0'"):
        united([rails[0], rails[0]])


def test_hosts_and_ranks_by_rack() -> None:
    fabric = fat_tree(2, 1, 12)
    names = ["node11", "other", "node02", "node10", "node01"]
    assert host_order(fabric, names) == ("node01", "node02", "node10", "node11", "other")


def test_only_switches_between_the_hosts_are_kept() -> None:
    fabric = fat_tree(4, 3, 8)
    near, _ = join_hosts([named("ndv2")] * 2, ["node01", "node02"], fabric)
    assert {node.id for node in near.nodes if node.kind == "switch"} == {"leaf0"}
    far, _ = join_hosts([named("ndv2")] * 2, ["node01", "node08"], fabric)
    assert sum(node.kind == "switch" for node in far.nodes) == 3


def test_uplinks_of_unknown_rate_carry_all_from_below_or_what_is_given() -> None:
    known = fat_tree(2, 2, 8)
    fabric = msgspec.structs.replace(
        known,
        adapters=tuple(Adapter(h, a.switch, host=h) for a in known.adapters if (h := a.host)),
        trunks=tuple(Trunk(t.src, t.dst) for t in known.trunks),
    )
    hosts, names = [load_profile("dgx-h100")] * 4, ["node01", "node02", "node03", "node05"]
    cluster, _ = join_hosts(hosts, names, fabric)
    up = {x.src: x for x in cluster.links if x.src in ("leaf0", "leaf1")}
    assert {src: x.bandwidth for src, x in up.items()} == {"leaf0": 1200.0, "leaf1": 400.0}
    assert all(x.assumed for x in up.values())
    given, _ = join_hosts(hosts, names, fabric, up_gbs=100.0)
    assert network(given)["leaf1", "spine0 and 1 more"] == 100.0
    with pytest.raises(InputError, match="gives the rates of its uplinks itself"):
        join_hosts([named("ndv2")] * 2, ["node01", "node02"], known, up_gbs=100.0)


def test_a_cable_shows_the_rate_of_an_unknown_port() -> None:
    host = named("dgx-h100")
    nodes = tuple(msgspec.structs.replace(node, port_gbs=None) for node in host.nodes)
    bare = msgspec.structs.replace(host, nodes=nodes)
    fabric = fat_tree(8, 1, 2, nics=8)
    told, _ = join_hosts([bare, bare], ["node01", "node02"], fabric)
    known, _ = join_hosts([host, host], ["node01", "node02"], fabric)
    assert {told.node(nic).port_gbs for nic in told.nics_of("node02")} == {50.0}
    assert network(told) == network(known)
    assert signature(told) == signature(known)


def test_the_slower_of_port_and_cable_counts() -> None:
    fabric = fat_tree(1, 0, 2, gbs=12.5)
    cluster, _ = join_hosts([named("ndv2"), named("ndv2")], ["node01", "node02"], fabric)
    assert set(network(cluster).values()) == {12.5}
    slow, _ = join_hosts([named("ndv2")] * 2, ["node01", "node02"], fat_tree(1, 0, 2, gbs=1.0))
    assert set(network(slow).values()) == {1.0}


def test_parts_that_contradict_are_refused() -> None:
    for reason, parts in {
        "no switch": ((), (), ()),
        "duplicate switch 'a'": (("a", "a"), (), ()),
        "no switch 'b'": (("a",), (Adapter("h", "b"),), ()),
        "a loop": (("a",), (), (Trunk("a", "a"),)),
        "no switch of the file": (("a",), (), (Trunk("a", "b"),)),
        "duplicate GUID '1'": (
            ("a",),
            (Adapter("h", "a", guids=("1",)), Adapter("i", "a", guids=("1",))),
            (),
        ),
    }.items():
        with pytest.raises(InputError, match=reason):
            Fabric("f", *parts)
