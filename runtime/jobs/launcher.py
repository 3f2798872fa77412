"""Launchers of a job's ranks, and the options that hand variables on to them."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuccl.errors import InputError

Family = Literal["openmpi", "mpich", "srun"]
_MARKS: Mapping[Family, tuple[str, ...]] = {
    "openmpi": ("Open MPI", "OpenRTE", "PRRTE"),
    "mpich": ("HYDRA", "MPICH", "Intel(R) MPI"),
}
_MPI_NAMES = ("mpirun", "mpiexec", "prterun", "orterun")
_ANSWER_S = 20


@dataclass(frozen=True)
class JobLauncher:
    """A launcher with its options, and its family."""

    words: tuple[str, ...]
    family: Family

    def command(self, program: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """Return the arguments that start ``program`` with ``environment`` handed on to all ranks.

        >>> JobLauncher(("mpirun", "-np", "2"), "openmpi").command(["a.out"], {"A": "1"})
        ['mpirun', '-np', '2', '-x', 'A', 'a.out']
        >>> JobLauncher(("mpiexec", "-n", "2"), "mpich").command(["a.out"], {"A": "1"})
        ['mpiexec', '-n', '2', '-genv', 'A', '1', 'a.out']

        Notes:
            Open MPI takes the value from its own environment. MPICH's ``-genvlist`` would hand on
            nothing else than its list, so each variable is named by ``-genv``.
        """
        return [*self.words, *forwarded(self.family, environment, self.words), *program]


def forwarded(
    family: Family, environment: Mapping[str, str], words: Sequence[str] = ()
) -> list[str]:
    """Return the options by which a launcher of ``family`` hands ``environment`` on.

    Raises:
        InputError: ``words`` already say to hand on less.
    """
    if family == "openmpi":
        return [word for name in environment for word in ("-x", name)]
    if family == "mpich":
        return [word for name, value in environment.items() for word in ("-genv", name, value)]
    exports = [w.partition("=")[2] for w in words if w.startswith("--export=")]
    if exports and "ALL" not in exports[-1].split(","):
        raise InputError(f"srun --export={exports[-1][:80]}: expected ALL in it, or no --export")
    return [] if exports else ["--export=ALL"]


def forwarding(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], tuple[str, ...]]:
    """Return ``command`` such that its ranks get ``environment``, and what else is to do for that.

    Options go right behind the launcher's name, where all take them. What is no launcher that is
    known stays as it is.

    >>> forwarding(["torchrun", "--nnodes", "2", "a.py"], {"A": "1"})[1]
    ('torchrun starts the ranks of this host only: start it by `tuccl run` on every host',)
    """
    name = Path(command[0]).name
    if name in ("torchrun", "torchrun.exe"):
        hosts = f"{name} starts the ranks of this host only: start it by `tuccl run` on every host"
        return list(command), (hosts,)
    try:
        family = launcher_family(command[0])
        words = list(command[1:])
        options = [] if family is None else forwarded(family, environment, words)
    except InputError as error:
        return list(command), (f"the variables may not reach all ranks: {error}",)
    if family is not None:
        return [command[0], *options, *words], ()
    if name in ("sbatch", "salloc", "ssh", "pdsh", "mpirun", "mpiexec"):
        return list(command), (f"{name}: not known how it hands variables on; paste them there",)
    return list(command), ()


def ranks_in(command: Sequence[str]) -> int | None:
    """Return how many ranks an MPI launcher or srun is to start; None: it does not say.

    >>> ranks_in(["mpirun", "-np", "16", "sh"]), ranks_in(["srun", "--ntasks=8", "sh"])
    (16, 8)
    >>> ranks_in(["mpirun", "-n", "1", "sh", ":", "-n", "3", "sh"])
    >>> ranks_in(["mpirun", "sh", "-n", "9"])
    """
    if Path(command[0]).name.partition(".")[0] not in ("srun", *_MPI_NAMES) or ":" in command:
        return None
    own = itertools.takewhile(lambda word: shutil.which(word) is None, command[1:])
    found = re.search(r"(?:^| )(?:-np|--np|-n|--ntasks)[ =]?(\d{1,6})(?= |$)", " ".join(own))
    return int(found[1]) if found else None


def job_launcher(text: str | None, ranks: int) -> JobLauncher:
    """Return the launcher that ``text`` names, split as a shell would; None: mpirun -np RANKS.

    Raises:
        InputError: it is none that hands on variables in a known form.
    """
    try:
        words = shlex.split(text) if text is not None else ["mpirun", "-np", str(ranks)]
    except ValueError as error:
        raise InputError(f"--launcher {str(text)[:80]!r}: {error}") from None
    if not words:
        raise InputError("--launcher: expected a command, like 'mpirun -np 16 -H a,b'")
    family = launcher_family(words[0])
    if family is None:
        raise InputError(
            f"--launcher {words[0][:80]!r}: expected Open MPI's or MPICH's mpirun, or srun"
        )
    if text is None and family == "openmpi" and os.geteuid() == 0:
        words.append("--allow-run-as-root")
    return JobLauncher(tuple(words), family)


def launcher_family(program: str) -> Family | None:
    """Return what ``program`` is, by its name and what it answers to ``--version``; None: unknown.

    Raises:
        InputError: an MPI launcher or srun by its name that is not installed.
    """
    name = Path(program).name.partition(".")[0]
    if name not in ("srun", *_MPI_NAMES):
        return None
    path = shutil.which(program)
    if path is None:
        raise InputError(f"{program[:80]}: not found; install it or give its path (--launcher)")
    if name == "srun":
        return "srun"
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _family_in(answer)


def _family_in(version: str) -> Family | None:
    families: Iterable[Family] = (
        f for f, marks in _MARKS.items() if any(m in version for m in marks)
    )
    return next(iter(families), None)
