"""The user's nccl-tests as an executor: MSCCL programs, and NCCL's own choice, on real GPUs."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from tuccl.errors import InputError, Unavailable
from tuccl.program import Knobs, Program, default_buffer_bytes, element_bytes, max_threads, to_xml
from tuccl.runtime.executors.executor import MSCCL_LOOP, Executor, StepLoop, Timing
from tuccl.runtime.executors.knob_grid import KnobGrid
from tuccl.runtime.executors.measure import check_ranks
from tuccl.runtime.jobs.launch import channel_variables, msccl_variables
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.nccl_tests.logged_calls import LoggedCall, read_logged_calls
from tuccl.runtime.nccl_tests.output import TestsOutput, TestsRow
from tuccl.runtime.nccl_tests.run import NcclTests, run_tests, single_runs
from tuccl.runtime.table.entry import KnobValues
from tuccl.runtime.table.programs import placements
from tuccl.runtime.table.supported_knobs import BUFFER_VARIABLES, FIXED_THREADS, fork_threads

_CHANNELS = re.compile(r"(\d+) coll channels")
_BUFFERS = tuple(256 << 10 << i for i in range(6))  # each try starts a job: few that differ
_MSCCL_OFF = {
    "executor": {"NCCL_MSCCL_ENABLE": "0"},
    "rccl": {"RCCL_MSCCL_ENABLE": "0"},
    "fork": {},
}
# Logged for each call that a program serves; by the fork for each program that it has loaded.
_PROOF = {
    "executor": "MSCCL: Setup Kernel finished",
    "rccl": "MSCCL: Setup Kernel finished",
    "fork": "Parsed MSCCL Algorithm",
}


class NcclTestsExecutor(Executor):
    """Runs nccl-tests once for each time; a program is the only one that MSCCL can load then."""

    name = "nccl-tests"
    full_effort = 9  # a repeat may take seconds
    runs_nccl = True

    def __init__(
        self, tests: NcclTests, ranks: int, location: str, dialect: str = "executor"
    ) -> None:
        """Prepare to run on ``ranks`` GPUs of ``location`` (for the label)."""
        self._tests = tests
        self.ranks = ranks
        self._location = location
        self.dialect = dialect
        self._work: Path | None = None
        self.notes: list[str] = []
        self.channels: int | None = None  # of the communicator, as NCCL's log last said

    @property
    def label(self) -> str:
        """That it measures, with which binaries, and on what."""
        return (
            f"measured by nccl-tests ({self._tests.folder}) on {self.ranks} GPUs, {self._location}"
        )

    @property
    def shared(self) -> Path:
        """The folder that every host is to see."""
        return self._tests.shared

    @property
    def supported_knobs(self) -> KnobGrid:
        """MSCCL runs with a protocol's most threads only, and one buffer for the whole process."""
        fixed = FIXED_THREADS.get(self.dialect, FIXED_THREADS["executor"])
        return KnobGrid(threads=tuple(sorted({*fixed.values()})), buffers=_BUFFERS)

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        """Return the measured time of ``program``, or of what the runtime chooses by itself.

        ``repeats`` are cycles of one run; each sample is the mean of its iterations.

        Raises:
            InputError: the runtime would not run the program so, or the run failed.
            Stuck: the run took too long, and was ended.
            Unavailable: nccl-tests, its launch or its NCCL is not what it should be.
        """
        check_ranks(program, self.ranks)
        if loop.runtime_choice:
            [timing] = self.sweep(
                program.collective,
                [nbytes],
                root=root,
                cycles=repeats,
                windows=loop.windows,
                variables=loop.nccl.variables if loop.nccl else None,
            )
            return timing
        if loop != MSCCL_LOOP:
            raise InputError(f"program {program.name[:40]!r}: NCCL's own kernels run it, not MSCCL")
        self._check(program, knobs, nbytes)
        with tempfile.TemporaryDirectory(dir=self._folder(), prefix="programs-") as folder:
            variables = self._loaded(program, knobs, nbytes, Path(folder))
            out = self._run(program.collective, [nbytes], root, repeats, variables, with_msccl=True)
        if any(row.nbytes != nbytes for row in out.rows):
            raise InputError(
                f"nccl-tests ran {out.rows[0].nbytes} bytes, not {nbytes}; expected a size that "
                f"{self.ranks} ranks share in multiples of 16 bytes"
            )
        return self._timing(out, out.rows, program.out_of_place, program.in_place)

    def sweep(
        self,
        collective: str,
        sizes: Sequence[int],
        *,
        root: int = 0,
        cycles: int = 1,
        variables: Mapping[str, str] | None = None,
        windows: bool = False,
    ) -> list[Timing]:
        """Return a timing for each of ``sizes`` of what NCCL runs without MSCCL, in one run.

        ``variables`` steer NCCL (NCCL_ALGO ...). ``windows``: buffers are registered as symmetric
        windows, for which NCCL has kernels of its own. nccl-tests rounds sizes down to what ranks
        share.

        Raises:
            InputError: the run failed.
            Stuck: the run took too long, and was ended.
            Unavailable: nccl-tests or its launch is not what it should be.
        """
        timings: list[Timing] = []
        for part in single_runs(sizes):
            steered = {**_MSCCL_OFF[self.dialect], **(variables or {})}
            out = self._run(collective, part, root, cycles, steered, windows=windows)
            for at in range(len(part)):
                timings.append(self._timing(out, out.rows[at :: len(part)], True, True))
        return timings

    def obeys(self, collective: str, nbytes: int, knobs: NcclKnobs, root: int = 0) -> bool:
        """Return whether NCCL's log says that it runs ``knobs`` when they are set.

        Raises:
            InputError, Stuck, Unavailable: as `logged_calls`.
        """
        [calls] = self.logged_calls(collective, [nbytes], root=root, variables=knobs.variables)
        return bool(calls) and all(call.obeys(knobs) for call in calls)

    def logged_calls(
        self,
        collective: str,
        sizes: Sequence[int],
        *,
        root: int = 0,
        variables: Mapping[str, str] | None = None,
    ) -> list[tuple[LoggedCall, ...]]:
        """Return for each of ``sizes`` what NCCL's log says that it runs, steered by ``variables``.

        Nothing is timed: a line a call would be in the time of small ones. No calls: no log came
        back, or it does not say.

        Raises:
            InputError: the run failed.
            Stuck: the run took too long, and was ended.
            Unavailable: nccl-tests or its launch is not what it should be.
        """
        once = replace(self._tests, iterations=1, warmup=1)
        logged: list[tuple[LoggedCall, ...]] = []
        for part in single_runs(sizes):
            steered = {**_MSCCL_OFF[self.dialect], **(variables or {})}
            with self._run_folder() as work:
                out = run_tests(
                    once,
                    self.ranks,
                    collective,
                    part,
                    steered,
                    work,
                    root=root,
                    log="INIT,TUNING",
                )
                ran = [call for log in _logs(work) for call in read_logged_calls(log.splitlines())]
            for row in out.rows[: len(part)]:
                of_size = (r for r in ran if r.is_of(collective, row.nbytes, self.ranks))
                logged.append(tuple(of_size))
        return logged

    def close(self) -> None:
        """Take the work folder away, if there is one."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
        self._work = None

    def _check(self, program: Program, knobs: Knobs, nbytes: int) -> None:
        """Refuse what MSCCL would leave to NCCL without a word, and knobs that it does not have."""
        if program.collective in ("gather", "scatter"):
            raise InputError(f"{program.collective}: no unmodified runtime hands it to MSCCL")
        if self._tests.op not in ("sum", "prod", "min", "max"):
            raise InputError(f"op {self._tests.op[:20]}: MSCCL leaves it to NCCL")
        elements, rest = divmod(nbytes, element_bytes(self._tests.datatype))
        if rest or elements % program.nchunks:
            raise InputError(
                f"{nbytes} bytes: MSCCL runs a program of {program.nchunks} chunks only where they "
                "divide the elements"
            )
        values = KnobValues.of(knobs)
        if self.dialect == "fork" and fork_threads(values) is not None:
            return
        if knobs.threads != max_threads(knobs.protocol, self.dialect):
            raise InputError(
                f"{knobs.threads} threads: MSCCL ({self.dialect}) always runs {knobs.protocol} "
                f"with its most; use --threads {max_threads(knobs.protocol, self.dialect)}"
            )

    def _loaded(self, program: Program, knobs: Knobs, nbytes: int, folder: Path) -> dict[str, str]:
        """Write the program for exactly this size, and return what loads it."""
        fork = self.dialect == "fork"
        files: list[Path] = []
        for form in placements(program, self.dialect):
            exact = form.replace(
                name="tuccl",
                min_bytes=nbytes,
                max_bytes=nbytes + 1 if fork else nbytes,
                nthreads=(fork_threads(KnobValues.of(knobs)) or 0) if fork else 0,
            )
            files.append(folder / f"tuccl-{len(files):03d}.xml")
            files[-1].write_text(to_xml(exact, self.dialect))
            files[-1].chmod(0o644)
        folder.chmod(0o755)
        variables = msccl_variables(files, folder, self.dialect)
        variables |= channel_variables(program.nchannels, self.dialect)
        buffer_bytes = KnobValues.of(knobs).buffer_bytes
        if buffer_bytes != default_buffer_bytes(knobs.protocol, self.dialect):
            variables[BUFFER_VARIABLES[knobs.protocol]] = str(buffer_bytes)
        return variables

    def _folder(self) -> Path:
        if self._work is None:
            try:
                self._tests.shared.mkdir(parents=True, exist_ok=True)
                self._work = Path(tempfile.mkdtemp(dir=self._tests.shared, prefix="nccl-tests-"))
                self._work.chmod(0o755)
            except OSError as error:
                raise Unavailable(f"{self._tests.shared}: {error.strerror}; see --shared") from None
        return self._work

    def _run(
        self,
        collective: str,
        sizes: Sequence[int],
        root: int,
        cycles: int,
        variables: Mapping[str, str],
        *,
        with_msccl: bool = False,
        windows: bool = False,
    ) -> TestsOutput:
        with self._run_folder() as work:
            out = run_tests(
                self._tests,
                self.ranks,
                collective,
                sizes,
                variables,
                work,
                root=root,
                cycles=cycles,
                windows=windows,
            )
            logs = _logs(work)
            if with_msccl and self.dialect == "rccl" and logs:
                logs = self._proof_logs(collective, sizes, root, variables)
            counts = [int(n) for log in logs for n in _CHANNELS.findall(log)]
            self.channels = min(counts, default=None)
            if with_msccl:
                self._check_loaded(logs)
        return out

    def _proof_logs(
        self, collective: str, sizes: Sequence[int], root: int, variables: Mapping[str, str]
    ) -> list[str]:
        """Return logs of a short run with a line a call, which would add to small calls' times."""
        once = replace(self._tests, iterations=1, warmup=1)
        with self._run_folder() as work:
            run_tests(
                once, self.ranks, collective, sizes, variables, work, root=root, log="INIT,COLL"
            )
            return _logs(work)

    @contextmanager
    def _run_folder(self) -> Iterator[Path]:
        """An empty folder that every host sees, for the time of a run."""
        with tempfile.TemporaryDirectory(dir=self._folder(), prefix="run-") as folder:
            work = Path(folder)
            work.chmod(0o755)
            yield work

    def _check_loaded(self, logs: Sequence[str]) -> None:
        """Refuse a run in which no log proves the program: plain NCCL would have been timed."""
        if not logs:
            note = f"no NCCL log came back under {self._tests.shared}: not proven that MSCCL ran"
            if note not in self.notes:
                self.notes.append(note)
        elif not all(_knows_msccl(log) for log in logs):
            raise Unavailable(
                f"the NCCL of {self._tests.folder} says nothing of MSCCL ({self.dialect}): link "
                "nccl-tests with an MSCCL runtime (LD_LIBRARY_PATH), or see --dialect"
            )
        elif not all(_proves_use(log, self.dialect) for log in logs):
            raise InputError(
                f"MSCCL ({self.dialect}) is there, but did not run the program: no line of its log "
                f"says {_PROOF[self.dialect]!r}, or one that it failed to initialize"
            )

    def _timing(
        self, out: TestsOutput, rows: Sequence[TestsRow], out_of_place: bool, in_place: bool
    ) -> Timing:
        us = tuple(row.time_us for row in rows if row.time_us is not None) if out_of_place else ()
        us_ip = (
            tuple(row.time_us_ip for row in rows if row.time_us_ip is not None) if in_place else ()
        )
        if not us and not us_ip:
            raise InputError("nccl-tests printed no time for a placement that the program claims")
        counts = [row.wrong for row in rows if out_of_place] + [
            row.wrong_ip for row in rows if in_place
        ]
        checked = [count for count in counts if count is not None]
        wrong = sum(checked) if checked else None
        if out.out_of_bounds and not wrong:
            wrong = 1
        return Timing(
            median(us) if us else None,
            median(us_ip) if us_ip else None,
            us or us_ip,
            self.name,
            wrong,
            us_ip,
            self._tests.iterations * len(us or us_ip),
            f"nccl-tests counts {wrong} out of bounds" if wrong else "",
        )


def _logs(work: Path) -> list[str]:
    return [path.read_text(errors="replace") for path in sorted(work.glob("nccl.*"))]


def _proves_use(log: str, dialect: str) -> bool:
    return _PROOF[dialect] in log and "failed to initialize" not in log


def _knows_msccl(log: str) -> bool:
    lines = (line for line in log.splitlines() if "MSCCL" in line and "environment" not in line)
    return any("not available" not in line for line in lines)
