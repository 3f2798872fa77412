"""Cross traffic on an emulated cluster: TCP flows beside the job's, and what they carried.

One native process holds both ends of every flow (msccl_ext/worker/traffic.cpp). It lives in the
fabric's namespace, so that it ends with the cluster, and it ends when its owner does.
"""

from __future__ import annotations

import math
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

import msgspec

from tuccl.emulation.build import CONTROL, control_address
from tuccl.emulation.cluster import FABRIC
from tuccl.emulation.cross_cluster import as_emulated, narrowest_link
from tuccl.emulation.emulation import Emulation, set_rate
from tuccl.errors import InputError, TucclError
from tuccl.installation import built_folder
from tuccl.runtime.executors.cross_load import CarriedLoad, SourceLoad
from tuccl.topology import CrossTraffic, Topology, residual
from tuccl.topology.cross_flows import Flow, flows
from tuccl.topology.cross_traffic import network_hops, offered_gbs
from tuccl.topology.relays import merged_hops

_REPEAT_S = 60.0  # flows are drawn for so long, and come again
_ANSWER_S = 20.0
_WINDOW_S = 0.01
_LEAST_BPS = 1e6  # a slower link is not emulated


class EmulatedTraffic:
    """The cross traffic of an emulated cluster that is up, from the ``with`` statement to its end.

    ``on_control`` plays the same flows on the control links, which no host of the job uses: they
    load the processors alike and the network not at all.
    """

    def __init__(
        self, emulation: Emulation, *, cross: CrossTraffic | None = None, on_control: bool = False
    ) -> None:
        """Draw the flows; nothing is sent yet.

        Args:
            emulation: a cluster that is up.
            cross: other traffic than the cluster was made for, between the same ends.
            on_control: play it on the control links.

        Raises:
            InputError: the emulation has no cross traffic, or it has too many flows.
        """
        if emulation.cross is None:
            raise InputError("the emulated cluster was made without cross traffic")
        self._emulation = emulation
        self._on_control = on_control
        self._topology = emulation.topology
        self._cross = as_emulated(cross or emulation.cross, emulation.cluster)
        self._flows = flows(self._cross, self._topology, _REPEAT_S)
        self._player: subprocess.Popen[str] | None = None
        self._before: tuple[float, dict[int, tuple[int, ...]]] = (0.0, {})
        self._rates = _RateSchedule(emulation, self._cross)
        self.is_playing = False

    @property
    def has_flows(self) -> bool:
        """Return whether any source has flows, not a rate alone."""
        return bool(self._flows)

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            TucclError: the flows cannot be played.
        """
        self._before, self.is_playing = (0.0, {}), True
        if self._flows:
            program = str(built_folder("worker") / "tuccl-traffic")
            command = ["ip", "netns", "exec", self._emulation.space(FABRIC), program]
            pipe = subprocess.PIPE
            self._player = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
            )
            self._say("".join(f"{line}\n" for line in self._lines()))
            self._line("playing")
        if not self._on_control:
            self._rates.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End it; rates are again what they were. May be called again, and started again."""
        self.is_playing = False
        self._rates.stop()
        if self._player is not None:
            with suppress(OSError):
                self._player.communicate(timeout=_ANSWER_S)
            self._player = None

    def report(self) -> CarriedLoad:
        """Return what was sent since the last report, or since the start.

        Raises:
            TucclError: the traffic ended.
        """
        if self._player is None:
            return CarriedLoad(0.0, ())
        self._say("report\n")
        at_us, counts = 0.0, {}
        ended: dict[int, list[list[float]]] = defaultdict(list)
        windows: dict[int, list[int]] = {}
        while (words := self._line().split()) != ["end"]:
            kind, numbers = words[0], [int(word) for word in words[1:]]
            if kind == "at":
                at_us = numbers[0]
            elif kind == "flow":
                ended[numbers[0]].append([float(number) for number in numbers[1:]])
            elif kind == "windows":
                windows[numbers[0]] = numbers[1:]
            else:
                counts[numbers[0]] = tuple(numbers[1:])
        before_us, before = self._before
        self._before = at_us, counts
        seconds = max(at_us - before_us, 1.0) * 1e-6
        return CarriedLoad(
            seconds,
            tuple(
                self._load(n, seconds, counts[n], before.get(n), windows[n], ended[n])
                for n in sorted(counts)
                if self._cross.sources[n].kind != "rate"
            ),
        )

    def _load(
        self,
        number: int,
        seconds: float,
        count: tuple[int, ...],
        before: tuple[int, ...] | None,
        windows: list[int],
        ended: list[list[float]],
    ) -> SourceLoad:
        source = self._cross.sources[number]
        offered, delivered, _, left_out, resent = (
            now - past for now, past in zip(count, before or (0,) * len(count), strict=True)
        )
        paced = math.isfinite(offered_gbs(self._topology, source))
        return SourceLoad(
            source.kind,
            offered / seconds * 1e-9 if paced else None,
            delivered / seconds * 1e-9,
            tuple(nbytes / _WINDOW_S * 1e-9 for nbytes in windows),
            tuple(flow[2] for flow in ended),
            tuple(flow[1] for flow in ended),
            left_out,
            resent,
        )

    def _lines(self) -> list[str]:
        """Return what the player reads."""
        pairs = list(dict.fromkeys((flow.src, flow.dst) for flow in self._flows))
        places = self._control_places(pairs) if self._on_control else self._places(pairs)
        numbers = {place: n for n, place in enumerate(dict.fromkeys(sum(places.values(), ())))}
        return [
            *(f"place /run/netns/{space} {address}" for space, address in numbers),
            f"repeat {round(_REPEAT_S * 1e6)}",
            *(
                self._flow_line(flow, *(numbers[place] for place in places[flow.src, flow.dst]))
                for flow in self._flows
            ),
            "play",
        ]

    @staticmethod
    def _flow_line(flow: Flow, src: int, dst: int) -> str:
        nbytes = max(round(flow.nbytes), 1) if math.isfinite(flow.nbytes) else 0
        cap = max(round(flow.cap_gbs * 1e9), 1) if math.isfinite(flow.cap_gbs) else 0
        return f"flow {round(flow.start_us)} {src} {dst} {nbytes} {cap} {flow.source}"

    def _places(self, pairs: list[tuple[str, str]]) -> _Places:
        cluster, space = self._emulation.cluster, self._emulation.space
        place = {
            nic.id if host.ranks else host.host: (space(host.space), nic.address)
            for host in (*cluster.hosts, *cluster.outside)
            for nic in host.nics
        }
        return {(src, dst): (place[src], place[dst]) for src, dst in pairs}

    def _control_places(self, pairs: list[tuple[str, str]]) -> _Places:
        near, far = (self._emulation.space(ending) for ending in CONTROL)
        links = [(port.src, port.dst) for port in self._emulation.cluster.control]
        controls = [links.index(narrowest_link(self._topology, *pair)) for pair in pairs]
        return {
            pair: ((near, control_address(control, 0)), (far, control_address(control, 1)))
            for pair, control in zip(pairs, controls, strict=True)
        }

    def _say(self, text: str) -> None:
        assert self._player is not None and self._player.stdin is not None
        with suppress(BrokenPipeError):  # what it said last is read next
            self._player.stdin.write(text)
            self._player.stdin.flush()

    def _line(self, expected: str = "") -> str:
        assert self._player is not None and self._player.stdout is not None
        line = self._player.stdout.readline().strip()
        if not line or (expected and line != expected):
            self._player.kill()
            _, said = self._player.communicate()
            raise TucclError(f"the cross traffic ended: {said.strip()[:200] or line or 'killed'}")
        return line


@contextmanager
def played(
    emulation: Emulation, said: Callable[[CarriedLoad], None] = lambda _: None
) -> Iterator[None]:
    """Play the cross traffic of ``emulation`` meanwhile, if it has any.

    ``said`` gets what it carried, in the end.

    Raises:
        TucclError: it cannot be played, or ended before.
    """
    if emulation.cross is None:
        yield
        return
    with EmulatedTraffic(emulation) as traffic:
        yield
        said(traffic.report())


_Places = dict[tuple[str, str], tuple[tuple[str, str], tuple[str, str]]]


class _RateSchedule:
    """Gives links the rates that sources of kind ``rate`` leave, by a thread."""

    def __init__(self, emulation: Emulation, cross: CrossTraffic) -> None:
        rates = tuple(source for source in cross.sources if source.kind == "rate")
        self._cross = msgspec.structs.replace(cross, sources=rates)
        self._id = emulation.id
        self._topology = emulation.topology
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Give the links their first rates, and the later ones when it is time."""
        if self._cross.sources:
            self._begin = time.monotonic()
            self._shape(self._cross.changes_s[0])
            self._ended.clear()
            self._thread = threading.Thread(target=self._follow, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Give the links their own rates again."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
            self._set(self._topology)

    def _follow(self) -> None:
        for at_s in self._cross.changes_s[1:]:
            if self._ended.wait(max(self._begin + at_s - time.monotonic(), 0.0)):
                return
            self._shape(at_s)

    def _shape(self, at_s: float) -> None:
        self._set(residual(self._topology, self._cross, at_s))

    def _set(self, topology: Topology) -> None:
        """Give the links that rate sources take from the rates of ``topology``."""
        hops = merged_hops(topology.links)
        loaded = {
            (hop.src, hop.dst)
            for source in self._cross.sources
            for origin in source.origins
            for hop in network_hops(topology, origin, source.to)
        }
        for ends in loaded:
            set_rate(*ends, max(8e9 * hops[ends].bandwidth, _LEAST_BPS), self._id)
