"""Print how far simulated times are from public measured ones, per table, and left out.

    .venv/bin/python benchmarks/fidelity.py [--cross|--shipped] [--new] [--write-machines] [CLASS…]

For each machine class: the constants are fitted to its tables (measurements.json), starting from
what sources say (`unfitted`), and the mean absolute errors printed below and from 64 KiB; with
--cross also each table's errors when the class was fitted without it (a class with one table: from
its sources alone). Then whether the faster of NCCL and MSCCL is named right. Then the validation
tables (validation.json), by the fitted classes: no constant was fitted to them, but they were
looked at while rules were chosen. --new scores new_tables.json, which nobody looked at before the
classes were frozen. --write-machines writes the fitted classes to topology/machines. The tables are
public; most of the fits' are not part of this repository: ../shared/data must be at hand. --shipped
fits nothing: the classes as they ship.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from report import publish

from tuccl.eval import (
    CalibrationRun,
    Fit,
    RunErrors,
    Trial,
    cross_validate,
    errors_of,
    fit,
    read_calibration_set,
    trial_of,
)
from tuccl.eval.calibrate import predict, unfitted
from tuccl.eval.calibration_runs import switch_trial
from tuccl.runtime import NCCL_VERSION
from tuccl.topology import (
    MachineFile,
    encode_machine,
    join,
    load_profile,
    load_topology,
    machine_class,
    read_machine,
)
from tuccl.topology.machine import class_name_of

HERE = Path(__file__).parent
MACHINES = HERE.parent / "topology" / "machines"
CLASSES = ("a100", "h100", "v100", "b200", "rtx")  # those that are fitted
SMALL_MARK, LARGE_MARK = 0.12, 0.10  # of tables that no fit saw, below and from 64 KiB
# Where NCCL's own cost model says that protocols are as fast as each other.
SWITCHES = {
    "a100": (("ndv4", 1), ("dgx-a100", 2)),
    "h100": (("ndv5", 1), ("ndv5", 2)),
    "v100": (("dgx-1v", 1), ("ndv2", 2)),
}


def main() -> None:
    """Fit, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*", default=list(CLASSES))
    parser.add_argument("--cross", action="store_true")
    parser.add_argument("--write-machines", action="store_true")
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--new", action="store_true")
    args = parser.parse_args()
    if not (HERE.parent.parent / "shared" / "data").is_dir():
        sys.exit("the measured tables are not here (../shared/data)")
    trials = by_class()
    fitted: list[RunErrors] = []
    left_out: list[RunErrors] = []
    machines: dict[str, MachineFile] = {}
    for name in args.classes:
        if args.shipped:
            fitted += shipped(name, trials[name])
            continue
        result, unseen = one_class(name, trials[name], cross=args.cross)
        if args.write_machines:
            (MACHINES / f"{name}.json").write_bytes(encode_machine(result.machine))
        machines[name] = result.machine
        fitted += result.errors
        left_out += unseen
    summary("fitted", fitted)
    if left_out:
        summary("left out", left_out)
    if "h100" in args.classes:
        ranking(trials["h100"])
    score("validation", "validation.json", machines)
    if args.new:
        score("new tables", "new_tables.json", machines)


def by_class() -> dict[str, list[Trial]]:
    """Return the measured tables of each class."""
    out: dict[str, list[Trial]] = {name: [] for name in CLASSES}
    for run in read_calibration_set(HERE / "measurements.json"):
        out[class_of(run)].append(trial_of(run))
    for name, machines in SWITCHES.items():
        for profile, hosts in machines:
            host = load_profile(profile)
            cluster = join(host, hosts, "rail") if hosts > 1 else host
            out[name].append(switch_trial(cluster, NCCL_VERSION))
    return out


def one_class(name: str, trials: list[Trial], *, cross: bool) -> tuple[Fit, list[RunErrors]]:
    """Fit one class, print its errors, and return the fit and the errors left out."""
    start = unfitted(read_machine(name))
    began = time.perf_counter()
    result = fit(trials, start)
    print(f"\nclass {name}: fitted to {len(trials)} tables in {time.perf_counter() - began:.0f} s")
    unseen: list[RunErrors] = []
    if cross and sum(1 for trial in trials if trial.cases) > 1:
        unseen = list(cross_validate(trials, start))
    elif cross:
        unseen = [errors_of(trials[0], machine_class(start))]
    for n, errors in enumerate(result.errors):
        more = f"   left out {shown(unseen[n])}" if unseen else ""
        print(f"  {errors.name:75} {shown(errors)}{more}")
    return result, unseen


def shipped(name: str, trials: list[Trial]) -> list[RunErrors]:
    """Print the errors of a class as it ships at the tables that it was fitted to."""
    machine = machine_class(read_machine(name))
    errors = [errors_of(trial, machine) for trial in trials if trial.cases]
    print(f"\nclass {name}, as it ships")
    for each in errors:
        print(f"  {each.name:75} {shown(each)}")
    return errors


def score(what: str, file: str, machines: dict[str, MachineFile]) -> None:
    """Print the errors of tables that no fit sees, by the classes given, else as they ship."""
    print(f"\n{what}:")
    errors = []
    for run in read_calibration_set(HERE / file):
        name = class_of(run)
        machine = machines.get(name) or read_machine(name)
        errors.append(errors_of(trial_of(run), machine_class(machine)))
        print(f"  {name:6} {errors[-1].name:68} {shown(errors[-1])}")
    summary(what, errors)


def class_of(run: CalibrationRun) -> str:
    """Return the class of the machine that a table was taken on."""
    return class_name_of(
        load_profile(run.profile) if run.profile else load_topology(run.topology or "")
    )


def shown(errors: RunErrors) -> str:
    """Return a table's errors in a few words."""
    small = "     -" if errors.small is None else f"{errors.small:6.1%}"
    large = "     -" if errors.large is None else f"{errors.large:6.1%}"
    return f"<64K {small}  >=64K {large}  worst {errors.worst:+5.0%} at {errors.worst_bytes}"


def summary(what: str, errors: list[RunErrors]) -> None:
    """Print the mean over tables, and the marks that tables are held to that no fit saw."""
    small = statistics.fmean(e.small for e in errors if e.small is not None)
    large = statistics.fmean(e.large for e in errors if e.large is not None)
    print(
        f"\n{what}, mean over {len(errors)} tables: below 64 KiB {small:.1%} "
        f"(mark {SMALL_MARK:.0%}), from 64 KiB {large:.1%} (mark {LARGE_MARK:.0%})"
    )


def ranking(trials: list[Trial]) -> None:
    """Print how often the faster of NCCL and MSCCL is named right, size by size to 16 MiB."""
    machine = machine_class(read_machine("h100"))
    nccl, msccl = (
        {c.nbytes: (c.us, us) for c, us in zip(t.cases, predict(t, machine), strict=True)}
        for t in trials
        if t.cases
    )
    apart = [
        (nccl[n][0] < msccl[n][0]) == (nccl[n][1] < msccl[n][1])
        for n in sorted(nccl.keys() & msccl.keys())
        if n <= 16 << 20 and not 1 / 1.1 <= nccl[n][0] / msccl[n][0] <= 1.1
    ]
    print(f"faster of NCCL and MSCCL named right in {sum(apart)} of {len(apart)} pairs (mark 95 %)")


if __name__ == "__main__":
    publish(main, "Simulated against published measurements of others")
