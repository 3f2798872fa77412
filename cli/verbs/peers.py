"""``--peers``: other libraries' collectives compared with programs, on the same ranks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tuccl.cli.arguments import sizes_of
from tuccl.cli.output import print_json, say
from tuccl.errors import InputError, Unavailable

if TYPE_CHECKING:
    from tuccl.eval.peers import Peer
    from tuccl.program import Knobs, Program
    from tuccl.runtime import Executor, MpiExecutor

__all__ = ["add_peers", "check_peers", "chosen_peers", "peers_beside", "print_beside_peers"]


def add_peers(parser: argparse.ArgumentParser) -> None:
    """Add ``--peers``."""
    parser.add_argument(
        "--peers",
        metavar="NAMES",
        help="with --on mpi: compare with the collectives of gloo, openmpi, mpich",
    )


def check_peers(args: argparse.Namespace) -> None:
    """Raise InputError if the peers of ``args`` cannot be compared with what it times."""
    if args.on != "mpi" or args.baseline:
        raise InputError(
            "--peers: run on the same real ranks as a program; use --on mpi, no baseline"
        )
    names_of(args.peers)


def print_beside_peers(
    args: argparse.Namespace, executor: Executor, program: Program, knobs: Knobs, stack: ExitStack
) -> None:
    """Time ``program`` in turns with the peers that ``args`` names, and print.

    Raises:
        Unavailable: there is none of these peers.
    """
    from tuccl.eval import NamedProgram, peer_report, peer_text
    from tuccl.eval.peers.report import real_ranks
    from tuccl.runtime import Operands

    peers = chosen_peers(args, executor, stack)
    named = NamedProgram(program.name[:40], program, knobs)
    sizes = sorted(sizes_of(args.size))
    operands = Operands(args.datatype, args.op, check=True)
    report = peer_report(
        real_ranks(executor),
        peers,
        lambda nbytes: [named],
        program.collective,
        sizes,
        root=args.root,
        operands=operands,
    )
    if args.json:
        print_json(report)
    else:
        print(peer_text(report))


def chosen_peers(args: argparse.Namespace, executor: Executor, stack: ExitStack) -> Sequence[Peer]:
    """Return the peers that ``args`` names on the ranks of ``executor``; reports which are missing.

    Raises:
        InputError: one is not known, or the executor has no real ranks.
        Unavailable: there is none of them.
    """
    from tuccl.eval.peers.report import real_ranks

    if not args.peers:
        return ()
    peers, missing = peers_beside(real_ranks(executor), names_of(args.peers), stack)
    for why in missing:
        say(why)
    return peers


def names_of(text: str) -> tuple[str, ...]:
    """Return the peers that ``text`` lists.

    Raises:
        InputError: one is not known.
    """
    from tuccl.eval.peers import PEERS

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in PEERS]:
        raise InputError(f"--peers {unknown[0][:30]!r}: expected some of {','.join(PEERS)}")
    return names


def peers_beside(
    executor: MpiExecutor, names: tuple[str, ...], stack: ExitStack
) -> tuple[list[Peer], list[str]]:
    """Return the peers on the ranks of ``executor``, and why others are missing.

    ``stack`` ends their processes.

    Raises:
        Unavailable: there is none.
    """
    found: list[Peer] = []
    missing = []
    for name in names:
        try:
            found.append(_peer(executor, name, stack))
        except Unavailable as error:
            missing.append(f"{name} left out: {error}")
    if not found:
        raise Unavailable("; ".join(missing))
    return found, missing


def _peer(executor: MpiExecutor, name: str, stack: ExitStack) -> Peer:
    from tuccl.eval.peers import GlooRanks, mpi_peer
    from tuccl.runtime import find_mpi

    if name == "gloo":
        ranks = GlooRanks(executor.ranks, executor.mpi, executor.launch)
        return stack.enter_context(ranks).peer
    if name == executor.mpi.family:
        return mpi_peer(executor)
    return mpi_peer(stack.enter_context(executor.with_mpi(find_mpi(name))))
