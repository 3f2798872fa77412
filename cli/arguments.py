"""Arguments that several verbs share, and the values of their texts."""

from __future__ import annotations

import argparse

from tuccl.cli.output import did_you_mean, warn
from tuccl.errors import InputError
from tuccl.program import Knobs
from tuccl.runtime import NCCL_VERSION
from tuccl.runtime.nccl.versions import nccl_caveats
from tuccl.runtime.table import PREFERENCES
from tuccl.synth import COLLECTIVES
from tuccl.topology import Topology, load_topology
from tuccl.units import parse_range, parse_size

__all__ = [
    "COLLECTIVES",
    "add_collective",
    "add_json",
    "add_knobs",
    "add_launch_mode",
    "add_nccl_version",
    "add_prefer",
    "add_root",
    "add_sizes",
    "collectives_of",
    "knobs_of",
    "one_collective_of",
    "size_of",
    "sizes_of",
    "topology_of",
    "warn_of_nccl",
]


_MOST_BYTES = 1 << 40
LAUNCH_MODES = ("process", "mpi", "graph")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")


def add_collective(
    parser: argparse.ArgumentParser, *, many: bool = False, required: bool = True
) -> None:
    """Add ``-c``: one collective, or a list by comma."""
    what = "collectives, by comma" if many else "collective"
    parser.add_argument(
        "-c",
        "--collective",
        required=required,
        metavar="COLL",
        help=f"{what}: {' '.join(COLLECTIVES)}",
    )


def add_root(parser: argparse.ArgumentParser) -> None:
    """Add ``--root``."""
    parser.add_argument("--root", type=int, default=0, metavar="R", help="root rank (default 0)")


def add_sizes(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add ``-s``: a size or a range."""
    parser.add_argument(
        "-s", "--size", required=required, metavar="RANGE", help="size or range: 64M, 1K:1G:x4"
    )


def add_knobs(parser: argparse.ArgumentParser) -> None:
    """Add the backend knobs."""
    parser.add_argument("--protocol", metavar="P", help="Simple, LL or LL128")
    parser.add_argument("--channels", type=int, metavar="N", help="instances of the program")
    parser.add_argument("--threads", type=int, metavar="N", help="threads per block, 32 to 640")
    parser.add_argument("--buffer", metavar="SIZE", help="buffer bytes of a connection")


def add_launch_mode(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--launch-mode``; ``what`` is launched."""
    parser.add_argument(
        "--launch-mode",
        choices=LAUNCH_MODES,
        default="mpi",
        help=f"how {what} launched: by one process for all GPUs of a host (process), by one "
        "process for each GPU (mpi, default), or in a CUDA graph (graph)",
    )


def add_nccl_version(parser: argparse.ArgumentParser, default: str = NCCL_VERSION) -> None:
    """Add ``--nccl-version``."""
    parser.add_argument(
        "--nccl-version",
        metavar="V",
        help=f"NCCL whose choice is the baseline: 2.4 to 2.32, newest (default {default})",
    )


def warn_of_nccl(version: str | None) -> None:
    """Warn of what the model leaves out of the NCCL that was named."""
    if version:
        warn(nccl_caveats(version))


def add_any_order(parser: argparse.ArgumentParser) -> None:
    """Add ``--any-order``."""
    parser.add_argument(
        "--any-order",
        action="store_true",
        help="also programs whose ranks add in different orders: results may differ between ranks "
        "in the last bit (docs/reference/methods.md)",
    )


def collectives_of(text: str) -> list[str]:
    """Return the collectives named in ``text``, in order, each once.

    Raises:
        InputError: one of them is unknown.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in COLLECTIVES:
            raise InputError(
                f"collective {name[:40]!r}: expected one of {', '.join(COLLECTIVES)}"
                f"{did_you_mean(name.lower(), COLLECTIVES)}"
            )
    return names


def add_prefer(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Add ``--prefer``; ``otherwise`` says what holds without it."""
    parser.add_argument(
        "--prefer",
        choices=PREFERENCES,
        help="speed: the fastest candidate; sms: the one that occupies fewest SMs, among those at "
        "most 20 %% slower than the fastest and never slower than the default, for jobs that "
        f"compute meanwhile ({otherwise})",
    )


def one_collective_of(text: str) -> str:
    """Return the one collective that ``text`` names.

    Raises:
        InputError: it is unknown, or there are several.
    """
    [name, *others] = collectives_of(text)
    if others:
        raise InputError("-c: one collective at a time")
    return name


def sizes_of(text: str) -> list[int]:
    """Return the sizes in bytes that ``text`` names."""
    return parse_range(text)


def size_of(text: str, ranks: int) -> int:
    """Return the bytes of one call on that many ranks.

    >>> size_of("64K", 8)
    65536

    Raises:
        InputError: the ranks cannot share so few, or no GPU holds so many.
    """
    nbytes = parse_size(text)
    if not ranks <= nbytes <= _MOST_BYTES:
        raise InputError(f"-s {text[:40]}: expected {ranks} bytes, one a rank, to 1T")
    return nbytes


def knobs_of(
    args: argparse.Namespace, protocol: str = "Simple", channels: int = 1, threads: int = 512
) -> Knobs:
    """Return the knobs of the arguments; those that they leave open have their defaults.

    Raises:
        InputError: the knobs cannot be used together; says why.
    """
    knobs = Knobs(
        args.protocol or protocol,
        args.channels if args.channels is not None else channels,
        args.threads if args.threads is not None else threads,
        parse_size(args.buffer) if args.buffer else None,
    )
    if args.threads is not None and args.threads % 32:  # more channels would round it up
        raise InputError(f"--threads {args.threads}: expected a multiple of 32, at least 32")
    if (why := knobs.illegal()) is not None:
        raise InputError(f"knobs: {why}")
    return knobs


def topology_of(path: str) -> Topology:
    """Return the topology in the file ``path``.

    Raises:
        InputError: the file is none; says what it is instead where that can be seen.
    """
    return load_topology(path)
