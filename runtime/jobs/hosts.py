"""Topologies of hosts, each read by a command over there, through ssh, Slurm or MPI."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.runtime.jobs.child_tree import Finished, run_all
from tuccl.runtime.jobs.launcher import launcher_family
from tuccl.topology import Topology, decode_topology
from tuccl.topology.readers.hostlist import hostlist
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.rocm_smi import ROCM_SMI
from tuccl.topology.readers.smi_topo import SMI_TOPO

HostLauncher = Literal["ssh", "slurm", "mpi"]
HOST_LAUNCHERS: tuple[HostLauncher, ...] = get_args(HostLauncher)

# Tools besides tuccl that print a host's topology over there: vendors' drivers bring them.
_TOOLS: Mapping[str, tuple[tuple[str, ...], Reader[Topology]]] = {
    "nvidia-smi": (("nvidia-smi", "topo", "-m"), SMI_TOPO),
    "rocm-smi": (("rocm-smi", "--showtopo"), ROCM_SMI),
}
HOST_TOOLS = ("tuccl", *_TOOLS)

_MOST_HOSTS = 1024
_MOST_FILE_BYTES = 1 << 20
_MOST_ANSWER_BYTES = 1 << 24
_CONNECT_S = 10
_HOST = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]{0,254}")
_START = '{"format": "tuccl-topology/'


@dataclass(frozen=True)
class HostAnswer:
    """The topology of a host and warnings about it, or the reason why there is none."""

    topology: Topology | None
    warnings: tuple[str, ...] = ()
    reason: str = ""


def hosts_of(text: str) -> tuple[str, ...]:
    """Return the hosts that ``text`` lists, by comma or as Slurm writes them.

    >>> hosts_of("a,node[01-02]")
    ('a', 'node01', 'node02')

    Raises:
        InputError: a name is none of a host, or a duplicate.
    """
    return _checked(hostlist(text), "--hosts")


def hosts_in_file(path: str) -> tuple[str, ...]:
    """Return the hosts that a host file lists, one a line; MPI's counts behind them are dropped.

    A host that is there again, as once for each rank, counts once.

    Raises:
        InputError: the file cannot be read, or a line begins with no host.
    """
    text = read_bounded(path, _MOST_FILE_BYTES).decode("utf-8", "replace")
    words = [line.partition("#")[0].split() for line in text.splitlines()]
    names = [re.sub(":[0-9]+$", "", of_line[0]) for of_line in words if of_line]
    return _checked(list(dict.fromkeys(names)), printable_path(path))


def allocated_hosts(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts of the Slurm job that this process runs in.

    Raises:
        InputError: it runs in none.
    """
    nodes = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not nodes:
        raise InputError("no Slurm job (SLURM_JOB_NODELIST is not set): name the hosts by --hosts")
    return _checked(hostlist(nodes), "SLURM_JOB_NODELIST")


def host_command(launcher: HostLauncher, host: str, program: Sequence[str]) -> list[str]:
    """Return the arguments that start ``program`` once on ``host``.

    >>> host_command("slurm", "n1", ["hostname"])[-2:]
    ['--nodelist=n1', 'hostname']

    Notes:
        What ssh runs goes through the shell over there, so each word is quoted.

    Raises:
        InputError: ``host`` is no name of a host, or the launcher is not installed.
    """
    _checked([host], "host")
    if launcher == "ssh":
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}"]
        return ["ssh", *options, "--", host, shlex.join(program)]
    if "@" in host:
        raise InputError(f"host {host!r}: only ssh takes a user's name")
    if launcher == "slurm":
        return ["srun", "--nodes=1", "--ntasks=1", "--overlap", f"--nodelist={host}", *program]
    if launcher_family("mpirun") == "openmpi":
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return ["mpirun", *as_root, "-np", "1", "--host", host, *program]
    return ["mpirun", "-n", "1", "-hosts", host, *program]


def probe_hosts(
    hosts: Sequence[str],
    launcher: HostLauncher = "ssh",
    tuccl: str = "tuccl",
    limit_s: float = 60.0,
    at_once: int = 16,
    tool: str = "tuccl",
) -> dict[str, HostAnswer]:
    """Return what a command on each host says of it, by the host's name, in their order.

    Args:
        hosts: their names, for ssh with a user in front or not (``me@node1``).
        launcher: what starts a program there.
        tuccl: tuccl over there, a name or a path, where it is the tool.
        limit_s: how long a host may take.
        at_once: how many are queried at a time.
        tool: one of `HOST_TOOLS`: ``tuccl probe``, or where that is not installed a vendor's
            ``nvidia-smi topo -m`` or ``rocm-smi --showtopo``, which print less.

    Raises:
        InputError: a name is none of a host, or the launcher cannot be started.
    """
    if not _PROGRAM.fullmatch(tuccl):
        raise InputError(f"{tuccl[:80]!r}: expected the name or path of tuccl on the hosts")
    if tool not in HOST_TOOLS:
        raise InputError(f"tool {tool[:80]!r}: expected one of {', '.join(HOST_TOOLS)}")
    program = _TOOLS[tool][0] if tool in _TOOLS else (tuccl, "probe", "-o", "-")
    commands = [host_command(launcher, host, program) for host in hosts]
    names = [host.rpartition("@")[2] for host in hosts]
    if len(set(names)) < len(names):
        raise InputError("duplicate host under two users; name it once")
    answers = run_all(commands, os.environ, limit_s, at_once, _MOST_ANSWER_BYTES)
    return {
        name: _answer(name, finished, program[0], tool, limit_s)
        for name, finished in zip(names, answers, strict=True)
    }


def _answer(host: str, finished: Finished, program: str, tool: str, limit_s: float) -> HostAnswer:
    lines = [line for line in finished.err.splitlines() if line.strip()]
    if finished.code is None and max(len(finished.out), len(finished.err)) >= _MOST_ANSWER_BYTES:
        return HostAnswer(None, reason=f"prints more than {_MOST_ANSWER_BYTES} bytes")
    if finished.code is None:
        return HostAnswer(None, reason=f"no answer in {limit_s:g} s")
    if finished.code != 0:
        last = lines[-1].strip()[:300] if lines else f"exit code {finished.code}"
        hint = ""
        if finished.code == 127 or "not found" in last or "No such file" in last:
            hint = (
                f"; is {program} installed there? --remote-tuccl says where, --remote by what else"
            )
        return HostAnswer(None, reason=last + hint)
    try:
        if tool in _TOOLS:
            topology, warnings = _TOOLS[tool][1].decode(finished.out.encode(), host, host)
        else:
            # Shells and launchers may print a greeting before it.
            start = finished.out.find(_START)
            text = finished.out[start:] if start >= 0 else ""
            topology = decode_topology(text[: text.rfind("}") + 1].encode(), host)
            printed = (line for line in lines if line.startswith("warning: "))
            warnings = tuple(line.removeprefix("warning: ") for line in printed)
    except InputError as error:
        return HostAnswer(None, reason=f"answers with no topology: {error}")
    return HostAnswer(topology, tuple(f"{host}: {line}" for line in warnings))


def _checked(names: Sequence[str], place: str) -> tuple[str, ...]:
    for name in names:
        if not _HOST.fullmatch(name):
            raise InputError(f"{place}: {name[:80]!r} is no name of a host")
    if len(set(names)) < len(names):
        raise InputError(f"{place}: duplicate host; name each once")
    if not 1 <= len(names) <= _MOST_HOSTS:
        raise InputError(f"{place}: {len(names)} hosts; expected 1 to {_MOST_HOSTS}")
    return tuple(names)
