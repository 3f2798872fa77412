"""Reach between ranks where they run, and the transport that each library takes there."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason
from tuccl.runtime.probing import agent
from tuccl.runtime.probing.agents import AgentProcess, agent_words
from tuccl.runtime.table.context import JobContext

_START_S = 30.0
_LOOPBACK = "127.0.0.1"
_MOST_RANKS = 32  # each pair is probed, about a tenth of a second
_MOST_ENVIRONMENT = 1 << 20
_VARIABLES = ("NCCL_", "OMPI_MCA_", "UCX_", "MPIR_", "GLOO_", "TUCCL_HOSTID")
_NEAR = ("P2P", "SHM")  # NCCL's transports within a host
_LITTLE_SHM = 1 << 30  # bytes of /dev/shm: NCCL and the MPIs take tens of MB a rank


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that libraries look at where a rank runs."""

    pid: int
    hostname: str
    boot_id: str
    namespaces: dict[str, str]
    shm_device: int | None
    """Of /dev/shm; None: there is none."""
    shm_bytes: int
    """Free in /dev/shm."""
    ptrace_scope: int
    cpus: int
    quota_cpus: float | None
    rdma: list[str]
    addresses: dict[str, str]
    """By interface, loopback last."""
    mark: str = ""
    """Of an agent: what its memory has at ``mark_at``."""
    mark_at: int = 0
    environment: dict[str, str] = {}

    def set_to(self, name: str, value: str) -> bool:
        """Return whether a variable of the rank has a value."""
        return self.environment.get(name) == value


class PairFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Reach between two ranks; a reason is empty where they do."""

    cma: str
    """Why cross-memory attach fails, in either direction."""
    tcp: str
    tcp_us: float | None = None
    """Round trip of one byte."""
    tcp_gbs: float | None = None
    """Rate of one connection, GB/s."""


class Transport(msgspec.Struct, frozen=True):
    """A library's transport between two ranks, why, and what would change it."""

    library: str
    name: str
    why: str
    change: str = ""


class RankPair(msgspec.Struct, frozen=True):
    """Two ranks, how they reach each other, and each library's transport."""

    ranks: tuple[int, int]
    facts: PairFacts
    transports: tuple[Transport, ...]


class JobTransports(msgspec.Struct, frozen=True):
    """Ranks, in order, and all their pairs."""

    ranks: tuple[RankFacts, ...]
    pairs: tuple[RankPair, ...]

    def cells(self) -> tuple[list[list[int]], float, float]:
        """Return ranks that NCCL counts to one host, and the rate and latency between such cells.

        Returns:
            The cells, each with its ranks; GB/s and us as measured, the slowest; 0 for one cell.

        Raises:
            InputError: two cells do not reach each other.
        """
        cell_of = list(range(len(self.ranks)))
        apart = []
        for pair in self.pairs:
            a, b = pair.ranks
            if any(t.library == "NCCL" and t.name.startswith(_NEAR) for t in pair.transports):
                joined, into = cell_of[b], cell_of[a]
                cell_of = [into if cell == joined else cell for cell in cell_of]
            elif pair.facts.tcp_gbs is None or pair.facts.tcp_us is None:
                raise InputError(f"ranks {a} and {b} do not reach each other")
            else:
                apart.append((pair.facts.tcp_gbs, pair.facts.tcp_us / 2))
        cells = [[r for r, of in enumerate(cell_of) if of == cell] for cell in sorted({*cell_of})]
        gbs = min((gbs for gbs, _ in apart), default=0)
        return cells, gbs, max((us for _, us in apart), default=0)

    @property
    def context(self) -> JobContext:
        """Context of the ranks: all of it that decides which transports there are."""
        cma = list(range(len(self.ranks)))
        for pair in self.pairs:
            a, b = pair.ranks
            if not pair.facts.cma and _same_kernel(self.ranks[a], self.ranks[b]):
                cma[b] = min(cma[b], cma[a])
        found = context_of(self.ranks)
        return JobContext({**found.shares, "CMA": tuple(cma)}, found.quota_cpus)


def context_of(ranks: Sequence[RankFacts]) -> JobContext:
    """Return what ranks share by what each of them sees, which is all but CMA."""
    keys_of: dict[str, list[tuple[str | int | None, ...]]] = {
        "kernel": [(f.boot_id,) for f in ranks],
        "hostname": [(f.boot_id, f.hostname) for f in ranks],
        "/dev/shm": [(f.boot_id, f.shm_device) for f in ranks],
    }
    for name, long in (("pid", "process"), ("net", "network"), ("user", "user")):
        keys_of[f"{long} namespace"] = [(f.boot_id, f.namespaces.get(name)) for f in ranks]
    shares = {}
    for name, keys in keys_of.items():
        first: dict[tuple[object, ...], int] = {}
        shares[name] = tuple(
            first.setdefault(key, rank) if all(key) else rank for rank, key in enumerate(keys)
        )
    return JobContext(shares, tuple(f.quota_cpus for f in ranks))


def local_facts() -> RankFacts:
    """Return the facts of this process."""
    return msgspec.convert(agent.facts(), RankFacts)


def local_context(ranks: int) -> JobContext:
    """Return what ``ranks`` processes beside this one share."""
    return context_of([local_facts()] * ranks)


def probe_transports(
    commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]] = ()
) -> JobTransports:
    """Return what reaches what between ranks, and what each library makes of it.

    A process is started for each rank by its words, needs nothing but Python over there, and ends
    with the call. Where all share a network they listen on loopback, else each on the first address
    that it has, for connections with the call's token alone.

    Args:
        commands: what enters a rank's container, cell or host: ``("docker", "exec", "c0")``;
            empty for here.
        environments: of each rank's job; empty: none is known.

    Raises:
        InputError: there are fewer than two ranks or too many.
        TucclError: a process does not start over there; names the rank.
    """
    if not 2 <= len(commands) <= _MOST_RANKS:
        raise InputError(f"{len(commands)} ranks: expected 2 to {_MOST_RANKS}")
    token, agents = secrets.token_hex(agent.TOKEN_BYTES // 2), list[AgentProcess]()
    try:
        for rank, words in enumerate(commands):
            agents.append(AgentProcess(f"of rank {rank}", [*words, *agent_words()], token))
        asked = [each.ask("facts") for each in agents]
        found = [a.answer(f, RankFacts, _START_S) for a, f in zip(agents, asked, strict=True)]
        if environments:
            found = [
                msgspec.structs.replace(facts, environment=dict(environment))
                for facts, environment in zip(found, environments, strict=True)
            ]
        together = len({(f.boot_id, f.namespaces.get("net")) for f in found}) == 1
        addresses = [
            _LOOPBACK if together else next(iter(f.addresses.values()), _LOOPBACK) for f in found
        ]
        ports = [
            each.answer(each.ask("listen", address=address), int, _START_S)
            for each, address in zip(agents, addresses, strict=True)
        ]
        reached: dict[tuple[int, int], PairFacts] = {}
        for a, b in combinations(range(len(agents)), 2):
            reads = [
                agents[x].answer(agents[x].ask("cma", **_memory_of(found[y])), str)
                for x, y in ((a, b), (b, a))
            ]
            to = {"address": addresses[b], "port": ports[b], "source": addresses[a]}
            tcp = agents[a].answer(agents[a].ask("tcp", **to), dict[str, Any])
            reached[a, b] = msgspec.convert({"cma": reads[0] or reads[1], **tcp}, PairFacts)
    finally:
        for each in agents:
            each.hang_up()
        for each in agents:
            each.end()
    pairs = (
        RankPair((a, b), facts, tuple(rule(found[a], found[b], facts) for rule in _RULES))
        for (a, b), facts in reached.items()
    )
    return JobTransports(tuple(found), tuple(pairs))


def _memory_of(facts: RankFacts) -> dict[str, object]:
    return {"pid": facts.pid, "mark": facts.mark, "mark_at": facts.mark_at}


def read_transports(data: bytes, where: str) -> JobTransports:
    """Return what ``tuccl doctor --transports --json`` printed; ``where`` is for messages.

    Raises:
        InputError: it is something else.
    """
    try:
        found = msgspec.json.decode(data, type=JobTransports)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{where}: {decode_reason(error, JobTransports)}; expected the output of "
            "tuccl doctor --transports --json"
        ) from None
    ranks = len(found.ranks)
    if [pair.ranks for pair in found.pairs] != list(combinations(range(ranks), 2)):
        raise InputError(f"{where}: expected each two of {ranks} ranks once, in order")
    return found


def enter_process(pid: int) -> tuple[list[str], dict[str, str]]:
    """Return the words that enter a process's namespaces, and what libraries' variables it has.

    Raises:
        InputError: there is no such process, or this user may not look at it.
    """
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()[:_MOST_ENVIRONMENT]
    except OSError as error:
        raise InputError(f"process {pid}: {error.strerror}; expected a running rank") from None
    pairs = (each.partition(b"=") for each in data.split(b"\0") if each)
    environment = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, _, v in pairs}
    of_libraries = {k: v for k, v in environment.items() if k.startswith(_VARIABLES)}
    return ["nsenter", "-t", str(pid), "-a"], of_libraries


def _same_kernel(a: RankFacts, b: RankFacts) -> bool:
    return a.boot_id == b.boot_id != ""


def _same_space(a: RankFacts, b: RankFacts, name: str) -> bool:
    return _same_kernel(a, b) and a.namespaces.get(name) == b.namespaces.get(name)


def _same_shm(a: RankFacts, b: RankFacts) -> bool:
    return _same_kernel(a, b) and a.shm_device is not None and a.shm_device == b.shm_device


_SHARE_SHM = "--ipc=host (or --ipc=container:FIRST) gives containers one /dev/shm"
_TWO_COPIES = "OMPI_MCA_btl_vader_single_copy_mechanism=none"


def _nccl(a: RankFacts, b: RankFacts, pair: PairFacts) -> Transport:
    """NCCL 2.5 on: one host is one hostname and boot id, or NCCL_HOSTID; then /dev/shm decides."""
    ids = [f.environment.get("NCCL_HOSTID") or (f.hostname, f.boot_id) for f in (a, b)]
    one_host = ids[0] == ids[1]
    if one_host and _same_shm(a, b):
        off = [w for w in _NEAR if any(f.set_to(f"NCCL_{w}_DISABLE", "1") for f in (a, b))]
        if off == [*_NEAR]:
            return _nccl_network(a, b, pair, "P2P and SHM are off", "NCCL_SHM_DISABLE=0")
        little = min(a.shm_bytes, b.shm_bytes) < _LITTLE_SHM
        change = "--shm-size=1g: /dev/shm has little room" if little else ""
        name = " or ".join(way for way in _NEAR if way not in off)
        return Transport("NCCL", name, "one host, one /dev/shm", change)
    if not _same_kernel(a, b):
        return _nccl_network(a, b, pair, "two machines", "")
    if one_host:
        return _nccl_network(a, b, pair, "a /dev/shm each", _SHARE_SHM)
    why = "two hostnames" if a.hostname != b.hostname else "two NCCL_HOSTID"
    change = "NCCL_HOSTID=NAME on all ranks, or --uts=host, makes them one host"
    return _nccl_network(
        a, b, pair, why, change + ("" if _same_shm(a, b) else f"; and {_SHARE_SHM}")
    )


def _nccl_network(a: RankFacts, b: RankFacts, pair: PairFacts, why: str, change: str) -> Transport:
    on = not any(f.set_to("NCCL_IB_DISABLE", "1") for f in (a, b))
    if a.rdma and b.rdma and on:
        return Transport("NCCL", f"NET/IB ({a.rdma[0]})", why, change)
    return Transport("NCCL", "NET/Socket" if not pair.tcp else "none", pair.tcp or why, change)


def _openmpi(a: RankFacts, b: RankFacts, pair: PairFacts) -> Transport:
    """Open MPI 4.1 under one mpirun: vader where /dev/shm is one, whatever the hostnames."""
    if not _same_kernel(a, b):
        return Transport("Open MPI", "none" if pair.tcp else "tcp", pair.tcp or "two machines")
    if not _same_shm(a, b):
        return Transport(
            "Open MPI", "none" if pair.tcp else "tcp", pair.tcp or "a /dev/shm each", _SHARE_SHM
        )
    if all(f.set_to("OMPI_MCA_btl", "self,tcp") for f in (a, b)):
        return Transport("Open MPI", "none" if pair.tcp else "tcp", pair.tcp or "OMPI_MCA_btl")
    if not _same_space(a, b, "pid"):
        why = "a process namespace each: crashes if two ranks have one number there (4.1.4)"
        return Transport(
            "Open MPI", "vader, two copies", why, "OMPI_MCA_btl=self,tcp, or --pid=host"
        )
    off = any(f.set_to("OMPI_MCA_btl_vader_single_copy_mechanism", "none") for f in (a, b))
    if off:
        return Transport("Open MPI", "vader, two copies", "btl_vader_single_copy_mechanism=none")
    if not _same_space(a, b, "user"):
        why = "user namespaces differ: large messages may hang (4.1.4)"
        return Transport("Open MPI", "none", why, f"{_TWO_COPIES}, or one user namespace")
    if not pair.cma:
        return Transport("Open MPI", "vader, one copy (CMA)", "one /dev/shm, memory is readable")
    allow = "--pid=host allows CMA"
    if _same_space(a, b, "pid"):
        allow = "--cap-add=SYS_PTRACE, or kernel.yama.ptrace_scope=0, allows CMA"
    why = f"CMA fails ({pair.cma}): 'Read -1' in the log"
    return Transport("Open MPI", "vader, two copies", why, f"{allow}; {_TWO_COPIES} stops the line")


def _mpich(a: RankFacts, b: RankFacts, pair: PairFacts) -> Transport:
    """MPICH 4.0 over UCX under one mpiexec: MPI_Init fails unless all of a host is shared."""
    if not _same_kernel(a, b):
        return Transport("MPICH", "none" if pair.tcp else "netmod", pair.tcp or "two machines")
    if all(f.set_to("UCX_TLS", "tcp,self") for f in (a, b)):
        return Transport("MPICH", "none" if pair.tcp else "UCX over TCP", pair.tcp or "UCX_TLS")
    apart = [name for name in ("pid", "user") if not _same_space(a, b, name)]
    if apart or not _same_shm(a, b):
        what = f"{' and '.join(apart)} namespaces differ" if apart else "a /dev/shm each"
        change = "UCX_TLS=tcp,self MPIR_CVAR_NOLOCAL=1 (TCP), or --ipc=host --pid=host"
        return Transport("MPICH", "none", f"{what}: MPI_Init fails (4.0.2)", change)
    if a.hostname != b.hostname:
        return Transport("MPICH", "UCX without shared memory", "two hostnames", "--uts=host")
    return Transport("MPICH", "shared memory", "one hostname, one /dev/shm")


def _gloo(a: RankFacts, b: RankFacts, pair: PairFacts) -> Transport:
    """Gloo has no other transport in PyTorch's packages."""
    change = "GLOO_SOCKET_IFNAME names the interface" if len(a.addresses) > 2 else ""
    return Transport("Gloo", "none" if pair.tcp else "TCP", pair.tcp or "always", change)


def _tuccl(a: RankFacts, b: RankFacts, pair: PairFacts) -> Transport:
    """A communicator's ranks of one boot and process namespace map each other's memory."""
    if _same_space(a, b, "pid") and not _same_space(a, b, "user"):
        why = "user namespaces differ: a rank may not open the other's memory"
        return Transport("tuccl", "none", why, "another TUCCL_HOSTID for each (TCP)")
    if _same_space(a, b, "pid"):
        return Transport("tuccl", "shared memory", "one kernel, one process namespace")
    change = "--pid=host gives shared memory" if _same_kernel(a, b) else ""
    why = "a process namespace each" if _same_kernel(a, b) else "two machines"
    return Transport("tuccl", "none" if pair.tcp else "TCP", pair.tcp or why, change)


def _tuccl_torch(a: RankFacts, b: RankFacts, pair: PairFacts) -> Transport:
    """`tuccl.torch` on CPUs: sockets of the kernel, Unix ones within a network namespace."""
    if _same_space(a, b, "net"):
        return Transport("tuccl.torch", "Unix sockets", "one network namespace")
    return Transport("tuccl.torch", "none" if pair.tcp else "TCP", pair.tcp or "two networks")


Rule = Callable[[RankFacts, RankFacts, PairFacts], Transport]
_RULES: tuple[Rule, ...] = (_nccl, _openmpi, _mpich, _gloo, _tuccl, _tuccl_torch)
