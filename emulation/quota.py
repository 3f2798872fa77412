"""Quotas of processors: control groups that go when the process ends that made them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tuccl.emulation.cell_tools import start_holder
from tuccl.errors import Unavailable

# Keeps the control group $1 with $3 in its file $2 until its input ends.
_KEEP = """
mkdir "$1" && echo "$3" > "$1/$2" || exit 1
echo ready
cat > /dev/null
for n in $(seq 100); do
  while read -r pid; do kill -9 "$pid"; done < "$1/cgroup.procs"
  rmdir "$1" && exit
  sleep 0.1
done
"""
_JOIN = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
_CPU_V1, _CPU_V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


def start_quota(name: str, cpus: float) -> tuple[Path, subprocess.Popen[bytes]]:
    """Return a control group of ``cpus`` processors, and the process that keeps it.

    Raises:
        Unavailable: this machine has no control groups of processors.
        TucclError: the group cannot be made.
    """
    group, quota_us = _control_groups() / name, round(cpus * _PERIOD_US)
    file, text = "cpu.max", f"{quota_us} {_PERIOD_US}"
    if group.parent == _CPU_V1:
        file, text = "cpu.cfs_quota_us", str(quota_us)
    command = ["sh", "-c", _KEEP, "sh", str(group), file, text]
    return group, start_holder(command, "a control group")


def join_quota() -> list[str]:
    """Return words before a command that make it join the group that its cell shows."""
    return ["sh", "-c", _JOIN, str(_control_groups())]


def _control_groups() -> Path:
    """Return the folder of control groups of processors, of version 1 or 2."""
    if _CPU_V1.is_dir():
        return _CPU_V1
    controllers = _CPU_V2 / "cgroup.subtree_control"
    if not controllers.exists() or "cpu" not in controllers.read_text().split():
        raise Unavailable(f"no quotas here: {controllers} has no cpu")
    return _CPU_V2
