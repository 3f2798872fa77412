"""Steps replayed on emulated hosts beside their prediction, a tuned table beside Gloo.

    sudo .venv/bin/python benchmarks/training_replay.py [--hosts 4,8] [--models ResNet-50,BERT-Base]
        [--steps 3] [--rounds 3] [--budget 12]

Hosts of one rank each, on 10 Gb/s; rates and bytes are scaled by 0.025 (to 250 Mb/s), times are as
they are: timers stand for computing, bytes cross the emulated links for real. All methods go in
turns, each by the programs of a table and by Gloo; servers' messages are Gloo's alone. The table is
tuned, simulated on the emulated cluster, for the sizes of the methods' schedules. `predicted` is
the simulated step under the all-reduce times measured in the same job; `10-90 %` is the interval of
the steps. `saved` is the part of Gloo's step that the table saves. Ranks share this machine's
cores: run it alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from report import publish

from tuccl.cli.output import columns
from tuccl.emulation.sim_executor import EmulatedSimExecutor
from tuccl.topology import Topology, join, keep_gpus, load_profile
from tuccl.training import GRADIENT_METHODS, Model, reference_model, simulated_costs
from tuccl.training.runs import RUN_METHODS, MeasuredRun, replay_training
from tuccl.tuning import TuneOptions, tune

SCALE = 0.025
GBS = 1.25
LEAST = 1 << 6
COLLECTIVES = ["allreduce", "reduce-scatter", "allgather"]


def cluster(hosts: int) -> Topology:
    """Return hosts of one GPU on 10 Gb/s."""
    return join(keep_gpus(load_profile("rtx2080tix4"), [0]), hosts, down_gbs=GBS)


def sizes_of(model: Model, topology: Topology, methods: list[str]) -> list[int]:
    """Return powers of two about the calls of all methods."""
    executor = EmulatedSimExecutor(topology, SCALE)
    costs = simulated_costs(topology, executor=executor).scaled(SCALE)
    collective = [
        GRADIENT_METHODS[name] for name in methods if not GRADIENT_METHODS[name].is_server
    ]
    schedules = [method.schedule(model, costs).scaled(SCALE) for method in collective]
    calls = {bucket.nbytes for schedule in schedules for bucket in schedule.buckets}
    return sorted({1 << max(nbytes, LEAST).bit_length() - 1 for nbytes in calls})


def write_table(folder: Path, topology: Topology, sizes: list[int], budget: int) -> None:
    """Tune for ``sizes``, simulated on the emulated cluster."""
    executor = EmulatedSimExecutor(topology, SCALE)
    options = TuneOptions(budget=budget)
    tune(topology, COLLECTIVES, sizes, lambda _: executor, options, path=folder)


def rows_of(runs: list[MeasuredRun]) -> list[list[object]]:
    """Return a row for each run; the table's with what it saves of Gloo's step."""
    gloo = {run.row.method: run.row.step_us for run in runs if run.row.backend == "gloo"}
    rows = []
    for run in runs:
        row, saved = run.row, 1 - run.row.step_us / gloo[run.row.method]
        rows.append(
            [
                *(row.method, row.backend, row.samples_per_s, row.speedup, f"{row.exposed:.1%}"),
                *(row.step_us / 1e3, f"{row.low_us / 1e3:.0f}-{row.high_us / 1e3:.0f}"),
                *(run.predicted_us / 1e3, f"{row.step_us / run.predicted_us - 1:+.1%}"),
                *(row.by_program, row.by_default),
                f"{saved:.1%}" if row.backend == "table" else "-",
            ]
        )
    return rows


def print_verdicts(runs: list[MeasuredRun]) -> None:
    """Print whether predictions held, and whether the exact schedule was behind BSP or WFBP."""
    errors = [abs(run.row.step_us / run.predicted_us - 1) for run in runs]
    within = sum(error <= 0.1 for error in errors)
    print(f"within 10 % of prediction: {within} of {len(errors)}; largest {max(errors):.1%}")
    for backend in ("table", "gloo"):
        rows = {run.row.method: run.row for run in runs if run.row.backend == backend}
        if not {"mg-wfbp-exact", "bsp", "wfbp"} <= set(rows):
            continue
        other = min((rows["bsp"], rows["wfbp"]), key=lambda row: row.step_us)
        exact = rows["mg-wfbp-exact"]
        if exact.step_us <= other.step_us:
            verdict = "ahead of"
        else:
            verdict = "behind, within noise," if exact.low_us <= other.high_us else "behind"
        print(
            f"{backend}: mg-wfbp-exact is {verdict} the faster of bsp and wfbp: "
            f"{exact.step_us / 1e3:.1f} and {other.step_us / 1e3:.1f} ms"
        )


def main() -> int | None:
    """Replay each model on each cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", default="4,8")
    parser.add_argument("--models", default="ResNet-50,BERT-Base")
    parser.add_argument("--methods", default=",".join(RUN_METHODS))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=12)
    args = parser.parse_args()
    methods = args.methods.split(",")
    header = ["method", "calls by", "samples/s", "speed-up", "exposed", "step ms", "10-90 %"]
    header += ["predicted ms", "error", "by program", "by default", "saved"]
    for hosts in map(int, args.hosts.split(",")):
        topology = cluster(hosts)
        for name in args.models.split(","):
            model = reference_model(name)
            with tempfile.TemporaryDirectory() as place:
                table = Path(place, "table")
                write_table(table, topology, sizes_of(model, topology, methods), args.budget)
                runs = replay_training(
                    model,
                    topology,
                    methods,
                    table=table,
                    scale=SCALE,
                    steps=args.steps,
                    rounds=args.rounds,
                )
            print(f"# {name} on {hosts} emulated hosts of 250 Mb/s, replayed")
            print(columns(header, rows_of(runs)))
            print_verdicts(runs)
            print(flush=True)
            print(f"{name} on {hosts} hosts is done", file=sys.stderr)
    return None


if __name__ == "__main__":
    publish(main, "Replayed: computing by timers, communication measured")
