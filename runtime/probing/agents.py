"""Probes between hosts by agents: a process on each, started there by a prefix of words."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec

from tuccl.errors import InputError, TucclError
from tuccl.runtime.jobs.child_tree import start_command
from tuccl.runtime.probing import agent
from tuccl.topology.probing import Endpoint, PairTimes
from tuccl.topology.probing.prober import Pair

_START_S = 30.0
_ANSWER_S = 120.0
_FILL_S = 0.5  # TCP finds its rate, queues fill
_DRAIN_S = 0.5
_WINDOW_S = 0.5
_LOADED_ECHOES = 8
_MOST_AT_ONCE = 64
_MOST_LINE = 1 << 20
_MOST_REASON = 2000
_Trips = tuple[Annotated[list[float], msgspec.Meta(min_length=1)], str]


def agent_words(python: str = "python3") -> tuple[str, ...]:
    """Return the command that is an agent, by an interpreter that may be another host's."""
    return (python, "-I", "-S", "-c", Path(agent.__file__).read_text())


class AgentProber:
    """Runs probes by an agent on each host, from the ``with`` statement to its end.

    Latency is by ICMP echo, by TCP where that is not allowed; rates are TCP's, one connection a
    flow. Agents listen on their endpoint's address alone, for connections with the run's token.
    """

    def __init__(self, endpoints: Sequence[Endpoint], commands: Sequence[Sequence[str]]) -> None:
        """Prepare an agent for each endpoint; nothing is started yet.

        Args:
            endpoints: of different addresses.
            commands: what starts each one's agent: a launcher's words before `agent_words`.
        """
        self._endpoints = endpoints
        self._commands = commands
        self._agents: list[AgentProcess] = []
        self._ports: list[list[int]] = []
        self._flows = 0

    def __enter__(self) -> Self:
        """Start the agents.

        Raises:
            TucclError: one does not start or cannot listen; names the host.
        """
        token = secrets.token_hex(agent.TOKEN_BYTES // 2)
        try:
            for end, command in zip(self._endpoints, self._commands, strict=True):
                self._agents.append(AgentProcess(end.host, command, token))
            listening = [
                [process.ask("listen", address=address) for address in end.addresses]
                for process, end in zip(self._agents, self._endpoints, strict=True)
            ]
            self._ports = [
                [self._agents[place].answer(future, int, _START_S) for future in futures]
                for place, futures in enumerate(listening)
            ]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End the agents, and let any error pass."""
        self.close()

    def close(self) -> None:
        """End the agents; may be called again."""
        for process in self._agents:
            process.hang_up()
        for process in self._agents:
            process.end()
        self._agents = []

    def pair(self, src: int, dst: int) -> PairTimes:
        """Return times of a pair alone.

        Raises:
            TucclError: a host does not answer, or not with times.
        """
        future = self._agents[src].ask("pair", **self._to(src, dst))
        times: PairTimes = self._agents[src].answer(future, PairTimes)
        return times

    @contextmanager
    def load(self, flows: Sequence[Pair]) -> Iterator[_AgentLoad]:
        """Run flows at the same time.

        Raises:
            TucclError: a host does not answer.
        """
        numbers: dict[Pair, list[int]] = {}
        requests = []
        for src, dst in flows:
            nics = min(len(self._endpoints[end].addresses) for end in (src, dst))
            numbers[src, dst] = list(range(self._flows, self._flows + nics))
            self._flows += nics
            requests += [
                (src, self._agents[src].ask("send", flow=number, **self._to(src, dst, nic)))
                for nic, number in enumerate(numbers[src, dst])
            ]
        load = _AgentLoad(self, numbers)
        try:
            self.answers(requests, None)
            time.sleep(_FILL_S)
            yield load
        finally:
            with contextlib.suppress(TucclError):  # of a host that is gone, which was reported
                load.keep(())

    def ask(self, index: int, operation: str, **arguments: object) -> Future[Any]:
        """Return the future answer of an agent."""
        return self._agents[index].ask(operation, **arguments)

    def answers(self, sent: Sequence[tuple[int, Future[Any]]], kind: Any) -> list[Any]:  # noqa: ANN401
        """Return the answers of agents, of type ``kind``, in order.

        Raises:
            TucclError: a host does not answer, or not with that.
        """
        return [self._agents[index].answer(future, kind) for index, future in sent]

    def echo(self, src: int, dst: int, count: int = _LOADED_ECHOES) -> Future[Any]:
        """Return the future round trips of a pair in us, and by what they were taken."""
        return self.ask(src, "echoes", count=count, **self._to(src, dst))

    def _to(self, src: int, dst: int, nic: int = 0) -> dict[str, object]:
        return {
            "address": self._endpoints[dst].addresses[nic],
            "port": self._ports[dst][nic],
            "source": self._endpoints[src].addresses[nic],
        }


class _AgentLoad:
    def __init__(self, prober: AgentProber, numbers: Mapping[Pair, Sequence[int]]) -> None:
        self._prober, self._numbers = prober, numbers
        self._running = dict(numbers)

    def rates(self) -> tuple[float, ...]:
        before = self._received()
        time.sleep(_WINDOW_S)
        after = self._received()
        return tuple(
            max(sum(map(_gbs, then, now)), 1e-9) for then, now in zip(before, after, strict=True)
        )

    def keep(self, flows: Sequence[Pair]) -> None:
        others = [flow for flow in self._running if flow not in flows]
        requests = [
            (flow[0], self._prober.ask(flow[0], "end", flow=number))
            for flow in others
            for number in self._running.pop(flow)
        ]
        self._prober.answers(requests, None)
        time.sleep(_DRAIN_S if requests else 0.0)

    def round_trips(self, pairs: Sequence[Pair]) -> tuple[float, ...]:
        trips: list[float] = []
        for begin in range(0, len(pairs), _MOST_AT_ONCE):
            some = pairs[begin : begin + _MOST_AT_ONCE]
            requests = [(src, self._prober.echo(src, dst)) for src, dst in some]
            trips += [min(us) for us, _ in self._prober.answers(requests, _Trips)]
        return tuple(trips)

    def _received(self) -> list[list[tuple[int, float]]]:
        requests = [
            [(dst, self._prober.ask(dst, "received", flow=number)) for number in numbers]
            for (_, dst), numbers in self._numbers.items()
        ]
        return [self._prober.answers(each, tuple[int, float]) for each in requests]


def _gbs(before: tuple[int, float], after: tuple[int, float]) -> float:
    """Return the rate between two looks at (bytes, s) in GB/s."""
    return (after[0] - before[0]) / max(after[1] - before[1], 1e-6) / 1e9


class _Answer(msgspec.Struct):
    """A line of an agent: the number of a command, and its result or why there is none."""

    id: int
    result: Any = None
    error: str | None = None


class AgentProcess:
    """An agent's process: commands in, answers out, read by a thread of its own."""

    def __init__(self, host: str, command: Sequence[str], token: str) -> None:
        """Start ``command``; the agent's answers come to those who hold ``token``."""
        self._host = host[:60]
        # A file: what an agent's launcher leaves behind cannot hold it open.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = start_command(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except InputError:
            self._errors.close()
            raise
        self._futures: dict[int, Future[Any]] = {}
        self._next = 0
        self._is_over = False
        self._lock = threading.Lock()
        self._write(token.encode() + b"\n")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, operation: str, **arguments: object) -> Future[Any]:
        """Return the future answer to a command."""
        future: Future[Any] = Future()
        with self._lock:
            self._next += 1
            number = self._next
            self._futures[number] = future
        self._write(msgspec.json.encode({"id": number, "op": operation, **arguments}) + b"\n")
        if self._is_over:  # it ended before the request reached it
            self._give_up()
        return future

    def answer(self, future: Future[Any], kind: Any, limit_s: float = _ANSWER_S) -> Any:  # noqa: ANN401 - a type
        """Return an answer, of type ``kind``.

        Raises:
            TucclError: there is none, or another; names the host.
        """
        try:
            return msgspec.convert(future.result(limit_s), kind)
        except TimeoutError:
            raise TucclError(f"host {self._host}: no answer within {limit_s:g} s") from None
        except msgspec.ValidationError as error:
            raise TucclError(f"host {self._host}: bad answer: {error}") from None

    def hang_up(self) -> None:
        """Close the agent's input, at whose end it ends."""
        with contextlib.suppress(OSError):  # it ended, with a command on its way
            if self._process.stdin is not None:
                self._process.stdin.close()

    def end(self) -> None:
        """Wait for its end, or bring it about."""
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(3)
        self._give_up()  # something left behind may hold its output open
        self._errors.close()

    def _write(self, data: bytes) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(data)
                self._process.stdin.flush()
        except (OSError, ValueError):
            return  # it ended: the reader says why

    def _read(self) -> None:
        output = self._process.stdout
        try:
            while output is not None and (line := output.readline(_MOST_LINE)):
                try:
                    answer = msgspec.json.decode(line, type=_Answer)
                    future = self._futures.pop(answer.id)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
                    continue  # a host's greeting
                if answer.error is not None:
                    future.set_exception(TucclError(f"host {self._host}: {answer.error}"))
                else:
                    future.set_result(answer.result)
        finally:
            self._give_up()
            if output is not None:
                output.close()

    def _give_up(self) -> None:
        with self._lock:
            self._is_over = True
            left, self._futures = list(self._futures.values()), {}
        if left:
            begin = max(0, os.fstat(self._errors.fileno()).st_size - _MOST_REASON)
            error = os.pread(self._errors.fileno(), _MOST_REASON, begin)
            why = " ".join(error.decode("utf-8", "replace").split())[-200:] or "it ended"
            for future in left:
                future.set_exception(TucclError(f"host {self._host}: {why}"))
