"""The state of a call: all that an agent knows before it, as a value and as numbers."""

from __future__ import annotations

import math
import statistics
from typing import Annotated, Literal, get_args

import msgspec

from tuccl.sketches.full_mesh import nvlink_pairs
from tuccl.synth import COLLECTIVES
from tuccl.topology import Topology

NvlinkKind = Literal["none", "some", "mesh", "switch"]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
_Rate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_SIZE_BINS = (16 << 10, 64 << 10, 256 << 10, 1 << 20)  # and 4 MB and more
_RDMA_BYTES, _SMALL_BYTES = 1 << 20, 16 << 10
_INTENSE, _LARGE_BATCH = 400.0, 32  # ResNet-50 (470, 64) against BERT-Large (248, 8)
_SLOW_GBS = 2.0  # of a host: TCP, not RDMA


class TrainingJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The job that makes the call; what is not given is BERT-Base.

    It decides how much a search explores (`State.regime`); no time depends on it.

    Attributes:
        intensity: Operations a sample and parameter, I = C/D.
        local_batch: Samples a rank, M.
    """

    intensity: _Positive = 249.0
    local_batch: _Count = 64


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call on a machine, before it is made.

    Attributes:
        collective: Its name.
        nbytes: The whole array in bytes.
        ranks: GPUs.
        hosts: Hosts.
        nvlink: Whether NVLink joins no GPUs of a host, some pairs, all pairs, or a switch does.
        gpu_gbs: Nominal rate of a GPU's own links, in GB/s.
        host_gbs: Nominal rate of a host's NICs, in GB/s; 0 without a network.
        nics_per_gpu: NICs for each GPU of a host.
        oversubscription: Rate into the switches of NICs over the rate out to other switches.
        job: The caller.
    """

    collective: Annotated[str, msgspec.Meta(max_length=40)]
    nbytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 50)]
    ranks: _Count
    hosts: _Count
    nvlink: NvlinkKind
    gpu_gbs: _Rate
    host_gbs: _Rate
    nics_per_gpu: _Rate
    oversubscription: _Rate
    job: TrainingJob = TrainingJob()

    @classmethod
    def of(
        cls, topology: Topology, collective: str, nbytes: int, job: TrainingJob | None = None
    ) -> State:
        """Return the state of a call of ``nbytes`` bytes on ``topology``."""
        host = topology.hosts[0]
        gpus, nics = topology.gpus_of(host), topology.nics_of(host)
        joined = len(topology.hosts) > 1
        host_gbs = _network_gbs(topology, nics) if joined else 0.0
        return cls(
            collective=collective,
            nbytes=nbytes,
            ranks=topology.ranks,
            hosts=len(topology.hosts),
            nvlink=_nvlink(topology),
            gpu_gbs=statistics.median(_gpu_gbs(topology, gpu) for gpu in gpus),
            host_gbs=host_gbs,
            nics_per_gpu=len(nics) / len(gpus) if joined else 0.0,
            oversubscription=_oversubscription(topology),
            job=job or TrainingJob(),
        )

    @property
    def has_nvlink(self) -> bool:
        """Return whether any GPUs of a host are joined by NVLink."""
        return self.nvlink != "none"

    @property
    def size_bin(self) -> int:
        """Return the number of the size's bin: up to 16 KB, 64 KB, 256 KB, 1 MB, and above."""
        return sum(self.nbytes > most for most in _SIZE_BINS)

    @property
    def c2c(self) -> float:
        """Return the estimate of communication to computation, f(N) / (M I)."""
        volume = communication_volume(self.collective, self.ranks)
        return volume / (self.job.local_batch * self.job.intensity)

    @property
    def regime(self) -> Literal["conservative", "usual", "bold"]:
        """Return how much exploring this state is worth.

        Notes:
            Shi et al., "A Quantitative Survey of Communication Optimizations in Distributed Deep
            Learning", section VI: defaults are nearly right for intense models in large batches,
            and for 1 MB and more over RDMA, here a network above 2 GB/s a host; little is right
            for others in small batches, around 16 KB, and on PCIe alone.
        """
        job = self.job
        if (
            (job.intensity < _INTENSE and job.local_batch < _LARGE_BATCH)
            or _SMALL_BYTES // 4 <= self.nbytes <= 4 * _SMALL_BYTES
            or not self.has_nvlink
        ):
            return "bold"
        intense = job.intensity >= _INTENSE and job.local_batch >= _LARGE_BATCH
        if intense or (self.nbytes >= _RDMA_BYTES and self.host_gbs > _SLOW_GBS):
            return "conservative"
        return "usual"

    def vector(self) -> tuple[float, ...]:
        """Return what times depend on as numbers, one for each of `FEATURES`."""
        return (
            *_one_hot(self.collective, COLLECTIVES),
            math.log2(self.nbytes),
            float(self.size_bin),
            math.log2(self.ranks),
            math.log2(self.hosts),
            float(self.hosts > 1),
            *_one_hot(self.nvlink, get_args(NvlinkKind)),
            math.log2(1 + self.gpu_gbs),
            math.log2(1 + self.host_gbs),
            math.log2(1 + self.nics_per_gpu),
            math.log2(max(self.oversubscription, 1.0)),
        )


class Feature(msgspec.Struct, frozen=True):
    """One number of the vector: its name, its largest value, and its weight in distances."""

    name: str
    most: float
    weight: float


def _categories(name: str, values: tuple[str, ...], weight: float) -> list[Feature]:
    return [Feature(f"{name} {value}", 1.0, weight) for value in values]


# A step of one in a feature is as far as another of the same weight.
FEATURES = (
    *_categories("collective", tuple(COLLECTIVES), 10.0),
    Feature("log2 size", 50.0, 0.5),
    Feature("size bin", 4.0, 0.2),
    Feature("log2 ranks", 20.0, 0.3),
    Feature("log2 hosts", 20.0, 0.5),
    Feature("several hosts", 1.0, 2.0),
    *_categories("nvlink", get_args(NvlinkKind), 0.7),
    Feature("log2 GPU GB/s", 30.0, 0.4),
    Feature("log2 host GB/s", 30.0, 0.3),
    Feature("log2 NICs a GPU", 30.0, 1.0),
    Feature("log2 oversubscription", 30.0, 0.5),
)


def communication_volume(collective: str, ranks: int) -> float:
    """Return f(N): bytes that each rank has to send for each byte of the array.

    >>> communication_volume("allreduce", 4), communication_volume("broadcast", 4)
    (1.5, 1.0)
    """
    share = (ranks - 1) / ranks
    return {"allreduce": 2 * share, "broadcast": 1.0, "reduce": 1.0}.get(collective, share)


def _one_hot(value: str, values: tuple[str, ...] | frozenset[str]) -> tuple[float, ...]:
    return tuple(float(value == each) for each in values)


def _nvlink(topology: Topology) -> NvlinkKind:
    if any(node.kind == "nvswitch" for node in topology.nodes):
        return "switch"
    pairs = sum(
        len(gpus) * (len(gpus) - 1) for gpus in (topology.gpus_of(h) for h in topology.hosts)
    )
    count = len(nvlink_pairs(topology))
    return "none" if not count else "mesh" if count == pairs else "some"


def _gpu_gbs(topology: Topology, rank: int) -> float:
    """The rate of a GPU's NVLinks in GB/s, or of its other links where it has none."""
    gpu = topology.gpus[rank].id
    out = [link for link in topology.links for src, _ in link.directions() if src == gpu]
    fast = [link for link in out if link.kind in ("nvlink", "xgmi", "c2c")]
    return sum(link.bandwidth for link in fast or out)


def _network_gbs(topology: Topology, nics: tuple[str, ...]) -> float:
    ports = {nic: topology.node(nic).port_gbs or math.inf for nic in nics}
    out = dict.fromkeys(nics, 0.0)
    for link in topology.links:
        for src, _ in link.directions():
            if src in out and link.kind == "network":
                out[src] += link.bandwidth
    return sum(min(out[nic], ports[nic]) for nic in nics)


def _oversubscription(topology: Topology) -> float:
    kinds = {node.id: node.kind for node in topology.nodes}
    down = up = 0.0
    for link in topology.links:
        for src, dst in link.directions():
            if kinds[src] == "nic" and kinds[dst] == "switch":
                down += link.bandwidth
            elif kinds[src] == kinds[dst] == "switch":
                up += link.bandwidth
    return max(1.0, 2 * down / up) if up else 1.0  # each uplink is counted up and down
