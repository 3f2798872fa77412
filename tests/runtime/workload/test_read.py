"""What a job asks for, from every record of it that there may be."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.runtime.workload import Call, Workload, read_workload

RANKS = 8


def read(folder: Path, text: str, name: str = "job", ranks: int = RANKS) -> Workload:
    path = folder / name
    path.write_text(text)
    return read_workload(path, ranks)


def sizes(workload: Workload) -> dict[tuple[str, int], int]:
    return {(c.collective, c.nbytes): c.count for c in workload.calls}


def test_a_list_of_calls(tmp_path: Path) -> None:
    calls = [
        {"collective": "allreduce", "bytes": 4096, "count": 3, "us": 10.0},
        {"collective": "allreduce", "bytes": 4096, "us": 30.0, "ranks": 8},
        {"collective": "allgather", "bytes": 64, "ranks": 4},
    ]
    workload = read(tmp_path, json.dumps({"format": "tuccl-workload/1", "calls": calls}))
    assert workload.calls == (Call("allreduce", 4096, 4, 15.0, 8),)
    assert workload.left_out_text().startswith("1 of 5 calls (0.4% of the bytes) left out")
    assert "1 allgather of 4 ranks" in workload.left_out_text()


@pytest.mark.parametrize(
    "text",
    [
        "allreduce,4K,3\nall_gather,64,1\n",
        "collective,bytes,count\nAllReduce,4096,3\nallgather,64,1\n",
        "job\tsize\top\tcount\na\t4K\tall_reduce\t3\n\na\t64\tallgather\t1\n",
    ],
)
def test_tables_of_calls(text: str, tmp_path: Path) -> None:
    assert sizes(read(tmp_path, text)) == {("allreduce", 4096): 3, ("allgather", 64): 1}


def tensor(elements: int, element_bytes: int = 4) -> list[object]:
    return [7, 8, 0, elements, element_bytes, "cuda:0"]


def test_a_trace_of_schema_1_0(tmp_path: Path) -> None:
    """Nodes have lists of inputs, and the groups' sizes stand in a node of their own."""
    groups = json.dumps([{"pg_id": 99, "ranks": list(range(8))}, {"pg_id": 5, "ranks": [0, 1]}])

    def node(value: object, out: object, *rest: object) -> dict[str, object]:
        inputs = [value, 12, *rest, [], []]
        return {"name": "record_param_comms", "id": 3, "inputs": inputs, "outputs": [out]}

    nodes = [
        {"name": "aten::add", "id": 1, "inputs": [tensor(5), "cuda"], "outputs": []},
        {"name": "## process_group:init ##", "id": 2, "inputs": [groups], "outputs": []},
        node([tensor(1000)], [tensor(1000)], 99, 0, "allreduce"),
        node(tensor(100, 2), tensor(800, 2), 99, 0, "_allgather_base"),
        node([tensor(10)] * 8, [tensor(10)], 99, 0, "reduce_scatter"),
        node([tensor(6)], [tensor(6)], 5, 0, "allreduce"),
        {"name": "record_param_comms", "id": 3, "inputs": [12, 0, 0, "wait", [], []]},
    ]
    for n, split in enumerate(([4] * 8, [1, 7, *[4] * 6])):
        inputs = [tensor(32), n, 99, 0, "all_to_allv", split, split]
        nodes.append({"name": "record_param_comms", "inputs": inputs, "outputs": [tensor(32)]})
    workload = read(tmp_path, json.dumps({"schema": "1.0.1", "nodes": nodes}))
    assert sizes(workload) == {
        ("allgather", 1600): 1,
        ("allreduce", 4000): 1,
        ("alltoall", 128): 1,
        ("reduce-scatter", 320): 1,
    }
    reasons = {one.reason: one.count for one in workload.left_out}
    assert reasons == {"allreduce of 2 ranks": 1, "alltoallv": 1}


def test_a_trace_of_schema_1_1(tmp_path: Path) -> None:
    """Nodes have values beside shapes, and attributes that may stand for tensors."""

    def node(value: object, name: str, ranks: int, **attrs: object) -> dict[str, object]:
        values = [value, [12, False], ["0", "default_pg"], 0, name, [], [], 0, 1, ranks]
        if value is None:
            values = values[1:]
        return {
            "name": "record_param_comms",
            "inputs": {"values": values, "shapes": [], "types": []},
            "outputs": {"values": [], "shapes": [], "types": []},
            "attrs": [{"name": k, "type": "x", "value": v} for k, v in attrs.items()],
        }

    nodes = [
        node([tensor(1000, 2)], "allreduce_coalesced", 8),
        node(tensor(100, 2), "_allgather_base", 8, pg_size=8),
        node(None, "allreduce", 8, in_msg_nelems=50, dtype="BFloat16", pg_size=8),
        node([tensor(9)], "broadcast", 2),
        node([tensor(9)], "send", 8),
    ]
    workload = read(tmp_path, json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    assert sizes(workload) == {
        ("allgather", 1600): 1,
        ("allreduce", 100): 1,
        ("allreduce", 2000): 1,
    }
    assert {one.reason for one in workload.left_out} == {"broadcast of 2 ranks", "send"}


ROW = "{} 256 float sum -1 36.1 0.03 0.05 0 35.8 0.03 0.05 N/A"


def test_nccl_tests_text(tmp_path: Path) -> None:
    devices = "\n".join(f"#  Rank  {rank} Pid 7 on host device {rank}" for rank in range(8))
    text = "\n".join(
        f"# Collective test starting: {name}_perf\n# nThread 1 nGpus 8\n{devices}\n"
        + ROW.format(nbytes)
        for name, nbytes in (("all_reduce", 1024), ("reduce_scatter", 2048))
    )
    workload = read(tmp_path, text)
    assert workload.calls == (
        Call("allreduce", 1024, 1, 36.1, 8),
        Call("reduce-scatter", 2048, 1, 36.1, 8),
    )
    assert read(tmp_path, ROW.format(64), "alltoall_perf.txt").calls[0].collective == "alltoall"
    with pytest.raises(InputError, match="of which test"):
        read(tmp_path, ROW.format(64))


def test_nccl_tests_json(tmp_path: Path) -> None:
    results = [{"size": 512, "out_of_place": {"time": 4.5}}]
    read_back = read(tmp_path, json.dumps({"args": ["/x/all_gather_perf"], "results": results}))
    assert read_back.calls == (Call("allgather", 512, 1, 4.5, 8),)


def logged(device: int, name: str, count: int, datatype: int, ranks: int) -> str:
    return (
        f"h:{10 + device}:{10 + device} [{device}] NCCL INFO {name}: opCount 1f sendbuff 0x1 "
        f"recvbuff 0x2 acc (nil) count {count} datatype {datatype} op 0 root 0 comm 0x3 "
        f"[nranks={ranks}] stream 0x4 task 0 globalrank {device}"
    )


def test_an_nccl_log_counts_the_calls_of_one_gpu(tmp_path: Path) -> None:
    lines = [logged(device, "AllReduce", 1000, 7, 8) for device in (0, 1) for _ in range(3)]
    lines += [logged(1, "AllGather", 10, 9, 8), logged(1, "AllReduce", 5, 7, 2), "other words"]
    workload = read(tmp_path, "\n".join(lines))
    assert sizes(workload) == {("allreduce", 4000): 3, ("allgather", 160): 1}
    assert [one.reason for one in workload.left_out] == ["allreduce of 2 ranks"]
    with pytest.raises(InputError, match="COLL"):
        read(tmp_path, "h:1:1 [0] NCCL INFO Connected all rings\n")


AICB = """HYBRID_TRANSFORMER_FWD_IN_BCKWD  model_parallel_NPU_group: {} checkpoints: 0{}
2
norm -1 0 BROADCAST 16384 1 NONE 0 1 NONE 0 100
layer\t-1\t5 ALLREDUCE 4096 5 ALLREDUCE 4096 1 REDUCESCATTER 8192 100
"""


def test_a_step_of_aicb(tmp_path: Path) -> None:
    workload = read(tmp_path, AICB.format(8, ""))
    assert sizes(workload) == {("allreduce", 4096): 2, ("broadcast", 16384): 1}
    assert [one.nbytes for one in workload.left_out] == [8192]
    every = read(tmp_path, AICB.format(1, ""))
    assert sizes(every) == {**sizes(workload), ("reduce-scatter", 8192): 1}
    of_data = read(tmp_path, AICB.format(2, " all_gpus: 16"))
    assert sizes(of_data) == {("reduce-scatter", 8192): 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no list of calls"),
        ("# notes\nof a job\n", "no list of calls"),
        ("{", "expected a workload"),
        ('{"format": "tuccl-table/1", "calls": []}', "tuccl-workload/1"),
        ('{"format": "tuccl-workload/1", "calls": []}', "no calls"),
        ('{"format": "tuccl-workload/1", "calls": [], "x": 1}', "x"),
        ('{"nodes": 5}', "execution trace"),
        ("collective,bytes,count\nallreduce,much,1\n", ":2"),
        ("collective,bytes,count\nallreduce,64,0\n", "above 0"),
        ("collective,bytes,us\nallreduce,64,nan\n", "above 0"),
        ("allreduce,99999999999999999999,1\n", "bytes"),
        ('allreduce,"64\n\x00,"1\n', "list of calls|number"),
        ("allreduce," + "9" * 5000, "numbers"),
        (AICB.format(8, "") + "a -1 0 ALLREDUCE " + "9" * 5000 + " 1 NONE 0 1 NONE 0 100", ":5"),
        (AICB.format(8, "") + "layer -1 5\n", ":5"),
        (logged(0, "AllReduce", 1, 99, 8), "datatype 99"),
        (logged(0, "AllReduce", 1, 7, 4), "for 8 ranks"),
    ],
)
def test_other_files_are_refused_in_a_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "job") in str(caught.value)


def test_a_compressed_file_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.gz"
    content = gzip.compress(b"allreduce,4K,3\n")
    path.write_bytes(content)
    assert sizes(read_workload(path, RANKS)) == {("allreduce", 4096): 3}
    path.write_bytes(content[:-9])
    with pytest.raises(InputError, match="damaged gzip"):
        read_workload(path, RANKS)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nosuch"):
        read_workload(tmp_path / "nosuch", RANKS)


@given(st.binary(max_size=200), st.sampled_from(["", '{"nodes": [', "allreduce,64,", AICB]))
def test_no_content_is_read_but_as_a_workload_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, start: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(start.encode() + content)
    try:
        workload = read_workload(path, RANKS)
    except InputError:
        return
    assert all(call.count > 0 and call.nbytes > 0 for call in workload.calls)


def test_public_steps_are_read(shared_data: Path) -> None:
    files = sorted((shared_data / "workloads").glob("*.txt"))
    assert files
    calls = {f.name: read_workload(f, 2 if "tp2" in f.name else 8).count for f in files}
    assert calls[next(name for name in calls if name.startswith("G13B-M1-C01"))] == 173
    assert min(calls.values()) > 10
