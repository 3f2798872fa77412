"""Times of a training step's calls on Megatron's published layouts, by NCCL's choice.

    .venv/bin/python benchmarks/layouts.py [PROFILE ...] [--write]

A step of each layout of Megatron-LM d98e8a64, user-guide/parallelism-guide.md, on DGX H100
and A100: 1,024 sequences in micro-batches of one, sequence parallelism, keys and values of context
parallel groups by collectives. DeepSeek-V3's experts are not cut by tensor parallelism: 64 x 2 x 16
ranks would be more than its 1,024.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from report import publish

from tuccl.cli.output import columns
from tuccl.groups.layout import megatron_groups
from tuccl.topology import Topology, join, load_profile
from tuccl.training.step_calls import Batch, step_calls
from tuccl.training.step_times import StepRow, time_step
from tuccl.training.transformers import load_transformer
from tuccl.units import format_bytes

MACHINES = ("dgx-h100", "dgx-a100")
LAYOUTS = (
    ("LLaMA-3-8B", 8, "cp=2"),
    ("LLaMA-3-70B", 64, "tp=4,cp=2,pp=4"),
    ("LLaMA-3-405B", 1024, "tp=8,cp=2,pp=8"),
    ("GPT-3-175B", 128, "tp=4,pp=8"),
    ("GPT-3-175B", 512, "tp=4,pp=8"),
    ("Mixtral-8x7B", 64, "pp=4,ep=8"),
    ("Mixtral-8x22B", 256, "tp=4,pp=4,ep=8"),
    ("DeepSeek-V3", 1024, "tp=2,pp=16,ep=64,etp=1"),
)
BATCH = Batch(global_batch=1024, context="all_gather")
LEAST_SHARE = 0.01


def machine_of(profile: str, gpus: int) -> Topology:
    """Return hosts of a profile with as many GPUs."""
    host = load_profile(profile)
    return join(host, gpus // host.ranks) if gpus > host.ranks else host


def calls_of(rows: list[StepRow], whole: float) -> list[list[object]]:
    """Return the calls that take a part of all that counts, in columns."""
    return [
        [
            *(f"{row.kind}:{row.collective}", format_bytes(row.size), row.calls),
            *(f"{row.us:.0f}", f"{row.step_us / 1e3:.1f}", f"{row.step_us / whole:.1%}"),
            row.choice,
        ]
        for row in rows
        if row.us is not None and row.step_us >= LEAST_SHARE * whole
    ]


def main() -> None:
    """Print the calls of each layout, and the part of each kind."""
    sums: list[list[object]] = []
    for profile in sys.argv[1:] or MACHINES:
        for name, gpus, layout in LAYOUTS:
            begin, topology = time.monotonic(), machine_of(profile, gpus)
            job = megatron_groups(layout, gpus)
            rows = time_step(topology, job, step_calls(load_transformer(name), job, BATCH))
            whole = sum(row.step_us for row in rows)
            print(f"\n{name}, {layout}, {gpus} GPUs of {profile}: {whole / 1e3:.0f} ms a step")
            head = ["call", "bytes", "calls", "us", "ms a step", "share", "NCCL's choice"]
            print(columns(head, calls_of(rows, whole)))
            of_kind = Counter[str]()
            for row in rows:
                of_kind[row.kind] += row.step_us / whole
            parts = ", ".join(f"{k} {part:.0%}" for k, part in of_kind.most_common() if part)
            seconds = f"{time.monotonic() - begin:.0f}"
            refused = [f"{r.kind}:{r.collective}: {r.refusal}" for r in rows if r.refusal]
            ms = f"{whole / 1e3:.0f}" if not refused else "-"
            sums.append([profile, name, gpus, layout, ms, seconds, "; ".join(refused) or parts])
    print("\nAll calls of a step, each kind alone; s: how long simulating them took here")
    print(columns(["machine", "model", "GPUs", "layout", "ms a step", "s", "by kind"], sums))
    print(
        f"calls under {LEAST_SHARE:.0%} of a step are left out above; sends are not timed; overlap "
        "with computing and between kinds is not counted; the whole is not known where a call is "
        "not simulated"
    )


if __name__ == "__main__":
    publish(main, "Simulated")
