"""A job of PyTorch on an emulated cluster whose hosts are killed or slowed at random moments.

    sudo .venv/bin/python benchmarks/elastic.py [--times 100] [--seed 0] [--derive 10]

Four hosts of two ranks, NICs of 200 Mb/s. Each time one host's ranks are killed (SIGKILL), or its
NIC gets a quarter of its rate, at a random moment of the job's start or its calls. What is left is
ended as torchrun ends it, and the job starts again: on the other three hosts, or on all with the
new rate in the tables' topology.json. Every other time the folder holds what was derived before,
else the first table alone. Each rank compares every element of each call with the right sum or
gather of whole numbers. Printed: how the calls ran, and the seconds until the new table was there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from statistics import median

import msgspec
from report import publish

from tuccl.cli.output import columns
from tuccl.emulation import Emulation, set_rate
from tuccl.topology import Topology, join, keep_gpus, load_profile, save_topology
from tuccl.tuning import TuneOptions, tune

HOSTS, EACH = 4, 2
MBPS, SLOWER = 200.0, 4
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter")
SIZES = "64K:4M:x8"
METHODS = ("greedy", "hierarchical2", "hierarchical-rings", "ring")
COUNTS = (3_000, 16_384, 131_072)  # floats
STEPS, LATEST_S, LIMIT_S = 4, 4.0, 120.0


class Host:
    """A process on an emulated host that forks ranks, so that PyTorch is imported once."""

    def __init__(self, name: str, prefix: tuple[str, ...], environment: dict[str, str]) -> None:
        """Start it."""
        self.name = name
        self._process = subprocess.Popen(
            [*prefix, sys.executable, __file__, "--host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self._process.stdout.readline() == "ready\n"

    def start(self, ranks: list[int], **environment: str) -> list[int]:
        """Fork ``ranks``; return their processes."""
        return self._ask({"ranks": ranks, "environment": environment})

    def ended(self, pids: list[int]) -> list[int | None]:
        """Return the exit codes of those of ``pids`` that ended, None of others."""
        return self._ask({"pids": pids})

    def _ask(self, question: object) -> list:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def serve() -> None:
    """Be a host: fork ranks and report how they ended, until standard input ends."""
    import torch
    import torch.distributed as dist  # noqa: F401

    import tuccl.torch  # noqa: F401

    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        answer: list[int | None] = []
        for rank in question.get("ranks", ()):
            if (pid := os.fork()) == 0:
                os.environ.update(question["environment"], RANK=str(rank))
                run_rank()
            answer.append(pid)
        for pid in question.get("pids", ()):
            done, status = os.waitpid(pid, os.WNOHANG)
            answer.append(os.waitstatus_to_exitcode(status) if done else None)
        print(json.dumps(answer), flush=True)


def run_rank() -> None:
    """Be a rank: exit 0 after all steps, 3 after an error of the group, 1 after a wrong value."""
    import torch.distributed as dist

    os.dup2(2, 1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    said: list[str] = []
    warnings.showwarning = lambda message, *_: said.append(str(message))
    code = 3
    try:
        begin = time.monotonic()
        store = dist.FileStore(os.environ["STORE"], size)
        dist.init_process_group(
            "tuccl",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=max(40, 2 * float(os.environ.get("TUCCL_ELASTIC", "0")))),
        )
        took = time.monotonic() - begin
        right = all(step_is_right(step, rank, size) for step in range(int(os.environ["STEPS"])))
        code = 0 if right else 1
        store.set(f"ended/{rank}", "")  # a rank that leaves early ends the others' last call
        store.wait([f"ended/{each}" for each in range(size)])
        if rank == 0:
            facts = {"seconds": took, "said": said, "counts": dist.group.WORLD.counts}
            Path(os.environ["FACTS"]).write_text(json.dumps(facts))
    except (RuntimeError, OSError) as error:
        Path(f"{os.environ['FACTS']}-{rank}").write_text(str(error))
    finally:
        os._exit(code)


def step_is_right(step: int, rank: int, size: int) -> bool:
    """Do each collective on each count; return whether every element is right."""
    import torch
    import torch.distributed as dist

    right = True
    for count in COUNTS:
        given = [torch.arange(count, dtype=torch.float32) % 977 + step + r for r in range(size)]
        total = torch.stack(given).sum(0)
        whole = given[rank].clone()
        dist.all_reduce(whole)
        right &= torch.equal(whole, total)
        parts = [torch.empty(count) for _ in range(size)]
        dist.all_gather(parts, given[rank])
        right &= all(map(torch.equal, parts, given))
        share = torch.empty(count // size)
        dist.reduce_scatter_single(share, given[rank][: count // size * size].clone())
        right &= torch.equal(share, total[count // size * rank :][: count // size])
    return right


class Job:
    """Ranks on some hosts."""

    def __init__(
        self, hosts: list[Host], place: Path, tables: Path, steps: int, **more: str
    ) -> None:
        """Start them."""
        self.facts = place / "facts"
        for file in place.glob("facts*"):
            file.unlink()
        store = tempfile.mktemp(dir=place)  # the ranks make it
        self.pids = {
            host: host.start(
                [EACH * number, EACH * number + 1],
                WORLD_SIZE=str(EACH * len(hosts)),
                STORE=store,
                FACTS=str(self.facts),
                STEPS=str(steps),
                TUCCL_TABLE=str(tables),
                **more,
            )
            for number, host in enumerate(hosts)
        }
        self.codes: dict[int, int] = {}

    def kill(self, hosts: list[Host]) -> None:
        """Kill the ranks of ``hosts``."""
        for pid in (pid for host in hosts for pid in self.pids[host] if pid not in self.codes):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of all ranks; return whether it came."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for host, pids in self.pids.items():
                left = [pid for pid in pids if pid not in self.codes]
                for pid, code in zip(left, host.ended(left), strict=True):
                    if code is not None:
                        self.codes[pid] = code
            if len(self.codes) == sum(map(len, self.pids.values())):
                return True
            time.sleep(0.05)
        return False


def cluster() -> Topology:
    """Return four hosts of two GPUs, each host with one NIC."""
    return join(keep_gpus(load_profile("ndv2"), range(EACH)), HOSTS)


def slowed(topology: Topology, nic: str) -> Topology:
    """Return ``topology`` with a slower NIC."""
    links = tuple(
        msgspec.structs.replace(link, bandwidth=link.bandwidth / SLOWER)
        if link.kind == "network" and nic in (link.src, link.dst)
        else link
        for link in topology.links
    )
    return msgspec.structs.replace(topology, links=links, routes=())


class Trials:
    """The emulated cluster with its hosts, and what became of the jobs so far."""

    def __init__(self, emulation: Emulation, place: Path, seed: int, derive_s: float) -> None:
        """Start the hosts and tune the first table."""
        self.topology, self.emulation, self.place = cluster(), emulation, place
        self.random, self.derive_s = random.Random(seed), derive_s
        self.first, self.tables = place / "first", place / "tables"
        options = TuneOptions(budget=12, methods=METHODS)
        tune(self.topology, COLLECTIVES, SIZES, options=options, path=self.first / "four")
        own = {**os.environ, **emulation.environment, "OMP_NUM_THREADS": "1"}
        self.hosts = [
            Host(host.name, emulation.prefix(number), own)
            for number, host in enumerate(emulation.cluster.hosts)
        ]
        self.counts: Counter[str] = Counter()
        self.known = 0  # derived tables in the folder
        self.seconds: dict[str, list[float]] = {"killed": [], "slowed": []}

    def trial(self, *, afresh: bool) -> None:
        """Break one host of a job, start it again, and count how that ended."""
        if afresh:
            shutil.rmtree(self.tables, ignore_errors=True)
            shutil.copytree(self.first, self.tables)
            self.known = 0
        (self.tables / "topology.json").unlink(missing_ok=True)
        save_topology(self.topology, self.tables / "topology.json")
        broken = self.random.choice(self.hosts)
        kind = self.random.choice(["killed", "slowed"])
        job = Job(self.hosts, self.place, self.tables, 10_000)
        time.sleep(self.random.uniform(0, LATEST_S))
        left = self.hosts
        if kind == "killed":
            left = [host for host in self.hosts if host is not broken]
            job.kill([broken])
        else:
            self.slow(broken)
        job.wait(2.0)
        job.kill(self.hosts)
        job.wait(LIMIT_S)
        self.counts["wrong"] += 1 in job.codes.values()
        again = Job(left, self.place, self.tables, STEPS, TUCCL_ELASTIC=str(self.derive_s))
        ended = again.wait(LIMIT_S)
        if not ended:
            again.kill(left)
            again.wait(LIMIT_S)
        self.note(kind, again, ended=ended)
        self.set_nic(broken, 1)

    def slow(self, host: Host) -> None:
        """Give a host's NIC its lower rate, and say so in topology.json."""
        self.set_nic(host, SLOWER)
        nic = self.topology.nics_of(host.name)[0]
        save_topology(slowed(self.topology, nic), self.tables / "topology.json")

    def set_nic(self, host: Host, divisor: int) -> None:
        """Set the rate of a host's NIC, both ways."""
        nic = self.topology.nics_of(host.name)[0]
        for port in self.emulation.cluster.ports:
            if nic in (port.src, port.dst):
                set_rate(port.src, port.dst, MBPS * 1e6 / divisor, self.emulation.id)

    def note(self, kind: str, job: Job, *, ended: bool) -> None:
        """Count the outcome of a job that started again."""
        codes = job.codes.values()
        self.counts[kind] += 1
        self.counts["hung"] += not ended
        self.counts["wrong"] += 1 in codes
        if ended and 3 in codes:
            self.counts["failed"] += 1
            for file in sorted(job.facts.parent.glob("facts-*")):
                print(f"  {kind}: rank {file.name[6:]} failed: {file.read_text()}", flush=True)
        if not job.facts.exists():
            return
        facts = json.loads(job.facts.read_text())
        by_default = any("all goes to Gloo" in text for text in facts["said"])
        new = len(list(self.tables.glob("derived-*"))) > self.known
        self.known = len(list(self.tables.glob("derived-*")))
        outcome = "default" if by_default else "derived" if new else "found"
        self.counts[outcome] += 1
        self.counts["by programs"] += facts["counts"]["program"] > 0
        if outcome == "derived":
            self.seconds[kind].append(facts["seconds"])
        for text in (text for text in facts["said"] if "tuccl" in text):
            print(f"  {kind}: {text}", flush=True)


def rows(trials: Trials, times: int) -> Iterator[list[object]]:
    """Yield what was counted."""
    yield ["hosts killed, slowed", f"{trials.counts['killed']}, {trials.counts['slowed']}"]
    for name in ("found", "derived", "default", "wrong", "failed", "hung"):
        yield [name, f"{trials.counts[name]} of {times}"]
    yield ["with calls by programs", f"{trials.counts['by programs']} of {times}"]
    for kind, ranks in (("killed", EACH * (HOSTS - 1)), ("slowed", EACH * HOSTS)):
        seconds = trials.seconds[kind]
        if seconds:
            yield [
                f"s to start with a new table, {ranks} ranks",
                f"median {median(seconds):.1f}, most {max(seconds):.1f}",
            ]


def main() -> int:
    """Break hosts and print what became of the jobs; 1 if one was wrong, failed or hung."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--derive", type=float, default=10.0, help="seconds for a new table")
    parser.add_argument("--host", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.host:
        serve()
        return 0
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        emulation = stack.enter_context(Emulation(cluster(), MBPS / 100e3))
        trials = Trials(emulation, place, args.seed, args.derive)
        for host in trials.hosts:
            stack.callback(host.close)
        for number in range(args.times):
            trials.trial(afresh=number % 2 == 0)
            print(f"{number + 1} of {args.times}", file=sys.stderr, flush=True)
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"# {emulation.label}; load of {os.cpu_count()} cores at the end {load}")
        print(columns(["", "jobs that started again"], list(rows(trials, args.times))))
    return int(any(trials.counts[name] for name in ("wrong", "failed", "hung")))


if __name__ == "__main__":
    publish(main, "Measured")
