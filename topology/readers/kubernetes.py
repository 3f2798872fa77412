"""Reads ``kubectl get nodes -o json``: the switches that node labels name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.slurm import tree_of
from tuccl.topology.readers.yaml_files import decode_values
from tuccl.topology.switches import Fabric

_MOST_NODES = 65536


def _numbered(prefix: str, *, rising: bool) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that orders the labels ``prefix`` + number, closest to the node first."""
    pattern = re.compile(re.escape(prefix) + "([0-9]{1,3})")

    def ordered(labels: Sequence[str]) -> list[str]:
        numbers = {label: int(m[1]) for label in labels if (m := pattern.fullmatch(label))}
        return sorted(numbers, key=numbers.__getitem__, reverse=not rising)

    return ordered


def _listed(*names: str) -> Callable[[Sequence[str]], list[str]]:
    return lambda labels: [name for name in names if name in labels]


# Labels that name the switches above nodes, each closest first: topograph (its names of
# today, of 2025 and before), AWS, Google, Oracle.
_FAMILIES = (
    _numbered("fabric.topograph.run/tier-", rising=True),
    _numbered("network.topology.nvidia.com/tier-", rising=True),
    _listed(*(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core"))),
    _listed(*(f"network.topology.kubernetes.io/{t}" for t in ("block", "spine", "datacenter"))),
    _numbered("topology.k8s.aws/network-node-layer-", rising=False),
    _listed("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    _listed(
        *(
            f"oci.oraclecloud.com/rdma.{t}_id"
            for t in ("local_block", "network_block", "hpc_island")
        )
    ),
    _listed("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
)
_PLACES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_NVLINK_DOMAINS = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "xclr.topology.nvidia.com/domain",
    "network.topology.nvidia.com/accelerator",
)


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    metadata: _Metadata
    kind: str = "Node"


class _Nodes(msgspec.Struct, frozen=True):
    items: list[_Node]
    kind: Literal["List", "NodeList"]  # stands last: a file that was cut lacks it


def _decode(data: bytes, path: str, name: str) -> tuple[Fabric, tuple[str, ...]]:
    place = printable_path(path)
    nodes = [node for node in decode_values(data, _Nodes, place).items if node.kind == "Node"]
    if len(nodes) > _MOST_NODES:
        raise InputError(f"{place}: more than {_MOST_NODES} nodes")
    labels = sorted({label for node in nodes for label in node.metadata.labels})
    tiers = next((found for family in _FAMILIES if (found := family(labels))), [])
    places = _listed(*_PLACES)(labels)
    # Zones and regions stand above switches only where those leave parts apart.
    fabric = None
    for count in range(len(places) + 1):
        if tiers or count:
            fabric = _tree(nodes, [*tiers, *places[:count]], place, name)
            if len(fabric.parts) == 1:
                break
    if fabric is None:
        raise InputError(
            f"{place}: no label of the {len(nodes)} nodes names a switch; let topograph or the "
            "cloud's own labels (docs/reference/topology.md) be set first"
        )
    return fabric, tuple(f"{place}: {text}" for text in _warnings(nodes, fabric, tiers))


def _tree(nodes: Sequence[_Node], tiers: Sequence[str], place: str, name: str) -> Fabric:
    """Return the switches that ``tiers``, labels from the closest up, name."""
    tiers_of: dict[str, set[str]] = {}
    for node in nodes:
        for tier in tiers:
            if value := node.metadata.labels.get(tier):
                tiers_of.setdefault(value, set()).add(tier)
    hosts: dict[str, list[str]] = {}
    below: dict[str, dict[str, None]] = {}
    for node in nodes:
        child = node.metadata.name
        for tier in tiers:
            value = node.metadata.labels.get(tier)
            if not value:
                continue
            switch = value if len(tiers_of[value]) == 1 else f"{tier.partition('/')[2]} {value}"
            of_switch = hosts.setdefault(switch, [])
            children = below.setdefault(switch, {})
            if child == node.metadata.name:
                of_switch.append(child)
            else:
                children[child] = None
            child = switch
    return tree_of({s: (hosts[s], list(below[s]), place) for s in hosts}, place, name)


def _warnings(nodes: Sequence[_Node], fabric: Fabric, tiers: Sequence[str]) -> list[str]:
    warnings = []
    unlabelled = len({node.metadata.name for node in nodes} - set(fabric.hosts))
    if unlabelled:
        warnings.append(f"{unlabelled} of {len(nodes)} nodes have no such label and are left out")
    if not tiers:
        warnings.append("labels name zones or regions only, no switches")
    domains = {
        value
        for node in nodes
        for label in _NVLINK_DOMAINS
        if (value := node.metadata.labels.get(label))
    }
    if domains:
        warnings.append(
            f"hosts share {len(domains)} NVLink domains, whose links between hosts labels do not "
            "name"
        )
    return warnings


_START = re.compile(rb'"apiVersion"\s*:\s*"v1"|^apiVersion:\s*v1\s*$', re.MULTILINE)

KUBERNETES: Reader[Fabric] = Reader(
    "kubernetes",
    "labels of Kubernetes nodes (kubectl get nodes -o json)",
    lambda data: _START.search(data[: 1 << 20]) is not None,
    _decode,
)
