from tuccl.synth import Collective, bound
from tuccl.topology import Topology
from tuccl.tuning import TrainingJob
from tuccl.tuning.rl.saturation import lossless_saturated

JOB = TrainingJob(intensity=248.0, local_batch=8)
NBYTES = 256 << 20


def test_a_call_at_the_bound_of_a_slow_network_is_saturated(cluster: Topology) -> None:
    call = Collective("allreduce", cluster.ranks)
    bound_us = bound(cluster, call).time_us(NBYTES)
    times_us = [(call, NBYTES, factor * bound_us) for factor in (1.02, 1.2)]
    [saturated] = lossless_saturated(cluster, times_us, JOB)
    assert saturated.best_us == 1.02 * bound_us
    assert 0.95 <= saturated.of_the_bound <= 1.0
    assert saturated.predicted_us < bound_us


def test_a_call_as_fast_as_its_gpus_links_is_not(topology: Topology) -> None:
    call = Collective("allgather", topology.ranks)
    bound_us = bound(topology, call).time_us(NBYTES)
    assert lossless_saturated(topology, [(call, NBYTES, 1.02 * bound_us)], JOB) == ()
