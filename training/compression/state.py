"""The state of hooks that send sparse gradients: ratio, exchange, and the residual of this rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import (
    EXCHANGES,
    Exchange,
    Link,
    fastest_exchange,
    formula_costs,
    values_sent,
)
from tuccl.training.compression.monitors import CallMonitor
from tuccl.training.compression.smoothing import SmoothedMean
from tuccl.training.costs import Costs

Selection = Literal["star", "var"]
_WINDOW, _SMOOTHING = 25, 0.001
# A network whose rate alone counts, for a choice without any other knowledge.
_RATE_ALONE = Link(0.0, 1.0)


class ARTopkState:
    """The state of `ar_topk_hook`, one for each rank and DDP module.

    The residual, which a rank did not send, is its own: keep a file for each rank
    (`state_dict`). It belongs to parameters, not to DDP's buckets, which change after the first
    step.

    >>> state = ARTopkState(compression_ratio=0.1, selection="var", collective="allgather")
    >>> state.compression_ratio, state.iter
    (0.1, 0)
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        compression_ratio: float = 0.01,
        selection: Selection = "star",
        collective: Exchange | Literal["auto"] = "auto",
        start_ARTopk_iter: int = 2,
        use_error_feedback: bool = True,
        *,
        costs: Costs | None = None,
        tree_group: dist.ProcessGroup | None = None,
    ) -> None:
        """Prepare a state.

        Args:
            process_group: The group of the ranks; None is the world.
            compression_ratio: The part of the gradient that is sent.
            selection: The rule for the rank whose indices all use: ``star`` takes turns, ``var``
                takes the rank of the largest gradient (an all-gather of 4 bytes more).
            collective: ``allgather`` (every rank's own indices), ``allreduce`` (after a broadcast
                of indices), ``tree-allreduce`` (the same by ``tree_group``), or ``auto``: the
                cheapest one according to ``costs``.
            start_ARTopk_iter: Steps at the beginning that send all.
            use_error_feedback: Whether a step's gradient includes what was not sent before.
            costs: Costs of collectives, equal on all ranks; None counts bytes alone.
            tree_group: A group of the same ranks whose all-reduce is a tree.

        Raises:
            InputError: an argument is out of its range.
        """
        if selection not in get_args(Selection):
            raise InputError(f"selection {str(selection)[:40]!r}: expected star or var")
        if collective not in ("auto", *EXCHANGES):
            raise InputError(
                f"collective {str(collective)[:40]!r}: expected auto, {', '.join(EXCHANGES)}"
            )
        if collective == "tree-allreduce" and tree_group is None:
            raise InputError("collective tree-allreduce: needs tree_group, whose all-reduce is one")
        if start_ARTopk_iter < 0:
            raise InputError(f"start_ARTopk_iter {start_ARTopk_iter}: expected 0 or more steps")
        self.process_group = process_group
        self.tree_group = tree_group
        self.compression_ratio = compression_ratio
        self.selection: Selection = selection
        self.collective: Exchange | Literal["auto"] = collective
        self.start_ARTopk_iter = start_ARTopk_iter
        self.use_error_feedback = use_error_feedback
        self.costs = costs
        self.iter = 0
        self.gain = 1.0  # of the last step: |sent|^2 / |residual and gradient|^2 over all ranks
        self.exchange: Exchange | None = None  # of the last step
        self.root: int | None = None  # whose indices the last step used
        self.compression_us = 0.0  # what choosing indices took in the last step
        self.monitor: CallMonitor | None = None  # called for every call that carries values
        self._numel = self._sent = 0
        self._norm = SmoothedMean(_WINDOW, _SMOOTHING)
        self._order: tuple[int, ...] = ()
        self._sizes: tuple[int, ...] = ()
        self._residual: torch.Tensor | None = None
        self._forget_parameters()

    def _forget_parameters(self) -> None:
        self._parameters: list[torch.Tensor] = []
        self._index: dict[int, int] = {}
        self.pending: list[Any] = []  # buckets of the present step that are held

    @property
    def compression_ratio(self) -> float:
        """The part of the gradient that is sent; all ranks must set it alike.

        Raises:
            InputError: when set to what is not above 0 and at most 1.
        """
        return self._ratio

    @compression_ratio.setter
    def compression_ratio(self, ratio: float) -> None:
        values_sent(1, ratio)
        self._ratio = ratio

    @property
    def error_dict(self) -> dict[int, torch.Tensor]:
        """The residual of each parameter, by its place in the first step's buckets."""
        if self._residual is None:
            return {}
        parts = self._residual.split(list(self._sizes))
        return dict(zip(self._order, parts, strict=True))

    def compression_stats(self) -> tuple[float, int, int]:
        """Return the rate of compression, and values before and after it, as PowerSGDState does."""
        return (self._numel / self._sent if self._sent else 0.0, self._numel, self._sent)

    def order_of(self, parameters: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """Return the places of parameters; those not seen before follow."""
        for parameter in parameters:
            if id(parameter) not in self._index:
                self._index[id(parameter)] = len(self._parameters)
                self._parameters.append(parameter)
        return tuple(self._index[id(parameter)] for parameter in parameters)

    def lay_out(self, order: tuple[int, ...], sizes: tuple[int, ...], like: torch.Tensor) -> None:
        """Bring the residual into the order of a step's parameters, given by their places.

        Raises:
            InputError: it is of a model of other sizes.
        """
        by_place = self.error_dict
        of_step = dict(zip(order, sizes, strict=True))
        if by_place and {place: part.numel() for place, part in by_place.items()} != of_step:
            raise InputError("residuals of AR-Topk: are of a model of other sizes; load its own")
        if not by_place:
            self._residual = torch.zeros_like(like)
        elif order != self._order:
            self._residual = torch.cat([by_place[place] for place in order])
        self._order, self._sizes = order, sizes

    def add_residual(self, gradient: torch.Tensor) -> torch.Tensor:
        """Add what was not sent before to a step's gradient, in place, and return it."""
        if not self.use_error_feedback or self._residual is None:
            return gradient
        return gradient.add_(self._residual)

    def keep(self, residual: torch.Tensor, sent: int) -> None:
        """Take note of what a step has left over, and of how many values it sent."""
        if self.use_error_feedback:
            self._residual = residual
        self._numel += residual.numel()
        self._sent += sent

    def smoothed_norm(self, gradient: torch.Tensor) -> float:
        """Return the gradient's L2 norm, smoothed over steps, by which ``var`` selects.

        Notes:
            The mean of the first 25, from then on moved by a thousandth of the distance.
        """
        return self._norm.add(float(torch.linalg.vector_norm(gradient)))

    def exchange_for(self, values: int) -> Exchange:
        """Return the collective that carries ``values`` values a rank."""
        if self.collective != "auto":
            return self.collective
        ranks = dist.get_world_size(self.process_group)
        costs = self.costs or formula_costs(_RATE_ALONE, ranks)
        usable = EXCHANGES if self.tree_group is not None else EXCHANGES[:2]
        return fastest_exchange(values, ranks, costs, usable)

    def state_dict(self) -> dict[str, Any]:
        """Return all that another process needs to go on bitwise: plain numbers and tensors."""
        return {
            "iter": self.iter,
            "compression_ratio": self.compression_ratio,
            "residuals": {place: part.clone() for place, part in self.error_dict.items()},
            "norm": (self._norm.count, self._norm.value),
            "numel": self._numel,
            "sent": self._sent,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` returned on this rank.

        On another number of ranks load `mean_of_states` of all ranks' on each.

        Raises:
            InputError: it is no such state.
        """
        try:
            residuals: dict[int, torch.Tensor] = saved["residuals"]
            self.iter, self.compression_ratio = (
                int(saved["iter"]),
                float(saved["compression_ratio"]),
            )
            count, value = saved["norm"]
            self._norm.count, self._norm.value = int(count), float(value)
            self._numel, self._sent = int(saved["numel"]), int(saved["sent"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"state of AR-Topk: {error!r} is missing or of a wrong type") from None
        self._order = tuple(residuals)
        self._sizes = tuple(part.numel() for part in residuals.values())
        self._residual = torch.cat([*residuals.values()]) if residuals else None

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: no group, and no parameters, which another process has anew."""
        left_out = ("process_group", "tree_group", "monitor", "_parameters", "_index", "pending")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what was pickled; the group is the world until it is set."""
        self.__dict__.update(state, process_group=None, tree_group=None, monitor=None)
        self._forget_parameters()


def mean_of_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the state that each of another number of ranks loads: with the mean residual.

    The sum over ranks of what was not sent then weighs as much in the next mean as before.

    Raises:
        InputError: there are none.
    """
    if not states:
        raise InputError("states of AR-Topk: expected those of all ranks, there are none")
    residuals = {
        place: torch.stack([state["residuals"][place] for state in states]).mean(0)
        for place in states[0]["residuals"]
    }
    return {**states[0], "residuals": residuals}
