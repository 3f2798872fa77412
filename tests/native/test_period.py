"""Ranks that repeat what those of the first host do are as good as written out."""

from __future__ import annotations

from functools import cache

import pytest

from tuccl.errors import Infeasible, InputError
from tuccl.program import (
    Gpu,
    Knobs,
    Program,
    Step,
    ThreadBlock,
    parse_xml,
    replicate,
    to_xml,
    verify,
    whole,
    with_period,
)
from tuccl.runtime.table.programs import program_file
from tuccl.simulation import Network, Resource, simulate
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, Schedule, lower, make_schedule
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.model.certificate import verify_schedule
from tuccl.topology import Topology, join, load_profile, machine_of, network

_NBYTES = 8 << 20
_MACHINES = {
    "8x dgx-h100": lambda: join(load_profile("dgx-h100"), 8),
    "5x dgx-a100": lambda: join(load_profile("dgx-a100"), 5),
    "3x ndv2": lambda: join(load_profile("ndv2"), 3),  # eight GPUs share a NIC
    "4x dgx-a100, clos": lambda: join(load_profile("dgx-a100"), 4, "clos", up_gbs=50),
}
_CASES = [
    ("allgather", "hierarchical-doubling"),
    ("reduce-scatter", "hierarchical-doubling+split"),
    ("allreduce", "hierarchical-doubling"),
    ("alltoall", "hierarchical2"),
]


@cache
def _machine(name: str) -> Topology:
    return _MACHINES[name]()


@cache
def _schedule(name: str, collective: str, method: str) -> Schedule:
    topology = _machine(name)
    problem = Problem(
        Collective(collective, topology.ranks), full_mesh(topology), 1, _NBYTES, topology
    )
    return make_schedule(problem, method)


@pytest.mark.parametrize(("collective", "method"), _CASES)
@pytest.mark.parametrize("name", _MACHINES)
def test_programs_are_those_of_all_ranks(name: str, collective: str, method: str) -> None:
    topology, schedule = _machine(name), _schedule(name, collective, method)
    size = len(topology.gpus_of(topology.hosts[0]))
    program = lower(schedule)
    assert program.period == schedule.period == size == len(program.written)
    every = whole(program)
    assert every.period == 0
    assert program.gpus == every.gpus == every.written
    assert verify(every).ok
    assert verify_schedule(schedule.whole()) is None
    assert lower(schedule.whole()).threadblocks == program.threadblocks
    assert program.sent == every.sent == schedule.sent == schedule.whole().sent
    assert (program.steps, program.max_steps) == (every.steps, every.max_steps)
    of_collective = Collective(collective, topology.ranks)
    assert fraction_of_bound(program, topology, of_collective) == fraction_of_bound(
        every, topology, of_collective
    )


def test_hosts_that_do_the_same_are_found() -> None:
    name = "8x dgx-h100"
    for collective, method in (
        *(("allgather", "hierarchical2"), ("allgather", "packing"), ("allgather", "pipelined")),
        *(("allreduce", "hierarchical-rings"), ("allreduce", "fewstep")),
    ):
        program = lower(_schedule(name, collective, method))
        one = with_period(program, 8)
        assert (program.period, one.period, len(one.written)) == (0, 8, 8)
        assert whole(one) == program
        assert verify(one).ok
        assert with_period(one, 8) == one


def test_hosts_that_differ_stay_apart() -> None:
    name = "8x dgx-h100"
    program = lower(_schedule(name, "allgather", "recursive"))
    assert with_period(program, 8) == program
    assert with_period(program, 7) == program
    program = lower(_schedule(name, "allgather", "packing"))
    [*gpus, last] = program.gpus
    [*blocks, block] = last.threadblocks
    [*steps, step] = block.steps
    other = Step(step.op, step.src_buffer, 1, step.dst_buffer, step.dst_offset, step.count)
    block = ThreadBlock(block.id, block.send_peer, block.recv_peer, block.channel, [*steps, other])
    gpu = Gpu(63, last.input_chunks, last.output_chunks, last.scratch_chunks, [*blocks, block])
    changed = Program("p", "allgather", "Simple", program.nchannels, program.nchunks, [*gpus, gpu])
    assert with_period(changed, 8) == changed


@pytest.mark.parametrize("knobs", [Knobs("Simple"), Knobs("LL", 2), Knobs("LL128", 2)])
@pytest.mark.parametrize("name", _MACHINES)
def test_they_take_as_long_as_all_ranks(name: str, knobs: Knobs) -> None:
    topology = _machine(name)
    machine = machine_of(topology)
    for collective, method in _CASES:
        schedule = _schedule(name, collective, method)
        links = network(topology, schedule.sent)
        program = lower(schedule)
        assert links.repeats(program.period) == (name in ("8x dgx-h100", "5x dgx-a100"))
        if program.threadblocks * knobs.channels <= machine.sm_count:
            program = replicate(program, knobs.channels)
        nbytes = -(-_NBYTES // program.nchunks) * program.nchunks
        some = simulate(program, knobs, links, machine, nbytes)
        every = simulate(whole(program), knobs, links, machine, nbytes)
        assert some.gpu_us == pytest.approx(every.gpu_us, rel=1e-12)
        assert some.resource_bytes == every.resource_bytes
        assert some.resource_busy_us == pytest.approx(every.resource_busy_us, rel=1e-9)


def test_links_that_do_not_repeat_have_all_ranks_simulated() -> None:
    topology, schedule = _machine("8x dgx-h100"), _schedule("8x dgx-h100", *_CASES[0])
    links, program = network(topology, schedule.sent), lower(schedule)
    slow = next(i for i, r in enumerate(links.resources) if r.kind == "network")
    resources = [
        Resource(r.name, r.kind, r.bandwidth_gbs / 2 if i == slow else r.bandwidth_gbs)
        for i, r in enumerate(links.resources)
    ]
    uneven = Network(links.ranks, resources, links.routes)
    nbytes = program.nchunks << 20
    times = [
        simulate(p, Knobs("Simple"), n, machine_of(topology), nbytes).gpu_us
        for p, n in ((program, links), (program, uneven), (whole(program), uneven))
    ]
    assert times[0] < times[1] == times[2]


def test_files_have_one_period_for_tuccl_and_all_ranks_for_others() -> None:
    program = lower(_schedule("8x dgx-h100", "allreduce", "hierarchical-doubling"))
    program = program.replace(min_bytes=0, max_bytes=0)
    short, long = to_xml(program, compact=True), to_xml(program)
    assert 7 * len(short) < len(long)
    assert parse_xml(short) == program
    assert parse_xml(long) == whole(program)
    assert verify(parse_xml(short)).ok
    for dialect in ("rccl", "fork"):
        with pytest.raises(InputError, match="only tuccl's own executors"):
            to_xml(program, dialect, compact=True)
    file = program_file(program)
    assert file.program.period == 8
    assert len(file.xml) < len(long) / 7


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('period="8"', 'period="7"', "a period of 7, expected a divisor of 64 gpus"),
        ('period="8"', 'period="16"', "gpu 8 is missing"),
        ('period="8"', 'period="0"', "expected a decimal number from 1"),
        ("allreduce_of_period", "broadcast_of_period", "have no root"),
        ("allreduce_of_period", "x_of_period", "expected one of: allgather"),
    ],
)
def test_periods_that_cannot_be_are_refused(old: str, new: str, why: str) -> None:
    program = lower(_schedule("8x dgx-h100", "allreduce", "hierarchical-doubling"))
    text = to_xml(program, compact=True).replace(old, new, 1)
    try:
        refused = parse_xml(text)
    except InputError as error:
        assert why in str(error)
        return
    assert any(why in error.message for error in verify(refused).errors)
    with pytest.raises(InputError, match="period"):
        whole(refused)


def test_runs_beyond_the_part_of_a_period_are_refused() -> None:
    """Elsewhere they would come round the end of the buffer."""
    schedule = _schedule("3x ndv2", "allgather", "hierarchical-doubling")
    own = schedule.transfers[0]
    with pytest.raises(Infeasible, match="outside the ranks, their buffers"):
        lower(
            Schedule(
                schedule.collective,
                schedule.nchunks,
                (type(own)(0, 8, own.src_at, type(own.dst_at)("o", 7), 2),),
                (0,) * 8,
                "wrong",
                1,
                period=8,
            )
        )


def test_a_program_is_read_for_one_rank_alone() -> None:
    program: Program = lower(_schedule("3x ndv2", "allgather", "hierarchical-doubling"))
    part = whole(parse_xml(to_xml(program, compact=True)), only=9)
    assert part.gpus[9] == program.gpus[9]
    assert not any(block.steps for block in part.gpus[1].threadblocks)
