"""A cluster that verbs emulate: its arguments, the line that names it, and its end by signals."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from tuccl.cli.output import say
from tuccl.units import parse_size

if TYPE_CHECKING:
    from tuccl.emulation import Emulation


def add_scale(parser: argparse.ArgumentParser) -> None:
    """Add ``--scale``."""
    parser.add_argument(
        "--scale",
        type=float,
        metavar="F",
        help="ratio of emulated to nominal link rates (default: the fastest NIC at 1 Gb/s)",
    )


def add_queue(parser: argparse.ArgumentParser, where: str = "") -> None:
    """Add ``--queue``, which holds ``where``."""
    parser.add_argument(
        "--queue",
        metavar="SIZE",
        help=f"{where}lose what is beyond so many bytes at a port, TCP being Cubic (default: lose "
        "nothing)",
    )


def queue_of(args: argparse.Namespace) -> int:
    """Return the bytes of ``--queue``, 0 without."""
    return parse_size(args.queue) if args.queue else 0


def introduce(emulation: Emulation) -> None:
    """Print the emulations that were cleared and the one that was built."""
    for name in emulation.cleared:
        say(f"cleared the remains of emulation {name}")
    say(f"emulation {emulation.id}: {emulation.label}")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let termination and a lost terminal unwind like an interrupt: all is taken down."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
