"""Traffic of others on a network's links (``tuccl-cross/1``): its sources, and what they leave."""

from __future__ import annotations

import math
import os
import zlib
from collections import defaultdict
from pathlib import Path as FilePath
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded
from tuccl.topology.graph import FixedRoute, Link, Topology, quoted
from tuccl.topology.paths import all_paths
from tuccl.topology.relays import Hop, Path, merged_hops

CROSS_FORMAT = "tuccl-cross/1"
SourceKind = Literal["long", "web", "burst", "incast", "rate", "trace"]

WEB_PACKET = 1460
# Packets of a flow, and the part of the flows that has no more (the pFabric paper's web search).
WEB_CDF = (
    *((6, 0.15), (13, 0.2), (19, 0.3), (33, 0.4), (53, 0.53), (133, 0.6), (667, 0.7)),
    *((1333, 0.8), (3333, 0.9), (6667, 0.97), (20000, 1.0)),
)
WEB_MEAN = WEB_PACKET * sum(
    packets * (part - before)
    for (packets, part), before in zip(WEB_CDF, (0, *(p for _, p in WEB_CDF)), strict=False)
)

_MOST_BYTES = 1 << 26
_MOST_SOURCES = 256
_MOST_ENDS = 1024
_MOST_FLOWS = 1 << 20
_MOST_SECONDS = 1e6
_MOST_STREAMS = 1024
_LARGEST = 1e15
_LEAST_LEFT = 0.01
_PACED = {"load", "gbs"}
_FIELDS: dict[str, set[str]] = {
    "long": _PACED | {"streams"},
    "web": _PACED | {"mean_bytes", "gaps"},
    "burst": _PACED | {"mean_bytes", "period_us"},
    "incast": _PACED | {"nbytes"},
    "rate": _PACED | {"schedule"},
    "trace": {"flows", "file"},
}
# The part of a link's rate that it carries in all while such traffic is on it: what a thesis
# measured at 25 Gb/s (1.1 to 1.6 Gb/s unused beside long flows, 2.3 to 2.8 beside short ones).
_EFFICIENCY = {"long": 0.95, "rate": 1.0}
_SHORT_FLOWS_EFFICIENCY = 0.9


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Traffic from one end to another; an end is a NIC, or a switch: a host outside the job there.

    Attributes:
        origin: ``from`` in the file: the sending end; of ``incast`` one or several.
        to: the receiving end.
        kind: ``long`` flows without an end, ``web`` flows of random size, ``burst``: the same in
            periods whose first tenth has three times the mean rate, ``incast``: all origins at
            once, ``rate``: no flows but a rate taken from the links, ``trace``: recorded flows.
        load: the offered part of the narrowest link's rate; else ``gbs``.
        gbs: offered rate in GB/s; long flows with neither take what they get.
        streams: of ``long``, how many share the rate.
        start_s: when it begins, in s.
        nbytes: of ``incast``, of each flow.
        period_us: of ``burst``, its period.
        mean_bytes: of ``web`` and ``burst``, the mean flow, which sizes are scaled to.
        gaps: between the starts of ``web`` flows: ``exponential``, or Poisson numbers of whole us.
        schedule: of ``rate``, pairs of s and the load from then on, rising.
        flows: of ``trace``, pairs of us and bytes.
        file: of ``trace``, the name of a text file beside this one: the number of flows, then a
            line ``us bytes`` for each.
        efficiency: part of a link's rate that can be had while this traffic is on it; None is
            0.95 for ``long``, 1 for ``rate``, else 0.9.
    """

    origin: str | tuple[str, ...] = msgspec.field(name="from")
    to: str
    kind: SourceKind
    load: float | None = None
    gbs: float | None = None
    streams: int = 1
    start_s: float = 0.0
    nbytes: int = 65536
    period_us: float = 10_000.0
    mean_bytes: float = WEB_MEAN
    gaps: Literal["exponential", "poisson-us"] = "exponential"
    schedule: tuple[tuple[float, float], ...] = ()
    flows: tuple[tuple[float, int], ...] = ()
    file: str | None = None
    efficiency: float | None = None

    @property
    def origins(self) -> tuple[str, ...]:
        """Return the sending ends."""
        return (self.origin,) if isinstance(self.origin, str) else self.origin

    @property
    def link_efficiency(self) -> float:
        """Return the part of a link's rate that can be had while this traffic is on it."""
        if self.efficiency is not None:
            return self.efficiency
        return _EFFICIENCY.get(self.kind, _SHORT_FLOWS_EFFICIENCY)


class CrossTraffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The sources of traffic that shares a job's network, and the seed of what is random in them.

    Raises:
        InputError: a source contradicts itself; names the place, like ``$.sources[0].load``.

    >>> CrossTraffic((Source("n0/nic0", "leaf0", "web", load=0.8),)).sources[0].link_efficiency
    0.9
    """

    sources: tuple[Source, ...]
    seed: int = 1
    format: str = CROSS_FORMAT

    def __post_init__(self) -> None:
        """Refuse sources that contradict themselves."""
        if self.format != CROSS_FORMAT:
            raise InputError(f"$.format: {quoted(self.format)}; expected {CROSS_FORMAT!r}")
        if len(self.sources) > _MOST_SOURCES:
            raise InputError(f"$.sources: {len(self.sources)}; at most {_MOST_SOURCES} are read")
        if not 0 <= self.seed < 1 << 53:
            raise InputError("$.seed: expected 0 or more, below 2^53")
        for index, source in enumerate(self.sources):
            _check(source, f"$.sources[{index}]")

    @property
    def label(self) -> str:
        """Return the traffic in a phrase, with a number that equal traffic alone shares.

        >>> CrossTraffic((Source("n0/nic0", "leaf0", "web", load=0.8),)).label[:34]
        'cross traffic (web n0/nic0 > leaf0'
        """
        parts = [f"{each.kind} {each.origins[0]} > {each.to}"[:60] for each in self.sources]
        more = f" and {len(parts) - 2} more" if len(parts) > 2 else ""
        checksum = zlib.crc32(msgspec.json.encode(self))
        return f"cross traffic ({', '.join(parts[:2])}{more}; {checksum:08x})"

    @property
    def only_rates(self) -> bool:
        """Return whether no source has flows."""
        return all(source.kind == "rate" for source in self.sources)

    @property
    def changes_s(self) -> tuple[float, ...]:
        """Return when rates begin or change, in s; 0 first."""
        rates = [source for source in self.sources if source.kind == "rate"]
        times = {source.start_s + at for source in rates for at, _ in source.schedule or ((0, 0),)}
        return tuple(sorted(times | {0.0}))


def load_cross_traffic(path: str | os.PathLike[str]) -> CrossTraffic:
    """Return the cross traffic in the file ``path``, the flows of its trace files among it.

    Raises:
        InputError: a file cannot be read, or is no sound ``tuccl-cross/1``.
    """
    place = printable_path(path)
    try:
        cross = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=CrossTraffic)
    except InputError as error:
        message = str(error)
        raise InputError(f"{place}: {message}" if message.startswith("$") else message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = decode_reason(error, CrossTraffic)
        raise InputError(
            f'{place}: {reason}; expected cross traffic, "format": "{CROSS_FORMAT}"'
        ) from None
    return msgspec.structs.replace(
        cross, sources=tuple(_with_trace(source, FilePath(path).parent) for source in cross.sources)
    )


def network_hops(topology: Topology, src: str, dst: str) -> tuple[Hop, ...]:
    """Return the network's hops from one end to another: few, then wide ones, through switches.

    >>> from tuccl.topology import join, load_profile
    >>> [hop.dst for hop in network_hops(join(load_profile("ndv2"), 2), "n0/nic0", "n1/nic0")]
    ['leaf0', 'n1/nic0']

    Raises:
        InputError: an end is no NIC and no switch, or no links of kind network join the two.
    """
    for end in (src, dst):
        if topology.node(end).kind not in ("nic", "switch"):
            raise InputError(f"cross traffic: {quoted(end)} is no NIC and no switch of a network")
    switches = {node.id for node in topology.nodes if node.kind == "switch"}
    hops_from: dict[str, list[Hop]] = defaultdict(list)
    for hop in sorted(topology.derived(_network).values(), key=lambda h: (-h.bandwidth, h.dst)):
        hops_from[hop.src].append(hop)
    paths: dict[str, tuple[Hop, ...]] = {src: ()}
    reached = [src]
    for node in reached:
        for hop in hops_from[node] if node == src or node in switches else ():
            if hop.dst not in paths:
                paths[hop.dst] = (*paths[node], hop)
                reached.append(hop.dst)
    if not paths.get(dst):
        raise InputError(
            f"cross traffic: no network links from {quoted(src)} to {quoted(dst)} in topology "
            f"{quoted(topology.name)}"
        )
    return paths[dst]


def offered_gbs(topology: Topology, source: Source, at_s: float = math.inf) -> float:
    """Return the rate in GB/s that ``source`` offers at ``at_s``, all its origins together.

    That of ``web``, ``burst``, ``incast`` and ``trace`` is the mean; infinite is that of long
    flows that take what they get.

    Raises:
        InputError: as `network_hops`.
    """
    paths = [network_hops(topology, origin, source.to) for origin in source.origins]
    narrowest = min(hop.bandwidth for path in paths for hop in path)
    if at_s < source.start_s:
        return 0.0
    if source.schedule:
        loads = (load for at, load in source.schedule if at <= at_s - source.start_s)
        return narrowest * next(iter([*loads][-1:]), 0.0)
    if source.flows:
        return sum(size for _, size in source.flows) / max(source.flows[-1][0], 1.0) / 1e3
    if source.load is not None:
        return source.load * narrowest
    return source.gbs if source.gbs is not None else math.inf


def residual(topology: Topology, cross: CrossTraffic, at_s: float = math.inf) -> Topology:
    """Return ``topology`` with each link at the rate C - x that sources of rate x leave it.

    Of ``n`` long flows that take what they get, x is their share beside one flow of the job. At
    least a hundredth of each rate is left. Messages keep their paths: no NIC is chosen by load.

    Raises:
        InputError: as `network_hops`.

    >>> from tuccl.topology import join, load_profile, path
    >>> pair = join(load_profile("ndv2"), 2)
    >>> half = CrossTraffic((Source("n0/nic0", "leaf0", "rate", load=0.5),))
    >>> [path(residual(pair, half), *ranks).bandwidth for ranks in ((0, 8), (8, 0))]
    [6.25, 12.5]
    """
    total = topology.derived(_network)
    taken: dict[tuple[str, str], float] = defaultdict(float)
    for source in cross.sources:
        gbs = offered_gbs(topology, source, at_s) / len(source.origins)
        for origin in source.origins:
            for hop in network_hops(topology, origin, source.to):
                most = hop.bandwidth * source.streams / (source.streams + 1)
                taken[hop.src, hop.dst] += gbs if math.isfinite(gbs) else most
    left = {
        ends: max(total[ends].bandwidth - gbs, _LEAST_LEFT * total[ends].bandwidth)
        for ends, gbs in taken.items()
        if gbs > 0
    }
    links = tuple(part for link in topology.links for part in _left_over(link, total, left))
    return _with_paths_of(topology, msgspec.structs.replace(topology, links=links))


def _with_paths_of(topology: Topology, loaded: Topology) -> Topology:
    """Return ``loaded`` with fixed routes where load alone would change the paths."""

    def via(path: Path) -> tuple[str, ...]:
        return tuple(hop.src for hop in path.hops[1:])

    now, gpus = all_paths(loaded), topology.gpus
    routes = tuple(
        FixedRoute(gpus[src].id, gpus[dst].id, via(path))
        for (src, dst), path in all_paths(topology).items()
        if via(path) != via(now[src, dst])
    )
    return msgspec.structs.replace(loaded, routes=(*loaded.routes, *routes)) if routes else loaded


def _left_over(
    link: Link, total: dict[tuple[str, str], Hop], left: dict[tuple[str, str], float]
) -> tuple[Link, ...]:
    """Return ``link`` with what is left of its rate, its directions apart where they differ."""
    if link.kind != "network" or left.keys().isdisjoint(link.directions()):
        return (link,)
    return tuple(
        msgspec.structs.replace(
            link,
            src=src,
            dst=dst,
            duplex=False,
            bandwidth=left.get((src, dst), total[src, dst].bandwidth)
            * (link.bandwidth / total[src, dst].bandwidth),
        )
        for src, dst in link.directions()
    )


def _network(topology: Topology) -> dict[tuple[str, str], Hop]:
    return merged_hops(tuple(link for link in topology.links if link.kind == "network"))


def _check(source: Source, where: str) -> None:
    kind, allowed = source.kind, _FIELDS[source.kind]
    given = {
        field.name
        for field in msgspec.structs.fields(Source)
        if not field.required and getattr(source, field.name) != field.default
    }
    if other := min(given - allowed - {"start_s", "efficiency"}, default=None):
        raise InputError(f"{where}.{other}: a {kind} source has none; it has {_listed(allowed)}")
    if kind == "incast":
        if not 1 <= len(source.origins) <= _MOST_ENDS:
            raise InputError(f"{where}.from: expected 1 to {_MOST_ENDS} ends")
    elif not isinstance(source.origin, str):
        raise InputError(f"{where}.from: a {kind} source has one; only incast has several")
    if source.to in source.origins or len(set(source.origins)) != len(source.origins):
        raise InputError(f"{where}.to: {quoted(source.to)}; expected another end than in from")
    expected = {"long": (0, 1), "trace": (0, 0)}.get(kind, (1, 1))
    paces = sum((source.load is not None, source.gbs is not None, bool(source.schedule)))
    if not expected[0] <= paces <= expected[1]:
        also = " or a schedule" if kind == "rate" else ""
        raise InputError(f"{where}: a {kind} source takes one of load and gbs{also}")
    if kind == "trace" and bool(source.flows) == (source.file is not None):
        raise InputError(f"{where}.flows: a trace source takes flows or a file of them")
    if source.file is not None and FilePath(source.file).name != source.file:
        raise InputError(f"{where}.file: {quoted(source.file)}; expected a file beside this one")
    _check_numbers(source, where)
    _check_pairs(source.schedule, f"{where}.schedule", _MOST_SECONDS, 1.0)
    _check_pairs(source.flows, f"{where}.flows", _MOST_SECONDS * 1e6, _LARGEST)


def _check_numbers(source: Source, where: str) -> None:
    for name, value, most in (
        ("load", source.load, 100.0),
        ("gbs", source.gbs, 1e9),
        ("streams", source.streams, _MOST_STREAMS),
        ("nbytes", source.nbytes, _LARGEST),
        ("period_us", source.period_us, 1e9),
        ("mean_bytes", source.mean_bytes, _LARGEST),
        ("efficiency", source.efficiency, 1.0),
    ):
        if value is not None and not 0 < value <= most:
            raise InputError(f"{where}.{name}: {value}; expected above 0, at most {most:g}")
    if not 0 <= source.start_s <= _MOST_SECONDS:
        raise InputError(f"{where}.start_s: {source.start_s}; expected 0 to {_MOST_SECONDS:g} s")


def _check_pairs(
    pairs: tuple[tuple[float, float], ...], where: str, latest: float, most: float
) -> None:
    if len(pairs) > _MOST_FLOWS:
        raise InputError(f"{where}: {len(pairs)} entries; at most {_MOST_FLOWS} are read")
    before = 0.0
    for index, (at, value) in enumerate(pairs):
        if not before <= at <= latest:
            raise InputError(f"{where}[{index}][0]: {at}; expected rising times up to {latest:g}")
        if not 0 <= value <= most:
            raise InputError(f"{where}[{index}][1]: {value}; expected 0 to {most:g}")
        before = at


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _with_trace(source: Source, folder: FilePath) -> Source:
    if source.file is None:
        return source
    path = folder / source.file
    place = printable_path(path)
    lines = read_bounded(path, _MOST_BYTES).decode("utf-8", "replace").split("\n")
    rows = [line for line in lines[1:] if line.strip()]
    if lines[0].strip() != str(len(rows)) or not rows:
        raise InputError(f"{place}:1: expected the number of flows that follow, {len(rows)}")
    flows = tuple(_flow_of(row, f"{place}:{number}") for number, row in enumerate(rows, 2))
    try:
        _check_pairs(flows, "flows", _MOST_SECONDS * 1e6, _LARGEST)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return msgspec.structs.replace(source, flows=flows, file=None)


def _flow_of(row: str, place: str) -> tuple[float, int]:
    try:
        at, size = row.split()
        return float(at), int(size)
    except ValueError:
        raise InputError(f"{place}: {quoted(row)}; expected a time in us and bytes") from None
