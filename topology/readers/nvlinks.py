"""The links between GPUs that NCCL's XML lists under each <gpu>: NVLink, xGMI, C2C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from tuccl.errors import InputError
from tuccl.topology import rates
from tuccl.topology.graph import LinkKind, Node
from tuccl.topology.rates import Rate
from tuccl.topology.readers.xml_tree import Element

_Gpu: TypeAlias = tuple[str, str, str, Element | None]  # id, bus address, CPU, <gpu>
_MOST_LINKS = 1024
_MOST_OF_SM = {60: 4, 70: 6, 80: 12, 90: 18, 100: 18}  # NVLinks of one GPU (data sheets)
_NVSWITCH = "nvswitch0"


class NvLinks:
    """Collects what every GPU says about its links, then adds each link once.

    All NVSwitches of a host become one node: each GPU spreads its links over all of them, and a
    message may take all at once.
    """

    def __init__(
        self,
        add_node: Callable[[Node], None],
        add_link: Callable[[str, str, LinkKind, Rate, float, Element], None],
        warn: Callable[[str, Element], None],
        host: str,
    ) -> None:
        """Keep the functions to add a node, to add a link and to warn."""
        self._add_node = add_node
        self._add_link = add_link
        self._warn = warn
        self._host = host
        self._direct: Counter[tuple[str, str, LinkKind]] = Counter()
        self._switched: Counter[str] = Counter()
        self._rates: dict[str, Rate] = {}
        self._elements: dict[str, Element] = {}

    def read(self, gpus: list[_Gpu]) -> None:
        """Add the links of ``gpus``."""
        ids = {busid: gpu_id for gpu_id, busid, _, _ in reversed(gpus)}
        for gpu_id, busid, cpu, element in gpus:
            if element is not None:
                self._elements[gpu_id] = element
                self._read_gpu(gpu_id, busid, cpu, element, ids)
        self._add_direct()
        self._add_switched()

    def _read_gpu(
        self, gpu_id: str, busid: str, cpu: str, element: Element, ids: dict[str, str]
    ) -> None:
        for link in element.children:
            if link.tag == "nvlink":
                self._rates[gpu_id] = rates.nvlink_rate(element.integer("sm", 0, 9999))
                self._read_link(gpu_id, busid, cpu, link, "nvlink", ids)
            elif link.tag == "xgmi":
                self._rates[gpu_id] = rates.xgmi_rate(element.get("gcn"))
                self._read_link(gpu_id, busid, cpu, link, "xgmi", ids)
            elif link.tag == "c2c":
                self._read_c2c(gpu_id, cpu, link)
            else:
                self._warn(f"<{link.tag[:40]}> in <gpu> is not known", link)
        _check_count(element)

    def _read_link(
        self,
        gpu_id: str,
        busid: str,
        cpu: str,
        link: Element,
        kind: LinkKind,
        ids: dict[str, str],
    ) -> None:
        count = link.integer("count", 0, _MOST_LINKS) or 0
        target = link.get("target").strip().lower()
        target_class = link.get("tclass").strip().lower()
        if not count:
            self._warn(f"<{link.tag}> without a count is left out", link)
        elif target == busid:
            self._warn(f"<{link.tag}> from a GPU to itself is left out", link)
        elif target in ids:
            self._direct[gpu_id, ids[target], kind] += count
        elif target_class.startswith("0x068001"):
            self._add_link(
                gpu_id, cpu, kind, self._scaled_rate(gpu_id, count), rates.NVLINK_US, link
            )
        elif target_class.startswith("0x0680") or target.startswith("fffffff"):
            self._switched[gpu_id] += count
        else:
            self._warn(f"<{link.tag}> to a device that is not in the file is left out", link)

    def _read_c2c(self, gpu_id: str, cpu: str, link: Element) -> None:
        mbs = (link.integer("bw", 0, 10**8) or 0) * (link.integer("count", 0, _MOST_LINKS) or 0)
        if mbs:
            rate = Rate(mbs / 1000, f"c2c, {mbs} MB/s")
            self._add_link(gpu_id, cpu, "c2c", rate, rates.NVLINK_US, link)
        else:
            self._warn("<c2c> without a rate is left out", link)

    def _scaled_rate(self, gpu_id: str, count: int) -> Rate:
        link_rate = self._rates[gpu_id]
        return Rate(link_rate.gbs * count, f"{count} x {link_rate.source}", link_rate.assumed)

    def _add_direct(self) -> None:
        for (src, dst, kind), count in self._direct.items():
            back = self._direct.get((dst, src, kind), 0)
            if count != back:
                self._warn("a GPU's peer lists another number of links back", self._elements[src])
            # The pair's link goes both ways: it is added by the end that lists more of it.
            if (count, dst) > (back, src):
                rate = min(
                    self._scaled_rate(end, count) for end in (src, dst) if end in self._rates
                )
                self._add_link(src, dst, kind, rate, rates.NVLINK_US, self._elements[src])

    def _add_switched(self) -> None:
        if not self._switched:
            return
        self._add_node(Node(_NVSWITCH, "nvswitch", self._host))
        most = max(self._switched.values())
        for gpu_id, count in self._switched.items():
            if count != most:
                text = "a GPU lists fewer links to the NVSwitches than another"
                self._warn(text, self._elements[gpu_id])
            rate = self._scaled_rate(gpu_id, count)
            at = self._elements[gpu_id]
            self._add_link(gpu_id, _NVSWITCH, "nvlink", rate, rates.NVSWITCH_US, at)


def _check_count(gpu: Element) -> None:
    """Refuse more NVLinks than a GPU of its compute capability has."""
    sm, count = gpu.integer("sm", 0, 9999), 0
    most = _MOST_OF_SM.get(sm or 0)
    for link in gpu.all("nvlink"):
        count += link.integer("count", 0, _MOST_LINKS) or 0
        if most is not None and count > most:
            raise InputError(
                f"{link.place}: more than the {most} NVLinks that a GPU of sm_{sm} has; write "
                "the file again"
            )
