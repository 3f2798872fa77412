"""One machine, written as each tool would describe it."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuccl.topology import Link, Node, Topology
from tuccl.topology.smi import smi_matrix

SPEED = {"max_link_speed": "8.0 GT/s PCIe", "max_link_width": "16"}


def random_machine(seed: int) -> Topology:
    """Return V100s and adapters on PCIe trees of one or two levels, and perhaps NVLinks."""
    chance = random.Random(seed)
    nodes: list[Node] = []
    links: list[Link] = []
    parents: list[str] = []

    def add(node: Node, parent: str) -> None:
        nodes.append(node)
        links.append(Link(node.id, parent, "pcie", 15.76, 0.44, duplex=True))

    cpus = [f"cpu{number}" for number in range(chance.randint(1, 3))]
    for cpu in cpus:
        parents.append(cpu)
        for upper in range(chance.randint(0, 2)):
            parents.append(f"{cpu}u{upper}")
            add(Node(parents[-1], "pcie", "n0"), cpu)
            for lower in range(chance.randint(0, 2)):
                add(Node(f"{cpu}u{upper}l{lower}", "pcie", "n0"), f"{cpu}u{upper}")
                parents.append(f"{cpu}u{upper}l{lower}")
    places = sorted(chance.choice(parents) for _ in range(chance.randint(2, 9)))
    for rank, parent in enumerate(places):
        add(Node(f"gpu{rank}", "gpu", "n0", rank=rank, model="V100-SXM2-16GB"), parent)
    nics = sorted(chance.choice(parents) for _ in range(chance.randint(0, 4)))
    for number, parent in enumerate(nics):
        add(Node(f"nic{number}", "nic", "n0", port_gbs=12.5, device=f"mlx5_{number}"), parent)
    for number in range(len(nics), len(nics) + 2 * chance.randint(0, 2), 2):
        card = Node(f"card{number}", "pcie", "n0", model="ConnectX-5 Ex")
        nics.append(chance.choice(parents))
        add(card, nics[-1])
        for port in (number, number + 1):
            add(Node(f"nic{port}", "nic", "n0", port_gbs=12.5, device=f"mlx5_{port}"), card.id)
    wiring = chance.choice(("none", "pairs", "switch"))
    if wiring == "switch" and len(places) > 4:
        nodes.append(Node("nvswitch0", "nvswitch", "n0"))
        links += [
            Link(f"gpu{rank}", "nvswitch0", "nvlink", 150.0, 0.175, duplex=True)
            for rank in range(len(places))
        ]
    elif wiring == "pairs":
        for rank in range(len(places) - 1):
            gbs = 25.0 * chance.randint(1, 3)
            links.append(Link(f"gpu{rank}", f"gpu{rank + 1}", "nvlink", gbs, 0.3, duplex=True))
    used = {link.dst for link in links if link.dst in cpus} | {
        p for p in (*places, *nics) if p in cpus
    }
    nodes += [Node(cpu, "cpu", "n0") for cpu in cpus if cpu in used]
    links += [
        Link(one, two, "cpu", 6.0, 0.15, duplex=True)
        for at, one in enumerate(cpus)
        for two in cpus[:at]
        if {one, two} <= used
    ]
    return Topology("machine", tuple(nodes), tuple(links))


@dataclass(frozen=True)
class Device:
    """A GPU or NIC of a machine: its address, and the addresses of all ports above it.

    Attributes:
        node: of the topology.
        numa: of its CPU.
        ports: root port, then upstream and downstream port of each switch.
        nvlinks: addresses of the peers (None: an NVSwitch) with the number of links.
    """

    node: Node
    busid: str
    numa: int
    ports: tuple[str, ...]
    nvlinks: tuple[tuple[str | None, int], ...] = ()


def devices(topology: Topology) -> list[Device]:
    """The GPUs and NICs of a machine with one bus for each port, in the order of the nodes."""
    above = {link.src: link.dst for link in topology.links if link.kind == "pcie"}
    leaves = [node for node in topology.nodes if node.kind in ("gpu", "nic")]
    cards = {node.id for node in topology.nodes if node.kind == "pcie" and node.model}
    switches_of_all = [n.id for n in topology.nodes if n.kind == "pcie" and n.id not in cards]
    busids = {node.id: _address(1, at) for at, node in enumerate(leaves)}
    for src, dst in above.items():
        ports_of_card = [node for node in leaves if above[node.id] == dst and dst in cards]
        if src in busids and ports_of_card:
            first = busids[ports_of_card[0].id]
            function = [node.id for node in ports_of_card].index(src)
            busids[src] = f"{first[:-1]}{function}"
    upstream = {node_id: _address(2, at) for at, node_id in enumerate(switches_of_all)}
    number = {node_id: at for at, node_id in enumerate([*upstream, *busids, *sorted(cards)])}
    found: list[Device] = []
    for node in leaves:
        chain = [above[node.id]]
        while chain[-1] in above:
            chain.append(above[chain[-1]])
        place = chain.pop(0) if chain[0] in cards else node.id
        cpu, *switches = reversed(chain)
        # A downstream port is of one device below it; where that is a switch, of this switch.
        below = [*switches[1:], place] if switches else []
        ports = [_address(4, number[switches[0] if switches else place])]
        for switch, child in zip(switches, below, strict=True):
            ports += [upstream[switch], _address(3, number[child])]
        found.append(
            Device(
                node, busids[node.id], int(cpu[3:]), tuple(ports), _nvlinks(topology, node, busids)
            )
        )
    return found


def _address(domain: int, number: int) -> str:
    return f"{domain << 8 | number >> 8:04x}:{number & 255:02x}:00.0"


def _nvlinks(
    topology: Topology, node: Node, busids: dict[str, str]
) -> tuple[tuple[str | None, int], ...]:
    ends = [
        (link.dst if link.src == node.id else link.src, round(link.bandwidth / 25))
        for link in topology.links
        if link.kind == "nvlink" and node.id in (link.src, link.dst)
    ]
    return tuple((busids.get(end), count) for end, count in ends)


def _fields(device: Device) -> dict[str, str]:
    if device.node.kind == "gpu":
        return {"class": "0x030200", "vendor": "0x10de", "device": "0x1db1"}
    return {"class": "0x020700", "vendor": "0x15b3", "device": "0x1019"}


def sysfs(topology: Topology) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of a machine's /sys with their texts, and the links with their targets."""
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    for device in devices(topology):
        place = f"devices/pci0000:{device.numa:02x}"
        for busid in (*device.ports, device.busid):
            place += f"/{busid}"
            links[f"sys/bus/pci/devices/{busid}"] = f"../../../{place}"
            fields = _fields(device) if busid == device.busid else {"class": "0x060400"}
            for name, text in {**fields, **SPEED, "numa_node": str(device.numa)}.items():
                texts[f"sys/{place}/{name}"] = text
        if device.node.kind == "nic":
            port = f"sys/{place}/infiniband/{device.node.device}/ports/1"
            texts[f"{port}/rate"] = "100 Gb/sec (4X EDR)"
    return texts, links


def write_sysfs(topology: Topology, root: Path) -> Path:
    """Write the /sys of a machine below ``root``, and return it."""
    texts, links = sysfs(topology)
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    return root


def pack_sysfs(topology: Topology, mode: str = "w:") -> bytes:
    """Return the /sys of a machine as a tar file."""
    texts, links = sysfs(topology)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as tar:  # type: ignore[call-overload]
        for name, text in texts.items():
            member = tarfile.TarInfo(f"capture/{name}")
            member.size = 4096  # as files of /sys claim; tar pads them with zeros
            tar.addfile(member, io.BytesIO(f"{text}\n".encode().ljust(4096, b"\0")))
        for name, target in links.items():
            member = tarfile.TarInfo(f"capture/{name}")
            member.type = tarfile.SYMTYPE
            member.linkname = target
            tar.addfile(member)
    return data.getvalue()


def nccl_xml(topology: Topology) -> bytes:
    """Return what NCCL would dump."""
    lines = ['<system version="1">']
    found = devices(topology)
    number = 0
    for numa in dict.fromkeys(device.numa for device in found):
        lines.append(f'<cpu numaid="{numa}" arch="x86_64">')
        opened: list[str] = []
        for device in sorted((d for d in found if d.numa == numa), key=lambda d: d.ports[1::2]):
            switches = list(device.ports[1::2])
            while opened != switches[: len(opened)]:
                lines.append("</pci>")
                opened.pop()
            for busid in switches[len(opened) :]:
                lines.append(_pci(busid, {"class": "0x060400"}) + ">")
                opened.append(busid)
            lines.append(_pci(device.busid, _fields(device)) + ">")
            rank = device.node.rank
            if rank is not None:
                lines.append(f'<gpu dev="{rank}" sm="70" rank="{rank}">')
                lines += [
                    f'<nvlink target="{peer or "fffffff:ffff:ff"}" count="{count}" '
                    f'tclass="{"0x030200" if peer else "0x068000"}"/>'
                    for peer, count in device.nvlinks
                ]
                lines.append("</gpu>")
            else:
                number = int(device.node.id[3:])
                lines.append(
                    f'<nic><net name="mlx5_{number}" dev="{number}" speed="100000"/></nic>'
                )
            lines.append("</pci>")
        lines += ["</pci>"] * len(opened) + ["</cpu>"]
    return "\n".join([*lines, "</system>"]).encode()


def _pci(busid: str, fields: dict[str, str]) -> str:
    attributes = {"busid": busid, **fields, "link_speed": "8 GT/s", "link_width": "16"}
    return "<pci " + " ".join(f'{name}="{value}"' for name, value in attributes.items())


def hwloc_xml(topology: Topology, version: int = 2) -> bytes:
    """Return what lstopo would write, with NVLinks as the NVML plugin lists them."""
    found = devices(topology)
    numbers = iter(range(100, 10_000))
    header = f'<topology version="{version}.0">' if version > 1 else "<topology>"
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE topology SYSTEM "hwloc.dtd">', header]
    nodes = sorted({device.numa for device in found})
    everything = sum(1 << numa for numa in nodes)
    lines.append(f'<object type="Machine" gp_index="1" nodeset="{everything:#010x}">')
    rdma = {1: 3, 2: 3, 3: 32}[version]
    indexes: dict[str, int] = {}
    for numa in nodes:
        kind = "Package" if version > 1 else "NUMANode"
        lines.append(
            f'<object type="{kind}" gp_index="{next(numbers)}" nodeset="{1 << numa:#010x}">'
        )
        opened: list[str] = []
        for device in sorted((d for d in found if d.numa == numa), key=lambda d: d.ports):
            while opened != list(device.ports[: len(opened)]):
                lines.append("</object>")
                opened.pop()
            for busid in device.ports[len(opened) :]:
                kind = _object("Bridge", busid, "0604 [10b5:9781]", next(numbers))
                lines.append(f'{kind} bridge_type="1-1">')
                opened.append(busid)
            fields = {name: text.removeprefix("0x") for name, text in _fields(device).items()}
            text = f"{fields['class'][:4]} [{fields['vendor']}:{fields['device']}]"
            lines.append(_object("PCIDev", device.busid, text, next(numbers)) + ">")
            indexes[device.busid] = next(numbers)
            rank = device.node.rank
            name = device.node.device if rank is None else f"nvml{rank}"
            code = rdma if rank is None else {1: 1, 2: 1, 3: 12}[version]
            lines.append(
                f'<object type="OSDev" gp_index="{indexes[device.busid]}" name="{name}" '
                f'osdev_type="{code}"/></object>'
            )
        lines += ["</object>"] * len(opened) + ["</object>"]
    switch = next(numbers)
    if any(peer is None for device in found for peer, _ in device.nvlinks):
        text = _object("PCIDev", "0000:f0:00.0", "0000 [0000:0000]", switch)
        lines.append(text + ' subtype="NVSwitch"/>')
    lines.append("</object>")
    if version > 1 and any(device.nvlinks for device in found):
        lines += _distances(found, indexes, switch)
    return "\n".join([*lines, "</topology>"]).encode()


def _object(kind: str, busid: str, pci_type: str, index: int) -> str:
    return (
        f'<object type="{kind}" gp_index="{index}" pci_busid="{busid}" '
        f'pci_type="{pci_type} [0000:0000] 00 00" pci_link_speed="15.753846"'
    )


def _distances(found: list[Device], indexes: dict[str, int], switch: int) -> Iterator[str]:
    gpus = [device for device in found if device.node.kind == "gpu"]
    ends: list[str | None] = [gpu.busid for gpu in gpus]
    names = [f"OSDev:{indexes[gpu.busid]}" for gpu in gpus]
    if any(peer is None for gpu in gpus for peer, _ in gpu.nvlinks):
        ends.append(None)
        names.append(f"PCIDev:{switch}")
    values = [str(25000 * dict(gpu.nvlinks).get(end, 0)) for gpu in gpus for end in ends]
    values += ["0"] * (len(ends) * len(ends) - len(values))
    yield f'<distances2hetero nbobjs="{len(ends)}" kind="25" name="NVLinkBandwidth">'
    yield f'<indexes length="1">{" ".join(names)} </indexes>'
    for row in range(len(ends)):
        yield f"<u64values>{' '.join(values[row * len(ends) : (row + 1) * len(ends)])} </u64values>"
    yield "</distances2hetero>"


def without_nvlink(topology: Topology) -> Topology:
    """The PCIe tree of a machine."""
    links = tuple(link for link in topology.links if link.kind not in ("nvlink", "xgmi"))
    return msgspec.structs.replace(topology, links=links)


def smi_text(topology: Topology) -> bytes:
    """Return ``nvidia-smi topo -m`` and, for the classes that it hides, ``topo -mp``."""
    return "\n".join((smi_matrix(topology), "", smi_matrix(without_nvlink(topology)), "")).encode()


def gpu_graph(topology: Topology) -> dict[str, object]:
    """What all descriptions of a machine share: counts, NVLinks with rates, classes of pairs."""
    rates: dict[frozenset[str], float] = {}
    for link in topology.links:
        if link.kind == "nvlink":
            ends = frozenset((link.src, link.dst))
            rates[ends] = rates.get(ends, 0) + link.bandwidth
    return {
        "gpus": topology.ranks,
        "nvlinks": rates,
        "classes": classes(without_nvlink(topology)),
    }


def classes(topology: Topology) -> list[str]:
    """Return the rows of nvidia-smi's matrix, without CPUs and NUMA nodes."""
    rows = smi_matrix(topology).split("\n\n")[0].splitlines()
    return [row.split("\tN/A")[0] for row in rows[1:]]


def rocm_text(gpus: int, *, near: int | None = None) -> bytes:
    """Return ``rocm-smi --showtopo`` of GPUs joined by xGMI in groups of ``near``, else in a ring.

    The first half of them is on NUMA node 0.
    """
    half = (gpus + 1) // 2

    def distance(one: int, two: int) -> int:
        if near is not None:
            return 1 if one // near == two // near else 0
        return min((one - two) % gpus, (two - one) % gpus)

    def table(title: str, cell: Callable[[int, int], object]) -> list[str]:
        rows = [
            f"{'=' * 20} {title} {'=' * 20}",
            "       " + " ".join(f"GPU{i}" for i in range(gpus)),
        ]
        for one in range(gpus):
            cells = ["0" if one == two else str(cell(one, two)) for two in range(gpus)]
            rows.append(f"GPU{one}   " + " ".join(cell.ljust(12) for cell in cells))
        return [*rows, ""]

    lines = [f"{'=' * 20} ROCm System Management Interface {'=' * 20}"]
    lines += table("Weight between two GPUs", lambda a, b: 15 * distance(a, b) or 72)
    lines += table("Hops between two GPUs", lambda a, b: distance(a, b) or 3)
    lines += table("Link Type between two GPUs", lambda a, b: "XGMI" if distance(a, b) else "PCIE")
    lines.append(f"{'=' * 20} Numa Nodes {'=' * 20}")
    for gpu in range(gpus):
        lines.append(f"GPU[{gpu}]\t\t: (Topology) Numa Node: {int(gpu >= half)}")
        lines.append(f"GPU[{gpu}]\t\t: (Topology) Numa Affinity: {int(gpu >= half)}")
    return "\n".join([*lines, f"{'=' * 20} End of ROCm SMI Log {'=' * 20}", ""]).encode()
