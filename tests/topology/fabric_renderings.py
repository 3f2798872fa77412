"""Fabrics for tests, and what other tools would write of them."""

from __future__ import annotations

import json
from collections import defaultdict

from tuccl.topology import Fabric
from tuccl.topology.switches import Adapter, Trunk

LANES = {0.25: "SDR", 3.125: "EDR", 6.25: "HDR", 12.5: "NDR", 25.0: "XDR"}


def fat_tree(
    leaves: int, spines: int, hosts: int, nics: int = 1, gbs: float = 50.0, cables: int = 1
) -> Fabric:
    """Return a tree of two tiers with ``hosts`` hosts, NIC i of a host on leaf i of its rack."""
    switches = [*(f"leaf{i}" for i in range(leaves)), *(f"spine{i}" for i in range(spines))]
    racks = max(1, leaves // nics)
    adapters = []
    for host in range(hosts):
        for nic in range(nics):
            guid = f"{0x2C5E000000000000 + 16 * host + nic:016x}"
            leaf = f"leaf{((host * racks // hosts) * nics + nic) % leaves}"
            names = (f"node{host + 1:02}", f"mlx5_{nic}")
            adapters.append(Adapter(f"H-{guid}", leaf, gbs, *names, (guid,)))
    trunks = [
        Trunk(f"leaf{leaf}", f"spine{spine}", gbs * cables, cables)
        for leaf in range(leaves)
        for spine in range(spines)
    ]
    return Fabric("tree", tuple(switches), tuple(adapters), tuple(trunks))


def ibnetdiscover(fabric: Fabric) -> str:
    """Return what ``ibnetdiscover`` prints for ``fabric``; all adapters have one port."""
    guid_of = {switch: f"{0xEC0D000000000000 + n:016x}" for n, switch in enumerate(fabric.switches)}
    ports: dict[str, list[str]] = defaultdict(list)
    stanzas = []

    def speed(gbs: float | None) -> str:
        return f"4x{LANES[(gbs or 0) / 4]}"

    for trunk in fabric.trunks:
        for _ in range(trunk.cables):
            near, far = len(ports[trunk.src]) + 1, len(ports[trunk.dst]) + 1
            each = speed((trunk.gbs or 0) / trunk.cables)
            for src, port, dst, peer in (
                (trunk.src, near, trunk.dst, far),
                (trunk.dst, far, trunk.src, near),
            ):
                text = f'[{port}]\t"S-{guid_of[dst]}"[{peer}]\t\t# "MF0;{dst}:MQM9700/U1" lid 3 '
                ports[src].append(text + each)
    for adapter in fabric.adapters:
        guid, switch, each = adapter.guids[0], adapter.switch, speed(adapter.gbs)
        called = f"{adapter.host} {adapter.device}"
        port = len(ports[switch]) + 1
        ports[switch].append(f'[{port}]\t"H-{guid}"[1]({guid}) \t\t# "{called}" lid 9 {each}')
        stanzas.append(
            f"vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid}\ncaguid=0x{guid}\n"
            f'Ca\t1 "H-{guid}"\t\t# "{called}"\n'
            f'[1]({guid}) \t"S-{guid_of[switch]}"[{port}]\t\t# lid 9 lmc 0 '
            f'"MF0;{switch}:MQM9700/U1" lid 3 {each}\n'
        )
    for switch, guid in guid_of.items():
        lines = "\n".join(ports[switch])
        stanzas.append(
            f"vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{guid}\nswitchguid=0x{guid}({guid})\n"
            f'Switch\t65 "S-{guid}"\t\t# "MF0;{switch}:MQM9700/U1" enhanced port 0 lid 3 lmc 0\n'
            f"{lines}\n"
        )
    return "#\n# Topology file: generated on Wed Aug  6 16:11:23 2025\n#\n\n" + "\n".join(stanzas)


def slurm_conf(fabric: Fabric) -> str:
    """Return Slurm's topology.conf for ``fabric``; a trunk's first switch is the lower one."""
    lines = []
    for switch in fabric.switches:
        hosts = dict.fromkeys(a.host or "" for a in fabric.adapters if a.switch == switch)
        below = [trunk.src for trunk in fabric.trunks if trunk.dst == switch]
        line = f"SwitchName={switch}"
        line += f" Nodes={','.join(hosts)}" if hosts else ""
        lines.append(line + (f" Switches={','.join(below)}" if below else ""))
    return "\n".join([*lines, ""])


def kubernetes_json(fabric: Fabric) -> str:
    """Return what kubectl prints of the nodes of ``fabric``, a tree of at most two tiers."""
    above = {trunk.src: trunk.dst for trunk in fabric.trunks}
    leaf_of = {adapter.host: adapter.switch for adapter in fabric.adapters}
    items = []
    for host, leaf in leaf_of.items():
        labels = {"fabric.topograph.run/tier-0": leaf}
        if leaf in above:
            labels["fabric.topograph.run/tier-1"] = above[leaf]
        items.append({"kind": "Node", "metadata": {"name": host, "labels": labels}})
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"})


def infragraph_json(fabric: Fabric) -> str:
    """Return an InfraGraph of ``fabric``: hosts by number, switches by name."""
    hosts = {host: number for number, host in enumerate(fabric.hosts)}
    nics: dict[str, int] = defaultdict(int)
    edges = []

    def edge(first: tuple[str, str], second: tuple[str, str], link: str) -> None:
        ends = [dict(zip(("instance", "component"), e, strict=True)) for e in (first, second)]
        edges.append({"ep1": ends[0], "ep2": ends[1], "link": link, "scheme": "one2one"})

    for adapter in fabric.adapters:
        host = adapter.host or ""
        near = (f"host[{hosts[host]}]", f"nic[{nics[host]}]")
        nics[host] += 1
        edge(near, (f"{adapter.switch}[0]", "port[0]"), "nic")
    for trunk in fabric.trunks:
        edge((f"{trunk.src}[0]", "port[1]"), (f"{trunk.dst}[0]", "port[1]"), "up")
    instances = [{"name": "host", "device": "server", "count": len(hosts)}]
    instances += [{"name": name, "device": "switch", "count": 1} for name in fabric.switches]
    parts = {"server": ("nic", max(nics.values()), "nic"), "switch": ("port", 2, "port")}
    devices = [
        {"name": name, "components": [dict(zip(("name", "count", "choice"), part, strict=True))]}
        for name, part in parts.items()
    ]
    links = [{"name": name} for name in ("nic", "up")]
    return json.dumps({"devices": devices, "instances": instances, "edges": edges, "links": links})
