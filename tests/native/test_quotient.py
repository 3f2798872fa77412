"""One thread block of each class stands for all: times equal those of the whole program."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial

import msgspec
import pytest

from tuccl.errors import Infeasible, InputError
from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock
from tuccl.runtime.baseline.nccl_call import nccl_call
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.simulation import Network, OutsideTraffic, SimResult, simulate, simulate_groups
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.synth.baseline.nccl import nccl_program
from tuccl.synth.baseline.nccl_nvls import nvls_network
from tuccl.topology import join, load_machine, load_profile, machine_of, network

_NBYTES = 8 << 20
_MACHINES = {
    "8x dgx-h100": lambda: join(load_profile("dgx-h100"), 8),
    "4x ndv4": lambda: join(load_profile("ndv4"), 4),
    "4x dgx-a100, clos": lambda: join(load_profile("dgx-a100"), 4, "clos", up_gbs=50),
    "8x v100x4": lambda: join(load_profile("v100x4"), 8),
    "2x dgx-2": lambda: join(load_profile("dgx-2"), 2),
    "mi300x": lambda: load_profile("mi300x"),
}
_METHODS = {
    "allgather": (
        *("hierarchical2", "hierarchical-rings", "hierarchical-doubling+split"),
        *("allpairs", "packing"),
    ),
    "reduce-scatter": ("hierarchical3", "pipelined", "ring"),
    "allreduce": ("packing", "hierarchical-doubling", "recursive", "allpairs"),
    "alltoall": ("hierarchical2", "allpairs"),
    "broadcast": ("hierarchical3", "ring"),
}


@cache
def _programs(machine: str) -> tuple[Program, ...]:
    topology = _MACHINES[machine]()
    mesh, programs = full_mesh(topology), []
    for name, methods in _METHODS.items():
        problem = Problem(Collective(name, topology.ranks), mesh, 1, _NBYTES, topology)
        for method in methods:
            with suppress(Infeasible):  # of one host or two, some methods do not apply
                programs.append(lower(make_schedule(problem, method)))
    with suppress(Infeasible):  # one host has no trees
        programs.append(nccl_program(topology, Collective("allreduce", topology.ranks), "tree", 16))
    return tuple(programs)


@pytest.mark.parametrize("name", _MACHINES)
def test_result_equals_that_of_the_whole_program(name: str) -> None:
    topology = _MACHINES[name]()
    links, machine = network(topology), machine_of(topology)
    for program in _programs(name):
        nbytes = -(-_NBYTES // program.nchunks) * program.nchunks
        for protocol in ("Simple", "LL"):
            call = program, Knobs(protocol), links, machine, nbytes
            some = simulate(*call)
            # Beside others, even where they send nothing, every thread block is walked.
            every = simulate(*call, outside=OutsideTraffic([], []))
            assert some.gpu_us == pytest.approx(every.gpu_us, rel=1e-9), program.name
            assert some.resource_busy_us == pytest.approx(every.resource_busy_us, rel=1e-6)
            if "+split" in program.name:
                # Its pace is sampled at other moments, but not of fewer passes.
                half = *call[:-1], nbytes // 2
                some, every = simulate(*half), simulate(*half, outside=OutsideTraffic([], []))
            assert some.events == every.events
            assert some.blocks <= every.blocks == _blocks(program)
            _assert_within_rates(some, links)


def test_few_blocks_stand_for_all_where_hosts_are_alike() -> None:
    topology = _MACHINES["8x dgx-h100"]()
    links, machine = network(topology), machine_of(topology)
    for program in _programs("8x dgx-h100"):
        if not program.name.startswith(("broadcast", "allreduce-allpairs", "nccl-tree")):
            nbytes = -(-_NBYTES // program.nchunks) * program.nchunks
            blocks = simulate(program, Knobs("Simple"), links, machine, nbytes).blocks
            assert blocks <= _blocks(program) / 7, program.name


def test_rails_of_nccls_trees_are_alike() -> None:
    """Channels go round the GPUs of a host: flows meet on its links in other orders."""
    topology = _MACHINES["8x dgx-h100"]()
    [program] = (p for p in _programs("8x dgx-h100") if p.name.startswith("nccl-tree"))
    call = program, Knobs("Simple"), network(topology), machine_of(topology), _NBYTES
    assert simulate(*call).blocks == _blocks(program) / 4


def test_nvls_trees_are_alike_though_flows_cross_links_unequally_often() -> None:
    topology = _MACHINES["8x dgx-h100"]()
    hosts = [topology.gpus_of(host) for host in topology.hosts]
    links, machine = nvls_network(network(topology), hosts), machine_of(topology)
    call = Collective("allreduce", topology.ranks)
    for nbytes in (1 << 20, 1 << 26):
        choice = nccl_choice(
            topology, call.name, nbytes, algorithm="NVLSTree", protocol="Simple", nvls=True
        )
        ran = nccl_call(topology, call, nbytes, choice)
        run = ran.program, ran.knobs, links, machine, nbytes
        timed = partial(
            simulate,
            *run,
            pass_bytes=ran.loop.pass_bytes,
            transfer_slots=ran.loop.transfer_slots,
        )
        some, every = timed(), timed(outside=OutsideTraffic([], []))
        assert some.gpu_us == pytest.approx(every.gpu_us, rel=1e-9)
        assert some.resource_busy_us == pytest.approx(every.resource_busy_us, rel=1e-6)
        assert some.blocks < every.blocks / 7


def test_one_slow_link_parts_what_was_alike() -> None:
    """A program is as slow as the rank with the slow link, wherever that is."""
    topology = join(load_profile("dgx-h100"), 8)
    slow = msgspec.structs.replace(
        topology,
        links=tuple(
            msgspec.structs.replace(link, bandwidth=link.bandwidth / 4)
            if {link.src, link.dst} == {"n5/nic3", "leaf0"}
            else link
            for link in topology.links
        ),
    )
    machine = machine_of(topology)
    program = next(
        p for p in _programs("8x dgx-h100") if p.name.startswith("alltoall-hierarchical2")
    )
    nbytes = 1024 * program.nchunks
    alike, parted = (
        simulate(program, Knobs("Simple"), network(each), machine, nbytes)
        for each in (topology, slow)
    )
    assert alike.blocks < parted.blocks
    assert alike.gpu_us < parted.gpu_us
    whole = simulate(
        program, Knobs("Simple"), network(slow), machine, nbytes, outside=OutsideTraffic([], [])
    )
    assert parted.gpu_us == pytest.approx(whole.gpu_us, rel=1e-9)


def test_calls_at_the_same_time_equal_those_of_the_whole_programs() -> None:
    topology = _MACHINES["8x dgx-h100"]()
    links, machine = network(topology), machine_of(topology)
    programs = [p for p in _programs("8x dgx-h100") if p.name.startswith("reduce-scatter")]
    ranks = list(range(topology.ranks))
    for repeats in (False, True):
        calls = [
            (program, ranks, Knobs("Simple"), 256 * program.nchunks, *rest, repeats and number > 0)
            for number, program in enumerate(programs)
            for rest in [(0, 0, False, 20.0 * number)]
        ]
        some = simulate_groups(calls, links, machine)
        every = simulate_groups(calls, links, machine, outside=OutsideTraffic([], []))
        assert some.calls_us == pytest.approx(every.calls_us, rel=1e-9)


def test_a_chain_is_walked_whole() -> None:
    topology = _MACHINES["8x dgx-h100"]()
    program = next(p for p in _programs("8x dgx-h100") if p.name.startswith("broadcast-ring"))
    call = program, Knobs("Simple"), network(topology), machine_of(topology), 1024 * program.nchunks
    assert simulate(*call).blocks == _blocks(program)


def test_a_deadlock_names_the_ranks_of_one_block() -> None:
    topology = load_profile("dgx-h100")
    waiting = [Step("rcs", count=1, src_offset=0, dst_offset=0)] * 64
    gpus = [
        Gpu(rank, 64, 64, 64, [ThreadBlock(0, (rank + 1) % 8, (rank - 1) % 8, 0, waiting)])
        for rank in range(8)
    ]
    program = Program("ring", "allgather", "Simple", 1, 64, gpus)
    with pytest.raises(InputError, match="gpu 0 tb 0 step 0 waits for ever for data from rank 7"):
        simulate(program, Knobs("Simple"), network(topology), machine_of(topology), 1 << 16)


def test_an_uplink_that_adapters_share_fills() -> None:
    """Eight adapters of 25 GB/s send over an uplink of 50 GB/s: a quarter of their rate each."""
    topology = _MACHINES["4x dgx-a100, clos"]()
    program = next(p for p in _programs("4x dgx-a100, clos") if "scatter-hierarchical3" in p.name)
    nbytes = 1 << 20 << 8
    links = network(topology)
    result = simulate(program, Knobs("Simple"), links, load_machine("ideal"), nbytes)
    number = [resource.name for resource in links.resources].index("tor0>spine0")
    assert result.resource_bytes[number] == nbytes * 3 / 4
    assert result.resource_busy_us[number] == pytest.approx(nbytes * 3 / 4 / 50e3, rel=0.01)


def _assert_within_rates(result: SimResult, links: Network) -> None:
    for resource, nbytes in zip(links.resources, result.resource_wire_bytes, strict=True):
        assert nbytes <= result.gpu_us * resource.bandwidth_gbs * 1e3, resource.name


def _blocks(program: Program) -> int:
    return sum(len(gpu.threadblocks) for gpu in program.gpus)
