"""Reads Slurm's ``topology.yaml``, which takes the place of ``topology.conf`` from 25.05 on."""

from __future__ import annotations

import re

import msgspec

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.graph import quoted
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.slurm import SlurmSwitches, blocks_joined, tree_of
from tuccl.topology.readers.yaml_files import decode_values
from tuccl.topology.switches import Fabric


class _Switch(msgspec.Struct, frozen=True):
    switch: str
    nodes: str = ""
    children: str = ""


class _Tree(msgspec.Struct, frozen=True):
    switches: list[_Switch]


class _Block(msgspec.Struct, frozen=True):
    block: str
    nodes: str = ""


class _Blocks(msgspec.Struct, frozen=True):
    blocks: list[_Block]


class _Topology(msgspec.Struct, frozen=True):
    topology: str
    cluster_default: bool = False
    tree: _Tree | None = None
    block: _Blocks | None = None


def _decode(data: bytes, path: str, name: str) -> tuple[Fabric, tuple[str, ...]]:
    """Return the cluster's default topology, else the first that names switches or blocks."""
    place = printable_path(path)
    topologies = decode_values(data, list[_Topology], place)
    ordered = sorted(topologies, key=lambda topology: not topology.cluster_default)
    topology = next((t for t in ordered if t.tree or t.block), None)
    if topology is None:
        raise InputError(f"{place}: neither tree nor block; a flat topology names no switch")
    entries = [(b.block, b.nodes, "") for b in (topology.block.blocks if topology.block else ())]
    if topology.tree:
        entries = [(s.switch, s.nodes, s.children) for s in topology.tree.switches]
    switches = SlurmSwitches()
    where = f"{place}: topology {quoted(topology.topology)}"
    for label, nodes, children in entries:
        if label in switches:
            raise InputError(f"{where}: duplicate {quoted(label)}")
        switches.add(label, nodes, children, f"{where}, {quoted(label)}")
    warnings = () if topology.tree else blocks_joined(switches, place)
    return tree_of(switches, place, name), warnings


_START = re.compile(rb"^- +topology *:", re.MULTILINE)

SLURM_YAML: Reader[Fabric] = Reader(
    "slurm-yaml",
    "Slurm's topology.yaml",
    lambda data: _START.search(data[: 1 << 20]) is not None,
    _decode,
)
