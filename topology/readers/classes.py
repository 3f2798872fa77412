"""Builds NCCL's <system> of a matrix that gives, for each pair of devices, how near they are."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuccl.topology.readers.xml_tree import Element

# Path classes from near to far; 0 is unknown. PHB stands for NODE too: both pass the CPU.
PIX, PXB, PHB, SYS = 1, 2, 3, 4
_NAMES = ("", "PIX", "PXB", "PHB or NODE", "SYS")
_MOST_NVLINKS = 18  # of one GPU, P100 to B200
# GT/s of a PCIe lane by the NVLinks of a GPU: A100 has 12, H100 and B200 have 18 (data sheets).
_GTS = {12: "16", 18: "32"}
_SWITCH = {"target": "fffffff:ffff:ff", "tclass": "0x068000"}
_GPU = {"class": "0x030200", "vendor": "0x10de", "link_speed": "", "link_width": ""}
_NIC = {"class": "0x020000", "link_speed": "", "link_width": ""}
_BRIDGE = {"class": "0x060400", "link_speed": "", "link_width": ""}


@dataclass(slots=True)
class Classes:
    """Devices, GPUs first, and what is known of each pair of them.

    Attributes:
        gpus: how many of the devices are GPUs.
        lines: of the file, by device.
        levels: the class of each pair, both ways, 0 where NVLink hides it.
        nvlinks: NVLinks of each pair, both ways; behind an NVSwitch those of a GPU.
        affinities: equal for GPUs of equal CPUs, empty where unknown, by GPU.
        names: what the host calls each NIC, empty where unknown.
        numa: the number of each GPU's NUMA node, empty where unknown.
        warnings: what was assumed.
    """

    gpus: int
    lines: Sequence[int]
    levels: Sequence[Sequence[int]]
    nvlinks: Sequence[Sequence[int]]
    affinities: Sequence[str]
    names: Sequence[str]
    numa: Sequence[str]
    warnings: list[str] = field(default_factory=list)


def system_of_classes(classes: Classes, place: str) -> Element:
    """Return the <system> of such devices; what it assumes is added to their warnings.

    Devices of class PIX share a switch, those of PXB an upper switch over one each, those of PHB
    or NODE a CPU.
    """
    return _Builder(classes, place).system()


class _Builder:
    def __init__(self, classes: Classes, place: str) -> None:
        self._classes = classes
        self._place = place
        self._switches = 0
        self._group: list[tuple[int, int, int]] = [(0, 0, 0)] * len(classes.lines)
        gts = _GTS.get(max((_links_of(row) for row in classes.nvlinks), default=0))
        self._likely = {"likely_gts": gts} if gts else {}

    def system(self) -> Element:
        classes = self._classes
        root = Element("system", {"version": "1"}, self._place, 0)
        devices = [self._device(index) for index in range(len(classes.lines))]
        cpus = self._cpus()
        numbers = self._numa_numbers(cpus)
        for number, (numa, members) in enumerate(zip(numbers, cpus, strict=True)):
            cpu = Element("cpu", {"numaid": numa}, devices[members[0]].place, 0)
            root.children.append(cpu)
            for upper in self._groups(members, PXB):
                lower = self._groups(upper, PIX)
                parent = self._switch(cpu) if len(upper) > 1 else cpu
                for group in lower:
                    below = self._switch(parent) if len(lower) > 1 else parent
                    below.children += [devices[index] for index in group]
                    for index in group:
                        self._group[index] = number, upper[0], group[0]
        self._add_nvlinks(devices[: classes.gpus])
        self._compare()
        return root

    def _device(self, index: int) -> Element:
        line = self._classes.lines[index]
        place = f"{self._place}:{line}" if line else self._place
        is_gpu = index < self._classes.gpus
        busid = f"0000:{index >> 5:02x}:{index & 31:02x}.0"
        pci = Element(
            "pci",
            {"busid": busid, "assumed": "1", **self._likely, **(_GPU if is_gpu else _NIC)},
            place,
            line,
        )
        if is_gpu:
            pci.children.append(Element("gpu", {"dev": str(index)}, place, line))
            return pci
        number = index - self._classes.gpus
        attributes = {"dev": str(number), "name": self._classes.names[number]}
        net = Element("net", attributes, place, line)
        pci.children.append(Element("nic", {}, place, line, [net]))
        return pci

    def _switch(self, parent: Element) -> Element:
        busid = f"ffff:{self._switches >> 5:02x}:{self._switches & 31:02x}.0"
        self._switches += 1
        switch = Element("pci", {"busid": busid, **self._likely, **_BRIDGE}, self._place, 0)
        parent.children.append(switch)
        return switch

    def _groups(self, members: Sequence[int], most: int) -> list[list[int]]:
        """Return the members in groups that pairs of a class up to ``most`` hold together."""
        return _connected(
            members, lambda row: [0 < level <= most for level in self._classes.levels[row]]
        )

    def _cpus(self) -> list[list[int]]:
        """Return the devices by CPU: by class, and GPUs of hidden classes by affinity."""
        classes = self._classes
        cpus: list[list[int]] = []
        of_affinity: dict[str, list[int]] = {}
        for group in self._groups(range(len(classes.lines)), PHB):
            affinity = classes.affinities[group[0]] if group[0] < classes.gpus else ""
            cpu = of_affinity.get(affinity)
            if cpu is not None and not any(classes.levels[a][b] == SYS for a in cpu for b in group):
                cpu += group
            else:
                cpus.append(group)
                if affinity:
                    of_affinity[affinity] = group
        return [sorted(group) for group in cpus]

    def _numa_numbers(self, cpus: Sequence[Sequence[int]]) -> list[str]:
        """Return the NUMA node that a CPU's GPUs all name, else the next number that none names."""
        named = []
        for members in cpus:
            numbers = {self._classes.numa[gpu] for gpu in members if gpu < self._classes.gpus}
            number = numbers.pop() if len(numbers) == 1 else ""
            named.append("" if number in named else number)
        free = (str(n) for n in itertools.count() if str(n) not in named)
        return [number or next(free) for number in named]

    def _add_nvlinks(self, gpus: list[Element]) -> None:
        nvlinks = self._classes.nvlinks
        switched = 0
        for group in _connected(range(len(gpus)), lambda row: [n > 0 for n in nvlinks[row]]):
            is_switched = len(group) > 2 and max(sum(nvlinks[i]) for i in group) > _MOST_NVLINKS
            switched += is_switched
            for index in group:
                gpu = gpus[index].children[0]
                counts = [(peer, count) for peer, count in enumerate(nvlinks[index]) if count]
                links = [{"target": gpus[peer].get("busid"), "count": str(n)} for peer, n in counts]
                if is_switched:
                    links = [{**_SWITCH, "count": str(max(nvlinks[index]))}]
                gpu.children += [Element("nvlink", x, gpu.place, gpu.line) for x in links]
        if switched > 1:
            self._classes.warnings.append(
                f"{switched} groups of GPUs with NVSwitches, taken as joined; check them"
            )

    def _compare(self) -> None:
        """Warn of pairs whose class the tree cannot hold, and of those that NVLink hides."""
        classes = self._classes
        hidden_pairs = 0
        misfits: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for a, row in enumerate(classes.levels):
            cpu, upper, lower = self._group[a]
            for b in range(a):
                level = row[b]
                if not level:
                    hidden_pairs += 1
                    continue
                other = self._group[b]
                is_near = cpu == other[0]
                class_in_tree = (
                    (PIX if lower == other[2] else PXB) if is_near and upper == other[1] else PHB
                )
                if level != (class_in_tree if is_near else SYS):
                    misfits[level].append((a, b))
        if hidden_pairs:
            classes.warnings.append(
                f"NVLink hides the PCIe class of {hidden_pairs} pairs of GPUs, taken from NICs and "
                "CPU affinity; `nvidia-smi topo -mp` prints it"
            )
        for level, pairs in misfits.items():
            lines = " and ".join(str(classes.lines[index]) for index in sorted(pairs[0]))
            classes.warnings.append(
                f"{len(pairs)} pairs of class {_NAMES[level]} are nearer than that through "
                f"others, the nearer taken (lines {lines} first)"
            )


def _connected(
    members: Sequence[int], neighbours: Callable[[int], Sequence[bool]]
) -> list[list[int]]:
    """Return the members in connected groups, each and all in rising order."""
    rest = dict.fromkeys(members)
    groups = []
    while rest:
        group = [next(iter(rest))]
        del rest[group[0]]
        for member in group:
            is_neighbour = neighbours(member)
            fresh = [other for other in rest if is_neighbour[other]]
            group += fresh
            for other in fresh:
                del rest[other]
        groups.append(sorted(group))
    return groups


def _links_of(counts: Sequence[int]) -> int:
    """Return the NVLinks of a GPU by those of its pairs, which behind an NVSwitch are the same."""
    return max(counts) if sum(counts) > _MOST_NVLINKS else sum(counts)
