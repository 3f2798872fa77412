"""What a table picks and the defaults beside other libraries' collectives, call by call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuccl.errors import InputError
from tuccl.eval.peers import Peer
from tuccl.eval.peers.timing import NamedProgram, PeerRow, peer_report
from tuccl.runtime import (
    Effort,
    Executor,
    MpiExecutor,
)
from tuccl.synth import Collective
from tuccl.units import format_bytes

__all__ = ["PeerComparison"]


@dataclass
class PeerComparison:
    """The peers of a comparison, and what is to be timed in turns with them."""

    executor: Executor
    peers: Sequence[Peer]
    effort: Effort | None = None
    _programs: dict[Collective, dict[int, list[NamedProgram]]] = field(default_factory=dict)

    def add(self, call: Collective, nbytes: int, programs: Sequence[NamedProgram]) -> None:
        """Take note of what runs one size of ``call``: the table's choice and the defaults."""
        if self.peers:
            self._programs.setdefault(call, {})[nbytes] = list(programs)

    def rows(
        self, progress: Callable[[int, int, str], None]
    ) -> tuple[tuple[PeerRow, ...], tuple[str, ...]]:
        """Return a row for each size and peer or default, and what took no part and why.

        Raises:
            InputError: programs do not run on real ranks here.
        """
        rows: list[PeerRow] = []
        notes: dict[str, None] = {}
        for done, (call, by_size) in enumerate(self._programs.items()):
            sizes = sorted(by_size)
            progress(done, len(self._programs), f"{call.name} to {format_bytes(sizes[-1])} beside")
            if not any(peer.algorithms(call.name) for peer in self.peers):
                notes[f"{call.name}: no peer is asked for it"] = None
                continue
            if not isinstance(self.executor, MpiExecutor):
                raise InputError("peers stand beside programs on real ranks; use --on mpi")
            report = peer_report(
                *(self.executor, self.peers, by_size.__getitem__, call.name, sizes),
                root=call.root,
                effort=self.effort,
            )
            rows += report.rows
            notes.update(dict.fromkeys(report.notes))
        return tuple(rows), tuple(notes)
