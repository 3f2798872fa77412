"""Groups of a mesh on emulated hosts: a job's tables against tables tuned alone, and against Gloo.

    sudo .venv/bin/python benchmarks/groups_emulated.py [2x4] [4x2] [--rounds N] [--write]

Hosts times ranks, with uplinks of 200 Mb/s. All groups of a kind make a call at the same time, from
a barrier on: dp over hosts, tp inside each. A time is from the barrier to the end of the last rank,
the median of the rounds; all arms take turns in each round. Tables are tuned in simulation at the
emulated rates, `at once` by `tuccl tune --mesh`, `alone` with `--concurrent none`, and only their
programs are kept, since NCCL's own algorithms have no place here. `beside`: an allreduce of 4 MB by
Gloo over all ranks starts just before. All ranks share this machine's cores: run it alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median

import msgspec
from report import publish

from tuccl.cli.output import columns
from tuccl.emulation import Emulation
from tuccl.groups.job import JobTables, save_job
from tuccl.groups.layout import ProcessGroups, mesh_groups
from tuccl.runtime import save_table
from tuccl.topology import Topology, join, keep_gpus, load_profile
from tuccl.tuning import TuneOptions
from tuccl.tuning.job_search import tune_job
from tuccl.units import format_bytes

CLUSTERS = {"2x4": (2, 4), "4x2": (4, 2)}
MBPS, BESIDE_BYTES, LIMIT_S = 200.0, 4 << 20, 500
CALLS = (("dp", "allreduce"), ("dp", "reduce-scatter"), ("dp", "allgather"), ("tp", "allreduce"))
SIZES = (256 << 10, 4 << 20)
ARMS = ("at once", "alone", "gloo")


def tuned(folder: Path, topology: Topology, groups: ProcessGroups, arm: str) -> None:
    """Tune a job's tables into a folder, and leave only their programs."""
    job, _ = tune_job(
        topology,
        groups,
        CALLS,
        SIZES,
        TuneOptions(budget=60),
        path=folder,
        concurrent="kind" if arm == "at once" else "none",
    )
    entries = []
    for entry in job.entries:
        table = job.table(entry)
        kept = tuple(
            msgspec.structs.replace(
                each,
                candidates=(*(c for c in each.candidates if c.program), each.default),
            )
            for each in table.entries
        )
        lookup = msgspec.structs.replace(table.lookup, entries=kept)
        sealed = save_table(lookup, job.place(entry), table.topology, table.files)
        entries.append(msgspec.structs.replace(entry, checksum=sealed.checksum))
    save_job(JobTables(folder, groups, topology, tuple(entries)))


def launch(cluster: str, rounds: int) -> None:
    """Tune, start a rank for each GPU, let rank 0 print, and wait."""
    hosts, each = CLUSTERS[cluster]
    topology = join(keep_gpus(load_profile("ndv2"), range(each)), hosts)
    groups = mesh_groups(f"dp={hosts},tp={each}", topology.ranks)
    with tempfile.TemporaryDirectory() as place, Emulation(topology, MBPS / 100e3) as emulation:
        for arm in ARMS[:2]:
            tuned(Path(place, arm), emulation.topology, groups, arm)
        print(f"\n# {cluster}: {topology.ranks} ranks on {emulation.label}, {os.cpu_count()} cores")
        sys.stdout.flush()
        environment = {
            **os.environ,
            **emulation.environment,
            "PLACE": place,
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, cluster, "--rounds", str(rounds), "--rank"]
        ranks = [
            subprocess.Popen(
                [*emulation.prefix(rank // each), *command, str(rank)],
                env=environment,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(topology.ranks)
        ]
        try:
            said = ranks[0].communicate(timeout=LIMIT_S)[0]
            codes = [rank.wait(LIMIT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        print(said, end="")
        if any(codes):
            sys.exit(f"exit codes by rank: {codes}")


class Rank:
    """One process of the job."""

    def __init__(self, cluster: str, rank: int, rounds: int) -> None:
        """Join the world and the groups of both kinds, once for each arm."""
        import torch
        import torch.distributed as dist

        import tuccl.torch

        self.torch, self.dist, self.rounds, self.rank = torch, dist, rounds, rank
        torch.set_num_threads(1)
        hosts, each = CLUSTERS[cluster]
        self.size, place = hosts * each, os.environ["PLACE"]
        dist.init_process_group(
            "gloo", init_method=f"file://{place}/store", rank=rank, world_size=self.size
        )
        self.groups: dict[tuple[str, str], object] = {}
        for kind in mesh_groups(f"dp={hosts},tp={each}", self.size).kinds:
            for arm in ARMS:
                for members in kind.groups:
                    options = (
                        {"backend": "gloo"}
                        if arm == "gloo"
                        else {
                            "backend": "tuccl",
                            "pg_options": tuccl.torch.Options((f"{place}/{arm}",)),
                        }
                    )
                    made = dist.new_group(list(members), **options)
                    if rank in members:
                        self.groups[kind.name, arm] = made

    def measure(self) -> None:
        """Print the times of each call, with and without a call beside it."""
        rows = []
        gains: dict[str, list[float]] = {arm: [] for arm in ARMS[1:]}
        for (kind, collective), nbytes in ((c, n) for c in CALLS for n in SIZES):
            for beside in (False, True):
                times = self.compared(kind, collective, nbytes // 4, beside)
                middle = {arm: median(each) for arm, each in times.items()}
                spread = {arm: (max(t) - min(t)) / middle[arm] for arm, t in times.items()}
                for arm, found in gains.items():
                    found.append(middle[arm] / middle["at once"])
                shown = [f"{middle[arm]:.1f} {spread[arm]:.0%}" for arm in ARMS]
                ratios = [f"{middle[arm] / middle['at once']:.2f}" for arm in ARMS[1:]]
                name = [f"{kind}:{collective}", format_bytes(nbytes), "yes" if beside else "no"]
                rows.append([*name, *shown, *ratios, self.by_program(kind)])
        if self.rank == 0:
            head = ["call", "size", "beside", *(f"{arm} ms" for arm in ARMS)]
            print(columns([*head, "over alone", "over Gloo", "programs"], rows))
            print(
                "geometric means of the time over that of tables tuned at once: "
                + ", ".join(f"{arm} {geometric_mean(each):.2f}" for arm, each in gains.items())
            )
        self.dist.destroy_process_group()

    def by_program(self, kind: str) -> str:
        """Return how many calls so far ran a program, of all, by each arm that has tables."""
        counts = [self.groups[kind, arm].counts for arm in ARMS[:2]]  # type: ignore[attr-defined]
        return " ".join(f"{c['program']}/{c['program'] + c['gloo']}" for c in counts)

    def compared(
        self, kind: str, collective: str, count: int, beside: bool
    ) -> dict[str, list[float]]:
        """Return the ms of each round by arm, and check that the arms' values are equal."""
        torch, dist = self.torch, self.dist
        times: dict[str, list[float]] = {arm: [] for arm in ARMS}
        whole = torch.arange(count, dtype=torch.float32) % 1000 + self.rank
        for turn in range(self.rounds + 1):
            results = []
            for arm in ARMS:
                group, out = self.groups[kind, arm], whole.clone()
                part = out[: count // dist.get_world_size(group)]
                call = {
                    "allreduce": lambda g=group, o=out: dist.all_reduce(o, group=g),
                    "reduce-scatter": lambda g=group, p=part: dist.reduce_scatter_single(
                        p, whole, group=g
                    ),
                    "allgather": lambda g=group, o=out: dist.all_gather_single(
                        o, whole[: count // dist.get_world_size(g)], group=g
                    ),
                }[collective]
                took = self.timed(call, beside)
                results.append(out)
                if turn:
                    times[arm].append(took)
            if not all(torch.equal(results[-1], each) for each in results):
                sys.exit(f"{kind}:{collective}: values differ from Gloo's")
        return times

    def timed(self, call: Callable[[], object], beside: bool) -> float:
        """Return the ms of a call on the slowest rank of all groups."""
        other = None
        load = self.torch.ones(BESIDE_BYTES // 4)
        self.dist.barrier()
        if beside:
            other = self.dist.all_reduce(load, async_op=True)
        begin = time.perf_counter()
        call()
        took = (time.perf_counter() - begin) * 1e3
        if other is not None:
            other.wait()
        slowest = self.torch.tensor([took], dtype=self.torch.float64)
        self.dist.all_reduce(slowest, self.dist.ReduceOp.MAX)
        return float(slowest.item())


def main() -> None:
    """Measure on each cluster of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clusters", nargs="*", help="2x4, 4x2; both by default")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return Rank(args.clusters[0], args.rank, args.rounds).measure()
    for cluster in args.clusters or CLUSTERS:
        launch(cluster, args.rounds)


if __name__ == "__main__":
    publish(main, "Measured")
