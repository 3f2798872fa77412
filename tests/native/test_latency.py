"""Messages held back by their route's latency: each by all of it, none by another's."""

from __future__ import annotations

from types import ModuleType

import pytest

from tuccl.errors import InputError
from tuccl.execution import Call, run_in_threads
from tuccl.program import Knobs, Program
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.topology import keep_gpus, load_profile

LATENCY_US = 60_000.0  # far above what threads wait for a processor


def everywhere(ranks: int, latency_us: float = LATENCY_US) -> list[float]:
    return [latency_us if n // ranks != n % ranks else 0.0 for n in range(ranks * ranks)]


def slowest_us(program: Program, nbytes: int, latency_us: list[float], **knobs: object) -> float:
    """Return the time of a run of four bytes an element whose results are right."""
    call = Call(
        program,
        Knobs(**knobs),  # type: ignore[arg-type]
        nbytes,
        checked=1,
        timed=1,
        latency_us=latency_us,
    )
    results = run_in_threads(call)
    assert [r.wrong for r in results] == [0] * program.ngpus
    return max(r.times_us[0] for r in results)


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_every_hop_takes_the_latency(handmade: ModuleType, protocol: str) -> None:
    """Around a ring of four the last chunk has made three hops."""
    program = handmade.ring_allgather(4).replace(protocol=protocol)
    assert slowest_us(program, 256, everywhere(4), protocol=protocol) >= 3 * LATENCY_US
    assert slowest_us(program, 256, [], protocol=protocol) < LATENCY_US


def test_only_its_own_route_is_slow(handmade: ModuleType) -> None:
    program = handmade.direct_alltoall(4)
    one_way = [LATENCY_US if n == 1 else 0.0 for n in range(16)]  # from rank 0 to rank 1
    call = Call(program, Knobs(), 256, timed=1, latency_us=one_way)
    times = [r.times_us[0] for r in run_in_threads(call)]
    assert times[1] >= LATENCY_US and max(times[0], times[2], times[3]) < LATENCY_US


def test_messages_are_held_side_by_side(handmade: ModuleType) -> None:
    """From three peers at once, and eight after each other on one wire: one latency for all.

    Held one behind the other they would take three times and eight times as long.
    """
    alltoall = handmade.direct_alltoall(4)
    assert LATENCY_US <= slowest_us(alltoall, 256, everywhere(4)) < 2.5 * LATENCY_US
    one_way = Collective("broadcast", 2)
    mesh = full_mesh(keep_gpus(load_profile("v100x4"), [0, 1]))
    stream = lower(make_schedule(Problem(one_way, mesh, 1, 1 << 20), "ring"), protocol="LL")
    nbytes = 2 * 8 * (64 << 10) // 16  # eight slots of each of two chunks, or of one
    took_us = slowest_us(stream, nbytes, everywhere(2), protocol="LL", buffer_bytes=64 << 10)
    assert LATENCY_US <= took_us < 4 * LATENCY_US


def test_latencies_are_one_a_route_and_sane(handmade: ModuleType) -> None:
    program = handmade.ring_allgather(2)
    for wrong in ([1.0], [0.0, -1.0, 0.0, 0.0], [0.0, float("nan"), 0.0, 0.0], [1e9] * 4):
        with pytest.raises(InputError, match="latenc"):
            Call(program, Knobs(), 64, timed=1, latency_us=wrong).check()
