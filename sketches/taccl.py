"""TACCL's communication sketches, read and turned into ours."""

from __future__ import annotations

import os
from collections import Counter
from typing import Literal

import msgspec
from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded
from tuccl.sketches.binding import bind
from tuccl.sketches.checks import checked
from tuccl.sketches.congestion import with_congestion
from tuccl.sketches.full_mesh import host_numbers, link_over, nvlink_pairs, unmarked_mesh
from tuccl.sketches.nic_paths import NicPaths
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.sketches.taccl_profile import TacclMachine, TacclProfile, decode_taccl_profile
from tuccl.topology.graph import Topology

MOST_BYTES = 1 << 28
_MOST_RANKS = 1024
_Conn = dict[int, tuple[int, ...]]


class _Intranode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    strategy: Literal["none", "switch", "minmax", "maxmin"]
    switches: tuple[tuple[int, ...], ...] = ()
    switch_hyperedge_strategy: tuple[Literal["uc-min", "uc-max"], ...] = ()


class _Internode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    strategy: Literal["relay"]
    internode_conn: _Conn | Literal["fully-connected", "direct-map"]
    gpus_to_sender_rev_map: _Conn | None = None
    enforce_ordering: bool = False


class _Hyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    input_chunkup: int


class TacclSketch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A TACCL sketch file as it stands; ranks in it count within a node."""

    nnodes: int
    intranode_sketch: _Intranode
    internode_sketch: _Internode | None = None
    symmetry_offsets: tuple[tuple[int, int], ...]
    hyperparameters: _Hyperparameters


def decode_taccl_sketch(data: bytes, path: str = "<bytes>") -> TacclSketch:
    """Return the TACCL sketch in `data`; `taccl_to_sketch` checks the rules that need the machine.

    Raises:
        InputError: not JSON, an unknown or missing key, or a value out of range.
    """
    try:
        sketch = msgspec.json.decode(data, type=TacclSketch)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path[:200]}: {decode_reason(error, TacclSketch)}; expected a TACCL sketch"
        ) from None
    if not 1 <= sketch.nnodes <= _MOST_RANKS:
        raise _fault(path, "nnodes", f"{sketch.nnodes}: expected 1 to {_MOST_RANKS}")
    if not 1 <= sketch.hyperparameters.input_chunkup <= 1 << 16:
        raise _fault(path, "hyperparameters.input_chunkup", f"expected 1 to {1 << 16}")
    _check_shape(sketch, path)
    return sketch


def _check_shape(sketch: TacclSketch, path: str) -> None:
    intra = sketch.intranode_sketch
    if (intra.strategy == "switch") != bool(intra.switches):
        where = "intranode_sketch.switches"
        raise _fault(path, where, 'expected with strategy "switch", and only with it')
    if len(intra.switches) != len(intra.switch_hyperedge_strategy):
        where = "intranode_sketch.switch_hyperedge_strategy"
        raise _fault(path, where, "expected one for each of the switches")
    if sketch.nnodes > 1 and sketch.internode_sketch is None:
        raise _fault(path, "internode_sketch", "missing: expected where nnodes is above 1")
    if sketch.nnodes == 1 and sketch.internode_sketch is not None:
        raise _fault(path, "internode_sketch", "one node has none: remove it or raise nnodes")


def _fault(path: str, where: str, what: str) -> InputError:
    return InputError(f"{path[:200]}: $.{where}: {what}")


def read_taccl_profile(
    path: str | os.PathLike[str], machine: TacclMachine, chunk_bytes: int, us_per_unit: float
) -> TacclProfile:
    """Return the TACCL topology profile in the file `path`; see `decode_taccl_profile`.

    Raises:
        InputError: unreadable, damaged, or not a profile of that machine.
    """
    data = read_bounded(path, MOST_BYTES)
    return decode_taccl_profile(data, printable_path(path), machine, chunk_bytes, us_per_unit)


def taccl_to_sketch(
    taccl: TacclSketch,
    machine: TacclProfile | Topology,
    name: str = "taccl",
    path: str = "<sketch>",
) -> Sketch:
    """Return the sketch that `taccl` means on `machine`, checked.

    With a profile, links have its costs and GPUs are bound to its NICs in equal blocks; with a
    topology, links have the costs of its paths and GPUs are bound by `bind`, and the links inside
    a node are those over NVLink, or all where it has none. A link's beta is always that of a NIC
    it has alone: TACCL's own method, to multiply it by the links of a NIC, is in the congestion
    score instead.

    Args:
        taccl: The file's content.
        machine: What gives its links costs.
        name: What to call the sketch.
        path: What to call the file in messages.

    Raises:
        InputError: the sketch does not fit the machine, or breaks a rule of TACCL.
    """
    nodes, size = taccl.nnodes, _node_size(taccl, machine, path)
    _check_ranks(taccl, size, path)
    conn = _connections(taccl, size, path)
    pairs = [
        (one * size + src, other * size + dst)
        for one in range(nodes)
        for other in range(nodes)
        if one != other
        for src, dsts in conn.items()
        for dst in dsts
    ]
    if isinstance(machine, Topology):
        unruled = _on_topology(machine, pairs)
    else:
        unruled = _on_profile(taccl, machine, pairs, path)
    return checked(_with_rules(taccl, unruled, name, size, conn), path)


def _node_size(taccl: TacclSketch, machine: TacclProfile | Topology, path: str) -> int:
    nodes = taccl.nnodes
    if isinstance(machine, TacclProfile):
        size = machine.gpus_per_node
    else:
        size = machine.ranks // nodes
        if host_numbers(machine) != tuple(rank // size for rank in range(nodes * size)):
            hosts = len(machine.hosts)
            what = f"{nodes} equal nodes; the topology has {machine.ranks} GPUs on {hosts} hosts"
            raise _fault(path, "nnodes", what)
    if size * nodes > _MOST_RANKS:
        raise _fault(path, "nnodes", f"{size * nodes} ranks: expected at most {_MOST_RANKS}")
    return size


def _check_ranks(taccl: TacclSketch, size: int, path: str) -> None:
    """Refuse GPU numbers outside a node, and switches that overlap in part."""
    switches = taccl.intranode_sketch.switches
    for index, switch in enumerate(switches):
        where = f"intranode_sketch.switches[{index}]"
        if not switch or len(set(switch)) < len(switch) or not set(switch) <= set(range(size)):
            raise _fault(path, where, f"expected different GPUs 0 to {size - 1} of a node")
        for other in switches[:index]:
            if set(other) & set(switch) and set(other) != set(switch):
                what = "overlaps another in part: two switches have the same GPUs or none in common"
                raise _fault(path, where, what)
    for index, (_, block) in enumerate(taccl.symmetry_offsets):
        if block < 1:
            raise _fault(
                path, f"symmetry_offsets[{index}]", "expected [offset, size], size above 0"
            )


def _connections(taccl: TacclSketch, size: int, path: str) -> _Conn:
    """Return for each sending GPU of a node the GPUs of every other node that it sends to."""
    inter = taccl.internode_sketch
    if inter is None:
        return {}
    if inter.internode_conn == "fully-connected":
        conn = {src: tuple(range(size)) for src in range(size)}
    elif inter.internode_conn == "direct-map":
        conn = {src: (src,) for src in range(size)}
    else:
        conn = dict(inter.internode_conn)
    _check_map(conn, "internode_conn", size, path)
    if len({len(dsts) for dsts in conn.values()}) != 1:
        what = "senders have different numbers of receivers: expected the same for every sender"
        raise _fault(path, "internode_sketch.internode_conn", what)
    relay_map = inter.gpus_to_sender_rev_map
    if relay_map is not None:
        where = "gpus_to_sender_rev_map"
        _check_map(relay_map, where, size, path)
        if non_senders := relay_map.keys() - conn.keys():
            what = f"GPU {min(non_senders)} sends nothing in internode_conn: expected senders"
            raise _fault(path, f"internode_sketch.{where}", what)
        if uncarried := set(range(size)) - {gpu for gpus in relay_map.values() for gpu in gpus}:
            what = f"no sender carries the chunks of GPU {min(uncarried)}: expected every GPU"
            raise _fault(path, f"internode_sketch.{where}", what)
    return conn


def _check_map(table: _Conn, key: str, size: int, path: str) -> None:
    for gpu, others in table.items():
        ranks = (gpu, *others)
        if not others or len(set(others)) < len(others) or not set(ranks) <= set(range(size)):
            what = f"expected different GPUs 0 to {size - 1} of a node"
            raise _fault(path, f"internode_sketch.{key}.{gpu}", what)


def _on_topology(topology: Topology, pairs: list[tuple[int, int]]) -> Sketch:
    mesh = unmarked_mesh(topology)
    nic_paths = topology.derived(NicPaths)
    nvlinked = nvlink_pairs(topology)
    intra = [
        link
        for link in mesh.links
        if not link.inter and (not nvlinked or (link.src, link.dst) in nvlinked)
    ]
    bindings = bind(topology)
    inter = []
    for src, dst in pairs:
        route = nic_paths.path_by_nics(
            src, dst, bindings[src], bindings[dst]
        ) or nic_paths.default_path(src, dst)
        inter.append(link_over(route, src, dst, inter=True))
    links = sorted((*intra, *inter), key=lambda link: (link.src, link.dst))
    sketch = replace(mesh, links=tuple(links), bindings=bindings, switches=())
    return with_congestion(sketch, topology)


def _on_profile(
    taccl: TacclSketch, profile: TacclProfile, pairs: list[tuple[int, int]], path: str
) -> Sketch:
    size, nics = profile.gpus_per_node, profile.nics_per_node
    if pairs and not nics:
        raise _fault(path, "nnodes", f"profile {profile.name[:60]!r} has no NICs to join nodes by")
    ranks = taccl.nnodes * size
    bindings = {
        rank: f"n{rank // size}/nic{rank % size * nics // size}" for rank in range(ranks) if nics
    }
    sharing = Counter(bindings[src] for src, _ in pairs)
    arriving = Counter(bindings[dst] for _, dst in pairs)
    planes = _planes(taccl, size)
    intra = [
        LogicalLink(
            src=node * size + src,
            dst=node * size + dst,
            inter=False,
            alpha_us=profile.alpha_us,
            beta_us_per_mb=profile.betas[src][dst] / planes[src, dst],
        )
        for node in range(taccl.nnodes)
        for src in range(size)
        for dst in range(size)
        if profile.betas[src][dst]
    ]
    inter = [
        LogicalLink(
            src=src,
            dst=dst,
            inter=True,
            alpha_us=profile.remote_alpha_us,
            beta_us_per_mb=profile.remote_beta_us_per_mb,
            nics=(bindings[src], bindings[dst]),
            congestion=max(sharing[bindings[src]], arriving[bindings[dst]]) - 1.0,
        )
        for src, dst in pairs
    ]
    return Sketch(
        name=profile.name,
        ranks=ranks,
        hosts=tuple(rank // size for rank in range(ranks)),
        links=tuple(sorted((*intra, *inter), key=lambda link: (link.src, link.dst))),
        bindings=bindings if pairs else {},
    )


def _planes(taccl: TacclSketch, size: int) -> Counter[tuple[int, int]]:
    """Return how many of the sketch's switches join each pair of a node, at least 1.

    Notes:
        TACCL both multiplies the links of a pair by its equal switches and divides their beta;
        here k planes of the profile's rate add up to k times that rate, once.
    """
    planes = Counter({(src, dst): 0 for src in range(size) for dst in range(size)})
    for switch in taccl.intranode_sketch.switches:
        planes.update((src, dst) for src in switch for dst in switch)
    return Counter({pair: max(1, count) for pair, count in planes.items()})


def _with_rules(taccl: TacclSketch, unruled: Sketch, name: str, size: int, conn: _Conn) -> Sketch:
    intra, inter = taccl.intranode_sketch, taccl.internode_sketch
    nodes = range(taccl.nnodes)
    relay_map = inter.gpus_to_sender_rev_map if inter else None
    notes = unruled.notes
    if intra.strategy in ("minmax", "maxmin"):
        notes += (f"intranode strategy {intra.strategy} weighs TACCL's objective; not used here",)
    return replace(
        unruled,
        name=name,
        relays={
            node * size + sender: tuple(node * size + gpu for gpu in gpus)
            for node in nodes
            for sender, gpus in sorted((relay_map or {}).items())
        },
        chunks_per_rank=taccl.hyperparameters.input_chunkup,
        symmetry=taccl.symmetry_offsets,
        switches=tuple(
            tuple(node * size + gpu for gpu in switch)
            for node in nodes
            for switch in intra.switches
        ),
        switch_strategy=tuple(
            strategy for _ in nodes for strategy in intra.switch_hyperedge_strategy
        ),
        own_chunks_first=bool(inter and inter.enforce_ordering),
        notes=notes,
    )
