"""The MPIs of this machine, and the library that joins a worker to one of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputError, Unavailable
from tuccl.installation import built_folder

_FAMILIES = {"openmpi": ("Open MPI", "OpenRTE", "PRRTE"), "mpich": ("HYDRA", "MPICH")}
_HOW_TO = "apt-get install openmpi-bin libopenmpi-dev (or mpich libmpich-dev)"
_COMPILE_S = 120


@dataclass(frozen=True)
class Mpi:
    """One MPI: its family ("openmpi", "mpich"), version, launcher and C compiler.

    ``as_shipped`` leaves its transport as its makers set it, for comparisons with its own
    collectives as its users run them (`usual_launch`).
    """

    family: str
    version: str
    mpiexec: str
    mpicc: str
    as_shipped: bool = False


def find_mpis() -> tuple[Mpi, ...]:
    """Return the MPIs found next to this Python and on the PATH, one of a family."""
    by_family: dict[str, Mpi] = {}
    for mpiexec in _launchers():
        mpi = _mpi_at(mpiexec)
        if mpi is not None:
            by_family.setdefault(mpi.family, mpi)
    return tuple(by_family.values())


def find_mpi(name: str | None = None) -> Mpi:
    """Return the MPI that ``name`` names: a family, the path of an mpiexec, or None for any.

    Raises:
        Unavailable: there is none; says how to get one.
        InputError: ``name`` is no family, and no mpiexec with an mpicc next to it.
    """
    if name is None or name in _FAMILIES:
        for mpi in find_mpis():
            if name in (None, mpi.family):
                return mpi
        raise Unavailable(f"no {name or 'MPI'} (mpiexec and mpicc) found; {_HOW_TO}")
    path = shutil.which(name)
    named = None if path is None else _mpi_at(path)
    if named is None:
        families = ", ".join(_FAMILIES)
        raise InputError(
            f"MPI {name[:80]!r}: expected {families} or the path of an mpiexec with its mpicc"
        )
    return named


def worker_program() -> Path:
    """Return the program that every rank runs."""
    return _worker_folder() / "tuccl-worker"


def glue_library(mpi: Mpi) -> Path:
    """Return the library that joins a worker to ``mpi``; as `mpi_library`."""
    return mpi_library(mpi, _worker_folder(), "mpi_glue.c", "tuccl/mpi_glue.h")


def mpi_library(mpi: Mpi, folder: Path, source: str, *headers: str) -> Path:
    """Return a library over ``mpi``, compiled on first use from a C file in ``folder``.

    It is kept in the user's cache folder, by what it was made from.

    Raises:
        Unavailable: ``mpi``'s compiler cannot compile it.
    """
    texts = [(folder / name).read_text() for name in (source, *headers)]
    compiler = str(Path(mpi.mpicc).resolve())
    made_from = [*texts, mpi.version, mpi.mpicc, compiler]
    key = hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:16]
    library = _cache_folder() / f"{mpi.family}-{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        _compile(mpi, folder / source, library)
    return library


def _compile(mpi: Mpi, source: Path, library: Path) -> None:
    handle, name = tempfile.mkstemp(dir=library.parent, suffix=".so")
    os.close(handle)
    command = [mpi.mpicc, "-O2", "-shared", "-fPIC", "-I", str(source.parent), str(source)]
    try:
        finished = subprocess.run(
            [*command, "-o", name], capture_output=True, text=True, timeout=_COMPILE_S, check=False
        )
        if finished.returncode != 0:
            why = " ".join(finished.stderr.split())[:300]
            raise Unavailable(f"{mpi.mpicc} cannot compile {source}: {why}")
        Path(name).chmod(0o755)
        Path(name).replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{mpi.mpicc} cannot compile {source}: {error}") from None
    finally:
        Path(name).unlink(missing_ok=True)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root).absolute() / "tuccl" / "mpi"


def _worker_folder() -> Path:
    return built_folder("worker")


def _launchers() -> list[str]:
    """Return the paths to look at, Debian's names before the plain one."""
    of_python = str(Path(sys.executable).parent / "mpiexec")
    names = ["mpiexec.openmpi", "mpiexec.mpich", "mpiexec.hydra", of_python, "mpiexec"]
    return [path for name in names if (path := shutil.which(name)) is not None]


def _mpi_at(mpiexec: str) -> Mpi | None:
    """Return the MPI whose launcher is ``mpiexec``, None if it is none or has no compiler."""
    name = Path(mpiexec).name.replace("mpiexec", "mpicc").replace("mpirun", "mpicc")
    compilers = [str(Path(mpiexec).with_name(n)) for n in (name, "mpicc")]
    mpicc = next((c for c in compilers if os.access(c, os.X_OK)), None)
    if mpicc is None:
        return None
    try:
        version = subprocess.run(
            [mpiexec, "--version"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    for family, marks in _FAMILIES.items():
        if any(mark in version for mark in marks):
            return Mpi(family, _version_in(version), mpiexec, mpicc)
    return None


def _version_in(text: str) -> str:
    """Return the first word that looks like a version.

    >>> _version_in("mpiexec (OpenRTE) 4.1.4")
    '4.1.4'
    """
    words = text.split()
    return next((w for w in words if w[0].isdigit() and "." in w), "unknown version")
