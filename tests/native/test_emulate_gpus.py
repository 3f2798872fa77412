"""The interpreter of GPUs, played on this CPU; test_matrix.py has it run all methods' programs."""

from __future__ import annotations

from types import ModuleType

import pytest

from tuccl.errors import InputError, Stuck
from tuccl.execution import Call, run_in_threads
from tuccl.program import Knobs, parse_xml
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import keep_gpus, load_profile

PATIENCE_S = 60.0


def allpairs_call(**more: object) -> Call:
    """Return a checked call of msccl-default's all-pairs allreduce on four ranks."""
    host = keep_gpus(load_profile("ndv4"), range(4))
    program = lower(msccl_default(host, Collective("allreduce", 4)))
    options: dict[str, object] = {"checked": 2, "seed": 3} | more
    return Call(program, Knobs("LL", buffer_bytes=4096), 10_007, **options)  # type: ignore[arg-type]


def test_blocks_of_any_threads_on_any_cores_agree_with_the_engine(
    gpu_emulation: ModuleType,
) -> None:
    call = allpairs_call(datatype="bfloat16", op="avg")
    assert all(result.wrong == 0 for result in run_in_threads(call, PATIENCE_S))
    for threads, cores in ((8, 1), (32, 2), (64, 3)):
        results = gpu_emulation.emulate_gpus(call, PATIENCE_S, threads=threads, cores=cores)
        assert all(result.wrong == 0 for result in results)


def test_a_lane_of_threads_is_eight(gpu_emulation: ModuleType) -> None:
    with pytest.raises(InputError, match="multiple of 8"):
        gpu_emulation.emulate_gpus(allpairs_call(), PATIENCE_S, threads=4)


def test_who_waits_is_named(gpu_emulation: ModuleType) -> None:
    text = (
        '<algo name="x" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" '
        'inplace="0" outofplace="1" minBytes="0" maxBytes="0">\n'
    )
    for rank in range(2):
        step = 'depid="-1" deps="-1" hasdep="0"/>\n'
        text += (
            f'<gpu id="{rank}" i_chunks="1" o_chunks="2" s_chunks="0">\n'
            f'<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">\n'
            f'<step s="0" type="r" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="{1 - rank}" cnt="1" '
            f'{step}<step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="-1" cnt="1" '
            f"{step}</tb>\n</gpu>\n"
        )
    call = Call(parse_xml(text + "</algo>"), Knobs("LL"), 64, checked=1)
    with pytest.raises(Stuck, match=r"rank 0 tb 0 step 0 \(r\) waits for data from rank 1"):
        gpu_emulation.emulate_gpus(call, 0.5)
