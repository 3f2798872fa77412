"""Use of each link by a simulated run: over the whole run, and over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from tuccl.runtime import TracedRun

_BUSIEST = 10


class LinkUse(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link over a whole run.

    ``rate_gbs`` is what software reaches on it: the nominal rate times the machine class's
    efficiency. ``used`` is user bytes over (rate x time of the call); ``on_wire`` the same with
    the protocol's flags; ``busy`` the share of the time in which it carried anything.
    ``held_back_us`` is the time that flows moved slower than they could because it was full.
    """

    link: str
    kind: str
    rate_gbs: float
    nbytes: int
    used: float
    on_wire: float
    busy: float
    held_back_us: float


class ClassUse(msgspec.Struct, frozen=True, kw_only=True):
    """All links of a kind that some route crosses, together.

    ``used``, ``on_wire`` and ``busy`` are means weighted with the links' rates (``busy``: plain);
    ``most_used`` is the highest ``used`` of one link, far above the mean where some lie idle.
    ``over_time`` is the mean share of their rate in use, flags and changes of direction
    included, in equal parts of the time from the first thread block's start to the last one's end.
    """

    kind: str
    links: int
    rate_gbs: float
    nbytes: int
    used: float
    most_used: float
    on_wire: float
    busy: float
    over_time: tuple[float, ...]


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the machine by a simulated call; ``links`` are the busiest, most used first."""

    time_us: float
    bin_us: float
    classes: tuple[ClassUse, ...]
    links: tuple[LinkUse, ...]


def utilisation(run: TracedRun, busiest: int = _BUSIEST) -> Utilisation:
    """Return the share of the links' bandwidth that ``run`` used over its whole time.

    The time is that of the call, host and kernel start included: what a link could have carried.

    >>> from tuccl.program import Knobs
    >>> from tuccl.runtime import SimExecutor
    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> host = load_profile("v100x4")
    >>> program = lower(msccl_default(host, Collective("allgather", 4)))
    >>> [nvlink] = utilisation(SimExecutor(host).trace(program, Knobs(), 1 << 30)).classes
    >>> nvlink.kind, 0 < nvlink.used <= nvlink.busy <= 1
    ('nvlink', True)

    Notes:
        Aggregate link usage during the entire execution: TuCCL, section V, Link Utilization.
    """
    trace = run.trace
    uses = _link_uses(run)
    shares = trace.use
    kinds = dict.fromkeys(use.kind for use in uses)
    return Utilisation(
        time_us=trace.result.time_us,
        bin_us=trace.end_us / len(shares[0]) if shares else 0.0,
        classes=tuple(_class_use(kind, uses, shares) for kind in kinds),
        links=tuple(sorted(uses, key=lambda use: -use.on_wire)[:busiest]),
    )


def _link_uses(run: TracedRun) -> list[LinkUse]:
    trace, result = run.trace, run.trace.result
    return [
        LinkUse(
            link=resource.name,
            kind=resource.kind,
            rate_gbs=rate / 1e3,
            nbytes=nbytes,
            used=nbytes / (rate * result.time_us),
            on_wire=link_bytes / (rate * result.time_us),
            busy=busy / result.time_us,
            held_back_us=held,
        )
        for resource, rate, held, nbytes, link_bytes, busy in zip(
            run.network.resources,
            trace.rate,
            trace.held_us,
            result.resource_bytes,
            result.resource_wire_bytes,
            result.resource_busy_us,
            strict=True,
        )
    ]


def _class_use(kind: str, uses: Sequence[LinkUse], shares: Sequence[Sequence[float]]) -> ClassUse:
    members = [(use, over) for use, over in zip(uses, shares, strict=True) if use.kind == kind]
    rate_gbs = math.fsum(use.rate_gbs for use, _ in members)

    def mean(values: Iterable[float]) -> float:
        return (
            math.fsum(v * use.rate_gbs for v, (use, _) in zip(values, members, strict=True))
            / rate_gbs
        )

    return ClassUse(
        kind=kind,
        links=len(members),
        rate_gbs=rate_gbs,
        nbytes=sum(use.nbytes for use, _ in members),
        used=mean(use.used for use, _ in members),
        most_used=max(use.used for use, _ in members),
        on_wire=mean(use.on_wire for use, _ in members),
        busy=math.fsum(use.busy for use, _ in members) / len(members),
        over_time=tuple(mean(at) for at in zip(*(over for _, over in members), strict=True)),
    )


_LEVELS = " .:-=+*#%@"


def utilisation_text(use: Utilisation) -> str:
    """Return ``use`` as two tables of text: link classes over time, busiest links."""
    head = f"{'class':<9}{'links':>6}{'GB/s':>10}{'used':>8}{'most':>8}{'on wire':>9}"
    head += f"{'busy':>7}  over time"
    busiest = f"{'busiest links':<32}{'GB/s':>10}{'used':>8}{'on wire':>9}{'busy':>7}"
    busiest += f"{'held back us':>14}"
    title = (
        f"# link use over the whole {use.time_us:.1f} us (simulated); over time: "
        f"{use.bin_us:.3g} us a sign, ' ' idle, '@' full"
    )
    lines = [
        title,
        head,
        *(_class_line(c) for c in use.classes),
        "",
        busiest,
        *(_link_line(link) for link in use.links if link.nbytes),
    ]
    return "\n".join(lines)


def _class_line(c: ClassUse) -> str:
    return (
        f"{c.kind:<9}{c.links:>6}{c.rate_gbs:>10.1f}{c.used:>8.1%}{c.most_used:>8.1%}{c.on_wire:>9.1%}{c.busy:>7.0%}"
        f"  |{''.join(_sign(share) for share in c.over_time)}|"
    )


def _link_line(use: LinkUse) -> str:
    return (
        f"{use.link:<32}{use.rate_gbs:>10.1f}{use.used:>8.1%}{use.on_wire:>9.1%}"
        f"{use.busy:>7.0%}{use.held_back_us:>14.1f}"
    )


def _sign(share: float) -> str:
    """A sign that rises with the share; only an idle link shows none."""
    return _LEVELS[min(math.ceil(share * (len(_LEVELS) - 1)), len(_LEVELS) - 1)]
