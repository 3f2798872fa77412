"""PyTorch's collective calls as the engine takes them: which memory, how much, in place or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist

from tuccl.torch.programs import ProgramKey, datatype_of

_OPS = (
    (dist.ReduceOp.SUM, "sum"),
    (dist.ReduceOp.PRODUCT, "prod"),
    (dist.ReduceOp.MIN, "min"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.AVG, "avg"),
)
# Which buffers hold a share for each rank: the input, the output.
_BIG = {
    "allgather": (False, True),
    "reduce-scatter": (True, False),
    "alltoall": (True, True),
    "gather": (False, True),
    "scatter": (True, False),
}


def op_name(op: dist.ReduceOp) -> str | None:
    """Return the engine's name of a reduction, or None for one that it has not."""
    return next((name for known, name in _OPS if op == known), None)


@dataclass(frozen=True)
class CollectiveCall:
    """A collective: ``inputs`` and ``outputs`` make up the two buffers, in pieces of equal size.

    ``sample`` has the type of all, and the size of what one rank gives or gets (of allreduce,
    broadcast and reduce the whole). On ranks without a buffer its list is empty.
    """

    collective: str
    sample: torch.Tensor
    inputs: Sequence[torch.Tensor]
    outputs: Sequence[torch.Tensor]
    op: str | None = "sum"
    root: int = 0
    back: Sequence[tuple[torch.Tensor, torch.Tensor]] = field(default=())

    def key(self, rank: int, size: int) -> ProgramKey | None:
        """Return what decides which program runs it, or None: no program can.

        Only what all of the ``size`` ranks share may decide between a program and Gloo.
        """
        sample = self.sample
        datatype = datatype_of(self.collective, sample.dtype)
        if datatype is None or self.op is None or not self._fits(size):
            return None
        return ProgramKey(
            self.collective,
            sample.numel() * sample.itemsize,
            datatype,
            sample.itemsize,
            self.op,
            self.root,
            self._is_in_place(rank),
        )

    def _fits(self, size: int) -> bool:
        """Return whether all are plain, of one type and device, as large as the call needs."""
        each = self.sample.numel()
        plain = all(
            t.layout == torch.strided
            and t.device == self.sample.device
            and t.dtype == self.sample.dtype
            for t in (self.sample, *self.inputs, *self.outputs)
        )
        gives, gets = (size if big else 1 for big in _BIG.get(self.collective, (False, False)))
        sides = ((self.inputs, gives), (self.outputs, gets))
        return (
            plain
            and each > 0
            and all(
                len(pieces) in (0, many) and all(t.numel() == each for t in pieces)
                for pieces, many in sides
            )
        )

    def with_usable_memory(self, in_place: bool) -> CollectiveCall:
        """Return the same call on memory that the engine can use as it is.

        Tensors with gaps, and inputs that outputs would overwrite though the program runs out of
        place, are copied; ``back`` says what is to be copied where afterwards.
        """
        outputs = [t.contiguous() for t in self.outputs]
        moved = {id(old): new for old, new in zip(self.outputs, outputs, strict=True)}
        inputs = [moved[id(t)] if id(t) in moved else t.contiguous() for t in self.inputs]
        if not in_place and any(_overlap(i, o) for i in inputs for o in outputs):
            inputs = [t.clone() for t in inputs]
        pairs = zip(self.outputs, outputs, strict=True)
        back = tuple((old, new) for old, new in pairs if new is not old)
        return replace(self, inputs=inputs, outputs=outputs, back=back)

    def _is_in_place(self, rank: int) -> bool:
        """Return whether the buffers overlap as NCCL's in-place calls do."""
        mine, theirs = self.inputs, self.outputs
        if not mine or not theirs:
            return False
        if len(mine) == len(theirs):
            pairs = zip(mine, theirs, strict=True)
            return all(a.data_ptr() == b.data_ptr() for a, b in pairs)
        big, small = (theirs, mine[0]) if len(mine) < len(theirs) else (mine, theirs[0])
        return bool(big[rank].data_ptr() == small.data_ptr())


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    first, second = sorted(((a.data_ptr(), a.nbytes), (b.data_ptr(), b.nbytes)))
    return bool(first[0] + first[1] > second[0])
