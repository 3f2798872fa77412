"""A model as its training step sees it: tensors in forward order with what computing them takes."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Literal

import msgspec

ELEMENT_BYTES = 4
_MOST_PARAMETERS = 5000  # the exact schedule takes time with their square
_MOST_NAME = 200


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of a model: its elements, and its layer's share of forward and backward in us.

    Raises:
        ValueError: it has no element, or a time that is none.
    """

    name: str
    elements: int
    forward_us: float
    backward_us: float

    def __post_init__(self) -> None:
        """Refuse sizes and times that cannot be."""
        _check_name(self.name)
        if not 0 < self.elements < 1 << 36:
            raise ValueError(f"elements {self.elements}: expected 1 to 2**36")
        if not all(0 <= us < 1e12 for us in (self.forward_us, self.backward_us)):
            raise ValueError("forward_us, backward_us: expected times from 0 up, in us")

    @property
    def nbytes(self) -> int:
        """Bytes of the gradient, in float32."""
        return self.elements * ELEMENT_BYTES


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model for one rank: ``parameters`` in forward order, ``batch`` samples a step.

    ``update_us`` is the optimizer's time for all of them; ``operations`` are those of a sample's
    forward and backward pass, 0 where they are not known; ``source`` says what the times are:
    given, measured or an estimate. As JSON it is a ``tuccl-model/1`` file.

    >>> Model(name="m", parameters=(Parameter("w", 8, 1.0, 2.0),), update_us=0.5).step_us
    3.5

    Raises:
        ValueError: there is no parameter, or a number is out of its range.
    """

    name: str
    parameters: tuple[Parameter, ...]
    batch: int = 1
    update_us: float = 0.0
    operations: float = 0.0
    source: str = "given"
    format: Literal["tuccl-model/1"] = "tuccl-model/1"

    def __post_init__(self) -> None:
        """Refuse models without a parameter or a sample."""
        _check_name(self.name)
        if not self.source.isprintable() or not 0 <= self.operations < 1e30:
            raise ValueError("source, operations: expected printable text, and a number from 0 up")
        if not 0 < len(self.parameters) <= _MOST_PARAMETERS:
            raise ValueError(f"parameters: expected 1 to {_MOST_PARAMETERS}")
        if not 0 < self.batch < 1 << 31:
            raise ValueError(f"batch {self.batch}: expected at least 1 sample")
        if not 0 <= self.update_us < 1e12 or not 0 < self.step_us:
            raise ValueError("times: expected some computing, and no time below 0")

    @property
    def nbytes(self) -> int:
        """Bytes of all gradients."""
        return sum(parameter.nbytes for parameter in self.parameters)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each gradient, in forward order."""
        return tuple(parameter.nbytes for parameter in self.parameters)

    @property
    def forward_us(self) -> float:
        """Time of a forward pass in us."""
        return math.fsum(parameter.forward_us for parameter in self.parameters)

    @property
    def backward_us(self) -> float:
        """Time of a backward pass in us."""
        return math.fsum(parameter.backward_us for parameter in self.parameters)

    @property
    def step_us(self) -> float:
        """Time of a step on one rank alone in us: T_1."""
        return self.forward_us + self.backward_us + self.update_us

    @property
    def ready_us(self) -> tuple[float, ...]:
        """Time in us from the step's begin when each gradient is ready, in forward order.

        Notes:
            ready_l = t_f + sum of tb_k over k >= l: backward goes from the last to the first.
        """
        backward = (parameter.backward_us for parameter in reversed(self.parameters))
        times = list(accumulate(backward, initial=self.forward_us))[1:]
        return tuple(reversed(times))


def _check_name(name: str) -> None:
    if not 0 < len(name) <= _MOST_NAME or not name.isprintable():
        raise ValueError(f"name {name[:40]!r}: expected 1 to {_MOST_NAME} printable characters")
