"""TACCL's own sketches and profiles, all of them, and what its rules forbid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.sketches import Sketch, load_sketch
from tuccl.sketches.checks import checked
from tuccl.sketches.files import decode_sketch, encode_sketch
from tuccl.sketches.taccl import decode_taccl_sketch, read_taccl_profile, taccl_to_sketch
from tuccl.sketches.taccl_profile import (
    SHIPPED_UNITS,
    TacclMachine,
    TacclProfile,
    decode_taccl_profile,
)
from tuccl.topology.fabric import join
from tuccl.topology.graph import Topology
from tuccl.topology.paths import path
from tuccl.topology.profiles import load_profile

INTERNODE = {
    "sk1-ndv2-n2": 2,
    "sk1-ndv2-n4": 12,
    "sk2-ndv2-n2": 128,
    "sk2-ndv2-n4": 768,
    "sk3-ndv2-n2": 16,
    "sk1-dgx2-n2": 16,
    "sk2-dgx2-n2": 32,
}


def profiles(folder: Path) -> dict[str, TacclProfile]:
    found = {}
    for file in sorted((folder / "taccl" / "topo").glob("*.json")):
        name = json.loads(file.read_text())["name"]
        machine: TacclMachine = "NDv2" if name.startswith("NDv2") else "DGX2"
        found[file.stem] = read_taccl_profile(file, machine, *SHIPPED_UNITS[name])
    return found


def test_all_profiles_describe_the_same_physics(shared_data: Path) -> None:
    """Five files in three units: 0.3 us NVLink, 2.6 us InfiniBand, like betas."""
    found = profiles(shared_data)
    assert len(found) == 5
    for profile in found.values():
        assert profile.alpha_us == pytest.approx(0.3)
        assert profile.remote_alpha_us == pytest.approx(2.6)
        assert profile.remote_beta_us_per_mb == pytest.approx(100.1, rel=0.001)
    ndv2 = [profile.betas for name, profile in found.items() if "ndv2" in name]
    for betas in ndv2:
        assert betas == tuple(zip(*betas, strict=True))
        degrees = [
            sum(0 < beta < 30 for beta in row) * 2 + sum(beta > 30 for beta in row) for row in betas
        ]
        assert degrees == [6] * 8, "a V100 has six NVLinks"
        assert betas[0][1] == pytest.approx(ndv2[0][0][1], rel=0.01)


def test_all_sketches_on_their_profiles(shared_data: Path) -> None:
    found = profiles(shared_data)
    files = sorted((shared_data / "taccl" / "sketch").glob("*.json"))
    assert len(files) == 11
    for file in files:
        raw = json.loads(file.read_text())
        for name, profile in found.items():
            if name.split("-")[1] not in file.stem:
                continue
            sketch = load_sketch(file, profile)
            assert sketch.ranks == raw["nnodes"] * profile.gpus_per_node
            assert sketch.internode_links == INTERNODE.get(file.stem, 0)
            assert sketch.chunks_per_rank == raw["hyperparameters"]["input_chunkup"]
            assert nx.is_strongly_connected(nx.DiGraph(list(sketch.pairs)))
            assert checked(sketch) is sketch
            assert decode_sketch(encode_sketch(sketch)) == sketch


MACHINES = {"dgx2": "dgx-2", "ndv2": "ndv2"}


def test_all_sketches_on_real_machines(shared_data: Path) -> None:
    for file in sorted((shared_data / "taccl" / "sketch").glob("*.json")):
        nodes = json.loads(file.read_text())["nnodes"]
        t = join(load_profile(MACHINES[file.stem.split("-")[1]]), nodes)
        sketch = load_sketch(file, t)
        assert sketch.internode_links == INTERNODE.get(file.stem, 0)
        for link in sketch.links:
            way = path(t, link.src, link.dst)
            assert link.beta_us_per_mb == pytest.approx(1e3 / way.bandwidth)
            if not link.inter:
                assert all(hop.kind == "nvlink" for hop in way.hops)
    sketch = load_sketch(
        shared_data / "taccl" / "sketch" / "sk1-dgx2-n2.json", join(load_profile("dgx-2"), 2)
    )
    assert sketch.relays[17] == (16, 17)
    assert sketch.own_chunks_first
    assert {link.congestion for link in sketch.links if link.inter} == {0.0}, "one link a NIC"


def test_a_taccl_sketch_needs_a_machine(shared_data: Path) -> None:
    with pytest.raises(InputError, match="give its topology"):
        load_sketch(shared_data / "taccl" / "sketch" / "sk1-ndv2-n2.json")


HUB = TacclProfile(
    name="hub",
    gpus_per_node=4,
    nics_per_node=2,
    alpha_us=0.5,
    betas=tuple(tuple(0.0 if a == b else 20.0 for b in range(4)) for a in range(4)),
    remote_alpha_us=2.0,
    remote_beta_us_per_mb=80.0,
)
BASE: dict[str, Any] = {
    "nnodes": 2,
    "intranode_sketch": {"strategy": "none"},
    "internode_sketch": {"strategy": "relay", "internode_conn": {"1": [0], "3": [2]}},
    "symmetry_offsets": [[4, 8]],
    "hyperparameters": {"input_chunkup": 2},
}


def read(changes: dict[str, Any], machine: TacclProfile | Topology = HUB) -> Sketch:
    return taccl_to_sketch(decode_taccl_sketch(json.dumps(BASE | changes).encode()), machine)


def inter(**changes: object) -> dict[str, Any]:
    return {"internode_sketch": BASE["internode_sketch"] | changes}


def switched(*switches: list[int]) -> dict[str, Any]:
    strategy = {"switches": switches, "switch_hyperedge_strategy": ["uc-min"] * len(switches)}
    return {"intranode_sketch": {"strategy": "switch"} | strategy}


def test_the_base_is_read_in_full() -> None:
    sketch = read(inter(gpus_to_sender_rev_map={"1": [0, 1], "3": [2, 3]}, enforce_ordering=True))
    assert sketch.internode_links == 4
    assert sketch.relays == {1: (0, 1), 3: (2, 3), 5: (4, 5), 7: (6, 7)}
    assert sketch.own_chunks_first
    assert sketch.symmetry == ((4, 8),)
    assert sketch.chunks_per_rank == 2
    assert sketch.bindings[3] == "n0/nic1"


def test_equal_switches_are_planes_that_add_up() -> None:
    sketch = read(switched([0, 1, 2, 3], [0, 1, 2, 3]))
    link = sketch.link(0, 1)
    assert link is not None
    assert link.beta_us_per_mb == 10.0
    assert len(sketch.switches) == 4
    assert sketch.switch_strategy == ("uc-min",) * 4


def test_links_that_share_a_nic_are_congested_not_slowed() -> None:
    sketch = read(inter(internode_conn="fully-connected"))
    remote = [link for link in sketch.links if link.inter]
    assert {link.beta_us_per_mb for link in remote} == {80.0}
    assert {link.congestion for link in remote} == {7.0}


def test_an_objective_that_is_not_used_is_noted() -> None:
    assert "minmax" in read({"intranode_sketch": {"strategy": "minmax"}}).notes[0]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"nnodes": 0}, r"\$\.nnodes"),
        ({"nnodes": 10**9}, r"\$\.nnodes"),
        ({"nnodes": 1000}, r"\$\.nnodes"),
        ({"nnodes": 1}, r"\$\.internode_sketch"),
        ({"internode_sketch": None}, r"\$\.internode_sketch"),
        ({"nodes": 2}, "nodes"),
        ({"intranode_sketch": {"strategy": "ring"}}, r"\$\.intranode_sketch\.strategy"),
        ({"intranode_sketch": {"strategy": "switch"}}, r"\$\.intranode_sketch\.switches"),
        (switched([0, 1], [1, 2]), r"switches\[1\].*overlaps"),
        (switched([0, 4]), r"\$\.intranode_sketch\.switches\[0\]"),
        (switched([]), r"\$\.intranode_sketch\.switches\[0\]"),
        (
            {
                "intranode_sketch": switched([0, 1])["intranode_sketch"]
                | {"switch_hyperedge_strategy": []}
            },
            r"\$\.intranode_sketch\.switch_hyperedge_strategy",
        ),
        (inter(strategy="direct"), r"\$\.internode_sketch\.strategy"),
        (inter(internode_conn="all"), r"\$\.internode_sketch\.internode_conn"),
        (inter(internode_conn={"0": [1], "1": [0, 2]}), "same for every sender"),
        (inter(internode_conn={"0": [4]}), r"\$\.internode_sketch\.internode_conn\.0"),
        (inter(internode_conn={"0": []}), r"\$\.internode_sketch\.internode_conn\.0"),
        (inter(internode_conn={}), r"\$\.internode_sketch\.internode_conn"),
        (inter(gpus_to_sender_rev_map={"1": [0, 1]}), "no sender carries"),
        (inter(gpus_to_sender_rev_map={"0": [0, 1, 2, 3]}), "sends nothing"),
        ({"symmetry_offsets": [[1, 4]]}, r"\$\.symmetry\[0\].*takes link"),
        ({"symmetry_offsets": [[1, 0]]}, r"\$\.symmetry_offsets\[0\]"),
        ({"hyperparameters": {"input_chunkup": 0}}, r"\$\.hyperparameters\.input_chunkup"),
    ],
)
def test_rules_of_taccl_are_named_with_their_place(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError, match=where) as raised:
        read(changes)
    assert "\n" not in str(raised.value)


def test_a_sketch_for_another_machine_is_refused() -> None:
    with pytest.raises(InputError, match=r"\$\.nnodes"):
        read({}, join(load_profile("v100x4"), 3))


PROFILE: dict[str, Any] = {
    "name": "hub",
    "gpus_per_node": 4,
    "nics_per_node": 2,
    "alpha": 0.5,
    "node_betas_list": [20],
    "node_invbws_list": [20],
    "remote_alpha": 2,
    "remote_beta": 80,
    "remote_invbw": 82,
}
MATRIX = [[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]
CUSTOM = {
    "links": MATRIX,
    "betas": MATRIX,
    "invbws": MATRIX,
    "node_betas_list": None,
    "node_invbws_list": None,
}


def profile(changes: dict[str, Any], machine: TacclMachine = "HubAndSpoke") -> TacclProfile:
    data = {key: value for key, value in (PROFILE | changes).items() if value is not None}
    return decode_taccl_profile(json.dumps(data).encode(), "p.json", machine, 10**6, 1.0)


def test_profiles_of_any_hub_and_of_custom_machines() -> None:
    assert profile({}).betas == HUB.betas
    custom = profile(CUSTOM, "custom")
    assert custom.betas[3][0] == 0.0, "matrices are [dst][src]: row 0 lacks source 3"
    assert custom.betas[0][3] == 1.0
    single = profile(
        {"nics_per_node": None, "remote_alpha": None, "remote_beta": None, "remote_invbw": None}
    )
    with pytest.raises(InputError, match="no NICs"):
        read({}, single)


@pytest.mark.parametrize(
    ("changes", "machine", "where"),
    [
        ({"gpus_per_node": 0}, "HubAndSpoke", r"\$\.gpus_per_node"),
        ({"gpus_per_node": 10**9}, "HubAndSpoke", r"\$\.gpus_per_node"),
        ({"nics_per_node": 0}, "HubAndSpoke", r"\$\.nics_per_node"),
        ({"alpha": -1}, "HubAndSpoke", r"\$\.alpha"),
        ({"remote_beta": 0}, "HubAndSpoke", r"\$\.remote_beta"),
        ({"remote_alpha": None}, "HubAndSpoke", r"\$\.remote_alpha"),
        ({"node_betas_list": [1, 2]}, "HubAndSpoke", r"\$\.node_betas_list"),
        ({"node_betas_list": [0]}, "HubAndSpoke", r"\$\.node_betas_list"),
        ({"links": MATRIX}, "HubAndSpoke", r"\$\.links"),
        ({}, "NDv2", r"\$\.gpus_per_node"),
        ({"gpus_per_node": 16}, "DGX2", r"\$\.nics_per_node"),
        ({}, "custom", r"\$\.node_betas_list"),
        (CUSTOM | {"links": [[0]]}, "custom", r"\$\.links"),
        (CUSTOM | {"betas": [[0] * 4] * 4}, "custom", r"\$\.links\[0\]\[1\]"),
        ({"bandwidth": 3}, "HubAndSpoke", "bandwidth"),
    ],
)
def test_bad_profiles(changes: dict[str, Any], machine: TacclMachine, where: str) -> None:
    with pytest.raises(InputError, match=where):
        profile(changes, machine)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
RAW = json.dumps(BASE | inter(gpus_to_sender_rev_map={"1": [0, 1], "3": [2, 3]})).encode()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(RAW)), st.binary(max_size=3), st.integers(0, 10))
def test_damage_anywhere_raises_input_errors_only(at: int, put: bytes, length: int) -> None:
    try:
        sketch = taccl_to_sketch(decode_taccl_sketch(RAW[:at] + put + RAW[at + length :]), HUB)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert decode_sketch(encode_sketch(sketch)) == sketch


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*BASE, "extra"]), values)
def test_any_value_in_any_field_raises_input_errors_only(key: str, value: object) -> None:
    data = msgspec.json.encode(BASE | {key: value})
    try:
        taccl_to_sketch(decode_taccl_sketch(data), HUB)
    except InputError as error:
        assert "\n" not in str(error)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*PROFILE, "links", "betas"]), values)
def test_any_value_in_any_field_of_a_profile_is_read_or_refused(key: str, value: object) -> None:
    data = msgspec.json.encode(PROFILE | {key: value})
    try:
        found = decode_taccl_profile(data, "p.json", "HubAndSpoke", 1024, 1.0)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert len(found.betas) == found.gpus_per_node
