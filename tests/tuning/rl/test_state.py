import pytest

from tuccl.topology import join, load_profile
from tuccl.tuning import TrainingJob
from tuccl.tuning.rl.state import FEATURES, State


def state(profile: str, nodes: int, nbytes: int, job: TrainingJob | None = None) -> State:
    host = load_profile(profile)
    return State.of(join(host, nodes) if nodes > 1 else host, "allreduce", nbytes, job)


def test_the_machine_is_read_from_its_topology() -> None:
    one, two = state("ndv2", 1, 1 << 20), state("a100x8-roce", 2, 1 << 20)
    assert (one.nvlink, one.hosts, one.host_gbs) == ("some", 1, 0.0)
    assert (two.nvlink, two.ranks, two.nics_per_gpu) == ("switch", 16, 0.5)
    assert (two.gpu_gbs, two.host_gbs, two.oversubscription) == (300.0, 50.0, 1.0)


def test_a_narrow_spine_is_oversubscribed() -> None:
    cluster = join(load_profile("ndv4"), 4, "clos", up_gbs=50.0)
    assert State.of(cluster, "allreduce", 1 << 20).oversubscription == 4.0


@pytest.mark.parametrize("profile", ["v100x4", "dgx-2", "ndv5"])
def test_the_vector_has_a_bounded_number_for_each_feature(profile: str) -> None:
    vector = state(profile, 2, 1 << 40).vector()
    assert len(vector) == len(FEATURES)
    assert all(0 <= x <= f.most for x, f in zip(vector, FEATURES, strict=True))


def test_the_job_changes_how_much_is_explored_and_no_feature() -> None:
    """No simulated time depends on the job, so that no distance to a trained call does."""
    small = TrainingJob(intensity=10.0, local_batch=1)
    plain, described = (state("v100x4", 2, 1 << 24, job) for job in (None, small))
    assert plain.vector() == described.vector()
    assert (plain.regime, described.regime) == ("conservative", "bold")


def test_c2c_is_volume_over_batch_and_intensity() -> None:
    job = TrainingJob(intensity=470.0, local_batch=64)
    assert state("v100x4", 2, 1 << 20, job).c2c == pytest.approx(2 * 7 / 8 / (64 * 470.0))


def test_regimes() -> None:
    resnet, bert_large = (470.0, 64), (248.0, 8)
    jobs = [TrainingJob(intensity=i, local_batch=m) for i, m in (resnet, bert_large)]
    assert [state("v100x4", 2, 1 << 18, job).regime for job in jobs] == ["conservative", "bold"]
    assert state("v100x4", 2, 1 << 24).regime == "conservative"  # RDMA
    assert state("v100x4", 1, 1 << 24).regime == "usual"
    assert state("v100x4", 2, 16 << 10).regime == "bold"
