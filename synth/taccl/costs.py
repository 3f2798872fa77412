"""Alpha-beta costs of a sketch's links in whole ns, and the ports that links share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuccl.sketches.sketch import LogicalLink, Sketch

_Port = tuple[str, object, object]


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the sketch; times in ns.

    A message of k chunks takes ``alpha + k * beta``; one of a single chunk is all there is unless
    the link is a `contiguous` one. Nothing else is on the link meanwhile.

    Attributes:
        src: Sending rank.
        dst: Receiving rank.
        inter: Whether it joins two hosts.
        alpha: Latency of a message.
        beta: Time of a chunk.
        contiguous: Whether several chunks may travel as one message (TACCL's contiguity).
        ports: What it shares with other links: switch ports, NIC directions.
        holds_ports: Whether a message holds its ports for its whole time, or only for its last
            ``k * beta``, while bytes flow.
    """

    src: int
    dst: int
    inter: bool
    alpha: int
    beta: int
    contiguous: bool
    ports: tuple[_Port, ...]
    holds_ports: bool

    def message_ns(self, chunks: int = 1) -> int:
        """Return the ns of one message of so many chunks."""
        return self.alpha + chunks * self.beta

    def port_ns(self, chunks: int = 1) -> int:
        """Return for how many ns, its last ones, a message holds the link's ports."""
        return self.message_ns(chunks) if self.holds_ports else chunks * self.beta


@dataclass(frozen=True)
class LinkCosts:
    """The links of a sketch for chunks of one size, in the order of the sketch's links.

    `backwards` costs are those of a reduction planned as a multicast in reversed time.
    """

    ranks: int
    hosts: tuple[int, ...]
    links: tuple[Link, ...]
    backwards: bool = False

    def reversed(self) -> LinkCosts:
        """Return the costs with every link reverse_time round."""
        links = tuple(replace(link, src=link.dst, dst=link.src) for link in self.links)
        return replace(self, links=links, backwards=not self.backwards)


def sketch_costs(sketch: Sketch, chunk_bytes: int) -> LinkCosts:
    """Return the costs of `sketch` in ns for chunks of `chunk_bytes`, by its own alpha and beta.

    A NIC direction carries the bytes of one message at a time, whichever link it is on; a switch
    port carries one message at a time. Where the sketch names no NICs, what shares a link unseen
    is taken to be as slow as when all are busy.

    >>> link = LogicalLink(src=0, dst=1, inter=False, alpha_us=1.0, beta_us_per_mb=10.0)
    >>> back = LogicalLink(src=1, dst=0, inter=False, alpha_us=1.0, beta_us_per_mb=10.0)
    >>> pair = Sketch(name="pair", ranks=2, hosts=(0, 0), links=(link, back))
    >>> sketch_costs(pair, 1_000_000).links[0].message_ns()
    11000
    """
    links = []
    for link in sketch.links:
        load = 1.0 if link.nics or _switches(sketch, link) else 1.0 + link.congestion
        links.append(
            Link(
                src=link.src,
                dst=link.dst,
                inter=link.inter,
                alpha=round(link.alpha_us * 1e3),
                beta=max(1, round(link.beta_us_per_mb * chunk_bytes * load / 1e3)),
                contiguous=link.inter,
                ports=(*_nic_ports(link), *switch_ports(sketch, link)),
                holds_ports=not link.nics,
            )
        )
    return LinkCosts(sketch.ranks, sketch.hosts, tuple(links))


def _switches(sketch: Sketch, link: LogicalLink) -> list[int]:
    if link.inter:
        return []
    return [n for n, ranks in enumerate(sketch.switches) if {link.src, link.dst} <= set(ranks)][:1]


def switch_ports(sketch: Sketch, link: LogicalLink) -> tuple[_Port, ...]:
    """Return the ports of the link's switch; parallel planes are one switch of their joint rate."""
    switched = bool(_switches(sketch, link))
    return (("switch out", 0, link.src), ("switch in", 0, link.dst)) if switched else ()


def _nic_ports(link: LogicalLink) -> tuple[_Port, ...]:
    return tuple(
        (f"nic {route}", 0, nic) for route, nic in zip(("out", "in"), link.nics, strict=False)
    )
