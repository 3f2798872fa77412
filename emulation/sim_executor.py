"""Emulated clusters simulated: their rates, and the cores of the one machine."""

from __future__ import annotations

from typing import NamedTuple

from tuccl.emulation.cluster import emulated_cluster
from tuccl.emulation.cross_cluster import as_emulated
from tuccl.emulation.emulated_topology import emulated_network, emulated_topology
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import MSCCL_LOOP, StepLoop
from tuccl.runtime.executors.sim import SimExecutor
from tuccl.simulation import MachineClass
from tuccl.topology import CrossTraffic, Topology, load_machine

_SLOTS = 8
_LEAST_BUFFER, _MOST_BUFFER = 256, 8 << 20


class CpuCall(NamedTuple):
    """A program as a CPU runs it; ``eager``: by messages that wait for no receiver."""

    program: Program
    knobs: Knobs
    loop: StepLoop
    eager: bool


def eager_costs(machine: MachineClass) -> MachineClass:
    """Return ``machine`` for programs whose messages are eager: Simple costs what LL does."""
    return machine.replace(simple=machine.ll)


def as_run_on_cpus(program: Program, knobs: Knobs, loop: StepLoop = MSCCL_LOOP) -> CpuCall:
    """Return what the simulator shall run for a call that ranks on CPUs carry out.

    Notes:
        There are no flags in data: LL and LL128 send the payload of a slot in a message, eight
        ahead. That is Simple with a slot a transfer, at the costs of LL.
    """
    if knobs.protocol == "Simple":
        return CpuCall(program.replace(protocol="Simple"), knobs, loop, eager=False)
    slot_bytes = knobs.slice_bytes
    buffer_bytes = _LEAST_BUFFER
    while buffer_bytes < min(_SLOTS * slot_bytes, _MOST_BUFFER):
        buffer_bytes *= 2
    plain = Knobs("Simple", knobs.channels, min(knobs.threads, 512), buffer_bytes)
    passes = min(loop.pass_bytes or slot_bytes, slot_bytes)
    return CpuCall(
        program.replace(protocol="Simple"), plain, StepLoop(passes // 8 * 8, 1), eager=True
    )


class EmulatedSimExecutor(SimExecutor):
    """Runs programs in virtual time as an emulated cluster of the topology would."""

    connection_a_pair = True  # MPI's over TCP

    def __init__(
        self,
        topology: Topology,
        scale: float | None = None,
        latency_scale: float = 0.0,
        machine: MachineClass | None = None,
        cores: int | None = None,
        cross: CrossTraffic | None = None,
    ) -> None:
        """Prepare ``topology`` with its rates scaled as `Emulation` scales them.

        Args:
            topology: what would be emulated.
            scale: emulated over nominal rates; None makes the fastest NIC 1 Gb/s.
            latency_scale: emulated over nominal latencies.
            machine: a class fitted to runs of this machine; None is ``emulated``, mere estimates.
            cores: of the machine that carries all ranks; None is this one.
            cross: traffic of others; its rates in GB/s are scaled as well.

        Raises:
            InputError: the topology cannot be emulated, or not at that scale.
        """
        shape = emulated_cluster(topology, scale)
        emulated = emulated_topology(topology, shape, latency_scale)
        cross = as_emulated(cross, shape) if cross else None
        costs, shared = machine or load_machine("emulated"), emulated_network(emulated, cores)
        super().__init__(emulated, costs, shared=shared, cross=cross)
        nics = sorted({p.rate_bps / 1e6 for p in shape.ports if p.src in shape.nics})
        self._rates = " to ".join(f"{mbps:g}" for mbps in dict.fromkeys((nics[0], nics[-1])))

    @property
    def label(self) -> str:
        """That it simulates, and what."""
        return (
            f"simulated on an emulated {self._topology.name[:60]}, NICs of {self._rates} Mb/s, "
            f"class {self._machine.name}{f' beside {self._cross.label}' if self._cross else ''}"
        )

    def _as_run(
        self, program: Program, knobs: Knobs, loop: StepLoop
    ) -> tuple[Program, Knobs, StepLoop, MachineClass]:
        ran = as_run_on_cpus(program, knobs, loop)
        machine = self._machine_of(ran.loop)
        return ran.program, ran.knobs, ran.loop, eager_costs(machine) if ran.eager else machine
