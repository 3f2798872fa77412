"""Emulated clusters: a network namespace a host, with the topology's rates."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Self

import msgspec

from tuccl.emulation.build import (
    CONTROL,
    address,
    burst_us,
    connect,
    join_control,
    refill_us,
    shape,
)
from tuccl.emulation.cluster import FABRIC, EmulatedCluster, RouteLatency
from tuccl.emulation.cross_cluster import with_cross
from tuccl.emulation.emulated_topology import emulated_topology
from tuccl.emulation.launch import (
    emulated_launch,
    enter,
    hosts_file,
    launch_environment,
    launch_files,
)
from tuccl.emulation.netns import (
    Queue,
    add_space,
    check_privilege,
    queues,
)
from tuccl.emulation.running import (
    HOSTS_FOLDER,
    RunFolder,
    clear_leftovers,
    run_folder,
    running,
    write_file,
)
from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.runtime.executors.mpi_find import Mpi
from tuccl.runtime.executors.mpi_launch import Launch
from tuccl.topology import CrossTraffic, Topology

MOST_BURST = 1 << 16
LEAST_QUEUE, MOST_QUEUE = 1 << 16, 16_000_000
_STATE = "state.json"
_LATENCIES = "latencies.json"  # read by tuccl.torch
_MOST_LATENCY_SCALE = 1e6
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunningEmulation(msgspec.Struct, frozen=True):
    """The state of an emulation in its folder, for other processes."""

    id: str
    cluster: EmulatedCluster
    spaces: dict[str, str]


class Emulation:
    """A cluster of network namespaces that lives from the ``with`` statement to its end.

    Whatever ends the owner, the next emulation on the machine clears what is left.
    """

    def __init__(
        self,
        topology: Topology,
        scale: float | None = None,
        latency_scale: float = 0.0,
        *,
        cross: CrossTraffic | None = None,
        queue_bytes: int = 0,
    ) -> None:
        """Work out the cluster; nothing is made yet.

        Args:
            topology: at least two hosts joined by NICs and switches.
            scale: emulated over nominal rates; None makes the fastest NIC 1 Gb/s.
            latency_scale: emulated over nominal latencies, which our own executor and
                `tuccl.torch` add to messages of programs; 0 adds none. No other messages have
                them, Gloo's neither.
            cross: traffic of others: the hosts outside the job that it needs are made, and
                `EmulatedTraffic` plays it.
            queue_bytes: what waits at a port at most: more is lost, and TCP is Cubic; 0: nothing
                is ever lost.

        Raises:
            InputError: the topology cannot be emulated, or not at that scale.
        """
        if not 0 <= latency_scale <= _MOST_LATENCY_SCALE:
            raise InputError(
                f"latency factor {latency_scale:g}: expected 0 to {_MOST_LATENCY_SCALE:g}"
            )
        if queue_bytes and not LEAST_QUEUE <= queue_bytes <= MOST_QUEUE:
            raise InputError(
                f"queue of {queue_bytes} bytes: expected {LEAST_QUEUE} to {MOST_QUEUE}"
            )
        self.cross = cross
        self._cluster = msgspec.structs.replace(
            with_cross(topology, scale, cross), queue_bytes=queue_bytes
        )
        self._nominal = topology
        self._latency_scale = latency_scale
        self._folder: RunFolder | None = None
        self._spaces: dict[str, str] = {}
        self.cleared: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        """Clear what dead emulations left, then build the cluster and check its queues.

        Raises:
            Unavailable: this process may not.
            TucclError: the kernel refused a step.
        """
        check_privilege()
        self.cleared = tuple(clear_leftovers())
        self._folder = RunFolder()
        try:
            self._build(self._folder)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Take the cluster down, and let any error pass."""
        self.close()

    @property
    def id(self) -> str:
        """The emulation's name: the owner's process id and a random number."""
        return self._owned.name

    @property
    def cluster(self) -> EmulatedCluster:
        """The cluster's parts, with their current rates if it is up."""
        file = self._folder.path / _STATE if self._folder is not None else None
        return _read(file).cluster if file is not None and file.exists() else self._cluster

    @property
    def label(self) -> str:
        """The cluster and its rates in a phrase, for reports."""
        nics = {p.rate_bps / 1e6 for p in self.cluster.ports if p.src in self._cluster.nics}
        rates = "all NICs" if len(nics) == 1 else f"NICs from {min(nics):g} to"
        return (
            f"{len(self._cluster.hosts)} emulated hosts of {self._cluster.name[:60]}, rates scaled "
            f"by {self._cluster.scale:.3g} ({rates} {max(nics):g} Mb/s), each rank on "
            f"{self._nics_of_a_rank()}, latencies "
            f"{f'times {self._latency_scale:g}' if self._latency_scale else 'not emulated'}"
            + (f", queues of {queue} bytes" if (queue := self._cluster.queue_bytes) else "")
        )

    def _nics_of_a_rank(self) -> str:
        if all(len(host.nics) == 1 for host in self._cluster.hosts):
            return "its host's one NIC"
        return "its own NIC" if self._cluster.nic_of else "all NICs of its host"

    @property
    def topology(self) -> Topology:
        """The topology with the rates that its links have here."""
        return emulated_topology(self._nominal, self.cluster, self._latency_scale)

    @property
    def refill_us(self) -> int:
        """Us after which every token bucket is full, whatever was sent before."""
        return refill_us(self.cluster.ports)

    @property
    def burst_us(self) -> float:
        """Us by which full buckets shorten a run, at most, of what its rates say."""
        return burst_us(self.cluster.ports)

    @property
    def added_latencies(self) -> tuple[RouteLatency, ...]:
        """The latency that our executor adds for each pair of ranks on different hosts."""
        factor = self._latency_scale
        return tuple(
            RouteLatency(route.src, route.dst, route.latency_us * factor)
            for route in (self._cluster.latencies if factor else ())
        )

    @property
    def latency_matrix(self) -> tuple[tuple[float, ...], ...]:
        """The same in us by sender and receiver; () where none is added."""
        ranks = sum(len(host.ranks) for host in self._cluster.hosts)
        rows = [[0.0] * ranks for _ in range(ranks)]
        for route in self.added_latencies:
            rows[route.src][route.dst] = route.latency_us
        return tuple(map(tuple, rows)) if self.added_latencies else ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which launchers and libraries find the hosts."""
        latencies = self._owned.path / _LATENCIES
        return {
            **launch_environment(self._cluster, self._owned.path, self._owned.memory),
            **({"TUCCL_LATENCIES": str(latencies)} if latencies.exists() else {}),
        }

    @property
    def commands(self) -> list[list[str]]:
        """Words before a command that make it run on the host of a rank, by rank."""
        numbers = {rank: n for n, host in enumerate(self._cluster.hosts) for rank in host.ranks}
        return [list(self.prefix(numbers[rank])) for rank in sorted(numbers)]

    def prefix(self, host: int = 0) -> tuple[str, ...]:
        """Return what stands before a command so that it runs on that host."""
        emulated_host = self._cluster.hosts[host]
        return enter(self._spaces[emulated_host.space], emulated_host)

    def space(self, ending: str) -> str:
        """Return the name of a namespace of the cluster."""
        return self._spaces[ending]

    def launch(self, mpi: Mpi) -> Launch:
        """Return how ``mpi`` starts a rank for each GPU, on its host."""
        return emulated_launch(mpi, self._cluster, self.prefix(), self.environment)

    def queues(self) -> dict[tuple[str, str], Queue]:
        """Return the token bucket of each direction of each link, as the kernel has it now.

        Raises:
            TucclError: they cannot be read, or one is missing.
        """
        by_space = {space: queues(self._spaces[space]) for space in self._spaces}
        missing = [p for p in self._cluster.ports if p.device not in by_space[p.space]]
        if missing:
            raise TucclError(f"{missing[0].src[:60]} to {missing[0].dst[:60]}: has no queue")
        return {(p.src, p.dst): by_space[p.space][p.device] for p in self._cluster.ports}

    def sent_bytes(self) -> int:
        """Return the bytes that all hosts have sent into the network so far, headers included.

        Raises:
            TucclError: the queues cannot be read.
        """
        host_spaces = [self._spaces[host.space] for host in self._cluster.hosts]
        return sum(queue.sent for space in host_spaces for queue in queues(space).values())

    def set_network(self, gbs: float, latency_us: float) -> None:
        """Give every NIC the nominal rate ``gbs`` both ways, and routes between hosts a latency.

        Both are scaled as the cluster is. Groups of `tuccl.torch` that are made from now on have
        the latency, if the cluster has any.

        Raises:
            InputError: the kernel has no such rate.
            TucclError: it refused.
        """
        rate_bps = self.check_rate(gbs)
        cluster, nics = self.cluster, self._cluster.nics
        ports = tuple(
            msgspec.structs.replace(p, rate_bps=rate_bps, nominal_bps=8e9 * gbs)
            if p.src in nics or p.dst in nics
            else p
            for p in cluster.ports
        )
        shape(ports, self._spaces, cluster.queue_bytes)
        latencies = tuple(
            RouteLatency(each.src, each.dst, latency_us) for each in cluster.latencies
        )
        self._cluster = msgspec.structs.replace(cluster, ports=ports, latencies=latencies)
        state = RunningEmulation(self.id, self._cluster, self._spaces)
        write_file(self._owned.path / _STATE, msgspec.json.encode(state))
        if matrix := self.latency_matrix:
            write_file(self._owned.path / _LATENCIES, msgspec.json.encode(matrix))

    def check_rate(self, gbs: float) -> int:
        """Return what a nominal rate is here in bit/s.

        Raises:
            InputError: the kernel has no such rate.
        """
        return _bits(8e9 * gbs * self._cluster.scale)

    def close(self) -> None:
        """Take everything down, and end what still runs there; may be called again.

        Raises:
            TucclError: something could not be removed; the next call of anyone tries again.
        """
        if self._folder is None:
            return
        # Signals wait until it is done, so that none cuts it in half.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._folder.clear()
            self._folder = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def _owned(self) -> RunFolder:
        if self._folder is None:
            raise TucclError("the emulated cluster is not up; use it in a with statement")
        return self._folder

    def _build(self, folder: RunFolder) -> None:
        hosts = (*self._cluster.hosts, *self._cluster.outside)
        control = CONTROL if self._cluster.control else ()
        endings = [FABRIC, *(host.space for host in hosts), *control]
        self._spaces = {ending: folder.space(ending) for ending in endings}
        for space in self._spaces.values():
            add_space(space)
        connect(self._cluster, self._spaces)
        for host in hosts:
            address(self._cluster, host, self._spaces[host.space])
        if control:
            join_control(self._cluster, self._spaces)
        shape(self._cluster.ports, self._spaces, self._cluster.queue_bytes)
        self._check_queues()
        self._write_files(folder)
        state = RunningEmulation(folder.name, self._cluster, self._spaces)
        folder.write(_STATE, msgspec.json.encode(state))

    def _check_queues(self) -> None:
        rates = {(p.src, p.dst): p.rate_bps for p in self._cluster.ports}
        for (src, dst), queue in self.queues().items():
            if queue.burst > MOST_BURST:
                raise Unavailable(
                    f"{src[:60]} to {dst[:60]}: the kernel made a bucket of {queue.burst} bytes; "
                    f"at most {MOST_BURST} keep small messages honest"
                )
            if abs(queue.rate_bps - rates[src, dst]) > 0.01 * rates[src, dst]:
                raise Unavailable(
                    f"{src[:60]} to {dst[:60]}: the kernel made {queue.rate_bps:g} bit/s of "
                    f"{rates[src, dst]:g}"
                )

    def _write_files(self, folder: RunFolder) -> None:
        for name, (text, mode) in launch_files(self._cluster, self._spaces).items():
            folder.write(name, text.encode(), mode)
        if matrix := self.latency_matrix:
            folder.write(_LATENCIES, msgspec.json.encode(matrix))
        for host in self._cluster.hosts:
            folder_of_host = HOSTS_FOLDER / self._spaces[host.space]
            folder_of_host.mkdir(parents=True)
            (folder_of_host / "hosts").write_text(hosts_file(self._cluster))


def running_emulations() -> list[RunningEmulation]:
    """Return the emulations that run on this machine and are up."""
    files = [folder / _STATE for folder in running()]
    return [_read(file) for file in files if file.exists()]


def set_rate(src: str, dst: str, rate_bps: float, emulation: str | None = None) -> str:
    """Change the rate of a link of a running emulation in bit/s; return the emulation's id.

    Args:
        src: id of a NIC or switch.
        dst: id of the node at the link's other end.
        rate_bps: of that direction alone.
        emulation: its id; None where only one runs.

    Raises:
        InputError: there is no such emulation, link or rate.
        TucclError: the kernel refused.
    """
    check_privilege()
    file = run_folder(emulation) / _STATE
    if not file.exists():
        raise InputError(f"emulation {emulation or ''} is not up yet")
    state = _read(file)
    changed = _changed(state.cluster, src, dst, rate_bps, state.spaces)
    write_file(file, msgspec.json.encode(msgspec.structs.replace(state, cluster=changed)))
    return state.id


def _read(file: Path) -> RunningEmulation:
    return msgspec.json.decode(file.read_bytes(), type=RunningEmulation)


def _changed(
    before: EmulatedCluster, src: str, dst: str, rate_bps: float, spaces: dict[str, str]
) -> EmulatedCluster:
    """Return the cluster with the new rate, which the kernel has by then."""
    port = next((p for p in before.ports if (p.src, p.dst) == (src, dst)), None)
    if port is None:
        links = ", ".join(f"{p.src} {p.dst}" for p in before.ports[:4])
        raise InputError(f"no link from {src[:60]!r} to {dst[:60]!r}; there are {links[:200]}, ...")
    changed = msgspec.structs.replace(port, rate_bps=_bits(rate_bps))
    shape((changed,), spaces, before.queue_bytes)
    ports = tuple(changed if p is port else p for p in before.ports)
    return msgspec.structs.replace(before, ports=ports)


def _bits(rate_bps: float) -> int:
    if not 1e6 <= rate_bps <= 1e11:
        raise InputError(f"rate {rate_bps / 1e6:g} Mb/s: expected 1 to 100,000")
    return round(rate_bps)
