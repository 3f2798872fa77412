"""Reaching the hosts of an emulated cluster: a remote shell, and the files of launchers.

Open MPI, MPICH and their kin start one process of their own on each host by ``rsh HOST COMMAND``.
Here that is a fixed script that enters the host's namespace, which a file next to it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tuccl.emulation.cluster import EmulatedCluster, EmulatedHost
from tuccl.runtime.executors.mpi_find import Mpi
from tuccl.runtime.executors.mpi_launch import Launch, usual_launch

# What a remote shell does, for hosts that are namespaces: options are skipped, the rest goes to a
# shell there, as rsh and ssh have it. Where a process id stands for the namespace, it holds a cell;
# an address is that of a virtual machine. A UTS namespace gives each host its name, which is what
# MPI libraries distinguish hosts by.
RSH = """#!/bin/sh
# rsh [OPTIONS] HOST COMMAND...: runs COMMAND on a host of this emulated cluster.
PATH="$PATH:/usr/sbin:/sbin:/usr/bin:/bin"
while :; do
  case "$1" in
    -l | -p | -o | -i) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host="$1"
shift
while read -r known space name; do
  if [ "$known" = "$host" ]; then
    case "$space" in
      10.*)
        set -- "${0%/*}/token" sh -c 'eval "$*"' sh "$@"
        exec python3 -S "${0%/*}/guest" enter "$space" "$@"
        ;;
      [0-9]*) exec nsenter -t "$space" -a -- sh -c 'eval "$*"' sh "$@" ;;
    esac
    exec ip netns exec "$space" unshare --uts sh -c \\
      'echo "$1" > /proc/sys/kernel/hostname; shift; eval "$*"' sh "$name" "$@"
  fi
done < "${0%/*}/places"
echo "rsh: $host is no host of this emulated cluster" >&2
exit 255
"""

# The same for a command of ours: an argument list, which no shell takes apart.
_ENTER = 'echo "$1" > /proc/sys/kernel/hostname; shift; exec "$@"'


def enter(space: str, host: EmulatedHost) -> tuple[str, ...]:
    """Return what stands before a command so that it runs on ``host``."""
    uts = ("unshare", "--uts", "sh", "-c", _ENTER, "sh", host.name)
    return ("ip", "netns", "exec", space, *uts)


def hosts_file(cluster: EmulatedCluster) -> str:
    """Return ``/etc/hosts`` for every host: each host's name at its first NIC."""
    lines = [f"{host.nics[0].address} {host.name}" for host in cluster.hosts]
    return "\n".join(["127.0.0.1 localhost", *lines, ""])


def places_file(cluster: EmulatedCluster, spaces: Mapping[str, str]) -> str:
    """Return where the remote shell finds a host: its address or name, namespace and name."""
    return "".join(
        f"{key} {spaces[host.space]} {host.name}\n"
        for host in cluster.hosts
        for key in (*(nic.address for nic in host.nics), host.name)
    )


def launch_files(cluster: EmulatedCluster, spaces: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return the text and mode of each file that launchers read, by name."""
    return {
        "rsh": (RSH, 0o700),
        "places": (places_file(cluster, spaces), 0o600),
        "openmpi-hosts": (host_list(cluster, "{} slots={}\n"), 0o600),
        "mpich-hosts": (host_list(cluster, "{}:{}\n"), 0o600),
    }


def host_list(cluster: EmulatedCluster, form: str) -> str:
    """Return the host file of a launcher; ``form`` has places for a host's name and its ranks."""
    return "".join(form.format(host.nics[0].address, len(host.ranks)) for host in cluster.hosts)


def launch_environment(cluster: EmulatedCluster, folder: Path, memory: Path) -> dict[str, str]:
    """Return the variables by which launchers and libraries find the hosts and their devices.

    Args:
        cluster: the cluster.
        folder: where the remote shell and the host files lie, with a folder ``tmp``.
        memory: a folder for shared memory.
    """
    rails = ",".join(sorted({nic.device for host in cluster.hosts for nic in host.nics}))
    first = cluster.hosts[0].nics[0]
    return {
        "TUCCL_RSH": str(folder / "rsh"),
        "TUCCL_HOSTS": ",".join(host.name for host in cluster.hosts),
        "MASTER_ADDR": first.address,
        **_open_mpi(rails, first.device, folder, memory),
        **_mpich(first.device, folder),
        "GLOO_SOCKET_IFNAME": first.device,
        "NCCL_SOCKET_IFNAME": rails,
        "UCX_NET_DEVICES": rails,
        "UCX_TLS": "tcp,self",  # its shared memory would join hosts, which share a kernel
    }


def _open_mpi(rails: str, first: str, folder: Path, memory: Path) -> dict[str, str]:
    parameters = {
        "btl": "self,vader,tcp",
        "btl_tcp_if_include": rails,
        "btl_vader_backing_directory": str(memory),
        "btl_sm_backing_directory": str(memory),  # what 5.0 calls it
        "orte_tmpdir_base": str(folder / "tmp"),
        "pml": "ob1",  # not UCX or libfabric, which would look for other devices
        "plm_rsh_agent": str(folder / "rsh"),
        "plm_rsh_no_tree_spawn": "1",
        "plm_ssh_agent": str(folder / "rsh"),
        "plm_ssh_no_tree_spawn": "1",
        "oob_tcp_if_include": first,
        "orte_default_hostfile": str(folder / "openmpi-hosts"),
    }
    prrte = {
        f"PRTE_MCA_{name}": parameters[name] for name in ("plm_ssh_agent", "plm_ssh_no_tree_spawn")
    }
    return {
        **{f"OMPI_MCA_{name}": value for name, value in parameters.items()},
        **prrte,
        "PRTE_MCA_prte_if_include": first,
        "PRTE_MCA_prte_tmpdir_base": str(folder / "tmp"),
        "PRTE_MCA_prte_default_hostfile": str(folder / "openmpi-hosts"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def _mpich(first: str, folder: Path) -> dict[str, str]:
    return {
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": str(folder / "rsh"),
        "HYDRA_HOST_FILE": str(folder / "mpich-hosts"),
        "HYDRA_IFACE": first,
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": first,
    }


def emulated_launch(
    mpi: Mpi, cluster: EmulatedCluster, head: tuple[str, ...], environment: Mapping[str, str]
) -> Launch:
    """Return how ``mpi`` starts the cluster's ranks, each on its host and with its own NIC.

    ``head`` stands before the launcher, so that it reaches the hosts.
    """
    variables = [f"{name}={value}" for name, value in environment.items()]
    launcher = (*head, "env", *variables, *usual_launch(mpi).launcher)
    addresses = [host.nics[0].address for _, host in _by_rank(cluster)]
    nics = [_own_nic(cluster, rank) for rank, _ in _by_rank(cluster)]
    if mpi.family == "openmpi":
        each = zip(addresses, nics, strict=True)
        return Launch(launcher, tuple(("--host", address, *nic) for address, nic in each))
    runs = [(address, len(list(same))) for address, same in groupby(addresses)]
    hosts = ",".join(f"{address}:{ranks}" for address, ranks in runs)
    return Launch((*launcher, "-hosts", hosts), tuple(nics))


def _by_rank(cluster: EmulatedCluster) -> list[tuple[int, EmulatedHost]]:
    return sorted(
        ((rank, host) for host in cluster.hosts for rank in host.ranks), key=itemgetter(0)
    )


def _own_nic(cluster: EmulatedCluster, rank: int) -> tuple[str, ...]:
    """Return what makes the rank use its own NIC alone, where the cluster gives it one."""
    if rank not in cluster.nic_of:
        return ()
    device = cluster.nics[cluster.nic_of[rank]].device
    names = ("OMPI_MCA_btl_tcp_if_include", "FI_TCP_IFACE", "UCX_NET_DEVICES")
    return ("env", *(f"{name}={device}" for name in names))
