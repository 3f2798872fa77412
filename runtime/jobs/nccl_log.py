"""Reading a job's log: the plugins that each process loaded, and whether they chose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TextIO

from tuccl.errors import InputError

Plugin = Literal["tuner", "profiler", "scheduler"]
PLUGINS: tuple[Plugin, ...] = ("tuner", "profiler", "scheduler")
_NAME = "tuccl"
# :PID:THREAD [DEVICE] NCCL INFO ..., of a warning with its place in the source before NCCL; the
# host stands before it. Every repeat is bounded: a line takes time linear in its length.
_LINE = re.compile(
    r":(\d{1,10}):(\d{1,10}) \[(-?\d{1,5})\] "
    r"(?:\S{1,200}:\d{1,6} (?:\([^()]{0,200}\) )?)?NCCL (?:INFO|WARN|TRACE) ?"
)
_AFTER_HOST = re.compile(r"[\s:<>\]]")
_LONGEST_LINE, _LONGEST_HOST = 8192, 255
_MOST_PROCESSES = 1 << 17
# Escape sequences of terminals, other control characters but tabs, and those that turn text round.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_WORTH_READING = (
    "tuccl: ", "/Plugin: ", "COMPLETE", "MSCCL", "scheduler found", "multiple GPUs",
    "[Symmetric]", "no transport",
)  # fmt: skip
_COMPLETE = re.compile(r"comm (0x[0-9a-f]+) rank (\d+) nranks (\d+).*Init COMPLETE")
_COMM_ID = re.compile(r"commId (0x[0-9a-f]+)")
_LOADED: dict[Plugin, re.Pattern[str]] = {
    "tuner": re.compile(r"TUNER/Plugin: Using (?:tuner plugin )?(\S+)(?: \((v\d+)\))?"),
    "profiler": re.compile(r"PROFILER/Plugin: [Ll]oaded (\S+)(?: \((v\d+)\))?"),
}
_MISSING = re.compile(r"(TUNER|PROFILER)/Plugin: (?:Could not find|[Ff]ailed to find)[:]? ?(.*)")
_SAID = re.compile(r"tuccl: (.*)")
_TABLE = re.compile(r"(tuner|profiler|scheduler): table (.*?),.* (\d+) ranks$")
_CHOICE = re.compile(r"tuner: (\S+) of (\d+) bytes: (\S+) \(entry \d+\)")
_TIMED = re.compile(r"profiler: candidate \d+ (\S+): (\d+) calls")
_OWN = "NCCL's own choices are used"
_TORCH = re.compile(r"torch: (\d+) ranks: (\w+ \d+(?:, \w+ \d+)*)")
_MSCCL = {
    "MSCCL: Initialization finished": "initialised",
    "No external scheduler found": "no external scheduler: its built-in one loads MSCCL_ALGO_DIR",
    "No scheduler found": "no external scheduler: its built-in one loads MSCCL_ALGO_DIR",
    "multiple GPUs in one process": "off: a process has several GPUs; start one process a GPU",
}
_MSCCL_CALL = "MSCCL: Setup Kernel finished"
_MSCCL_FOLDER = re.compile(r"Using MSCCL Algo files from (.+)")
_FORK_LOADED = re.compile(r"Parsed MSCCL Algorithm (\S+) successfully")
_FORK_FAILED = re.compile(r"MSCCL: algorithm (\S+) failed to initialize")
_SYMMETRIC = "[Symmetric]: "  # src/scheduler/symmetric_sched.cc of NCCL 2.28, logged with TUNING
_NO_TRANSPORT = re.compile(r"has no transport for (?:send|recv)")


class LogLine(NamedTuple):
    """One line of NCCL's: whose it is, and its words after "NCCL INFO"."""

    host: str
    pid: int
    device: int
    text: str


def log_lines(lines: Iterable[str]) -> Iterator[LogLine | str]:
    """Yield NCCL's lines of a log, taken apart, and the others, without escape codes.

    >>> next(log_lines(["h:7:9 [0] NCCL INFO Connected all rings"]))
    LogLine(host='h', pid=7, device=0, text='Connected all rings')
    """
    for line in lines:
        text = line.rstrip("\n")[:_LONGEST_LINE]
        if not text.isprintable():
            text = _CONTROL.sub("", text)
        yield _own_line(text) or text


def _own_line(text: str) -> LogLine | None:
    if "NCCL " not in text or (m := _LINE.search(text)) is None:
        return None
    before = text[max(m.start() - _LONGEST_HOST, 0) : m.start()]
    host = _AFTER_HOST.split(before)[-1]
    return LogLine(host, int(m[1]), int(m[3]), text[m.end() :]) if host else None


def read_lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of ``file``, of very long ones the beginning, so that memory is bounded."""
    while line := file.readline(_LONGEST_LINE):
        yield line
        while line and not line.endswith("\n"):
            line = file.readline(_LONGEST_LINE)


@dataclass(frozen=True)
class LoggedCommunicator:
    """A communicator as one process sees it; ``id`` is the same in all, "" where not said."""

    id: str
    rank: int
    ranks: int


class TorchGroup(NamedTuple):
    """A group of ``tuccl.torch``: its calls run by a ``program``, and by each other backend."""

    ranks: int
    counts: dict[str, int]


@dataclass
class Loaded:
    """A process's lines on one plugin: ``name`` and ``version`` of what NCCL loaded.

    ``tables`` holds the ranks of each communicator that it holds a table for; ``used`` what it
    chose, or timed; ``missing`` NCCL's words where it found none; ``refused`` why tuccl's own
    plugin left NCCL alone. The keys of dicts are each kept once, in the log's order.
    """

    name: str = ""
    version: str = ""
    missing: str = ""
    tables: list[int] = field(default_factory=list)
    used: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """True where the plugin is tuccl's."""
        return self.name == _NAME or bool(self.tables)


@dataclass
class Process:
    """One process of the job; host and pid are "" and 0 where lines do not say whose they are.

    ``msccl`` is what MSCCL says of itself, ``msccl_calls`` how many calls its programs served and
    ``msccl_programs`` the folder or files that they are of. ``symmetric_calls`` are those that
    NCCL's kernels for symmetric windows ran, past any tuner. ``torch`` are groups of tuccl.torch.
    """

    host: str
    pid: int
    communicators: list[LoggedCommunicator] = field(default_factory=list)
    plugins: dict[Plugin, Loaded] = field(default_factory=lambda: {p: Loaded() for p in PLUGINS})
    msccl: dict[str, None] = field(default_factory=dict)
    msccl_calls: int = 0
    msccl_programs: dict[str, None] = field(default_factory=dict)
    symmetric_calls: int = 0
    torch: list[TorchGroup] = field(default_factory=list)


@dataclass(frozen=True)
class JobLog:
    """The processes of a log in the order of their first lines, and how many lines were NCCL's."""

    processes: tuple[Process, ...]
    lines: int

    def communicators(self) -> dict[tuple[str, int], list[tuple[Process, LoggedCommunicator]]]:
        """Return who takes part in each communicator, by its id and number of ranks."""
        members: dict[tuple[str, int], list[tuple[Process, LoggedCommunicator]]] = {}
        for process in self.processes:
            for communicator in process.communicators:
                members.setdefault((communicator.id, communicator.ranks), []).append(
                    (process, communicator)
                )
        return members


def read_log(lines: Iterable[str]) -> JobLog:
    """Return what the lines of an NCCL_DEBUG=INFO log say of plugins; others are passed over.

    >>> log = read_log(["h:7:9 [0] NCCL INFO TUNER/Plugin: Using tuccl (v4)"])
    >>> log.processes[0].plugins["tuner"].version
    'v4'

    Notes:
        NVIDIA/nccl src/plugin/tuner.cc, src/plugin/profiler.cc, src/init.cc; msccl-executor-nccl
        src/misc/msccl/msccl_lifecycle.cc. A launcher's prefix before a line does no harm.

    Raises:
        InputError: it has more processes than any job.
    """
    processes: dict[tuple[str, int], Process] = {}
    count = 0
    for line in log_lines(lines):
        if isinstance(line, str) and _SAID.match(line) is None:
            continue
        host, pid = (line.host, line.pid) if isinstance(line, LogLine) else ("", 0)
        if (process := processes.get((host, pid))) is None:
            if len(processes) == _MOST_PROCESSES:
                raise InputError(f"a log of over {_MOST_PROCESSES} processes; expected one job's")
            process = processes[host, pid] = Process(host, pid)
        count += isinstance(line, LogLine)
        _take(process, line.text if isinstance(line, LogLine) else line)
    return JobLog(tuple(processes.values()), count)


def _take(process: Process, text: str) -> None:
    if not any(words in text for words in _WORTH_READING):
        return
    if (match := _COMPLETE.search(text)) is not None:
        comm_id = _COMM_ID.search(text)
        communicator = LoggedCommunicator(
            comm_id[1] if comm_id else "", int(match[2]), int(match[3])
        )
        process.communicators.append(communicator)
    for plugin, pattern in _LOADED.items():
        if (match := pattern.search(text)) is not None:
            process.plugins[plugin].name = match[1]
            process.plugins[plugin].version = match[2] or ""
    if (match := _MISSING.search(text)) is not None:
        process.plugins["tuner" if match[1] == "TUNER" else "profiler"].missing = text
    if (match := _SAID.match(text)) is not None:
        _take_own(process, match[1])
    process.symmetric_calls += _SYMMETRIC in text
    process.msccl |= {meaning: None for words, meaning in _MSCCL.items() if words in text}
    _take_programs(process, text)
    if _NO_TRANSPORT.search(text) is not None:
        process.msccl[
            "failed: an external scheduler's program was never connected (docs/reference/msccl.md)"
        ] = None


def _take_programs(process: Process, text: str) -> None:
    """A line of MSCCL's on the programs that it loads by itself."""
    process.msccl_calls += _MSCCL_CALL in text
    if (match := _MSCCL_FOLDER.search(text)) is not None:
        process.msccl_programs[match[1].strip()] = None
    elif (match := _FORK_LOADED.search(text)) is not None:
        process.msccl["initialised"] = None
        process.msccl_programs[match[1]] = None
    elif (match := _FORK_FAILED.search(text)) is not None:
        process.msccl[f"failed to load {match[1]}, which it ignores"] = None


def _take_own(process: Process, text: str) -> None:
    """A line of a plugin of tuccl's."""
    if (match := _TABLE.search(text)) is not None:
        plugin = next(p for p in PLUGINS if p == match[1])
        process.plugins[plugin].tables.append(int(match[3]))
    elif (match := _CHOICE.search(text)) is not None:
        process.plugins["tuner"].used[f"{match[1]} of {match[2]} bytes: {match[3]}"] = None
    elif (match := _TIMED.search(text)) is not None:
        process.plugins["profiler"].used[f"{match[1]}: {match[2]} calls timed"] = None
    elif (match := _TORCH.match(text)) is not None:
        pairs = (pair.split() for pair in match[2].split(", "))
        counts = {name: int(count) for name, count in pairs}
        process.torch.append(TorchGroup(int(match[1]), counts))
    elif _OWN in text:
        why = text.partition(f"; {_OWN}")[0]
        for plugin in _whose(process):
            process.plugins[plugin].refused[why] = None


def _whose(process: Process) -> Iterator[Plugin]:
    """The plugin that a refusal is of: it does not name itself."""
    yield "tuner" if process.plugins["tuner"].name == _NAME else "scheduler"
