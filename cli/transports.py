"""``tuccl doctor --transports``: what reaches what between ranks, and each library's transport."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from tuccl.cli.output import columns, print_json
from tuccl.errors import InputError
from tuccl.runtime.probing import JobTransports, RankPair, enter_process, probe_transports

_MOST_PAIRS = 6  # named of those that are alike


def print_transports(
    ranks: int,
    enter: Sequence[str] | None,
    pids: str | None,
    regime: str | None,
    *,
    as_json: bool,
) -> int:
    """Print the transports between ranks here, of entered containers, or of running processes.

    Returns 1 where some pair of ranks reaches each other by nothing.

    Raises:
        InputError: an option cannot be, or there is no such process.
        TucclError: a rank's container cannot be entered.
    """
    if sum(each is not None for each in (enter, pids, regime)) > 1:
        raise InputError("--enter, --pids, --regime: expected one of them")
    if regime is not None:
        from tuccl.cli.emulation import ended_by_signals
        from tuccl.emulation import Cells

        with ended_by_signals(), Cells(regime, ranks) as cells:
            found = cells.transports()
    elif pids is not None:
        entered = [enter_process(int(pid)) for pid in _numbers(pids)]
        found = probe_transports([words for words, _ in entered], [env for _, env in entered])
    else:
        found = probe_transports(_words(enter) if enter else [[]] * ranks)
    if as_json:
        print_json(found)
    else:
        print("\n".join(_lines(found)))
    return 1 if any(t.name == "none" for pair in found.pairs for t in pair.transports) else 0


def _numbers(text: str) -> list[str]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--pids {text[:60]!r}: expected numbers of processes, as 4711,4712")
    return words


def _words(enter: Sequence[str]) -> list[list[str]]:
    try:
        return [shlex.split(each) for each in enter]
    except ValueError as error:
        raise InputError(f"--enter: {error}; expected words as for a shell") from None


def _lines(found: JobTransports) -> Iterator[str]:
    """The facts of each rank, then a table for each kind of pair."""
    for rank, facts in enumerate(found.ranks):
        quota = "" if facts.quota_cpus is None else f", quota {facts.quota_cpus:g}"
        yield (
            f"rank {rank}: {facts.hostname}, {facts.cpus} CPUs{quota}, "
            f"/dev/shm {facts.shm_bytes >> 20} MiB free, "
            f"{', '.join(facts.rdma) or 'no RDMA device'}"
        )
    alike: dict[tuple[object, ...], list[RankPair]] = {}
    for pair in found.pairs:
        alike.setdefault((pair.facts.cma, pair.facts.tcp, pair.transports), []).append(pair)
    for pairs in alike.values():
        names = ", ".join(f"{a}-{b}" for a, b in (pair.ranks for pair in pairs[:_MOST_PAIRS]))
        more = f" and {len(pairs) - _MOST_PAIRS} pairs more" if len(pairs) > _MOST_PAIRS else ""
        yield f"\nranks {names}{more}: {_reach(pairs)}"
        rows = [(t.library, t.name, t.why, t.change) for t in pairs[0].transports]
        yield columns(("library", "transport", "why", "what changes it"), rows)


def _reach(pairs: Sequence[RankPair]) -> str:
    """Return how the pairs reach each other, by TCP the slowest of them."""
    facts = [pair.facts for pair in pairs]
    cma = f"no CMA ({facts[0].cma})" if facts[0].cma else "CMA"
    times = [f.tcp_us for f in facts if f.tcp_us is not None]
    rates = [f.tcp_gbs for f in facts if f.tcp_gbs is not None]
    if not times or not rates:
        return f"{cma}, no TCP ({facts[0].tcp})"
    return f"{cma}, TCP {max(times):.0f} us, {min(rates):.2f} GB/s (measured)"
