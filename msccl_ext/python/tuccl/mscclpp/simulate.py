"""Simulating a plan: what MSCCL++'s executor makes of it in virtual time."""

from __future__ import annotations

from tuccl._native import MachineClass, Network, SimResult
from tuccl._native import simulate_plan as simulate_native
from tuccl.mscclpp.numbers import device_plan
from tuccl.mscclpp.plan import ExecutionPlan

__all__ = ["simulate_plan"]

ELEMENT = 16  # bytes


def simulate_plan(
    plan: ExecutionPlan,
    nbytes: int,
    network: Network,
    machine: MachineClass,
    *,
    launch: str = "graph",
    process_gpus: int = 0,
) -> SimResult:
    """Return the simulated call of a verified ``plan`` on the whole array of ``nbytes`` bytes.

    ``machine`` is a class of MSCCL++'s (``load_machine("mscclpp-h100")``);
    docs/reference/simulator.md explains its constants.

    Raises:
        InputError: the chunks do not divide ``nbytes``, the network lacks ranks or routes, or the
            blocks of a GPU cannot all be on it at once.
    """
    ops = [op for _, _, _, op in plan.operations()]
    units = {op.iter_context.unit_size for op in ops if op.iter_context}
    return simulate_native(
        device_plan(plan, 0, {unit: unit // ELEMENT for unit in units}),
        network,
        machine,
        nbytes,
        threads=plan.num_threads_per_block,
        packets=plan.packets,
        launch=launch,
        process_gpus=process_gpus,
    )
