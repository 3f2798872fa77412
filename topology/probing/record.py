"""A file of probes done, from which a probing that was cut off goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded, write_file
from tuccl.topology.probing.pairs import Endpoint
from tuccl.topology.probing.prober import Load, Pair, PairTimes, Prober

FORMAT: Literal["tuccl-probes/1"] = "tuccl-probes/1"
_MOST_BYTES = 1 << 26


class _LoadRecord(msgspec.Struct, forbid_unknown_fields=True):
    """Answers of one load, in the order in which they were requested."""

    flows: tuple[Pair, ...]
    rates: list[tuple[float, ...]] = []
    round_trips: list[tuple[tuple[Pair, ...], tuple[float, ...]]] = []


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """Probes done between endpoints."""

    format: Literal["tuccl-probes/1"]
    endpoints: tuple[Endpoint, ...]
    method: str = ""
    pairs: list[tuple[Pair, PairTimes]] = []
    loads: list[_LoadRecord] = []


class RecordedProber:
    """Queries another prober where its file holds no answer, and adds each answer to the file."""

    def __init__(
        self,
        prober: Prober,
        endpoints: Sequence[Endpoint],
        path: str | os.PathLike[str],
        *,
        method: str = "",
    ) -> None:
        """Read ``path`` if it is there.

        Args:
            prober: runs the probes.
            endpoints: what it probes between.
            path: of the file.
            method: name of how ``prober`` probes; a file of another method's answers is refused.

        Raises:
            InputError: it is no file of probes, or one of other endpoints or by another method.
        """
        self._prober = prober
        self._path = Path(path)
        self._record = _Record(FORMAT, tuple(endpoints), method)
        if self._path.exists():
            self._record = _read(self._path)
            if self._record.endpoints != tuple(endpoints):
                raise InputError(
                    f"{printable_path(path)}: holds probes between other hosts; remove it or name "
                    "another file"
                )
            if self._record.method != method:
                raise InputError(
                    f"{printable_path(path)}: holds probes by {self._record.method[:80]!r}, not by "
                    f"{method[:80]!r}; remove it or name another file"
                )

    def pair(self, src: int, dst: int) -> PairTimes:
        """Return times of a pair, from the file or measured now."""
        for pair, times in self._record.pairs:
            if pair == (src, dst):
                return times
        times = self._prober.pair(src, dst)
        self._record.pairs.append(((src, dst), times))
        self.save()
        return times

    def load(self, flows: Sequence[Pair]) -> AbstractContextManager[Load]:
        """Return a load, which starts at the first request that the file does not answer."""
        return self._load(tuple(flows))

    def save(self) -> None:
        """Write the file, whole or not at all."""
        write_file(self._path, msgspec.json.encode(self._record))

    @contextmanager
    def _load(self, flows: tuple[Pair, ...]) -> Iterator[Load]:
        record = next((load for load in self._record.loads if load.flows == flows), None)
        if record is None:
            record = _LoadRecord(flows)
            self._record.loads.append(record)
        with ExitStack() as stack:
            yield _RecordedLoad(self, self._prober, record, stack)


class _RecordedLoad:
    def __init__(
        self, recorded: RecordedProber, prober: Prober, record: _LoadRecord, stack: ExitStack
    ) -> None:
        self._recorded, self._prober, self._record, self._stack = recorded, prober, record, stack
        self._running: Load | None = None
        self._kept: tuple[Pair, ...] = record.flows
        self._asked = 0

    def rates(self) -> tuple[float, ...]:
        self._asked += 1
        if len(self._record.rates) < self._asked:
            self._record.rates.append(self._load().rates())
            self._recorded.save()
        return self._record.rates[self._asked - 1]

    def keep(self, flows: Sequence[Pair]) -> None:
        self._kept = tuple(flows)
        if self._running is not None:
            self._running.keep(flows)

    def round_trips(self, pairs: Sequence[Pair]) -> tuple[float, ...]:
        for recorded, trips in self._record.round_trips:
            if recorded == tuple(pairs):
                return trips
        trips = self._load().round_trips(pairs)
        self._record.round_trips.append((tuple(pairs), trips))
        self._recorded.save()
        return trips

    def _load(self) -> Load:
        if self._running is None:
            self._running = self._stack.enter_context(self._prober.load(self._record.flows))
            if self._kept != self._record.flows:
                self._running.keep(self._kept)
        return self._running


def _read(path: Path) -> _Record:
    try:
        record = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=_Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{printable_path(path)}: {decode_reason(error, _Record)}; expected a file of probes, "
            f'"format": "{FORMAT}"'
        ) from None
    for load in record.loads:
        answers = [*load.rates, *(trips for _, trips in load.round_trips)]
        sizes = [*(len(load.flows) for _ in load.rates), *(len(p) for p, _ in load.round_trips)]
        if [len(answer) for answer in answers] != sizes:
            raise InputError(
                f"{printable_path(path)}: $.loads: answers do not fit; remove the file"
            )
    return record
