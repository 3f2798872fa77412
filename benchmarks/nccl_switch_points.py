"""Prints the sizes at which NCCL's own choice changes, by version and machine.

    .venv/bin/python benchmarks/nccl_switch_points.py [--nccl-version 2.18] [--profile dgx-a100]

A line reads: below the first size the first choice, from it on the next, and so on. Versions
that choose alike on a machine share a line. 2.4's choice is by thresholds, the others' by cost.
"""

from __future__ import annotations

import argparse
from itertools import groupby

from report import publish

from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.switch_points import switch_points
from tuccl.runtime.nccl.versions import nccl_versions
from tuccl.topology import Topology, join, load_profile
from tuccl.units import format_bytes

MACHINES = (
    ("v100x4", 1),
    ("v100x4", 2),
    ("dgx-1v", 1),
    ("ndv2", 2),
    ("dgx-a100", 1),
    ("dgx-a100", 2),
    ("dgx-a100", 4),
    ("dgx-h100", 1),
    ("dgx-h100", 2),
)
COLLECTIVES = ("allreduce", "allgather", "broadcast")
_LEAST_BYTES = 64


def line(topology: Topology, collective: str, version: str) -> str:
    """Return the choices with the sizes between them."""
    least = nccl_choice(topology, collective, _LEAST_BYTES, version)
    words = [f"{least.algorithm}/{least.protocol}"]
    for switch in switch_points(topology, collective, version):
        words += [size(switch.nbytes), switch.after]
    return "  ".join(words)


def size(nbytes: int) -> str:
    """Return a size to three digits; the choice is known to the byte."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            value = nbytes / unit
            return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"
    return format_bytes(nbytes)


def main() -> None:
    """Print one block a machine and collective."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nccl-version", metavar="V", help="one version (default: all)")
    parser.add_argument("--profile", metavar="P", help="one profile (default: all)")
    args = parser.parse_args()
    versions = (args.nccl_version,) if args.nccl_version else nccl_versions()
    for profile, hosts in MACHINES:
        if args.profile not in (None, profile):
            continue
        topology = load_profile(profile)
        topology = join(topology, hosts) if hosts > 1 else topology
        for collective in COLLECTIVES:
            print(f"{profile} x {hosts}, {collective}")
            lines = [(line(topology, collective, version), version) for version in versions]
            for text, same in groupby(lines, key=lambda pair: pair[0]):
                names = [version for _, version in same]
                span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
                print(f"  {span:<16}{text}")


if __name__ == "__main__":
    publish(main, "Simulated")
