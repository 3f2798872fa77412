"""Stage 3: NIC groups become GPU-to-GPU links; everything else between hosts is pruned."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.full_mesh import link_over, unmarked_mesh
from tuccl.sketches.grouping import Grouping
from tuccl.sketches.nic_paths import NicPaths
from tuccl.sketches.sketch import LogicalLink, PrunedLink, Sketch
from tuccl.topology.graph import FixedRoute, Topology


def transform(
    topology: Topology,
    bindings: dict[int, str],
    grouping: Grouping,
    *,
    connections: int | None = 1,
    split: bool = False,
    mesh: Sketch | None = None,
) -> Sketch:
    """Return the sketch whose links between hosts join bound GPUs of NICs in one group.

    All links inside hosts stay. For each ordered pair of NICs in a group the GPUs bound to one,
    closest first, send to those bound to the other in the same order.

    Args:
        topology: The machine.
        bindings: From `bind`.
        grouping: From `group`.
        connections: How many GPUs of a NIC take part: 1 makes one GPU the relay of all that are
            bound to its NIC, None lets every GPU send for itself.
        split: The receiver is another GPU of the NIC than the sender, where it has several, so
            that neither's PCIe link works both ways.
        mesh: The full mesh of `topology`, where it exists already; links that it lacks stay out.

    Raises:
        InputError: `connections` is below 1, or two NICs of a group are not joined.

    Notes:
        TuCCL III.B, stage 3. Which of several GPUs bound to a NIC is connected the paper leaves
        open; `split` is how TACCL's sketch sk1-dgx2-n2 does it.
    """
    if connections is not None and connections < 1:
        raise InputError(f"{connections} connections for each NIC: expected at least 1")
    nic_paths = topology.derived(NicPaths)
    mesh = mesh or unmarked_mesh(topology)
    members = _members(topology, bindings, nic_paths)
    nic_pairs = dict.fromkeys(
        pair for nics in grouping.groups for pair in itertools.permutations(nics, 2)
    )
    inter: dict[tuple[int, int], LogicalLink] = {}
    for out_nic, in_nic in nic_pairs:
        for src, dst in _gpu_pairs(members[out_nic], members[in_nic], connections, split):
            if mesh.link(src, dst) is not None:
                inter[src, dst] = _link(nic_paths, src, dst, out_nic, in_nic)
    intra = (link for link in mesh.links if not link.inter)
    return replace(
        mesh,
        name=_name(connections, split),
        links=tuple(sorted((*intra, *inter.values()), key=lambda link: (link.src, link.dst))),
        bindings=bindings,
        groups=grouping.groups,
        relays=_relays(mesh.hosts, bindings, inter),
        pruned=mesh.pruned + tuple(_pruned(mesh, bindings, set(nic_pairs), inter)),
        notes=mesh.notes + grouping.notes + _detours(nic_paths, inter.values()),
    )


def _name(connections: int | None, split: bool) -> str:
    if connections is None:
        return "paired"
    return ("split" if split else "one") if connections == 1 else f"pairs-{connections}"


def _members(
    topology: Topology, bindings: dict[int, str], nic_paths: NicPaths
) -> dict[str, list[int]]:
    """Return the ranks bound to each NIC, closest first."""
    members: dict[str, list[int]] = defaultdict(list)
    for rank, nic in sorted(bindings.items()):
        members[nic].append(rank)
    for nic, ranks in members.items():
        ranks.sort(
            key=lambda rank: nic_paths.closeness(
                nic_paths.paths_to_nics(topology.gpus[rank].id)[nic]
            )
        )
    return members


def _gpu_pairs(
    senders: list[int], receivers: list[int], connections: int | None, split: bool
) -> Iterator[tuple[int, int]]:
    if split:
        receivers = receivers[1:] + receivers[:1]
    count = max(len(senders), len(receivers))
    if connections is not None:
        senders, receivers = senders[:connections], receivers[:connections]
        count = min(count, connections)
    for index in range(count):
        yield senders[index % len(senders)], receivers[index % len(receivers)]


def _link(nic_paths: NicPaths, src: int, dst: int, out_nic: str, in_nic: str) -> LogicalLink:
    path = nic_paths.path_by_nics(src, dst, out_nic, in_nic)
    if path is None:
        raise InputError(
            f"topology {nic_paths.topology.name[:60]!r}: NICs {out_nic[:60]!r} and {in_nic[:60]!r} "
            "are in one group and not joined: join them by a switch"
        )
    return link_over(path, src, dst, inter=True)


def _relays(
    hosts: tuple[int, ...], bindings: dict[int, str], inter: Iterable[tuple[int, int]]
) -> dict[int, tuple[int, ...]]:
    """Return the ranks whose chunks each sender carries out of its host.

    A rank that sends itself carries its own; another is carried by the least loaded sender of
    its NIC, or of its host where the NIC has none. Where that sender does not reach every host,
    others are added until together they do.
    """
    targets: dict[int, set[int]] = defaultdict(set)
    for src, dst in inter:
        targets[src].add(hosts[dst])
    carried: dict[int, list[int]] = {sender: [] for sender in sorted(targets)}
    for rank, nic in bindings.items():
        at_home = [sender for sender in carried if hosts[sender] == hosts[rank]]
        lacking = set(hosts) - {hosts[rank]}
        # The sort is stable: among equals the sender of the lowest rank.
        while lacking:
            choices = [sender for sender in at_home if targets[sender] & lacking]
            if not choices:
                break  # strong connectivity is checked on the whole sketch
            relay = min(
                choices,
                key=lambda sender: (
                    sender != rank,
                    bindings[sender] != nic,
                    -len(targets[sender] & lacking),
                    len(carried[sender]),
                ),
            )
            carried[relay].append(rank)
            lacking -= targets[relay]
    return {sender: tuple(ranks) for sender, ranks in carried.items()}


def _pruned(
    mesh: Sketch,
    bindings: dict[int, str],
    nic_pairs: set[tuple[str, str]],
    links: dict[tuple[int, int], LogicalLink],
) -> Iterator[PrunedLink]:
    """Yield every link of the mesh between hosts that is not kept, and why it is not."""
    reasons: dict[tuple[str, str], tuple[str, str]] = {}
    for link in mesh.links:
        if not link.inter or (link.src, link.dst) in links:
            continue
        nics = bindings[link.src], bindings[link.dst]
        if nics not in reasons:
            reasons[nics] = _reason(nics, nics in nic_pairs)
        stage, reason = reasons[nics]
        yield PrunedLink(src=link.src, dst=link.dst, stage=stage, reason=reason)


def _reason(nics: tuple[str, str], in_one_group: bool) -> tuple[str, str]:
    if in_one_group:
        return "transformation", f"other GPUs connect {nics[0]} to {nics[1]}"
    return "grouping", f"{nics[0]} and {nics[1]} are in no group together"


def _detours(nic_paths: NicPaths, links: Iterable[LogicalLink]) -> tuple[str, ...]:
    count = 0
    for link in links:
        nics = nic_paths.default_path(link.src, link.dst).nics
        count += (*nics[:1], *nics[-1:]) != link.nics
    note = f"{count} links use other NICs than the topology's own paths: pin them by routes"
    return (note,) if count else ()


def pinned_routes(topology: Topology, sketch: Sketch) -> tuple[FixedRoute, ...]:
    """Return routes for the links of `sketch` whose NICs are not those of the topology's paths.

    Add them to the topology's `routes` to simulate the sketch exactly as it binds GPUs; empty
    where the topology's own paths already use these NICs. They are routes of the topology that
    `merge_nics` returns.
    """
    nic_paths = topology.derived(NicPaths)
    routes = []
    for link in sketch.links:
        path = nic_paths.path_by_nics(link.src, link.dst, *link.nics) if link.nics else None
        if path is not None and path != nic_paths.default_path(link.src, link.dst):
            nodes_between = tuple(hop.dst for hop in path.hops[:-1])
            routes.append(FixedRoute(path.hops[0].src, path.hops[-1].dst, nodes_between))
    return tuple(routes)
