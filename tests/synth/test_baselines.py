"""msccl-default: what TACCL's method gives on the full mesh, and its robust form."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tuccl.errors import InputError
from tuccl.synth.baseline.msccl_default import MSCCL_DEFAULT_KNOBS, msccl_default
from tuccl.synth.lowering.lower import lower
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.collective import COLLECTIVES, Collective
from tuccl.synth.model.schedule import Schedule
from tuccl.topology import Topology, join, load_profile

TACCL_FILES = {
    "allgather": "mesh8_n2_ag__Allgather_i1.xml",
    "allreduce": "mesh8_n2_ag__Allreduce_i1.xml",
}


@pytest.fixture(scope="module")
def t() -> Topology:
    return join(load_profile("dgx-a100"), 2)


def messages(schedule: Schedule) -> Counter[tuple[int, int]]:
    """Chunks sent from rank to rank."""
    pairs: Counter[tuple[int, int]] = Counter()
    for move in schedule.transfers:
        if not move.local:
            pairs[move.src, move.dst] += move.count
    return pairs


@pytest.mark.parametrize("form", ["faithful", "robust"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_both_forms_are_right_with_one_chunk_a_rank(t: Topology, name: str, form: str) -> None:
    collective = Collective(name, 16, root=5)
    schedule = msccl_default(t, collective, "faithful" if form == "faithful" else "robust")
    assert verify_schedule(schedule) is None
    assert schedule.chunks_per_rank == 1
    program = lower(schedule)
    assert program.protocol == MSCCL_DEFAULT_KNOBS.protocol
    assert program.out_of_place


@pytest.mark.parametrize("name", ["allgather", "allreduce"])
def test_forms_fit_the_executor_on_one_channel(t: Topology, name: str) -> None:
    for form in ("faithful", "robust"):
        schedule = msccl_default(t, Collective(name, 16), form)
        assert lower(schedule).nchannels == MSCCL_DEFAULT_KNOBS.channels == 1


def test_faithful_sums_take_one_contribution_after_the_other(t: Topology) -> None:
    """Each rank adds the others' chunks to one and the same place, so they cannot overlap."""
    schedule = msccl_default(t, Collective("allreduce", 16), "faithful")
    sums = Counter((m.dst, m.dst_at) for m in schedule.transfers if m.reduce)
    assert set(sums.values()) == {15}
    assert not any(schedule.scratch)


@pytest.mark.parametrize("name", ["allgather", "allreduce"])
def test_faithful_has_the_structure_of_taccls_own_program(
    shared_data: Path, t: Topology, name: str
) -> None:
    """Against what TACCL made for a full mesh of 2x8: equal messages, chunks and buffers.

    Inside a host TACCL's solver may forward a chunk where a direct send costs the same, so there
    only the number of messages is held equal; between hosts every pair is.
    """
    algo = ElementTree.parse(shared_data / "algorithms" / "taccl" / TACCL_FILES[name]).getroot()
    theirs: Counter[tuple[int, int]] = Counter()
    for gpu in algo:
        for block in gpu.findall("tb"):
            pair = int(gpu.attrib["id"]), int(block.attrib["send"])
            sends = [s for s in block.findall("step") if s.attrib["type"] == "s"]
            theirs[pair] += sum(int(step.attrib["cnt"]) for step in sends)
    schedule = msccl_default(t, Collective(name, 16), "faithful")
    ours = messages(schedule)
    assert sum(ours.values()) == sum(theirs.values())
    apart = [(a, b) for a in range(16) for b in range(16) if a // 8 != b // 8]
    assert all(ours[pair] == theirs[pair] for pair in apart)
    assert schedule.nchunks == int(algo.attrib["nchunksperloop"])
    assert algo.attrib["proto"] == MSCCL_DEFAULT_KNOBS.protocol
    assert int(algo.attrib["nchannels"]) == MSCCL_DEFAULT_KNOBS.channels
    scratch = [int(gpu.attrib["s_chunks"]) for gpu in algo]
    assert list(schedule.scratch) == scratch


def test_unknown_form_is_refused(t: Topology) -> None:
    with pytest.raises(InputError, match="'faithful' or 'robust'"):
        msccl_default(t, Collective("allgather", 16), "naive")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="8 ranks on a topology of 16"):
        msccl_default(t, Collective("allgather", 8))


@pytest.mark.parametrize("name", ["allgather", "allreduce"])
def test_faithful_sends_inside_hosts_first_and_sums_other_hosts_first(name: str) -> None:
    """As TACCL orders by time: what crosses hosts arrives last, and reversed is summed first."""
    pod = join(load_profile("v100x4"), 2)
    transfers = msccl_default(pod, Collective(name, 8), "faithful").transfers
    remote = [t for t in transfers if not t.local]
    sends, sums = (
        [pod.host_of(t.src) != pod.host_of(t.dst) for t in remote if t.reduce == reduces]
        for reduces in (False, True)
    )
    assert sends == sorted(sends)
    assert sums == sorted(sums, reverse=True)
