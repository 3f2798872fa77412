"""Reads ``ibnetdiscover``'s output: the switches, adapters and cables of an InfiniBand fabric."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.graph import quoted
from tuccl.topology.readers.reader import Reader
from tuccl.topology.switches import Adapter, Fabric, Trunk

_MOST_LINES = 1 << 20
# GB/s of a lane per direction after line coding (InfiniBand's data rates): 8b/10b up to QDR,
# 64b/66b or FEC with it from FDR on.
_LANE_GBS = {
    "SDR": 0.25,
    "DDR": 0.5,
    "QDR": 1.0,
    "FDR10": 1.25,
    "FDR": 14.0625 * 64 / 66 / 8,
    "EDR": 3.125,
    "HDR": 6.25,
    "NDR": 12.5,
    "XDR": 25.0,
}
_AGGREGATION_DEVICE = "0xcf09"  # the reduction engine of a Quantum switch
_NODE = re.compile(r'(Switch|Ca|Rt)\s+([0-9]{1,5})\s+"([SHR])-([0-9a-f]{16})"\s*(?:# "(.*)".*)?')
_PORT = re.compile(
    r"\[([0-9]{1,5})\](?:\[ext [0-9]+\])?(?:\(([0-9a-f]{1,16})\))?\s+"
    r'"([SHR])-([0-9a-f]{16})"\[([0-9]{1,5})\](?:\[ext [0-9]+\])?\s*(?:\(([0-9a-f]{1,16})\))?\s*'
    r'# (?:lid \d+ lmc \d+ )?"(.*)" lid \d+ (\d{1,2}x|\?\?)([A-Z]{3}[0-9]{0,2}|\?\?\?)(?:\s.*)?'
)
_FIELD = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=(0x[0-9a-f]{1,16}).*")
_OTHER = re.compile(r"Chassis [0-9]+.*|Hostname: .*")
_DEVICE = re.compile(r"HCA-[0-9]{1,4}|(?=.*[0-9])[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_MANAGED = re.compile(r"[^;:]+;([^;:]+):[^;:]+")


@dataclass(slots=True)
class _Device:
    """A switch, adapter card or router, and what its ports are joined to.

    ``peers`` has, for each port, the device and port at the other end, the rate, and the line.
    """

    kind: str
    guid: str
    description: str
    place: str
    system_guid: str | None
    aggregation: bool
    peers: dict[int, tuple[str, int, float | None, str]] = field(default_factory=dict)
    port_guids: dict[int, str] = field(default_factory=dict)


def _decode(data: bytes, path: str, name: str) -> tuple[Fabric, tuple[str, ...]]:
    place = printable_path(path)
    devices = _devices(data, place)
    _check_symmetry(devices, place)
    routers = [device for device in devices.values() if device.kind == "Rt"]
    switches = {guid: device for guid, device in devices.items() if device.kind == "Switch"}
    if not switches:
        raise InputError(
            f"{place}: no switch; run ibnetdiscover on a host whose port is active (ibstat says so)"
        )
    names = _names(switches)
    adapters, unjoined = _adapters(devices, names)
    rates_unknown = sum(peer[2] is None for d in devices.values() for peer in d.peers.values())
    warnings = [
        *([f"{len(routers)} routers are left out"] if routers else []),
        *([f"{unjoined} adapter ports not on a switch are left out"] if unjoined else []),
        *([f"{rates_unknown} ports of unknown rate"] if rates_unknown else []),
    ]
    try:
        fabric = Fabric(name, tuple(names.values()), adapters, _trunks(switches, names))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return fabric, tuple(f"{place}: {warning}" for warning in warnings)


def _devices(data: bytes, place: str) -> dict[str, _Device]:
    """Return the devices by GUID, as their stanzas list them."""
    devices: dict[str, _Device] = {}
    fields: dict[str, str] = {}
    device: _Device | None = None
    lines = data.decode("utf-8-sig", "replace").splitlines()
    if len(lines) > _MOST_LINES:
        raise InputError(f"{place}: more than {_MOST_LINES} lines")
    for number, text in enumerate(lines, 1):
        line, where = text.strip(), f"{place}:{number}"
        if not line or line.startswith("#") or _OTHER.fullmatch(line):
            continue
        if match := _FIELD.fullmatch(line):
            if match[1] == "vendid":
                fields, device = {}, None
            fields[match[1]] = match[2]
        elif match := _NODE.fullmatch(line):
            guid = match[4]
            if guid in devices:
                raise InputError(
                    f"{where}: duplicate GUID {guid}, first in {devices[guid].place}; list each "
                    "device once"
                )
            system = fields.get("sysimgguid", "0x0")[2:].rjust(16, "0")
            aggregation = fields.get("devid") == _AGGREGATION_DEVICE or (match[5] or "").endswith(
                "Aggregation Node"
            )
            device = _Device(match[1], guid, match[5] or "", where, system, aggregation)
            devices[guid] = device
        elif (match := _PORT.fullmatch(line)) and device is not None:
            _add_port(device, match, where)
        else:
            raise InputError(
                f"{where}: {quoted(line)} is no line of ibnetdiscover's topology; the file is "
                "damaged, or made with -l or -p: run it without options"
            )
    return devices


def _add_port(device: _Device, match: re.Match[str], where: str) -> None:
    port = int(match[1])
    if port in device.peers:
        raise InputError(f"{where}: duplicate port {port} of {quoted(device.description)}")
    speed = _LANE_GBS.get(match[9])
    gbs = None if speed is None or match[8] == "??" else int(match[8][:-1]) * speed
    if speed is None and match[9] != "???":
        raise InputError(f"{where}: speed {match[9]!r}; expected one of {', '.join(_LANE_GBS)}")
    if gbs == 0:
        raise InputError(f"{where}: width {match[8]!r}; expected 1x to 12x")
    device.peers[port] = (match[4], int(match[5]), gbs, where)
    if match[2]:
        device.port_guids[port] = match[2].rjust(16, "0")


def _check_symmetry(devices: dict[str, _Device], place: str) -> None:
    """Refuse a file in which an end of a cable is missing: it was cut, or edited."""
    for guid, device in devices.items():
        for port, (peer, peer_port, _, where) in device.peers.items():
            there = devices[peer].peers.get(peer_port) if peer in devices else None
            if there is None or there[:2] != (guid, port):
                raise InputError(
                    f"{where}: port {port} of {quoted(device.description)} goes to port "
                    f"{peer_port} of {peer}, which {place} does not list as its other end; the "
                    "file is cut: run ibnetdiscover again"
                )
            if (peer, peer_port) == (guid, port) or peer == guid:
                raise InputError(
                    f"{where}: {quoted(device.description)} has a loop: port {port} is joined to "
                    f"its own port {peer_port}"
                )


def _names(switches: dict[str, _Device]) -> dict[str, str]:
    """Return a name for each switch: its managed name or description where no other has it."""
    short = {}
    for guid, device in switches.items():
        match = _MANAGED.fullmatch(device.description)
        short[guid] = "".join(c for c in (match[1] if match else device.description) if c != "/")
    counts = Counter(short.values())
    return {
        guid: name if counts[name] == 1 and name.strip() and name.isprintable() else f"S-{guid}"
        for guid, name in ((guid, name[:200]) for guid, name in short.items())
    }


def _adapters(
    devices: dict[str, _Device], switch_names: dict[str, str]
) -> tuple[tuple[Adapter, ...], int]:
    """Return the adapter ports on switches, and the number of others."""
    adapters = []
    others = 0
    for guid, device in devices.items():
        if device.kind != "Ca":
            continue
        host, _, name = device.description.rpartition(" ")
        if not (host and _DEVICE.fullmatch(name)) or " " in host or host == "localhost":
            host = name = ""
        for port, (peer, _, gbs, _) in device.peers.items():
            if peer not in switch_names:
                others += 1
                continue
            shared = (guid, device.system_guid or "")
            guids = [g for g in (device.port_guids.get(port), *shared) if g and g.strip("0")]
            suffix = f"/{port}" if len(device.peers) > 1 else ""
            adapters.append(
                Adapter(
                    f"H-{guid}{suffix}",
                    switch_names[peer],
                    gbs,
                    host or None,
                    name or None,
                    tuple(dict.fromkeys(guids)),
                    device.aggregation,
                )
            )
    return tuple(adapters), others


def _trunks(switches: dict[str, _Device], names: dict[str, str]) -> tuple[Trunk, ...]:
    cables: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    for guid, device in switches.items():
        for peer, _, gbs, _ in device.peers.values():
            if peer in switches and guid < peer:
                cables[guid, peer].append(gbs)
    return tuple(
        Trunk(
            names[src],
            names[dst],
            None if None in rates else sum(r or 0 for r in rates),
            len(rates),
        )
        for (src, dst), rates in cables.items()
    )


_START = re.compile(rb"^[ \t]*(?:vendid=0x|Switch\t|Ca\t|# Topology file)", re.MULTILINE)

IBNETDISCOVER: Reader[Fabric] = Reader(
    "ibnetdiscover",
    "ibnetdiscover's output, an InfiniBand fabric",
    lambda data: _START.search(data[:65536]) is not None,
    _decode,
)
