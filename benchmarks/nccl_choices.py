"""Compares the modelled choice of NCCL with published logs and with NCCL's own code.

    .venv/bin/python benchmarks/nccl_choices.py [--misses]

Published: rows of published/choices.tsv whose machine is a profile and where NCCL itself chose: not
RCCL, no tuner plugin, nothing forced, no registered windows. NCCL's code: what src/graph of each
version computes for the machines of tests/runtime/nccl/searches.json, at each size where its choice
changes and four times an octave.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from report import ROOT, publish

from tuccl.errors import TucclError
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.versions import nccl_group
from tuccl.topology import Topology, join, load_profile, load_topology
from tuccl.topology.subset import keep_gpus

PUBLISHED = ROOT / "benchmarks" / "published" / "choices.tsv"
RECORDED = ROOT / "tests" / "runtime" / "nccl" / "searches.json"
# Profiles of machines that logs describe without one, by a part of the description.
ALIKE = (
    ("8x H100-80GB, NVSwitch", "dgx-h100"),
    ("of 8 Hopper GPUs", "dgx-h100"),
    ("4x A100-SXM4-80GB of a RunPod", "dgx-a100"),
    ("8x H200, NVSwitch", "dgx-h200"),
    ("8x H100", "dgx-h100"),
    ("8x A100-80GB, NVSwitch", "dgx-a100"),
    ("8x B200", "dgx-b200"),
    ("8x 400 Gb/s RoCE", "dgx-h100"),
    ("hybrid cube mesh", "dgx-1v"),
)
_FORCED = ("NCCL_ALGO", "NCCL_PROTO", "tuner", "windows", "COLLNET")


class Case(NamedTuple):
    """One published choice."""

    version: str
    topology: Topology
    collective: str
    nbytes: int
    nvls: bool
    algorithm: str
    protocol: str


@cache
def machine(name: str, gpus: int, hosts: int) -> Topology:
    """Return a profile or one of benchmarks/machines with so many GPUs a host."""
    file = ROOT / "benchmarks" / "machines" / f"{name}.json"
    node = load_topology(file) if file.exists() else load_profile(name)
    node = keep_gpus(node, range(gpus)) if gpus < node.ranks else node
    return join(node, hosts) if hosts > 1 else node


def cases(skipped: Counter[str]) -> Iterator[Case]:
    """Yield the published choices that can be compared; count the others by reason."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            reason = _unfit(row)
            name = row["profile"] or next((p for m, p in ALIKE if m in row["machine"]), "")
            if not reason and not name:
                reason = "machine is no profile"
            if not reason:
                try:
                    node = machine(name, int(row["gpus_per_host"]), int(row["hosts"] or 1))
                    nccl_group(row["nccl"])
                except TucclError as error:
                    reason = str(error)[:60]
            if reason:
                skipped[reason] += 1
                continue
            nvls = "NCCL_NVLS_ENABLE=0" not in row["environment"]
            size = int(row["bytes"])
            head = row["nccl"], node, row["collective"], size, nvls
            yield Case(*head, row["algorithm"], row["protocol"])


def _unfit(row: dict[str, str]) -> str:
    if "RCCL" in row["nccl"] + row["machine"]:
        return "RCCL"
    if any(word in row["environment"] for word in _FORCED):
        return "forced, by a tuner, or of registered windows"
    if not re.match(r"\d", row["nccl"]):
        return "version not said"
    return "" if row["bytes"] else "size not said"


def published(*, misses: bool) -> None:
    """Print the share of published choices that the model makes, by version and hosts."""
    if not PUBLISHED.exists():
        print(f"{PUBLISHED.relative_to(ROOT)} is not there: no published choices")
        return
    skipped: Counter[str] = Counter()
    total, algorithms, pairs = Counter[str](), Counter[str](), Counter[str]()
    missed: list[str] = []
    for case in cases(skipped):
        made = nccl_choice(
            case.topology, case.collective, case.nbytes, case.version, nvls=case.nvls
        )
        hosts = len(case.topology.hosts)
        for row in (f"{case.version:<8} {hosts:>5}", "all          "):
            total[row] += 1
            algorithms[row] += made.algorithm == case.algorithm
            pairs[row] += made.algorithm == case.algorithm and case.protocol in ("", made.protocol)
        if made.algorithm != case.algorithm:
            where = f"{case.topology.name} {case.version} {case.collective} {case.nbytes}"
            missed.append(f"{where}: {case.algorithm}, modelled {made.algorithm}")
    print("Published choices\n\nversion  hosts  cases  algorithm  and protocol")
    for row in sorted(total):
        shares = (f"{counts[row] / total[row]:.1%}" for counts in (algorithms, pairs))
        print(f"{row}  {total[row]:>5}  " + "  ".join(f"{share:>9}" for share in shares))
    print("\nNot compared: " + "; ".join(f"{n} {why}" for why, n in skipped.most_common()))
    print("\n".join(missed) if misses else "")


def recorded(*, misses: bool) -> None:
    """Print the share of NCCL's own choices, by its code, that the model makes."""
    data = json.loads(RECORDED.read_text())
    right, total, wrong = Counter[str](), Counter[str](), Counter[str]()
    for name, hosts, collective, indices, text in data["choices"]:
        label, gpus = name.split()
        topology = machine(label, int(gpus), hosts)
        points = [(int(n), kind) for n, kind, _ in (p.split(":") for p in text.split())]
        sizes = [round(64 * 2 ** (step / 4)) for step in range(109)]
        for version in (data["versions"][index] for index in indices):
            for size in sizes:
                kind = [kind for at, kind in points if at <= size][-1]
                made = nccl_choice(topology, collective, size, version)
                total[version] += 1
                same = f"{made.algorithm}/{made.protocol}" == kind
                right[version] += same
                wrong[f"{name} x{hosts}"] += not same
    print("NCCL's own code: algorithm and protocol\n\nversion    cases  alike")
    for version in data["versions"]:
        print(f"{version:<8}  {total[version]:>6}  {right[version] / total[version]:.2%}")
    print(f"all       {total.total():>6}  {right.total() / total.total():.2%}")
    print("\n".join(f"{n} {where}" for where, n in wrong.most_common() if n) if misses else "")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--misses", action="store_true", help="list the choices that differ")
    args = parser.parse_args()
    published(misses=args.misses)
    recorded(misses=args.misses)


if __name__ == "__main__":
    publish(main, "Simulated")
