"""Results in nccl-tests' columns, so that the eye and every parser that knows them can read on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.program import element_bytes
from tuccl.runtime import Timing
from tuccl.synth.model.collective import COUNTED_PER_RANK, REDUCING, ROOTED

_HEADER = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
""".splitlines()


class BandwidthRow(msgspec.Struct, frozen=True, kw_only=True):
    """One size: times in us, rates in GB/s; ``_ip`` is in place, None where it was not run."""

    collective: str
    ranks: int
    size: int
    count: int
    redop: str
    root: int
    time_us: float | None
    algbw_gbs: float | None
    busbw_gbs: float | None
    time_us_ip: float | None
    algbw_gbs_ip: float | None
    busbw_gbs_ip: float | None
    wrong: int | None
    on: str
    chosen: str = ""
    datatype: str = "float"


def algbw_gbs(nbytes: int, time_us: float) -> float:
    """Return the algorithm bandwidth in GB/s: the whole array over the time.

    >>> algbw_gbs(1 << 20, 100.0)
    10.48576
    """
    return nbytes / (time_us * 1e3)


def busbw_factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth.

    >>> busbw_factor("allreduce", 8), busbw_factor("broadcast", 8)
    (1.75, 1.0)

    Raises:
        InputError: there is no such collective.

    Notes:
        nccl-tests doc/PERFORMANCE.md.
    """
    if collective == "allreduce":
        return 2 * (ranks - 1) / ranks
    if collective in COUNTED_PER_RANK:
        return (ranks - 1) / ranks
    if collective in ROOTED:
        return 1.0
    raise InputError(f"collective {collective[:40]!r}: nccl-tests has no bandwidth factor for it")


def busbw_gbs(collective: str, ranks: int, nbytes: int, time_us: float) -> float:
    """Return the bus bandwidth in GB/s: comparable with the speed of the hardware."""
    return algbw_gbs(nbytes, time_us) * busbw_factor(collective, ranks)


def element_count(collective: str, ranks: int, nbytes: int, datatype: str = "float") -> int:
    """Return the count of elements that the API is called with for a whole array of ``nbytes``.

    >>> element_count("allreduce", 8, 128), element_count("reduce-scatter", 8, 128)
    (32, 4)
    """
    elements = nbytes // element_bytes(datatype)
    return elements // ranks if collective in COUNTED_PER_RANK else elements


def bandwidth_row(
    collective: str,
    ranks: int,
    nbytes: int,
    timing: Timing,
    chosen: str = "",
    *,
    root: int = 0,
    datatype: str = "float",
    op: str = "sum",
) -> BandwidthRow:
    """Return the row of one timing of ``collective`` on the whole array of ``nbytes`` bytes.

    Raises:
        InputError: there is no such collective.
    """
    factor = busbw_factor(collective, ranks)

    def rates(time_us: float | None) -> tuple[float | None, float | None]:
        if time_us is None:
            return None, None
        algbw = algbw_gbs(nbytes, time_us)
        return algbw, algbw * factor

    algbw, busbw = rates(timing.time_us)
    algbw_ip, busbw_ip = rates(timing.time_us_ip)
    return BandwidthRow(
        collective=collective,
        ranks=ranks,
        size=nbytes,
        count=element_count(collective, ranks, nbytes, datatype),
        redop=op if collective in REDUCING else "none",
        root=root if collective in ROOTED else -1,
        time_us=timing.time_us,
        algbw_gbs=algbw,
        busbw_gbs=busbw,
        time_us_ip=timing.time_us_ip,
        algbw_gbs_ip=algbw_ip,
        busbw_gbs_ip=busbw_ip,
        wrong=timing.wrong,
        on=timing.on,
        chosen=chosen,
        datatype=datatype,
    )


def columns_text(
    rows: Sequence[BandwidthRow], extra: Sequence[Mapping[str, str]] | None = None
) -> str:
    """Return ``rows`` as nccl-tests prints them, with more columns behind.

    The thirteen columns of nccl-tests come first, to the character; then those of ``extra``,
    one mapping of header to cell per row; last what was chosen, where a row says so. A
    placement that was not run reads N/A.
    """
    cells = [dict(more) for more in extra] if extra is not None else [{} for _ in rows]
    for row, more in zip(rows, cells, strict=True):
        if row.chosen:
            more["chosen"] = row.chosen
    names = list(dict.fromkeys(name for more in cells for name in more))
    widths = {n: max(len(n), *(len(more.get(n, "")) for more in cells)) for n in names}
    head = "".join(f"  {_aligned(name, name, widths)}" for name in names).rstrip()
    header = [_HEADER[0], _HEADER[1] + head, _HEADER[2]]
    lines = [
        _line(row) + "".join(f"  {_aligned(n, more.get(n, ''), widths)}" for n in names).rstrip()
        for row, more in zip(rows, cells, strict=True)
    ]
    return "\n".join([*header, *lines])


def _aligned(name: str, text: str, widths: Mapping[str, int]) -> str:
    return text.ljust(widths[name]) if name == "chosen" else text.rjust(widths[name])


def _line(row: BandwidthRow) -> str:
    wrong = "N/A" if row.wrong is None else str(row.wrong)
    head = f"{row.size:12d}  {row.count:12d}  {row.datatype:>8}  {row.redop:>6}  {row.root:>6}"
    out_of_place = _cells(row.time_us, row.algbw_gbs, row.busbw_gbs, wrong)
    in_place = _cells(row.time_us_ip, row.algbw_gbs_ip, row.busbw_gbs_ip, wrong)
    return f"{head}{out_of_place}{in_place}"


def _cells(time_us: float | None, algbw: float | None, busbw: float | None, wrong: str) -> str:
    if time_us is None or algbw is None or busbw is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>5}"
    return f"  {_time(time_us):>7}  {algbw:6.2f}  {busbw:6.2f}  {wrong:>5}"


def _time(time_us: float) -> str:
    """A time in us with as many digits as nccl-tests gives it."""
    if time_us >= 10000.0:
        return f"{time_us:.0f}"
    return f"{time_us:.1f}" if time_us >= 100.0 else f"{time_us:.2f}"
