"""Regimes: cells of the ranks of this machine, and what cells share, as containers have it.

A process holds a cell's namespaces and reads its input; they have no names. Whatever ends the
owner ends that input, and the kernel removes the namespaces with their mounts, shared memory and
devices.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from tuccl.emulation import guest
from tuccl.emulation.cell_tools import PACKAGES, TOOLS, start_holder
from tuccl.emulation.cluster import EmulatedCluster, EmulatedHost, EmulatedNic
from tuccl.emulation.launch import (
    emulated_launch,
    hosts_file,
    launch_environment,
    launch_files,
)
from tuccl.emulation.netns import check_privilege
from tuccl.emulation.quota import join_quota, start_quota
from tuccl.emulation.running import CELLS, SHARED_MEMORY, RunFolder, clear_leftovers
from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.runtime.executors.measure import Effort, Operands
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import Mpi
from tuccl.runtime.executors.mpi_launch import Launch, usual_launch
from tuccl.runtime.probing import JobTransports, probe_transports
from tuccl.topology import Topology, split_into_cells
from tuccl.topology.graph import quoted

# Without a common process namespace MPICH has no shared memory, and Open MPI 4.1's crashes where
# two ranks have one number: it takes the other's segment for its own (`doctor --transports`).
_APART = {
    "UCX_TLS": "tcp,self",
    "MPIR_CVAR_NOLOCAL": "1",
    "OMPI_MCA_btl": "self,tcp",
}
ALL = ("mount", "uts", "ipc", "pid", "net")
_KERNEL = "kernel"
_GUEST = Path(guest.__file__)
_DEVICE = "eth0"
_HEAD = "10.78.0.254"  # where launchers start
_MACHINE_MB = 2048
_WITH_OWNER = ("setpriv", "--pdeathsig", "KILL", "--")  # ends with the thread that starts it
_START_S = 20.0
_MOST_RANKS = 32
# $1: a file for /etc/hosts, or nothing; $2: the host name, or nothing; $3: whether /dev/shm is its
# own; $4: a control group, or nothing; then the words that start a virtual machine, if any, which
# waits for a line of input.
_HOLD = """
[ -z "$1" ] || mount --bind "$1" /etc/hosts || exit 1
[ -z "$2" ] || echo "$2" > /proc/sys/kernel/hostname || exit 1
[ -z "$3" ] || mount -t tmpfs -o size=4g,mode=1777 tmpfs /dev/shm || exit 1
[ -z "$4" ] || { mount --bind "$4" "${4%/*}" && echo 0 > "${4%/*}/cgroup.procs"; } || exit 1
echo ready
[ -z "$5" ] || { read -r go; shift 4; "$@" </dev/null >/dev/null 2>&1 & }
exec cat
"""
_LEAST_CPUS = 0.01  # which the kernel takes
# The first process of a virtual machine; the kernel's command line gives it the variables.
_INIT = """#!/bin/sh
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "${0%/*}/hosts" /etc/hosts
echo "$cell" > /proc/sys/kernel/hostname
ip link set lo up
ip addr add "$address/24" dev eth0
ip link set eth0 up
exec python3 -S "${0%/*}/guest" run-commands "$address" "${0%/*}/token"
"""


class Regime(msgspec.Struct, frozen=True):
    """Namespaces of each cell of its own; ``ipc`` stands for /dev/shm too, as in Docker.

    Attributes:
        name: One of `REGIMES`.
        own: Namespaces, of `ALL`; and "kernel", which is user-mode Linux's.
        cell_per_rank: Whether each rank has a cell; else all ranks of the host share one.
        cpus: Processors that a cell may use, as Docker's option; None: all.
    """

    name: str
    own: tuple[str, ...] = ()
    cell_per_rank: bool = True
    cpus: float | None = None


REGIMES = {
    regime.name: regime
    for regime in (
        Regime("bare"),
        Regime("shared", ("mount",)),  # as Singularity
        Regime("container", ALL, cell_per_rank=False),
        Regime("cross", ALL),
        Regime("cross-ipc", ("mount", "uts", "pid")),  # containers of one pod
        Regime("vm", (*ALL, _KERNEL)),
    )
}


def read_regime(text: str) -> Regime:
    """Return the regime of a text as "cross", or "cross,cpus=0.5" with a quota for each cell.

    Raises:
        InputError: there is no such regime, it has no cells to limit, or no such quota.
    """
    name, comma, rest = text.partition(",")
    if name not in REGIMES:
        raise InputError(f"regime {name[:40]!r}: expected one of {', '.join(REGIMES)}")
    regime = REGIMES[name]
    if not comma:
        return regime
    number = re.fullmatch(r"cpus=([0-9]{1,4}(?:\.[0-9]{1,3})?)", rest)
    if number is None or float(number[1]) < _LEAST_CPUS:
        raise InputError(f"regime {text[:40]!r}: expected cpus=N, N from {_LEAST_CPUS}, as in 0.5")
    if not regime.own:
        raise InputError(f"regime {text[:40]!r}: {name} has no cells to limit; shared has")
    return msgspec.structs.replace(regime, cpus=float(number[1]))


class Cells:
    """The cells of a regime on this machine, from the ``with`` statement to its end."""

    def __init__(self, regime: str, ranks: int, tool: str = "unshare") -> None:
        """Prepare cells; nothing is started yet.

        Args:
            regime: One of `REGIMES`, and perhaps a quota (`read_regime`).
            ranks: At most 32.
            tool: What makes a cell: unshare, bwrap (bubblewrap) or runc.

        Raises:
            InputError: there is no such regime or tool, or too many ranks.
        """
        if tool not in TOOLS:
            raise InputError(f"tool {tool[:40]!r}: expected one of {', '.join(TOOLS)}")
        if not 1 <= ranks <= _MOST_RANKS:
            raise InputError(f"{ranks} ranks: expected 1 to {_MOST_RANKS}")
        self.regime, self.ranks, self._tool = read_regime(regime), ranks, tool
        self._folder: RunFolder | None = None
        self._held: list[subprocess.Popen[bytes]] = []
        self._quotas: list[subprocess.Popen[bytes]] = []
        self._pids: list[int] = []
        self._head = 0  # holds the bridge

    def __enter__(self) -> Self:
        """Start the cells.

        Raises:
            Unavailable: this process may not, the tool is missing, or there are no quotas here.
            TucclError: a cell does not start.
        """
        check_privilege()
        tools = [self._tool] * bool(self.regime.own) + ["linux.uml"] * self._virtual
        for tool in tools:
            if shutil.which(tool) is None:
                raise Unavailable(f"{tool} is not installed: apt-get install {PACKAGES[tool]}")
        clear_leftovers()
        self._folder = RunFolder()
        self._folder.write(CELLS, b"")
        try:
            self._start(self._folder)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End the cells and what runs there."""
        self.close()

    @property
    def label(self) -> str:
        """The regime in a phrase, for reports."""
        own = ", ".join(self.regime.own)
        each = "each rank with" if self.regime.cell_per_rank else "all ranks with one"
        limit = f", at most {self.regime.cpus:g} CPUs a cell" if self.regime.cpus else ""
        return f"one machine with {os.cpu_count()} cores, regime {self.regime.name}" + (
            f" ({each} its own {own}{limit})" if own else ""
        )

    @property
    def commands(self) -> list[list[str]]:
        """Words before a command that make it run in the cell of a rank, by rank."""
        if not self._pids:
            return [[] for _ in range(self.ranks)]
        if self._virtual:
            at_head = [*_WITH_OWNER, *_enter(self._head, "--net")]
            return [
                [*at_head, *self._guest("enter", h.nics[0].address)] for h in self._cluster.hosts
            ]
        each = self._pids if self.regime.cell_per_rank else self._pids * self.ranks
        return [[*_enter(pid), *self._limited] for pid in each]

    def transports(self) -> JobTransports:
        """Return how the ranks reach each other."""
        return probe_transports(self.commands, [self.environment] * self.ranks)

    def launch(self, mpi: Mpi) -> Launch:
        """Return how ``mpi`` starts the ranks, each in its cell."""
        usual, environment = usual_launch(mpi), self.environment
        words = ("env", *(f"{name}={value}" for name, value in environment.items()))
        if self._joined:
            # A launcher that waits for cells which are gone would wait for ever.
            head = (*_WITH_OWNER, *_enter(self._head, "--net"))
            launch = emulated_launch(mpi, self._cluster, head, environment)
            inside = self._guest("with-socket", _HEAD) if self._virtual else self._limited
            return Launch(launch.launcher, tuple((*words, *inside) for words in launch.prefixes))
        if not self.regime.cell_per_rank:
            return Launch((*_enter(self._pids[0]), *self._limited, *words, *usual.launcher))
        return Launch((*words, *usual.launcher), tuple(map(tuple, self.commands)))

    def close(self) -> None:
        """End everything; may be called again."""
        for process in (*self._held, *self._quotas):
            try:
                process.communicate(timeout=_START_S)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
        self._held, self._quotas, self._pids = [], [], []
        if self._folder is not None:
            self._folder.clear()
            self._folder = None

    @property
    def _joined(self) -> bool:
        """Return whether cells have a network each, and a bridge joins them."""
        return "net" in self.regime.own and self.regime.cell_per_rank

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which launchers and libraries find each other."""
        if self._joined and self._folder is not None:
            return launch_environment(self._cluster, self._folder.path, SHARED_MEMORY)
        apart = "pid" in self.regime.own and self.regime.cell_per_rank
        return {"GLOO_SOCKET_IFNAME": "lo"} | (_APART if apart else {})

    @property
    def _cluster(self) -> EmulatedCluster:
        """The cells as hosts of an emulated cluster, for its launchers."""
        ranks = list(range(self.ranks))
        of_cell = [(rank,) for rank in ranks] if self.regime.cell_per_rank else [tuple(ranks)]
        hosts = tuple(
            EmulatedHost(f"cell{n}", str(n), f"cell{n}", each, (_nic(n),))
            for n, each in enumerate(of_cell)
        )
        return EmulatedCluster(
            name="cells",
            scale=1.0,
            hosts=hosts,
            switches=(),
            ports=(),
            forwarding=(),
            reaches=(),
            nic_of={rank: f"nic{rank}" for rank in ranks},
            latencies=(),
        )

    @property
    def _virtual(self) -> bool:
        return _KERNEL in self.regime.own

    @property
    def _limited(self) -> list[str]:
        """Words before a command in a cell that make the cell's quota count for it."""
        return [] if self.regime.cpus is None else join_quota()

    def _guest(self, what: str, address: str) -> list[str]:
        assert self._folder is not None
        folder = self._folder.path
        return ["python3", "-S", str(folder / "guest"), what, address, str(folder / "token")]

    def _start(self, folder: RunFolder) -> None:
        if not self.regime.own:
            return
        cluster = self._cluster
        names = " ".join(host.name for host in cluster.hosts)
        text = hosts_file(cluster) if self._joined else f"127.0.0.1 localhost {names}\n"
        hosts = folder.write("hosts", text.encode(), 0o644)
        for n, host in enumerate(cluster.hosts):
            machine = self._machine(host, folder) if self._virtual else []
            group = None
            if self.regime.cpus is not None:
                group, keeper = start_quota(f"tuccl-{folder.name}-{n}", self.regime.cpus)
                self._quotas.append(keeper)
            self._pids.append(self._hold(self.regime.own, host.name, hosts, folder, group, machine))
        if not self._joined:
            if "net" in self.regime.own:
                _ip(self._pids[0], ["link set lo up"])
            return
        self._head = self._hold(("net",), "", None, folder)
        self._join(cluster)
        spaces = {host.space: str(pid) for host, pid in zip(cluster.hosts, self._pids, strict=True)}
        if self._virtual:
            spaces = {host.space: host.nics[0].address for host in cluster.hosts}
            self._boot(cluster, folder)
        for name, (text, mode) in launch_files(cluster, spaces).items():
            folder.write(name, text.encode(), mode)

    def _boot(self, cluster: EmulatedCluster, folder: RunFolder) -> None:
        """Start the virtual machines, each in its cell, whose network it takes over."""
        folder.write("guest", _GUEST.read_bytes())
        folder.write("token", secrets.token_hex(guest.TOKEN_BYTES // 2).encode())
        folder.write("init", _INIT.encode(), 0o700)
        for pid, holder in zip(self._pids, self._held, strict=False):
            _ip(
                pid,
                [
                    "tuntap add tap0 mode tap",
                    "link add b0 type bridge",
                    *(f"link set {device} master b0 up" for device in ("tap0", _DEVICE)),
                    "link set b0 up",
                ],
            )
            assert holder.stdin is not None
            holder.stdin.write(b"go\n")
            holder.stdin.flush()
        command = [*_enter(self._head, "--net"), *self._guest("carry-sockets", _HEAD)]
        self._held.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
        for words in self.commands:  # which wait until it is up
            _run([*words, "true"], "a virtual machine does not start", 4 * _START_S)

    def _machine(self, host: EmulatedHost, folder: RunFolder) -> list[str]:
        return [
            *("linux.uml", f"mem={_MACHINE_MB}M", "rootfstype=hostfs", "root=/dev/root", "rw"),
            *(f"init={folder.path / 'init'}", f"eth0=tuntap,tap0,{host.nics[0].mac}"),
            *("con=null", "ssl=null", f"uml_dir={folder.path}/", f"umid={host.name}", "quiet"),
            *(f"cell={host.name}", f"address={host.nics[0].address}"),
        ]

    def _hold(
        self,
        own: Sequence[str],
        name: str,
        hosts: Path | None,
        folder: RunFolder,
        group: Path | None = None,
        machine: Sequence[str] = (),
    ) -> int:
        """Start what holds a cell; return a process id in it."""
        tool = self._tool if name else "unshare"
        settings = [str(hosts or ""), name if "uts" in own else "", "y" * ("ipc" in own)]
        script = ["sh", "-c", _HOLD, "sh", *settings, str(group or ""), *machine]
        namespaces = [each for each in own if each != _KERNEL]
        bundle = folder.path / f"bundle-{len(self._held)}"
        process = start_holder(TOOLS[tool](namespaces, script, bundle), f"a cell of {tool}")
        self._held.append(process)
        return _child(process.pid)

    def _join(self, cluster: EmulatedCluster) -> None:
        """Join the cells by a bridge, whose namespace has an address too: launchers start there."""
        lines = [f"link add {_DEVICE} type bridge", f"addr add {_HEAD}/24 dev {_DEVICE}"]
        lines += [f"link set {_DEVICE} up", "link set lo up"]
        for n, pid in enumerate(self._pids):
            lines += [f"link add c{n} type veth peer name {_DEVICE} netns {pid}"]
            lines += [f"link set c{n} master {_DEVICE} up"]
        _ip(self._head, lines)
        for host, pid in zip(cluster.hosts, self._pids, strict=True):
            up = [f"link set {device} up" for device in ("lo", _DEVICE)]
            own = [] if self._virtual else [f"addr add {host.nics[0].address}/24 dev {_DEVICE}"]
            _ip(pid, [*own, *up])


class CellsExecutor(MpiExecutor):
    """Runs programs over MPI with each rank in its cell.

    Cells that NCCL does not count to one host are hosts (`JobTransports.cells`).
    """

    def __init__(
        self,
        cells: Cells,
        host: Topology,
        mpi: Mpi,
        *,
        operands: Operands | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Prepare a rank for each GPU of ``host``; nothing is started yet.

        Args:
            cells: Where the ranks run.
            host: One host, or its cells already.
            mpi: The MPI.
            operands: Elements, reduction, whether results are compared.
            effort: How many runs make a time.

        Raises:
            InputError: it has not as many ranks as the cells, or other hosts.
            TucclError: the cells do not reach each other.
        """
        if host.ranks != cells.ranks:
            raise InputError(f"{host.ranks} GPUs: expected {cells.ranks}, the ranks of the cells")
        found = cells.transports()
        parts, gbs, latency_us = found.cells()
        one = len(host.hosts) == 1
        self._topology = split_into_cells(host, parts, gbs, latency_us) if one else host
        hosts = [list(self._topology.gpus_of(name)) for name in self._topology.hosts]
        if sorted(hosts) != sorted(parts):
            raise InputError(
                f"topology {quoted(host.name)} has ranks {hosts} on its hosts, regime "
                f"{cells.regime.name} {parts}; expected one host, or these"
            )
        super().__init__(
            cells.ranks,
            mpi,
            launch=cells.launch(mpi),
            location=cells.label,
            operands=operands,
            effort=effort,
            context=found.context,
        )

    @property
    def topology(self) -> Topology:
        """The cells as hosts, with the rates between them as measured."""
        return self._topology


def _nic(number: int) -> EmulatedNic:
    mac = f"02:74:63:02:00:{number:02x}"
    return EmulatedNic(f"nic{number}", _DEVICE, f"10.78.0.{number + 1}", mac)


def _enter(pid: int, *what: str) -> list[str]:
    return ["nsenter", "-t", str(pid), *(what or ("-a",)), "--"]


def _child(pid: int) -> int:
    """Return the process that a tool has started, by any of its threads."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        if children := (thread / "children").read_text().split():
            return int(children[0])
    raise TucclError("a cell has ended")


def _ip(pid: int, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    _run([*_enter(pid, "--net"), "ip", "-batch", "-"], "ip", _START_S, text)


def _run(command: Sequence[str], what: str, limit_s: float, text: str = "") -> None:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise TucclError(f"{what}: no end after {limit_s:g} s") from None
    if done.returncode != 0:
        raise TucclError(f"{what}: {' '.join(done.stderr.split())[-200:]}")
