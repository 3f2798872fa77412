"""The hosts of an InfraGraph, each a topology of its accelerators, NICs, CPUs and switches."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology import rates
from tuccl.topology.graph import Link, LinkKind, Node, NodeKind, Topology, quoted
from tuccl.topology.rates import Rate
from tuccl.topology.readers.inventory import Component, Inventory, LinkType, is_nic, part_of
from tuccl.topology.switches import natural

HOST = "n0"
_KINDS: dict[str, NodeKind] = {"xpu": "gpu", "cpu": "cpu"}
# GB/s per direction of all NVLinks of a GPU, by the generation that a link's name says (data
# sheets: P100, V100, A100, H100, B200).
_NVLINKS_GBS = {1: 80.0, 2: 150.0, 3: 300.0, 4: 450.0, 5: 900.0}
_C2C = Rate(450.0, "450 GB/s a NVLink-C2C assumed (GH200's data sheet)", True)
_GT_S = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
_MODEL = re.compile(r"\b(GB\d00|GH200|[PVAHBL]\d{2,3}|MI\d{3}[AX]?|TPU\S*)\b")


def infragraph_hosts(data: bytes, path: str) -> tuple[dict[str, Topology], tuple[str, ...]]:
    """Return the topology of each host with accelerators, by its name (host.0), and warnings.

    A NIC's device is its path in the InfraGraph, by which it has its place in the fabric of the
    same file. Rates that the file does not give are assumed by the names of links.

    Raises:
        InputError: the file is damaged or contradicts itself, or a host falls apart.
    """
    place = printable_path(path)
    try:
        inventory = Inventory(data, place)
        devices = inventory.machines()
        topologies = {
            device: _host(inventory, device)
            for device in dict.fromkeys(devices.values())
            if inventory.has(device, "xpu")
        }
    except InputError as error:
        raise InputError(f"{place}: {str(error).removeprefix(f'{place}: ')}") from None
    hosts = {name: topologies[device] for name, device in devices.items() if device in topologies}
    assumed = sum(link.assumed for topology in topologies.values() for link in topology.links)
    text = f"{place}: rates of {assumed} links inside hosts are not given and were assumed"
    return hosts, (text,) if assumed else ()


def _host(inventory: Inventory, device: str) -> Topology:
    parts = inventory.parts(device)
    link_types: dict[tuple[str, str], LinkType] = {}
    for src, dst, link_type in inventory.edges(device):
        near, far = sorted((_part(src, parts, device), _part(dst, parts, device)))
        if near != far:
            link_types.setdefault((near, far), link_type)
    kinds = {ends: _link_kind(parts, ends, link_type) for ends, link_type in link_types.items()}
    one_of = _nvswitches(parts, kinds)
    edges = _edges(parts, link_types, kinds, one_of)
    kind_of = {path: _node_kind(part, path in one_of) for path, part in parts.items()}
    _contract(edges, [path for path, part in parts.items() if part.choice == "custom"], kind_of)
    ids = _ids(_used(kind_of, edges), kind_of)
    nodes = [_node(path, parts[path], kind_of[path], node_id) for path, node_id in ids.items()]
    links = []
    for ends, (kind, rate) in edges.items():
        if ends[0] in ids and ends[1] in ids:
            latency = {"pcie": rates.PCIE_US, "cpu": rates.CPU_US}.get(kind, rates.NVLINK_US)
            source = f"InfraGraph: {rate.source}"[:255]
            src, dst = ids[ends[0]], ids[ends[1]]
            links.append(Link(src, dst, kind, rate.gbs, latency, True, rate.assumed, source))
    try:
        return Topology(device[:255], tuple(nodes), tuple(links))
    except InputError as error:
        raise InputError(f"device {quoted(device)}: {error}") from None


def _nvswitches(
    parts: Mapping[str, Component], kinds: Mapping[tuple[str, str], LinkKind]
) -> dict[str, str]:
    """Return for each switch between GPUs the first of those to the same GPUs: they are one."""
    gpus_of: dict[str, set[str]] = defaultdict(set)
    for ends, kind in kinds.items():
        for near, far in (ends, ends[::-1]):
            if kind in ("nvlink", "xgmi") and parts[near].choice != "xpu":
                gpus_of[near].add(far)
    first: dict[frozenset[str], str] = {}
    ordered = sorted(gpus_of, key=natural)
    return {path: first.setdefault(frozenset(gpus_of[path]), path) for path in ordered}


def _edges(
    parts: Mapping[str, Component],
    link_types: Mapping[tuple[str, str], LinkType],
    kinds: Mapping[tuple[str, str], LinkKind],
    one_of: Mapping[str, str],
) -> dict[tuple[str, str], tuple[LinkKind, Rate]]:
    """Return the kind and rate of all that joins two parts, switches between GPUs being one."""
    counts = Counter(
        end
        for ends, kind in kinds.items()
        for end in ends
        if kind == "nvlink" and parts[end].choice == "xpu"
    )
    edges: dict[tuple[str, str], tuple[LinkKind, Rate]] = {}
    for ends, link_type in link_types.items():
        kind = kinds[ends]
        # What a switch between GPUs has of PCIe is for its management.
        if kind == "pcie" and (ends[0] in one_of or ends[1] in one_of):
            continue
        rate = _rate(kind, link_type, max(counts[end] for end in ends))
        near, far = sorted(one_of.get(end, end) for end in ends)
        _, before = edges.get((near, far), (kind, None))
        if before is not None:
            rate = rate._replace(gbs=before.gbs + rate.gbs)
        edges[near, far] = (kind, rate)
    return edges


def _contract(
    edges: dict[tuple[str, str], tuple[LinkKind, Rate]],
    relays: Iterable[str],
    kind_of: Mapping[str, NodeKind],
) -> None:
    """Put one edge in the place of each of ``relays``, as slots are, that joins just two parts."""
    around: dict[str, set[str]] = defaultdict(set)
    for src, dst in edges:
        around[src].add(dst)
        around[dst].add(src)
    for path in relays:
        if len(around[path]) == 2:
            near, far = sorted(around[path])
            if far in around[near] or {kind_of[near], kind_of[far]} <= {"gpu", "nic"}:
                continue
            del around[path]
            both = [edges.pop((min(path, end), max(path, end))) for end in (near, far)]
            edges[near, far] = min(both, key=lambda edge: edge[1].gbs)
            for end, other in ((near, far), (far, near)):
                around[end].discard(path)
                around[end].add(other)


def _part(path: str, parts: dict[str, Component], device: str) -> str:
    part = part_of(path, parts)
    if part is None:
        raise InputError(f"device {quoted(device)}: an edge ends at {quoted(path)}, not at a part")
    return part


def _node_kind(part: Component, is_nvswitch: bool) -> NodeKind:
    if is_nic(part):
        return "nic"
    return "nvswitch" if is_nvswitch else _KINDS.get(part.choice, "pcie")


def _used(kind_of: Mapping[str, NodeKind], pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Return the GPUs, the NICs that have links, and what lies between any of them."""
    around: dict[str, set[str]] = defaultdict(set)
    for src, dst in pairs:
        around[src].add(dst)
        around[dst].add(src)
    used = {path for path, kind in kind_of.items() if kind == "gpu" or around[path]}
    ends = [path for path in used if kind_of[path] not in ("gpu", "nic") and len(around[path]) < 2]
    while ends:
        path = ends.pop()
        used.discard(path)
        for other in around.pop(path, set()):
            around[other].discard(path)
            if kind_of[other] not in ("gpu", "nic") and len(around[other]) == 1:
                ends.append(other)
    return used


def _ids(used: set[str], kind_of: Mapping[str, NodeKind]) -> dict[str, str]:
    """Return an id for each path, numbered by kind, in natural order."""
    counts: Counter[str] = Counter()
    ids = {}
    for path in sorted(used, key=natural):
        kind = kind_of[path]
        ids[path] = f"{kind}{counts[kind]}"
        counts[kind] += 1
    return ids


def _node(path: str, part: Component, kind: NodeKind, node_id: str) -> Node:
    if kind == "gpu":
        model = _MODEL.search(f"{part.name} {part.description}")
        rank = int(node_id.removeprefix("gpu"))
        return Node(node_id, kind, HOST, rank=rank, model=model[1] if model else None)
    return Node(node_id, kind, HOST, device=path[:255] if kind == "nic" else None)


def _link_kind(parts: dict[str, Component], ends: tuple[str, str], link_type: LinkType) -> LinkKind:
    text = f"{link_type.name} {link_type.description}".lower()
    choices = {parts[end].choice for end in ends}
    if choices == {"cpu"}:
        return "cpu"
    if "c2c" in text and "cpu" in choices:
        return "c2c"
    if "xpu" in choices and not choices & {"cpu", "nic", "port", "device"}:
        if "nvl" in text or "c2c" in text:
            return "nvlink"
        if "xgmi" in text or "infinity" in text:
            return "xgmi"
        if choices == {"xpu"}:
            return "nvlink"
    return "pcie"


def _rate(kind: LinkKind, link_type: LinkType, nvlinks: int) -> Rate:
    """Return the rate that ``link_type`` gives, or one assumed by its name.

    Args:
        kind: of the link.
        link_type: of the link.
        nvlinks: how many edges share the NVLinks of the GPU that has most of them.
    """
    text = f"{link_type.name} {link_type.description}".lower()
    name = f"link {link_type.name[:60]}"
    if link_type.gbs is not None:
        return Rate(link_type.gbs, name)
    generation = re.search("(?:gen|nvlink)[ _-]?([1-6])", text)
    if kind == "nvlink" and generation is not None and int(generation[1]) in _NVLINKS_GBS:
        gbs = _NVLINKS_GBS[int(generation[1])] / nvlinks
        return Rate(gbs, f"{name}: all NVLinks of a GPU over its {nvlinks} edges assumed", True)
    speed = f"{_GT_S[int(generation[1])]} GT/s" if generation and kind == "pcie" else None
    assumed = {
        "nvlink": rates.nvlink_rate(None),
        "xgmi": rates.xgmi_rate(""),
        "c2c": _C2C,
        "cpu": rates.cpu_rate("", "", None, None),
    }.get(kind, rates.pcie_rate(speed, "16" if speed else None))
    return Rate(assumed.gbs, f"{name}: {assumed.source} (assumed)", True)
