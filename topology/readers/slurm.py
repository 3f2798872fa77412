"""Reads Slurm's ``topology.conf``: switches and blocks, and the hosts below them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.graph import quoted
from tuccl.topology.readers.hostlist import MOST_NAMES, hostlist
from tuccl.topology.readers.reader import Reader
from tuccl.topology.switches import Adapter, Fabric, Trunk

_MOST_LINES = 1 << 20
_START = re.compile(
    rb"^(?:\xef\xbb\xbf)?[ \t]*(?:SwitchName|BlockName)[ \t]*=", re.MULTILINE | re.IGNORECASE
)
_WORD = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)\s*")
_KEYS = ("switchname", "nodes", "switches", "linkspeed", "blockname", "blocksizes")
_ABOVE_BLOCKS = "above all blocks"


def _decode(data: bytes, path: str, name: str) -> tuple[Fabric, tuple[str, ...]]:
    place = printable_path(path)
    switches, blocks = SlurmSwitches(), SlurmSwitches()
    for where, values in _lines(data, place):
        kind = "switchname" if "switchname" in values else "blockname"
        label = values.get(kind)
        if label is None:
            if set(values) == {"blocksizes"}:
                continue
            raise InputError(f"{where}: expected SwitchName=... or BlockName=... in the line")
        entries = switches if kind == "switchname" else blocks
        if label in switches or label in blocks:
            raise InputError(f"{where}: duplicate {quoted(label)}")
        entries.add(label, values.get("nodes", ""), values.get("switches", ""), where)
    if switches and blocks:
        raise InputError(f"{place}: switches and blocks; expected one of the two, as Slurm does")
    warnings: list[str] = []
    if data.rstrip(b" \t") and not data.rstrip(b" \t").endswith(b"\n"):
        warnings.append(f"{place}: the last line has no line end: the file may be cut")
    warnings += blocks_joined(blocks, place)
    return tree_of(switches or blocks, place, name), tuple(warnings)


class SlurmSwitches(dict[str, tuple[list[str], list[str], str]]):
    """Switches or blocks by name: the hosts and the switches below, and the place in the file."""

    _names = 0

    def add(self, label: str, nodes: str, switches: str, where: str) -> None:
        """Add a switch; ``nodes`` and ``switches`` are lists of names as Slurm writes them.

        Raises:
            InputError: a list is damaged, or all lists together name too many.
        """
        try:
            below = [hostlist(text) if text else [] for text in (nodes, switches)]
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        self[label] = (below[0], below[1], where)
        self._names += len(below[0]) + len(below[1])
        if self._names > MOST_NAMES:
            raise InputError(f"{where}: more than {MOST_NAMES} names; keep one fabric a file")


def blocks_joined(blocks: SlurmSwitches, place: str) -> tuple[str, ...]:
    """Add a switch above all of several ``blocks``, as `tree_of` takes them; return warnings."""
    if len(blocks) < 2:
        return ()
    blocks[_ABOVE_BLOCKS] = ([], list(blocks), place)
    return (f"{place}: the file does not say how blocks are joined: one switch is assumed",)


def _lines(data: bytes, place: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the values of each line that has some, keys in lower case."""
    lines = data.decode("utf-8-sig", "replace").splitlines()
    if len(lines) > _MOST_LINES:
        raise InputError(f"{place}: more than {_MOST_LINES} lines")
    parts: list[str] = []
    for number, text in enumerate(lines, 1):
        part = text.partition("#")[0].strip()
        is_continued = part.endswith("\\") and number < len(lines)
        parts.append(part[:-1] if is_continued else part)
        if is_continued:
            continue
        line = " ".join(parts)
        parts = []
        where = f"{place}:{number}"
        values: dict[str, str] = {}
        at = 0
        while at < len(line):
            match = _WORD.match(line, at)
            key = match[1].lower() if match else ""
            if match is None or key not in _KEYS or key in values:
                raise InputError(
                    f"{where}: {quoted(line[at:])}: expected SwitchName, Nodes, Switches, "
                    "LinkSpeed, BlockName or BlockSizes, each once, with '=' and a value"
                )
            values[key] = match[2]
            at = match.end()
        if values:
            yield where, values


def tree_of(switches: dict[str, tuple[list[str], list[str], str]], place: str, name: str) -> Fabric:
    """Return the fabric of ``switches``: for each its hosts, the switches below it, and its place.

    Raises:
        InputError: a switch below another is not defined, or above itself; or there is no host.
    """
    for label, (_, below, where) in switches.items():
        for child in below:
            if child not in switches:
                raise InputError(
                    f"{where}: {quoted(label)} is above {quoted(child)}, which no line defines"
                )
    _check_rising(switches)
    counts = Counter(host for hosts, _, _ in switches.values() for host in hosts)
    if not counts:
        raise InputError(f"{place}: no host; expected Nodes=... on some line")
    adapters = []
    trunks = []
    for label, (hosts, below, where) in switches.items():
        if len(set(hosts)) < len(hosts) or len(set(below)) < len(below):
            raise InputError(f"{where}: duplicate name below {quoted(label)}")
        for host in hosts:
            adapter_id = host if counts[host] == 1 else f"{host} on {label}"
            adapters.append(Adapter(adapter_id, label, host=host))
        trunks += [Trunk(child, label) for child in below]
    try:
        return Fabric(name, tuple(switches), tuple(adapters), tuple(trunks))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _check_rising(switches: dict[str, tuple[list[str], list[str], str]]) -> None:
    """Refuse a loop: switches that are above themselves."""
    parents = Counter(child for _, below, _ in switches.values() for child in below)
    pending = [label for label in switches if not parents[label]]
    for label in pending:
        for child in switches[label][1]:
            parents[child] -= 1
            if not parents[child]:
                pending.append(child)
    if len(pending) < len(switches):
        label = next(label for label in switches if parents[label])
        raise InputError(f"{switches[label][2]}: a loop: {quoted(label)} is above itself")


SLURM: Reader[Fabric] = Reader(
    "slurm",
    "Slurm's topology.conf",
    lambda data: _START.search(data[: 1 << 20]) is not None,
    _decode,
)
