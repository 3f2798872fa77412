"""Probes by RDMA's perftest: ``ib_write_lat`` and ``ib_write_bw`` on both hosts of a pair."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tuccl.errors import InputError, TucclError
from tuccl.runtime.jobs.child_tree import start_command
from tuccl.topology.probing import Endpoint, PairTimes
from tuccl.topology.probing.prober import Pair

Words = Sequence[str]
_LAT, _BW = "ib_write_lat", "ib_write_bw"
_PORTS = itertools.cycle(range(18515, 18515 + 4096))  # perftest's own first
_REPEATS = 5
_LEAST_BYTES = 1 << 20
_LIMIT_S = 60.0  # a server whose client never comes ends by itself
_TRIES, _BETWEEN_S = 5, 0.5
_LOAD_S, _HELD_S = 3, 30
_PAIRS_PER_LOAD = 6  # some two seconds each, by ssh: flows of _HELD_S outlast them
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_ROW = re.compile(rf"\s*([0-9]{{1,12}})\s+[0-9]+((?:\s+{_NUMBER})+)\s*")


def read_write_lat(text: str) -> float:
    """Return the typical latency in us, one way, that ``ib_write_lat`` printed.

    Raises:
        InputError: there is no such table, or not one row in it.
    """
    rows = _rows(text, ("t_min[usec]", "t_typical[usec]"), columns=3)
    if len(rows) != 1:
        raise InputError(f"{_LAT}: {len(rows)} rows of latencies; expected one message size")
    return rows[0][1][2]


def read_write_bw(text: str) -> dict[int, float]:
    """Return the average rate in GB/s by message size that ``ib_write_bw`` printed.

    Raises:
        InputError: there is no such table, its unit is none of Gb/sec, MB/sec and MiB/sec, or a
            rate is zero.
    """
    unit = re.search(r"BW average\[(Gb|MB|MiB)/sec\]", text)
    if unit is None:
        raise InputError(f"{_BW}: no table with a column `BW average`; its end is {_end(text)}")
    gbs = {"Gb": 1 / 8, "MB": 1e-3, "MiB": (1 << 20) / 1e9}[unit[1]]
    rates = {size: gbs * row[1] for size, row in _rows(text, ("BW average",), columns=2)}
    if not rates or min(rates.values()) <= 0:
        raise InputError(f"{_BW}: no rates above zero; its end is {_end(text)}")
    return rates


class PerftestProber:
    """Runs probes by perftest, which must be installed on all hosts, over their RDMA devices."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        on_host: Callable[[int, Words], Words],
        options: Words = (),
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            endpoints: whose addresses perftest makes contact by.
            on_host: the command that runs words on an endpoint's host.
            options: of perftest on all hosts: ``-d mlx5_0``, ``-x 3``.

        Raises:
            InputError: an endpoint has several NICs; perftest's flows go over one device.
        """
        several = next((end for end in endpoints if end.others), None)
        if several is not None:
            raise InputError(
                f"host {several.host[:60]}: {len(several.addresses)} addresses to probe by "
                "perftest; expected one, that of the device of -d"
            )
        self._endpoints, self._on_host, self._options = endpoints, on_host, tuple(options)

    def pair(self, src: int, dst: int) -> PairTimes:
        """Return times of a pair alone; perftest warms up by itself.

        Raises:
            TucclError: perftest fails on a host, or is not there.
        """
        trips = [2 * self.latency(src, dst) for _ in range(_REPEATS)]
        ways = []
        for flow in ((src, dst), (dst, src)):
            rates = read_write_bw(self._run(flow, _BW, "-a", "--report_gbits"))
            ways.append(tuple((n, n / gbs / 1e3) for n, gbs in rates.items() if n >= _LEAST_BYTES))
        return PairTimes(tuple(trips), ways[0], ways[1], "RDMA writes by perftest")

    @contextmanager
    def load(self, flows: Sequence[Pair]) -> Iterator[_PerftestLoad]:
        """Return flows of RDMA writes, which run while they are queried."""
        yield _PerftestLoad(self, flows)

    def latency(self, src: int, dst: int) -> float:
        """Return the latency of a pair in us, one way."""
        return read_write_lat(self._run((src, dst), _LAT))

    @contextmanager
    def running(
        self, flows: Sequence[Pair], program: str, *options: str
    ) -> Iterator[list[subprocess.Popen[str]]]:
        """Start a program on both hosts of each flow; yield the sending sides, end all after."""
        words = ["timeout", f"{_LIMIT_S:.0f}", program, *self._options, "-F", *options, "-p"]
        ports = [str(next(_PORTS)) for _ in flows]
        with ExitStack() as stack:
            for (_, dst), port in zip(flows, ports, strict=True):
                stack.enter_context(_process(self._on_host(dst, [*words, port])))
            time.sleep(_BETWEEN_S)
            yield [
                stack.enter_context(
                    _process(self._on_host(src, [*words, port, self._endpoints[dst].address]))
                )
                for (src, dst), port in zip(flows, ports, strict=True)
            ]

    def finished(self, flow: Pair, sender: subprocess.Popen[str]) -> str:
        """Return what a sending side printed.

        Raises:
            TucclError: it failed, or takes too long.
        """
        name = self._endpoints[flow[0]].host[:60]
        try:
            out, err = sender.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise TucclError(f"host {name}: perftest is not done after {_LIMIT_S:g} s") from None
        if sender.returncode != 0:
            raise TucclError(f"host {name}: perftest fails: {_end(err or out)}")
        return out

    def _run(self, flow: Pair, program: str, *options: str) -> str:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(TucclError):
                return self._once(flow, program, *options)
            time.sleep(_BETWEEN_S)  # the server may be late
        return self._once(flow, program, *options)

    def _once(self, flow: Pair, program: str, *options: str) -> str:
        with self.running([flow], program, *options) as (sender,):
            return self.finished(flow, sender)


class _PerftestLoad:
    def __init__(self, prober: PerftestProber, flows: Sequence[Pair]) -> None:
        self._prober, self._flows, self._kept = prober, tuple(flows), tuple(flows)

    def rates(self) -> tuple[float, ...]:
        options = ("-D", str(_LOAD_S), "--report_gbits")
        with self._prober.running(self._flows, _BW, *options) as senders:
            texts = map(self._prober.finished, self._flows, senders)
            return tuple(max(read_write_bw(text).values()) for text in texts)

    def keep(self, flows: Sequence[Pair]) -> None:
        self._kept = tuple(flow for flow in self._flows if flow in flows)

    def round_trips(self, pairs: Sequence[Pair]) -> tuple[float, ...]:
        trips: list[float] = []
        for begin in range(0, len(pairs), _PAIRS_PER_LOAD):
            some = pairs[begin : begin + _PAIRS_PER_LOAD]
            with self._prober.running(self._kept, _BW, "-D", str(_HELD_S)):
                trips += [2 * self._prober.latency(*pair) for pair in some]
        return tuple(trips)


@contextmanager
def _process(command: Words) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = start_command(command, stdout=pipe, stderr=pipe, text=True, errors="replace")
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=3)
        if process.poll() is None:
            process.kill()
            process.communicate()


def _rows(text: str, marks: Sequence[str], columns: int) -> list[tuple[int, list[float]]]:
    """Return the rows under a header that holds ``marks``: message size, then the numbers."""
    lines = text.splitlines()
    header = next(
        (n for n, line in enumerate(lines) if "#bytes" in line and all(m in line for m in marks)),
        None,
    )
    if header is None:
        raise InputError(f"perftest: no table with {' and '.join(marks)}; its end is {_end(text)}")
    rows = []
    for line in lines[header + 1 :]:
        if match := _ROW.fullmatch(line):
            numbers = [float(word) for word in match[2].split()]
            if len(numbers) < columns or not all(map(math.isfinite, numbers)):
                raise InputError(f"perftest: {line.strip()[:80]!r} has too few columns")
            rows.append((int(match[1]), numbers))
    return rows


def _end(text: str) -> str:
    return repr(" ".join(text.split())[-120:])
