"""Runs that a calibration is held to: tables of measurements with what they were taken on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from tuccl.emulation import (
    as_run_on_cpus,
    emulated_cluster,
    emulated_network,
    emulated_topology,
)
from tuccl.errors import Infeasible, InputError
from tuccl.eval.calibrate import Case, Trial
from tuccl.eval.measurements import Measured, Measurements, read_measurements
from tuccl.program import Knobs, Program, parse_xml
from tuccl.runtime.baseline import nccl_call
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.synth import Collective
from tuccl.synth.baseline.nccl_nvls import nvls_network
from tuccl.topology import (
    Topology,
    join,
    keep_gpus,
    load_profile,
    load_topology,
    network,
    process_gpus,
)

_MOST_BYTES = 1 << 20
# The largest buffer of the knobs' grid; beyond it passes are long enough not to matter.
_MOST_BUFFER = 8 << 20


class CalibrationRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of times, the machine it was taken on, and what ran there.

    Attributes:
        table: File of the times (`read_measurements`), next to the set's file.
        column: Which of its times; see `read_measurements`.
        topology: File of the machine; or
        profile: name of a known one,
        nodes: how many of it,
        fabric: and how they are joined (`tuccl.topology.join`).
        gpus: Ranks kept of the machine; all if not said.
        collective: What ran.
        root: Its root.
        launch: ``process`` (one for all GPUs of a host), ``mpi`` or ``graph``.
        nccl: Version of NCCL that ran.
        algorithm: What NCCL was made to run (NCCL_ALGO); its own choice if not said.
        protocol: The same (NCCL_PROTO).
        channels: The same (NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS).
        buffer_bytes: NCCL_BUFFSIZE where it was set; of a program on an emulated cluster the knob.
        emulate: Scale of the rates where the machine was emulated, 0 for the
            usual one; programs ran there as they are.
        programs: MSCCL programs that ran instead, each in the sizes of its minBytes and maxBytes.
        from_bytes: Smallest size to use.
        to_bytes: Largest size to use.
    """

    table: str
    collective: str
    column: str | None = None
    topology: str | None = None
    profile: str | None = None
    nodes: int = 1
    fabric: str = "single"
    gpus: tuple[int, ...] = ()
    root: int = 0
    launch: Literal["process", "mpi", "graph"] = "process"
    nccl: str = "2.19"
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    buffer_bytes: int | None = None
    emulate: float | None = None
    programs: tuple[str, ...] = ()
    from_bytes: int = 1
    to_bytes: int = 1 << 50


class _CalibrationSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["tuccl-calibration/1"]
    runs: tuple[CalibrationRun, ...]


def read_calibration_set(path: str | Path) -> tuple[CalibrationRun, ...]:
    """Return the runs in a ``tuccl-calibration/1`` file, their files' paths made whole.

    Raises:
        InputError: the file cannot be read or is not such a set.
    """
    path = Path(path)
    try:
        data = path.read_bytes()[: _MOST_BYTES + 1]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    try:
        runs = msgspec.json.decode(data, type=_CalibrationSet).runs
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; expected a tuccl-calibration/1 file") from None
    if not runs:
        raise InputError(f"{path}: $.runs: empty; expected one run or more")
    return tuple(_next_to(run, path.parent) for run in runs)


def _next_to(run: CalibrationRun, folder: Path) -> CalibrationRun:
    return msgspec.structs.replace(
        run,
        table=str(folder / run.table),
        topology=str(folder / run.topology) if run.topology else None,
        programs=tuple(str(folder / name) for name in run.programs),
    )


def trial_of(run: CalibrationRun) -> Trial:
    """Return the measured calls of ``run`` as programs that the simulator can time.

    A size that cannot be modelled is kept as refused: it counts as wrong, not as absent.

    Raises:
        InputError: a file cannot be read, or the run contradicts itself.
    """
    measured = read_measurements(run.table, run.column)
    rows = [row for row in measured.rows if run.from_bytes <= row.nbytes <= run.to_bytes]
    if not rows:
        raise InputError(f"{run.table}: no size from {run.from_bytes} to {run.to_bytes} bytes")
    topology = _machine(run)
    case_of = _program_case(run) if run.programs else _nccl_case(run, topology)
    cases, refused = [], []
    for row in rows:
        try:
            cases.append(case_of(row))
        except Infeasible:
            refused.append(row.nbytes)
    if run.emulate is not None:
        return _emulated_trial(run, measured.name, topology, cases, refused)
    links = network(topology)
    hosts = [topology.gpus_of(host) for host in topology.hosts]
    switched = any(case.loop.multicast for case in cases)
    multicast = nvls_network(links, hosts) if switched else None
    return Trial(
        _name(run, measured),
        links,
        tuple(cases),
        multicast,
        run.launch,
        process_gpus(topology),
        tuple(refused),
    )


def _emulated_trial(
    run: CalibrationRun, name: str, topology: Topology, cases: list[Case], refused: list[int]
) -> Trial:
    """The cases as a CPU runs them, on emulated links."""
    if not run.programs:
        raise InputError(f"{run.table}: NCCL runs on GPUs only; name the programs that ran")
    emulated = emulated_topology(topology, emulated_cluster(topology, run.emulate or None))
    return Trial(
        f"{name}: emulated",
        emulated_network(emulated),
        tuple(emulated_case(case) for case in cases),
        launch="mpi",
        refused=tuple(refused),
        emulated=True,
    )


def emulated_case(case: Case) -> Case:
    """Return ``case`` as ranks on CPUs run it."""
    ran = as_run_on_cpus(case.program, case.knobs, case.loop)
    return dataclasses.replace(
        case, program=ran.program, knobs=ran.knobs, loop=ran.loop, eager=ran.eager
    )


def _name(run: CalibrationRun, measured: Measurements) -> str:
    return f"{measured.name}: {'MSCCL' if run.programs else f'NCCL {run.nccl}'}"


def _machine(run: CalibrationRun) -> Topology:
    if (run.topology is None) == (run.profile is None):
        raise InputError(f"{run.table}: expected a topology or a profile, one of the two")
    whole = load_topology(run.topology) if run.topology else load_profile(run.profile or "")
    host = keep_gpus(whole, run.gpus) if run.gpus else whole
    return join(host, run.nodes, run.fabric) if run.nodes > 1 else host


_CaseOf = Callable[[Measured], Case]


def _nccl_case(run: CalibrationRun, topology: Topology) -> _CaseOf:
    collective = Collective(run.collective, topology.ranks, run.root)

    def case_of(row: Measured) -> Case:
        choice = nccl_choice(
            topology,
            run.collective,
            row.nbytes,
            run.nccl,
            algorithm=run.algorithm,
            protocol=run.protocol,
            channels=run.channels,
        )
        ran = nccl_call(topology, collective, row.nbytes, choice)
        knobs = ran.knobs
        if run.buffer_bytes is not None and choice.protocol == "Simple":
            buffer = min(run.buffer_bytes, _MOST_BUFFER)
            knobs = Knobs(choice.protocol, 1, knobs.threads, buffer)
        return Case(ran.program, knobs, row.nbytes, row.us, ran.loop, ran.name)

    return case_of


# Threads of the executor's blocks, whatever the program says.
_EXECUTOR_THREADS = {"Simple": 512, "LL": 512, "LL128": 640}


def _program_case(run: CalibrationRun) -> _CaseOf:
    programs = [parse_xml(Path(name).read_bytes(), name) for name in run.programs]

    def case_of(row: Measured) -> Case:
        program = _program_for(programs, row.nbytes)
        threads, buffer_bytes = _EXECUTOR_THREADS[program.protocol], None
        if run.emulate is not None:
            buffer_bytes = run.buffer_bytes
        knobs = Knobs(program.protocol, 1, threads, buffer_bytes)
        return Case(program, knobs, row.nbytes, row.us, chosen=program.name)

    return case_of


def _program_for(programs: list[Program], nbytes: int) -> Program:
    for program in programs:
        least, most = program.min_bytes or 0, program.max_bytes or 1 << 62
        if least <= nbytes <= most:
            return program
    raise Infeasible(f"{nbytes} bytes: none of the programs is for this size")


def switch_trial(topology: Topology, version: str) -> Trial:
    """Compare NCCL's own cost model with a machine: where its choices are as fast.

    NVIDIA set its constants on machines of each kind; at the size from which NCCL takes another
    protocol, or a ring in place of a tree, both take about as long. That says nothing of the times
    themselves. NVLS is left out: its constants are for links that a table sees better.

    Raises:
        InputError: the version's constants are not known.
    """
    ties = []
    for name in _SWITCHING:
        call = Collective(name, topology.ranks)

        def kind(nbytes: int, name: str = name) -> tuple[str, str]:
            choice = nccl_choice(topology, name, nbytes, version, nvls=False)
            return choice.algorithm, choice.protocol

        def case(nbytes: int, by: tuple[str, str], call: Collective = call) -> Case:
            choice = nccl_choice(
                topology, call.name, nbytes, version, algorithm=by[0], protocol=by[1]
            )
            ran = nccl_call(topology, call, nbytes, choice)
            return Case(ran.program, ran.knobs, nbytes, 1.0, ran.loop, ran.name)

        for before, after in pairwise(_SWITCH_SIZES):
            if kind(before) != kind(after):
                middle = int((before * after) ** 0.5)
                ties.append((case(middle, kind(before)), case(middle, kind(after))))
    label = f"NCCL {version}'s switches on {topology.name}"
    return Trial(label, network(topology), (), launch="graph", ties=tuple(ties))


_SWITCHING = ("allreduce", "allgather")
_SWITCH_SIZES = tuple(int(1024 * 2 ** (step / 2)) for step in range(41))
