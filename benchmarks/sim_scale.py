"""Prints how long a hierarchical allreduce over 1,024 GPUs takes to simulate, and the memory.

    .venv/bin/python benchmarks/sim_scale.py [--hosts 128] [--fabric rail|clos]

The machine is DGX A100s on a fabric. The program scatters sums within each host, halves and
doubles across hosts between GPUs of one rail, and gathers within the host; the same program on 4
hosts is verified first. Asked for: network and simulation together within 10 s and 2 GiB. The
time is the processor's, of one core; the memory is the most that the whole process ever held.
"""

from __future__ import annotations

import argparse
import resource
import time

from report import publish

from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock, verify
from tuccl.simulation import simulate
from tuccl.topology import cluster_network, load_machine, load_profile, used_pairs
from tuccl.units import format_bytes

MOST_CHUNKS = 64  # in a step


class Rank:
    """The thread blocks of one GPU while they are written."""

    def __init__(self, hosts: int, gpus: int, rank: int) -> None:
        """Begin with none."""
        self.hosts, self.gpus = hosts, gpus
        self.host, self.gpu = divmod(rank, gpus)
        self.blocks: list[tuple[int, int, list[Step]]] = []

    def block(self, send: int, recv: int) -> int:
        """Return the number of a new thread block between two peers."""
        self.blocks.append((send, recv, []))
        return len(self.blocks) - 1

    def step(self, block: int, op: str, at: int, count: int, after: tuple[int, int]) -> None:
        """Add a step that waits for ``after`` (thread block, step; or -1, -1)."""
        step = Step(op, "i", at, "i", at, count, *after, has_dep=True)
        self.blocks[block][2].append(step)

    def wait(self, block: int, after: tuple[int, int]) -> None:
        """Let the next step wait for ``after`` too."""
        self.blocks[block][2].append(Step("nop", "i", -1, "i", -1, 0, *after, has_dep=False))

    def last(self, block: int) -> tuple[int, int]:
        """Return the thread block and its newest step."""
        return block, len(self.blocks[block][2]) - 1

    def parts(self, gpu: int) -> list[tuple[int, int]]:
        """Return offset and count of the steps that carry one GPU's block."""
        first = gpu * self.hosts
        ends = range(first, first + self.hosts, MOST_CHUNKS)
        return [(at, min(MOST_CHUNKS, first + self.hosts - at)) for at in ends]


def within(r: Rank) -> list[tuple[int, int, int]]:
    """Scatter sums in the host; return distance, sending and receiving block of each peer."""
    peers = []
    for d in range(1, r.gpus):
        to, source = (r.gpu + d) % r.gpus, (r.gpu - d) % r.gpus
        send = r.block(r.host * r.gpus + to, -1)
        receive = r.block(-1, r.host * r.gpus + source)
        for at, count in r.parts(to):
            r.step(send, "s", at, count, (-1, -1))
        for number, (at, count) in enumerate(r.parts(r.gpu)):
            r.step(receive, "rrc", at, count, (peers[-1][2], number) if peers else (-1, -1))
        peers.append((d, send, receive))
    return peers


def across(r: Rank, ready: tuple[int, int]) -> tuple[int, int]:
    """Halve and double over the hosts once ``ready``; return the step that ends it."""
    levels = []
    low, size = r.gpu * r.hosts, r.hosts
    while size > 1:
        size //= 2
        upper = bool(r.host & size)
        peer = (r.host ^ size) * r.gpus + r.gpu
        send, receive = r.block(peer, -1), r.block(-1, peer)
        r.step(send, "s", low + (0 if upper else size), size, ready)
        low += size if upper else 0
        r.step(receive, "rrc", low, size, ready)
        ready = r.last(receive)
        levels.append((send, receive, low, size, upper))
    for send, receive, mine, count, upper in reversed(levels):
        r.step(send, "s", mine, count, ready)
        if ready[0] != receive:
            r.wait(receive, ready)
        r.step(receive, "r", mine + (-count if upper else count), count, (send, 0))
        ready = r.last(receive)
    return ready


def allreduce(hosts: int, gpus: int) -> Program:
    """Return the program; ``hosts`` is a power of two, 2 to 128."""
    members = []
    for rank in range(hosts * gpus):
        r = Rank(hosts, gpus, rank)
        peers = within(r)
        parts = len(r.parts(0))
        ready = across(r, r.last(peers[-1][2]))
        for d, send, receive in peers:
            for at, count in r.parts(r.gpu):
                r.step(send, "s", at, count, ready)
            sent = next(s for e, s, _ in peers if e == r.gpus - d)
            for at, count in r.parts((r.gpu - d) % r.gpus):
                r.step(receive, "r", at, count, (sent, parts - 1))
        blocks = [ThreadBlock(i, s, p, 0, steps) for i, (s, p, steps) in enumerate(r.blocks)]
        members.append(Gpu(rank, hosts * gpus, 0, 0, blocks))
    return Program(
        "halving",
        "allreduce",
        "Simple",
        1,
        hosts * gpus,
        members,
        in_place=True,
        out_of_place=False,
    )


def main() -> None:
    """Print one line a size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=128)
    parser.add_argument("--fabric", choices=("rail", "clos"), default="rail")
    args = parser.parse_args()
    print("4 hosts verified:", verify(allreduce(4, 8)).ok)
    clock = time.thread_time
    begun = clock()
    program = allreduce(args.hosts, 8)
    made = clock()
    node, machine = load_profile("dgx-a100"), load_machine("a100")
    network = cluster_network(node, args.hosts, used_pairs(program), args.fabric)
    wired = clock()
    print(
        f"program {made - begun:.2f} s, network {wired - made:.2f} s ({len(network.routes)} routes)"
    )
    for nbytes in (1 << 20, 1 << 26, 1 << 30, 1 << 32):
        begun = clock()
        result = simulate(program, Knobs("Simple", 1, 512), network, machine, nbytes)
        took = clock() - begun
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{format_bytes(nbytes):>5}: simulated {result.time_us / 1e3:9.2f} ms, "
            f"{result.events / 1e6:6.2f} M events, {result.events / took / 1e6:5.2f} M/s, "
            f"simulate {took:6.2f} s, with the network {took + wired - made:6.2f} s, "
            f"{most:.2f} GiB"
        )


if __name__ == "__main__":
    publish(main, "Times of calls are simulated, seconds measured")
