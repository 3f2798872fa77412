"""``tuccl emulate``: runs a command on a cluster of network namespaces."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuccl.cli.arguments import add_json, topology_of
from tuccl.cli.emulation import add_queue, add_scale, ended_by_signals, introduce, queue_of
from tuccl.cli.output import columns, print_json, say
from tuccl.errors import InputError, TucclError
from tuccl.topology import load_cross_traffic

if TYPE_CHECKING:
    from tuccl.emulation import Emulation
    from tuccl.training.compression.exchanges import Link

EXAMPLE = "tuccl emulate --scale 0.01 t.json -- mpirun -np 4 ./program"
_LONGEST_EPOCH_S = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_scale(parser)
    parser.add_argument(
        "--latency",
        type=float,
        default=0.0,
        metavar="F",
        help="delay each message of a program by F times its route's latency: those of tuccl.torch "
        "only, not Gloo's or MPI's (default: none)",
    )
    parser.add_argument(
        "--schedule",
        metavar="NAME",
        help="change all NICs' rates over epochs while it runs, as C1 or C2 of "
        "docs/howto/sparse-gradients.md; with --latency, new groups get the new latencies",
    )
    parser.add_argument(
        "--epoch",
        type=float,
        default=1.0,
        metavar="S",
        help="seconds of an epoch of --schedule (default 1)",
    )
    parser.add_argument(
        "--set-rate",
        nargs=3,
        metavar=("SRC", "DST", "MBPS"),
        help="change one direction of a link of a running emulation, in Mb/s, and run nothing",
    )
    parser.add_argument(
        "--emulation", metavar="ID", help="with --set-rate: the emulation that is changed"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list the running emulations, link by link, and run nothing",
    )
    parser.add_argument(
        "--cross",
        metavar="FILE",
        help="play the traffic of others on the links meanwhile (tuccl-cross/1)",
    )
    add_queue(parser)
    add_json(parser)
    parser.add_argument("topology", nargs="?", metavar="T", help="topology file")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- CMD",
        help="command that the first host runs",
    )


def run(args: argparse.Namespace) -> int:
    """Build the cluster, run the command, take the cluster down; the command's exit code."""
    from tuccl.emulation import Emulation, set_rate
    from tuccl.emulation.cross_traffic import played
    from tuccl.runtime import run_command

    if args.list:
        return print_running(as_json=args.json)
    if args.set_rate:
        src, dst, rate = args.set_rate
        found = set_rate(src, dst, bits_of(rate), args.emulation)
        say(f"emulation {found}: {src} to {dst} at {rate} Mb/s")
        return 0
    command = command_of(args)
    emulation = Emulation(
        topology_of(args.topology),
        args.scale,
        args.latency,
        cross=load_cross_traffic(args.cross) if args.cross else None,
        queue_bytes=queue_of(args),
    )
    with ended_by_signals(), emulation:
        introduce(emulation)
        carried = played(emulation, lambda load: say(load.text))
        with following(emulation, args.schedule, args.epoch), carried:
            return run_command([*emulation.prefix(), *command], emulation.environment)


@contextmanager
def following(emulation: Emulation, name: str | None, epoch_s: float) -> Iterator[None]:
    """Shape the cluster by a schedule meanwhile, by a thread, if one is named.

    Raises:
        InputError: there is no such schedule, or it has rates that this cluster cannot have.
    """
    from tuccl.training.compression.monitors import network_schedule

    if name is None:
        yield
        return
    if not 0 < epoch_s < _LONGEST_EPOCH_S:
        raise InputError(f"--epoch {epoch_s:g}: expected more than 0 s, and less than a day")
    schedule = network_schedule(name)
    for _, link in schedule:
        emulation.check_rate(link.gbs)
    begin, ended = time.monotonic(), threading.Event()

    def shape(epoch: int, link: Link) -> None:
        emulation.set_network(link.gbs, link.alpha_us)
        say(f"{name}, epoch {epoch}: {link.alpha_us / 1e3:g} ms, {8 * link.gbs:g} Gb/s (nominal)")

    def follow_on() -> None:
        for epoch, link in schedule[1:]:
            if ended.wait(max(begin + epoch * epoch_s - time.monotonic(), 0.0)):
                return
            try:
                shape(epoch, link)
            except TucclError as error:
                say(f"{name} ends at epoch {epoch}: {error}")
                return

    shape(*schedule[0])
    thread = threading.Thread(target=follow_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def command_of(args: argparse.Namespace) -> list[str]:
    """Return the command after ``--``.

    Raises:
        InputError: there is no topology or no command, or an option stands behind the topology.
    """
    if args.topology is None:
        raise InputError("expected a topology and a command: emulate [OPTIONS] T -- CMD")
    words: list[str] = args.command
    if words[:1] == ["--"]:
        words = words[1:]
    elif words[:1] and words[0].startswith("-"):
        raise InputError(f"{words[0][:40]}: options stand before the topology: emulate [OPTIONS] T")
    if not words:
        raise InputError("no command to run; expected -- CMD after the topology")
    return words


def bits_of(mbps: str) -> float:
    """Return a rate in bit/s given in Mb/s.

    Raises:
        InputError: it is no number.
    """
    try:
        return float(mbps) * 1e6
    except ValueError:
        raise InputError(f"rate {mbps[:40]!r}: expected a number of Mb/s") from None


def print_running(*, as_json: bool) -> int:
    """Print the running emulations and the rates of their links."""
    from tuccl.emulation import running_emulations

    running = running_emulations()
    if as_json:
        print_json({"emulations": running})
        return 0
    for found in running:
        print(f"# {found.id}: {found.cluster.name}, scale {found.cluster.scale:.3g}")
        rows = [[p.src, p.dst, p.rate_bps / 1e6, p.nominal_bps / 1e6] for p in found.cluster.ports]
        print(columns(["from", "to", "Mb/s", "nominal"], rows))
    return 0
