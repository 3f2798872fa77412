"""Kinds of groups that call over and over beside each other: NCCL's choice and a job's tables.

    .venv/bin/python benchmarks/kinds.py [PROFILE ...] [--write]

Simulated, on four hosts of each profile. Each call of a mix is timed, from the start of all groups
of its kind to the end of the last, while the calls of the other kinds begin again whenever they
end. Arms: NCCL's own choice for all kinds; tables tuned with all groups of a kind at once, each
kind by itself; and tables tuned with --concurrent all, beside the others of the mix.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

from report import publish

from tuccl.cli.output import columns
from tuccl.groups.concurrent import (
    Choose,
    KindCall,
    company_calls,
    nccl_choice,
    table_choice,
    time_groups,
)
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.layout import ProcessGroups, megatron_groups
from tuccl.runtime import NCCL_VERSION
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import TuneOptions
from tuccl.tuning.job_search import Concurrent, tune_job

MACHINES = ("dgx-h100", "dgx-a100", "v100x4", "ndv2")
HOSTS = 4
ARMS: tuple[Concurrent, ...] = ("kind", "all")


def mixes(host: int) -> dict[str, str]:
    """Return layouts of hosts of so many GPUs, and calls that their kinds make at once."""
    return {
        f"tp={host}": "tp:allreduce=16M,dp:reduce-scatter=64M",
        f"tp={host // 2},cp=2": "cp:allgather=16M,dp:reduce-scatter=64M",
        f"tp={host},cp=2": "cp:allgather=16M,dp:reduce-scatter=64M",
        f"ep={2 * host}": "ep:alltoall=16M,edp:reduce-scatter=64M",
    }


def tables_of(
    topology: Topology, job: ProcessGroups, mix: Sequence[KindCall], concurrent: Concurrent
) -> dict[str, Choose]:
    """Return what the tables of each kind choose."""
    with tempfile.TemporaryDirectory() as place:
        _, tables = tune_job(
            topology,
            job,
            [(call.kind, call.collective) for call in mix],
            sorted({call.nbytes for call in mix}),
            TuneOptions(nccl_version=NCCL_VERSION),
            path=Path(place, "job"),
            concurrent=concurrent,
            beside=mix if concurrent == "all" else (),
        )
    choices = {}
    for call in mix:
        own = {t.topology: t for t in tables if t.folder.name.startswith(f"{call.kind}-")}
        choices[call.kind] = table_choice(own, NCCL_VERSION)
    return choices


def mix_us(
    topology: Topology, job: ProcessGroups, mix: Sequence[KindCall], choices: Mapping[str, Choose]
) -> list[float]:
    """Return the us of each call of a mix beside the others."""
    found = []
    for call in mix:
        groups = job.kind(call.kind).groups
        others = [each for each in mix if each.kind != call.kind]
        company = company_calls(topology, job, others, choices, repeats=True)
        own = call.collective, call.nbytes, choices[call.kind], company
        found.append(
            time_groups(topology, groups, group_orbits(topology, groups), *own).together_us
        )
    return found


def print_mixes() -> None:
    """Print the times of all mixes, and how often an arm is slower than NCCL's choice."""
    rows: list[list[object]] = []
    gains: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for profile in sys.argv[1:] or MACHINES:
        topology = join(load_profile(profile), HOSTS)
        for layout, text in mixes(topology.ranks // HOSTS).items():
            job = megatron_groups(layout, topology.ranks)
            mix = [KindCall.parse(call) for call in text.split(",")]
            default = mix_us(topology, job, mix, dict.fromkeys(job_kinds(job), nccl_choice()))
            by_arm = [
                mix_us(topology, job, mix, tables_of(topology, job, mix, arm)) for arm in ARMS
            ]
            for number, call in enumerate(mix):
                ratios = [default[number] / arm[number] for arm in by_arm]
                for arm, ratio in zip(ARMS, ratios, strict=True):
                    gains[arm].append(ratio)
                name = [f"{HOSTS}x {profile}", layout, str(call), f"{default[number]:.0f}"]
                rows.append([*name, *(f"{ratio:.2f}" for ratio in ratios)])
    print(
        "\nus by NCCL's choice beside the other call of the mix over and over, simulated, and how"
    )
    print("many times as fast by tables: tuned kind by kind, tuned for all kinds at once")
    print(columns(["machine", "layout", "call", "NCCL us", "kind by kind", "all at once"], rows))
    for arm, name in zip(ARMS, ("kind by kind", "all at once"), strict=True):
        of = gains[arm]
        print(
            f"{name}: geometric mean {geometric_mean(of):.3f} of {len(of)} calls, {min(of):.2f} to "
            f"{max(of):.2f}, over 1 % slower than NCCL's in {sum(gain < 0.99 for gain in of)}"
        )


def job_kinds(job: ProcessGroups) -> list[str]:
    """Return the names of a job's kinds."""
    return [kind.name for kind in job.kinds]


if __name__ == "__main__":
    publish(print_mixes, "Simulated")
