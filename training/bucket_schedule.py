"""A step's calls as planned: buckets in order, and the rules by which they take the link."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tuccl.training.model import ELEMENT_BYTES


@dataclass(frozen=True)
class Bucket:
    """The bytes that one call moves: of tensors ``first`` to ``last`` - 1, or a part of one.

    The call is made once all of them are ready, and not before ``release_us`` of the step.
    ``offset`` is the bytes of all gradients before it, in forward order.
    """

    first: int
    last: int
    nbytes: int
    priority: int = 0
    release_us: float = 0.0
    offset: int = 0


@dataclass(frozen=True)
class BucketSchedule:
    """Buckets in the order of their calls; ``calls`` is what each goes through, one after another.

    Attributes:
        buckets: in the order in which the calls are made.
        calls: collectives, or stages of a parameter server.
        order: ``fixed``, an early bucket waits for those before it; ``priority``, the ready one
            of the least priority goes first, while credit lasts.
        credit_bytes: bytes under way at most, which the last may overdraw; 0 is no limit.
        barrier: the next step begins when all is updated; without it a layer's forward waits for
            its own tensors alone.
        server_order: the server answers by priority instead of by arrival.
        late: calls made only when the first of ``calls`` is through for all buckets, in forward
            order (DeAR's all-gathers).
    """

    buckets: tuple[Bucket, ...]
    calls: tuple[str, ...] = ("allreduce",)
    order: Literal["fixed", "priority"] = "fixed"
    credit_bytes: int = 0
    barrier: bool = True
    server_order: bool = False
    late: bool = False

    @property
    def credited(self) -> str:
        """Return the call after which a bucket's credit comes back.

        Of servers it is the push: were it the pull, workers that push in unlike orders would wait
        for each other.
        """
        return "push" if "push" in self.calls else self.calls[-1]

    def scaled(self, factor: float) -> BucketSchedule:
        """Return it with bytes and credit times ``factor``, whole elements, at least one."""

        def scale(nbytes: int) -> int:
            return max(round(nbytes * factor / ELEMENT_BYTES), 1) * ELEMENT_BYTES

        buckets = tuple(replace(bucket, nbytes=scale(bucket.nbytes)) for bucket in self.buckets)
        credit = scale(self.credit_bytes) if self.credit_bytes else 0
        return replace(self, buckets=buckets, credit_bytes=credit)
