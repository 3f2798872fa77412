"""The picture of one host: sockets outside, GPUs inside, NVLink between them."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict

from tuccl.topology.graph import Link, Node, Topology
from tuccl.topology.pictures.svg import Drawing, number, stroke_width

_WIDTHS = {"gpu": 46.0, "nic": 40.0, "pcie": 44.0, "cpu": 60.0}
_GAP = 6.0
_HEIGHT = 30.0
_ROW = 58.0  # from a level of the PCIe tree to the next
_MARGIN = 26.0
_MOST_GPUS = 16  # of a host that are all drawn; of more, the first
_FIRST_GPUS = 8
_MOST_GRID = 64
_MOST_ROOTS = 16
_MOST_LEVELS = 16  # of the PCIe tree
_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "c2c": "C2C", "pcie": "PCIe", "cpu": "between CPUs"}


class HostPicture:
    """Places of a host's parts, in a frame of its own.

    Attributes:
        topology: the machine.
        host: which of its hosts.
        linked: whether NVLink and its like are drawn; a sketch draws its own links instead.
        at: the middle of each node that is drawn.
        width: of the frame.
        height: of the frame.
    """

    def __init__(self, topology: Topology, host: str, *, linked: bool = True) -> None:
        """Place the nodes: half of the sockets above, half below, GPUs towards the middle."""
        self.topology, self.host, self.linked = topology, host, linked
        self.at: dict[str, tuple[float, float]] = {}
        nodes = [n for n in self.topology.nodes if (n.host or "") == self.host]
        self._nodes = {node.id: node for node in nodes}
        self._links = [x for x in self.topology.links if self._nodes.keys() >= {x.src, x.dst}]
        self._switches = [node.id for node in nodes if node.kind == "nvswitch"]
        self._children, self._depth = self._tree()
        roots = self._roots()
        self._above: set[str] = set()
        half = (len(roots) + 1) // 2
        sides = [roots[:half], roots[half:]]
        levels = max((self._levels(root) for root in roots), default=0)
        widths = [sum(self._width(root) + 2 * _GAP for root in side) for side in sides]
        grid_gpus = [n for n in nodes if n.kind == "gpu" and n.id not in self._depth][:_MOST_GRID]
        self.width = max([*widths, 150.0]) + 2 * _MARGIN
        top = _MARGIN + 24
        middle = self._middle(bool(grid_gpus), len(sides[1]) > 0)
        inner = top + levels * _ROW
        for sign, side, width in zip((1, -1), sides, widths, strict=True):
            x = (self.width - width) / 2
            outer = top if sign == 1 else inner + middle + levels * _ROW
            for root in sorted(side, key=self._beside):
                self._place(root, x + _GAP, outer, sign * _ROW, levels)
                x += self._width(root) + 2 * _GAP
                if self._nodes[root].kind == "pcie":
                    self._turn(root)
        bottom = inner + middle + (levels * _ROW if sides[1] else 0)
        bottom = self._place_grid(grid_gpus, inner, bottom)
        self._place_switches(inner + middle / 2)
        self.height = bottom + _MARGIN + 8

    def _tree(self) -> tuple[dict[str, list[str]], dict[str, int]]:
        """Return the children and depth of each node under the CPUs, over PCIe and C2C."""
        around: dict[str, list[str]] = defaultdict(list)
        for link in self._links:
            ends = {self._nodes[link.src].kind, self._nodes[link.dst].kind}
            if link.kind in ("pcie", "c2c") and ends <= _WIDTHS.keys():
                around[link.src].append(link.dst)
                around[link.dst].append(link.src)
        depth = {node.id: 0 for node in self._nodes.values() if node.kind == "cpu"}
        # Switches whose CPU is not known stand for one.
        orphans = [n.id for n in self._nodes.values() if n.kind == "pcie"]
        children: dict[str, list[str]] = defaultdict(list)
        for starts in (list(depth), orphans):
            queue = [node for node in starts if node in depth or not depth.setdefault(node, 0)]
            for node in queue:
                if self._nodes[node].kind in ("gpu", "nic") or depth[node] >= _MOST_LEVELS:
                    continue
                for child in around[node]:
                    if child not in depth:
                        depth[child] = depth[node] + 1
                        children[node].append(child)
                        queue.append(child)
        return children, depth

    def _roots(self) -> list[str]:
        """Return the roots of the tree that are drawn, until enough GPUs are."""
        roots: list[str] = []
        gpus = 0
        total = sum(node.kind == "gpu" for node in self._nodes.values())
        most = _MOST_GPUS if total <= _MOST_GPUS else _FIRST_GPUS
        for node, depth in self._depth.items():
            if depth == 0 and (self._children[node] or self._nodes[node].kind == "cpu"):
                inside = self._gpus_under(node)
                if roots and gpus + inside > most:
                    break
                gpus += inside
                roots.append(node)
        return roots[:_MOST_ROOTS]

    def _gpus_under(self, node: str) -> int:
        here = int(self._nodes[node].kind == "gpu")
        return here + sum(self._gpus_under(child) for child in self._children[node])

    def _levels(self, node: str) -> int:
        return 1 + max((self._levels(child) for child in self._children[node]), default=-1)

    def _width(self, node: str) -> float:
        inside = sum(self._width(child) + _GAP for child in self._children[node]) - _GAP
        return max(_WIDTHS[self._nodes[node].kind], inside)

    def _place(self, node: str, x: float, y: float, step: float, levels: int) -> None:
        width = self._width(node)
        kind = self._nodes[node].kind
        leaf = kind in ("gpu", "nic")
        self.at[node] = (x + width / 2, y + step * levels if leaf else y)
        if step > 0:
            self._above.add(node)
        inside = sum(self._width(child) + _GAP for child in self._children[node]) - _GAP
        x += (width - inside) / 2
        for child in self._children[node]:
            below = 0 if leaf else levels - 1
            self._place(child, x, y + step, step, below)
            x += self._width(child) + _GAP

    def _beside(self, root: str) -> float:
        """Return the mean place of the GPUs that a PCIe switch without a CPU hangs on."""
        ends = [{x.src, x.dst} for x in self._links if root in (x.src, x.dst)]
        xs = [self.at[node][0] for pair in ends for node in pair - {root} if node in self.at]
        return sum(xs) / len(xs) if xs and self._nodes[root].kind == "pcie" else 0.0

    def _turn(self, root: str) -> None:
        """Put such a switch where its NICs were, so that no NIC is between it and the GPUs."""
        for nic in self._children[root]:
            (x, y), (root_x, root_y) = self.at[nic], self.at[root]
            self.at[nic] = x, root_y
            self.at[root] = root_x, y

    def _place_grid(self, gpus: list[Node], y: float, bottom: float) -> float:
        """Place GPUs without a known CPU in a grid; return its lower edge."""
        if not gpus:
            return bottom
        columns = math.isqrt(len(gpus) - 1) + 1
        step = _WIDTHS["gpu"] + 34
        self.width = max(self.width, columns * step + 2 * _MARGIN)
        x = (self.width - (columns - 1) * step) / 2
        for place, gpu in enumerate(gpus):
            self.at[gpu.id] = x + place % columns * step, y + place // columns * step
        return max(bottom, y + (len(gpus) - 1) // columns * step + 24)

    def _place_switches(self, y: float) -> None:
        for place, switch in enumerate(self._switches):
            self.at[switch] = self.width * (place + 0.5) / len(self._switches), y

    def _middle(self, has_grid: bool, two_sided: bool) -> float:
        """Return the height of what lies between the rows of GPUs."""
        if self._switches:
            return 130.0
        if has_grid:
            return 0.0
        if not self.linked or any(x.kind in ("nvlink", "xgmi") for x in self._links):
            return 170.0
        return 60.0 if two_sided else 12.0

    @property
    def omitted(self) -> int:
        """Return the number of GPUs that are not drawn."""
        return sum(n.kind == "gpu" and n.id not in self.at for n in self._nodes.values())

    def draw(self, drawing: Drawing, x: float, y: float, heading: str = "") -> None:
        """Draw the host with its upper left corner at ``x``, ``y``."""
        models = Counter(n.model or "GPU" for n in self._nodes.values() if n.kind == "gpu")
        text = ", ".join(f"{count} x {model}" for model, count in models.items())
        left = f"; {self.omitted} GPUs more, not drawn" if self.omitted else ""
        drawing.text(x + 8, y + 10, f"{heading or self.host}: {text}{left}", "left")
        for link in self._links:
            self._draw_link(drawing, link, x, y)
        self._draw_bus(drawing, x, y)
        gpu_numbers = itertools.count()
        nic_numbers = itertools.count()
        for node in self._nodes.values():
            if node.kind == "gpu":
                lines = [f"GPU{next(gpu_numbers)}"]
            elif node.kind == "nic":
                port = [f"{node.port_gbs * 8:.0f}G"] if node.port_gbs else []
                lines = [f"NIC{next(nic_numbers)}", *port]
            else:
                lines = [_short(node)]
            if node.id in self.at:
                self._draw_node(drawing, node, lines, x, y)

    def _draw_node(
        self, drawing: Drawing, node: Node, lines: list[str], x: float, y: float
    ) -> None:
        at = self.at[node.id]
        width = _WIDTHS.get(node.kind, 0.0)
        if node.kind == "nvswitch":
            width = max((self.width - 2 * _MARGIN) / len(self._switches) - 8, 2.0)
        title = f"{node.id} {node.model or ''}".strip()
        drawing.box((x + at[0], y + at[1]), (width, _HEIGHT), node.kind, lines, title)

    def curve(self, src: str, dst: str, x: float, y: float) -> str | None:
        """Return the path between two GPUs or a GPU and an NVSwitch, None if one is not placed."""
        if src not in self.at or dst not in self.at:
            return None
        (x1, y1), (x2, y2) = self.at[src], self.at[dst]
        if len(self._switches) == 1 and {src, dst} & set(self._switches):
            column = x2 if src in self._switches else x1
            return f"M{number(x + column)} {number(y + y1)}V{number(y + y2)}"
        start, end = f"M{number(x + x1)} {number(y + y1)}", f"{number(x + x2)} {number(y + y2)}"
        if y1 != y2:
            bend = abs(x1 - x2) < 1 and abs(y1 - y2) > 130 and not self._children
            return (
                f"{start}Q{number(x + x1 + 40)} {number(y + (y1 + y2) / 2)} {end}"
                if bend
                else (f"{start}L{end}")
            )
        depth = (24 + 0.3 * abs(x1 - x2)) * (1 if src in self._above else -1)
        if not self._depth:  # in a grid only what passes others bends
            depth = 0 if abs(x1 - x2) < 100 else 22
        control = y + y1 + 2 * depth
        return f"{start}Q{number(x + (x1 + x2) / 2)} {number(control)} {end}"

    def _draw_link(self, drawing: Drawing, link: Link, x: float, y: float) -> None:
        if link.kind == "cpu":
            return
        nvlink = link.kind in ("nvlink", "xgmi")
        if nvlink and not self.linked:
            return
        if nvlink:
            points = self.curve(link.src, link.dst, x, y)
        elif link.src in self.at and link.dst in self.at:
            (x1, y1), (x2, y2) = self.at[link.src], self.at[link.dst]
            points = f"M{number(x + x1)} {number(y + y1)}L{number(x + x2)} {number(y + y2)}"
        else:
            points = None
        if points:
            title = f"{link.src} {link.dst}: {link.bandwidth:g} GB/s, {link.origin}"
            width = stroke_width(link.bandwidth)
            drawing.path(points, link.kind, width, title, faint=not self.linked)

    def _draw_bus(self, drawing: Drawing, x: float, y: float) -> None:
        """Draw what joins CPUs as a line outside them, around the left edge to those below."""
        links = [k for k in self._links if k.kind == "cpu" and self.at.keys() >= {k.src, k.dst}]
        while links:
            cpus = {links[0].src, links[0].dst}
            while bordering := [k for k in links if len(cpus & {k.src, k.dst}) == 1]:
                cpus |= {end for link in bordering for end in (link.src, link.dst)}
            rates = sorted({k.bandwidth for k in links if k.src in cpus})
            links = [k for k in links if k.src not in cpus]
            title = f"between CPUs: {', '.join(f'{rate:g}' for rate in rates)} GB/s"
            width = stroke_width(rates[-1])
            drawing.path(self._bus(cpus, x, y), "cpu", width, title, faint=not self.linked)

    def _bus(self, cpus: set[str], x: float, y: float) -> str:
        points, edges, left = "", [], number(x + 10)
        for sign in (-1, 1):
            places = sorted(self.at[cpu] for cpu in cpus if (cpu in self._above) == (sign < 0))
            if places:
                edges.append(number(y + places[0][1] + sign * (_HEIGHT / 2 + 7)))
                across = number(x + places[0][0]), number(x + places[-1][0])
                points += f"M{across[0]} {edges[-1]}H{across[1]}"
            for cx, cy in places:
                points += f"M{number(x + cx)} {number(y + cy)}V{edges[-1]}"
        if len(edges) > 1:
            first = [min(self.at[c] for c in cpus if (c in self._above) == side) for side in (1, 0)]
            points += f"M{number(x + first[0][0])} {edges[0]}H{left}V{edges[1]}"
            points += f"H{number(x + first[1][0])}"
        return points


def legend(drawing: Drawing, links: list[Link], y: float, most: int = 12) -> float:
    """Draw a line for each kind, rate and origin of links from ``y`` on; return the lower edge."""
    counts = Counter((link.kind, link.bandwidth, link.origin) for link in links)
    for (kind, gbs, origin), count in sorted(counts.items())[:most]:
        width = stroke_width(gbs)
        drawing.path(f"M12 {number(y)}H44", kind, width)
        name = _NAMES.get(kind, kind)
        drawing.text(52, y, f"{name} {gbs:.4g} GB/s each way, {origin} ({count})", "left")
        y += max(16.0, width + 9)
    return y


def _short(node: Node) -> str:
    """Return what stands in a box: CPU0, PCIe, NVSwitch."""
    names = {"cpu": "CPU", "pcie": "PCIe", "nvswitch": node.model or "NVSwitch"}
    digits = node.id.rpartition("cpu")[2] if node.kind == "cpu" else ""
    return names.get(node.kind, node.kind) + (digits if digits.isdigit() else "")
