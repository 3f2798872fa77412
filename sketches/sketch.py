"""Sketches: the logical GPU-to-GPU links that a synthesizer may use, and the rules on them."""

from __future__ import annotations

from collections.abc import KeysView
from functools import cached_property
from hashlib import sha256

import msgspec

SKETCH_FORMAT = "tuccl-sketch/1"
STAGES = ("binding", "grouping", "transformation", "congestion", "size")


class LogicalLink(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A directed GPU-to-GPU link that a synthesizer may use.

    Attributes:
        src: Sending rank.
        dst: Receiving rank.
        inter: Whether the two ranks are on different hosts.
        alpha_us: Latency of the physical path in us.
        beta_us_per_mb: Time in us of 1e6 bytes over the path when nothing else uses it.
        nics: For an inter link, the NIC it leaves by and the NIC it arrives at.
        congestion: How many times slower the link is while all links of its sketch are busy,
            less one: 0 means nothing is shared (see `tuccl.sketches.congestion`).
        prefer_from_bytes: The link is to be preferred for sizes from here on; 0 is no preference.
    """

    src: int
    dst: int
    inter: bool
    alpha_us: float
    beta_us_per_mb: float
    nics: tuple[str, ...] = ()
    congestion: float = 0.0
    prefer_from_bytes: int = 0

    @property
    def bandwidth_gbs(self) -> float:
        """Return the rate of the link alone in GB/s.

        >>> LogicalLink(src=0, dst=1, inter=False, alpha_us=1.0, beta_us_per_mb=40.0).bandwidth_gbs
        25.0
        """
        return 1e3 / self.beta_us_per_mb

    def time_us(self, nbytes: int) -> float:
        """Return the time in us of one message of `nbytes` over the link alone."""
        return self.alpha_us + nbytes * self.beta_us_per_mb / 1e6


class PrunedLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A link of the full mesh that the sketch leaves out, the stage that dropped it, and why."""

    src: int
    dst: int
    stage: str
    reason: str


class Sketch(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    dict=True,
):
    """The logical topology and the rules that a synthesizer is held to.

    Attributes:
        name: What the sketch is called; candidate sketches of one topology differ in it.
        ranks: Number of ranks.
        hosts: Index of the host of each rank.
        links: The links that may be used, ordered by (src, dst).
        bindings: NIC that each rank sends and receives by (stage 1).
        groups: NICs that talk to each other, at most one a host (stage 2).
        relays: For a sender of inter links, the ranks of its host whose chunks it carries out;
            empty means that any sender may carry any chunk.
        chunks_per_rank: Parts that each rank's chunk is cut into.
        align_bytes: Chunks are to be whole multiples of so many bytes.
        symmetry: Pairs (offset, size): r -> r//size*size + (r%size + offset)%size maps links to
            links.
        switches: Sets of ranks behind one switch: one send and one receive at a time for each.
        switch_strategy: For each switch ``uc-min`` (few connections) or ``uc-max`` (many).
        own_chunks_first: A relay sends its own chunks before those that it carries for others.
        pruned: The links of the full mesh that are not in `links`.
        notes: What a reader should know about how the sketch came about, one fact a line.
        signature: Signature of the topology the sketch was made for, if known.
        format: The name of the file format.
    """

    name: str
    ranks: int
    hosts: tuple[int, ...]
    links: tuple[LogicalLink, ...]
    bindings: dict[int, str] = {}
    groups: tuple[tuple[str, ...], ...] = ()
    relays: dict[int, tuple[int, ...]] = {}
    chunks_per_rank: int = 1
    align_bytes: int = 1
    symmetry: tuple[tuple[int, int], ...] = ()
    switches: tuple[tuple[int, ...], ...] = ()
    switch_strategy: tuple[str, ...] = ()
    own_chunks_first: bool = False
    pruned: tuple[PrunedLink, ...] = ()
    notes: tuple[str, ...] = ()
    signature: str = ""
    format: str = SKETCH_FORMAT

    @cached_property
    def _by_pair(self) -> dict[tuple[int, int], LogicalLink]:
        return {(link.src, link.dst): link for link in self.links}

    @cached_property
    def _outgoing(self) -> dict[int, tuple[LogicalLink, ...]]:
        out: dict[int, list[LogicalLink]] = {}
        for link in self.links:
            out.setdefault(link.src, []).append(link)
        return {rank: tuple(links) for rank, links in out.items()}

    def out_links(self, rank: int) -> tuple[LogicalLink, ...]:
        """Return the links that leave `rank`."""
        return self._outgoing.get(rank, ())

    def link(self, src: int, dst: int) -> LogicalLink | None:
        """Return the link from `src` to `dst`, or None where there is none."""
        return self._by_pair.get((src, dst))

    @property
    def pairs(self) -> KeysView[tuple[int, int]]:
        """Return the (src, dst) of every link."""
        return self._by_pair.keys()

    @property
    def internode_links(self) -> int:
        """Return the number of directed links between hosts."""
        return sum(link.inter for link in self.links)

    @cached_property
    def nhosts(self) -> int:
        """Return the number of hosts."""
        return max(self.hosts, default=-1) + 1

    def ranks_of(self, host: int) -> tuple[int, ...]:
        """Return the ranks of the host with index `host`, ascending."""
        return tuple(rank for rank, its_host in enumerate(self.hosts) if its_host == host)

    @cached_property
    def _identity(self) -> bytes:
        plain = msgspec.to_builtins(self, str_keys=True, order="deterministic")
        return sha256(msgspec.json.encode(plain)).digest()

    def __eq__(self, other: object) -> bool:
        """Compare by a hash of all fields: caches meet equal sketches of a million links."""
        if not isinstance(other, Sketch):
            return NotImplemented
        return self is other or self._identity == other._identity

    def __hash__(self) -> int:
        """Return a hash of all fields, so that sketches can key a cache."""
        return hash(self._identity)
