"""Starting a program with the table loaded into MSCCL."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from tuccl.errors import InputError
from tuccl.program import DIALECTS, default_buffer_bytes
from tuccl.runtime.executors.cuda import nccl_library
from tuccl.runtime.export.files import Export, export
from tuccl.runtime.jobs.plugins import plugin_environment, plugin_path, tuner_variables
from tuccl.runtime.table.store import Table, load_table
from tuccl.runtime.table.supported_knobs import BUFFER_VARIABLES

# No library has this name: the runtime falls back to its built-in scheduler, which alone
# connects the programs at initialisation (docs/reference/msccl.md).
_NO_SCHEDULER = "none"


def run_environment(
    table: Table | str | os.PathLike[str],
    dialect: str | None = None,
    cache: Path | None = None,
    *,
    scheduler: bool = False,
    prefer: str | None = None,
    cuda: bool = False,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that load ``table`` into an unmodified runtime, and notes on them.

    Without a ``dialect`` it is the table's own. A table of NCCL's own choices is loaded by the
    tuner and profiler plugins, a table of programs by MSCCL.

    The programs are exported to ``cache`` (None: the user's cache folder), in a folder named
    by the table's checksum. Every host of the job must see it under the same path. With
    ``scheduler`` tuccl's MSCCL scheduler loads the table's own programs instead. ``prefer``: speed
    or sms, instead of the table's own order, which plugins always follow. With ``cuda`` tuccl's
    library in NCCL's place runs the table's own programs.

    Raises:
        InputError: the table, dialect or preference is bad, or a plugin reads the table.
        Unavailable: ``cuda``, and that library was not built here.
    """
    loaded = table if isinstance(table, Table) else load_table(table)
    table, tuned_for = loaded.folder, loaded.lookup.dialect
    if cuda:
        if tuned_for in ("nccl", "mscclpp") or dialect or scheduler or prefer:
            raise InputError(
                f"{table}: tuccl's interpreter runs a table's own programs in its own order: "
                "expected a table of programs, without --dialect, --scheduler or --prefer"
            )
        values, notes = interpreter_variables(table)
        return {**values, "TUCCL_SIGNATURE": loaded.lookup.signature}, notes
    dialect = dialect or tuned_for
    if (why := _refusal(table, tuned_for, dialect, scheduler, prefer)) is not None:
        raise InputError(f"{table}: {why}")
    if dialect == "nccl":
        return plugin_environment(table), _plugin_notes(table)
    return _msccl_environment(loaded, table, dialect, cache, scheduler=scheduler, prefer=prefer)


def _refusal(
    table: Path, tuned_for: str, dialect: str, scheduler: bool, prefer: str | None
) -> str | None:
    """Return why a runtime of ``dialect`` cannot load a table tuned for another, None if it can."""
    if tuned_for == "mscclpp":
        return (
            f"for MSCCL++; `tuccl export {table} --dialect mscclpp -o plans`, and start "
            "with the plans (docs/howto/mscclpp.md)"
        )
    if dialect not in (*DIALECTS, "nccl"):
        return f"dialect {dialect[:20]!r}: expected one of {', '.join(DIALECTS)}, nccl"
    if scheduler and (dialect, tuned_for) != ("executor", "executor"):
        return "tuccl's MSCCL scheduler serves executor tables and runtimes only"
    if (dialect == "nccl") != (tuned_for == "nccl"):
        return f"a {tuned_for} table; expected --dialect {tuned_for}, or none"
    if prefer is not None and (scheduler or dialect == "nccl"):
        return f"plugins follow the table's own order; tune again with --prefer {prefer[:10]}"
    return None


def _msccl_environment(
    loaded: Table,
    table: Path,
    dialect: str,
    cache: Path | None,
    *,
    scheduler: bool,
    prefer: str | None,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables by which MSCCL loads a table's programs, or our scheduler does, and notes."""
    lookup = loaded.lookup
    name = "-".join([lookup.checksum[:16], dialect, *([prefer] if prefer else [])])
    folder = (cache or cache_folder() / "exports") / name
    if dialect == "fork" and ":" in str(folder):
        raise InputError(f"{folder}: fork separates its files by ':'; set XDG_CACHE_HOME elsewhere")
    exported = export(loaded, dialect, folder, prefer=prefer)
    channels = [exported.channels, *(c.nccl.channels for c in lookup.candidates if c.nccl)]
    if scheduler:
        channels = [p.nchannels for p in loaded.programs.values()]
    values = {
        **msccl_variables(exported.files, folder, dialect),
        **_buffer_variables(exported, dialect),
        **channel_variables(max(channels, default=0), dialect),
        "TUCCL_TABLE": str(table.resolve()),
        "TUCCL_SIGNATURE": exported.signature,
    }
    if dialect != "fork":  # whose NCCL has no tuner
        values |= tuner_variables(lookup)
    if scheduler:
        del values["MSCCL_ALGO_DIR"]
        return values | plugin_environment(table), scheduler_notes(table)
    notes = [*exported.notes, f"every host of the job must see {folder}"]
    if not exported.files:
        nothing = f"nothing to load: the table gives {dialect} no program"
        notes = [*exported.notes, f"{nothing} ({folder} is empty)"]
    if dialect != "fork":
        notes.append("MSCCL runs with one process per GPU only, and one GPU per process")
    return values, tuple(notes)


def interpreter_variables(table: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that put tuccl's library in NCCL's place, and notes on them.

    Args:
        table: The folder of a table or of a job's tables.

    Raises:
        Unavailable: that library was not built here.
    """
    library, others = nccl_library(), os.environ.get("LD_PRELOAD", "")
    values = {
        "LD_PRELOAD": f"{library}:{others}" if others else str(library),
        "TUCCL_TABLE": str(table.resolve()),
    }
    notes = (
        f"every host of the job must see {table.resolve()} and {library}",
        "what the table does not cover goes to NCCL's own library (docs/howto/gpus-in-c.md)",
    )
    return values, notes


def _plugin_notes(table: Path) -> tuple[str, ...]:
    return (
        f"every host of the job must see {table.resolve()} and {plugin_path('tuner').parent}",
        "the tuner needs NCCL 2.21 or later (RCCL too), the profiler 2.27",
        *window_notes(os.environ),
    )


def window_notes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return which calls pass by a tuner for the buffers they have, under ``environment``.

    >>> window_notes({"NCCL_WIN_ENABLE": "0"})
    ()

    Notes:
        NVIDIA/nccl src/register (NCCL_WIN_ENABLE, 2.27 on), src/tuning and src/scheduler
        (NCCL_SYM_NOWIN_ENABLE, 2.29 on).
    """
    notes = []
    if environment.get("NCCL_WIN_ENABLE") != "0":
        notes.append(
            "from NCCL 2.27 on calls on symmetric windows (ncclCommWindowRegister) bypass the "
            "tuner; NCCL_WIN_ENABLE=0 gives them back to it"
        )
    if environment.get("NCCL_SYM_NOWIN_ENABLE", "0") != "0":
        notes.append(
            "NCCL_SYM_NOWIN_ENABLE is set: calls without windows may bypass the tuner too; unset it"
        )
    return tuple(notes)


def scheduler_notes(table: Path) -> tuple[str, ...]:
    """Return what tuccl's MSCCL scheduler needs, to load the table or the job's tables."""
    return (
        f"every host of the job must see {table.resolve()} and {plugin_path('scheduler').parent}",
        "the scheduler serves the executor's releases for NCCL 2.17 to 2.19",
        "MSCCL runs with one process per GPU only, and one GPU per process",
    )


def cache_folder() -> Path:
    """Return the user's cache folder of tuccl."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root).absolute() / "tuccl"


def msccl_variables(files: Sequence[Path], folder: Path, dialect: str) -> dict[str, str]:
    """Return the variables that load ``files``, all that ``folder`` holds, into ``dialect``.

    >>> msccl_variables([Path("/f/a.xml")], Path("/f"), "fork")["MSCCL_XML_FILES"]
    '/f/a.xml'
    """
    if dialect == "fork":
        paths = ":".join(str(file) for file in files)
        return {"MSCCL_XML_FILES": paths, "NCCL_ALGO": "MSCCL,RING,TREE"} if paths else {}
    shared = {"MSCCL_ALGO_DIR": str(folder), "MSCCL_SCHEDULER": _NO_SCHEDULER}
    if dialect == "rccl":  # without FORCE only two built-in machine models use MSCCL
        return {"RCCL_MSCCL_ENABLE": "1", "RCCL_MSCCL_FORCE_ENABLE": "1", **shared}
    return {"NCCL_MSCCL_ENABLE": "1", **shared}


def channel_variables(channels: int, dialect: str) -> dict[str, str]:
    """Return what gives a communicator of ``dialect`` at least as many channels as programs have.

    The executor's releases 2.17 and 2.18 fail a call whose program has more than its communicator.
    A larger number that the user has set stands.
    """
    if dialect != "executor" or channels < 1:
        return {}
    setting = os.environ.get("NCCL_MIN_NCHANNELS", "")
    return {"NCCL_MIN_NCHANNELS": str(max(channels, int(setting) if setting.isdecimal() else 0))}


def _buffer_variables(exported: Export, dialect: str) -> dict[str, str]:
    return {
        BUFFER_VARIABLES[protocol]: str(nbytes)
        for protocol, nbytes in exported.buffers.items()
        if nbytes != default_buffer_bytes(protocol, dialect)
    }


def shell_block(environment: Mapping[str, str]) -> str:
    """Return the variables as lines to paste into a shell, with hints for launchers.

    >>> print(shell_block({"A": "1 2"}))
    export A='1 2'
    # Open MPI: mpirun -x A ...
    # MPICH: mpiexec -genv A "$A" ...
    # Slurm: srun --export=ALL ... (its default)
    # torchrun: paste this on every host
    """
    names = list(environment)
    by_plugin = "TUCCL_TABLE_SHA256" in environment
    more = ", with TUCCL_BOOTSTRAP and TUCCL_TOKEN (docs/howto/torchrun.md)" if by_plugin else ""
    genv = " ".join(f'-genv {name} "${name}"' for name in names)
    return "\n".join(
        [
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            f"# Open MPI: mpirun {' '.join(f'-x {name}' for name in names)} ...",
            f"# MPICH: mpiexec {genv} ...",
            "# Slurm: srun --export=ALL ... (its default)",
            f"# torchrun: paste this on every host{more}",
        ]
    )


def run_command(
    command: Sequence[str], environment: Mapping[str, str], without: Sequence[str] = ()
) -> int:
    """Run ``command`` without a shell, with ``environment`` added to ours; return its exit code.

    What is named in ``without`` is not handed on.

    A command that a signal ended returns 128 plus the signal's number, as in a shell.
    Termination is passed on to it, an interrupt is left to it.

    Raises:
        InputError: there is no such command, or it cannot be started.
    """
    if not command:
        raise InputError("nothing to start: expected a command")
    try:
        inherited = {name: value for name, value in os.environ.items() if name not in without}
        process = subprocess.Popen(list(command), env={**inherited, **environment})
    except (OSError, ValueError) as error:
        raise InputError(f"{command[0][:80]!r} cannot be started: {error}") from None
    code = _wait(process)
    return code if code >= 0 else 128 - code


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the child; a terminal interrupts it by itself, so that is not passed on twice."""

    def forward(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminate = signal.signal(signal.SIGTERM, forward)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, terminate)
