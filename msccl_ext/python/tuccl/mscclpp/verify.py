"""The proof of a plan: its parts, its sizes, then every order in which its blocks may run."""

from __future__ import annotations

import math

from tuccl._native import Finding, VerifyReport
from tuccl.errors import InputError
from tuccl.mscclpp.checks import check_parts
from tuccl.mscclpp.findings import Findings
from tuccl.mscclpp.numbers import device_plan
from tuccl.mscclpp.plan import ExecutionPlan
from tuccl.mscclpp.sizes import check_sizes, whole_chunks

__all__ = ["verify_plan"]

ELEMENT = 16  # bytes
PIECES = 4  # elements that stand for the smallest unit_size in the proof
SPREAD = 64  # how much larger another unit_size may be
BLOCKS = 108  # that run at once on an A100; they wait for each other


def verify_plan(plan: ExecutionPlan, *, root: int = 0) -> VerifyReport:
    """Prove that MSCCL++ loads the plan and that calls of it compute the collective.

    Refused is what the loader refuses, what makes it or a kernel overwrite memory, what handlers
    compute wrong, and what the proof cannot show: the right result in every output, no race
    between any two operations of this call and of those around it, no deadlock, every signal
    waited for. Slices of pipelines and parts of thread block groups are proved at sizes that stand
    for all: less than a piece a chunk, whole pieces, several and a rest. ``root`` is the root of a
    broadcast or reduce. Never raises on a bad plan: it reports.

    Raises:
        InputError: ``root`` is no rank.
    """
    if not 0 <= root < len(plan.gpus):
        raise InputError(f"root {root}: expected 0 to {len(plan.gpus) - 1}")
    findings = Findings()
    check_parts(plan, findings)
    if not findings.count:
        check_sizes(plan, findings)
    if findings.count:
        return VerifyReport(findings.errors())
    units, sizes = _proof_sizes(plan)
    if not sizes:
        findings.add("limit", f"unit sizes more than {SPREAD} times apart, too many to prove")
        return VerifyReport(findings.errors())
    device = device_plan(plan, root, units)
    for size in sizes:
        report = device.prove(size)
        if not report.ok:
            return VerifyReport(report.errors, _warnings(plan))
    return VerifyReport([], _warnings(plan))


def _warnings(plan: ExecutionPlan) -> list[Finding]:
    blocks = max(len(gpu.threadblocks) for gpu in plan.gpus)
    if blocks <= BLOCKS:
        return []
    return [
        Finding(
            "co-residency",
            f"{blocks} thread blocks wait for each other: a GPU with fewer SMs hangs",
        )
    ]


def _proof_sizes(plan: ExecutionPlan) -> tuple[dict[int, int], list[int]]:
    """Return each unit_size in elements of the proof, and the chunks' elements to prove it with.

    The units shrink together, the smallest to a few elements: what happens depends on how many
    pieces a chunk has and where pieces and parts of groups meet, not on how long they are.
    """
    ops = [op for _, _, _, op in plan.operations()]
    units = sorted({op.iter_context.unit_size for op in ops if op.iter_context})
    parts = sorted({op.tbg_info.tbg_size for op in ops if op.tbg_info})
    common = math.lcm(*parts) if parts else 1
    most = max(plan.max_message_size // whole_chunks(plan) // ELEMENT, 1)
    if not units:
        sizes = {1} if common == 1 else {1, 2, 3, min(common, 60), min(common, 60) + 1}
        return {}, sorted(size for size in sizes if size <= most)
    step = math.gcd(*units) // ELEMENT
    pieces = max(n for n in range(1, PIECES + 1) if step % n == 0)
    if units[-1] > SPREAD * units[0] or units[0] > SPREAD * step * ELEMENT:
        return {}, []
    scaled = {unit: unit // ELEMENT * pieces // step for unit in units}
    longest = max(scaled.values())
    sizes = {1, pieces, pieces + 1, 2 * pieces + 1, longest, longest + 1, 2 * longest + 1}
    sizes |= {3 * longest} if common == 1 else {3 * longest, common, common + 1}
    # An element of the proof stands for so many of the plan.
    limit = max(most * pieces // step, 1)
    return scaled, sorted(size for size in sizes if size <= max(limit, 1))
