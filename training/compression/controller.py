"""Control of AR-Topk over time: ratio and exchange follow the gradients and the network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import torch
import torch.distributed as dist

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import (
    EXCHANGES,
    Exchange,
    Link,
    exchange_us,
    fastest_exchange,
    formula_costs,
    regret,
    values_sent,
)
from tuccl.training.compression.monitors import CallMonitor, NetworkMonitor, has_changed
from tuccl.training.compression.ratio import TriedRatio, choose_ratio
from tuccl.training.compression.smoothing import SmoothedMean
from tuccl.training.compression.state import ARTopkState
from tuccl.training.costs import Costs

CANDIDATES = (0.1, 0.033, 0.011, 0.004, 0.001)
_WINDOW, _SMOOTHING = 5, 0.01


@dataclass(frozen=True)
class Decision:
    """A choice that was made at ``step``: why, on which link, and what it is predicted to take.

    ``regret`` is the part by which the formula's exchange is slower than the fastest, going by
    costs that are no formula; None without such costs.
    """

    step: int
    reason: Literal["start", "gain", "network"]
    link: Link
    ratio: float
    exchange: Exchange
    us: float
    gain: float
    regret: float | None = None


class RatioController:
    """Sets ratio and exchange of an `ARTopkState` while a model is trained.

    Every candidate ratio is tried for some steps at the start and when the gain drifts, from a
    snapshot that is restored after each: model, buffers, optimizer, residual and random numbers.
    When the network has changed, the choice is made anew from what was tried. Rank 0 decides, the
    others follow. Batches that are tried are not given back.

    Notes:
        Section 3-E of the paper, whose repository tries on test data; the network counts as changed
        from 10 % on, against what was last decided by.
    """

    def __init__(
        self,
        state: ARTopkState,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        monitor: NetworkMonitor,
        *,
        candidates: Sequence[float] = CANDIDATES,
        iterations: int = 10,
        drift: float = 0.1,
        network_change: float = 0.1,
        rest: int = 250,
        every: int = 10,
        costs: Costs | None = None,
        search: Literal["grid", "nsga2"] = "grid",
    ) -> None:
        """Prepare; the first step after the dense ones explores.

        Args:
            state: of the model's hook.
            model: trained, wrapped by DDP or not.
            optimizer: of its parameters.
            monitor: of the network; that of rank 0 counts.
            candidates: ratios to try.
            iterations: steps for each.
            drift: mean relative change of the gain from a step to the next that starts a trial.
            network_change: part by which latency or rate must differ to choose anew.
            rest: steps between two times of trying at least.
            every: steps between two looks at the network.
            costs: of collectives, equal on all ranks; None takes the formulas on the monitor's
                link.
            search: as `choose_ratio` has it.
        """
        if iterations < 1 or every < 1 or len(set(candidates)) < 2:
            raise InputError("controller of the ratio: expected two candidates and steps for each")
        self._state, self._model, self._optimizer = state, model, optimizer
        self._monitor, self._costs, self._search = monitor, costs, search
        if isinstance(monitor, CallMonitor):
            state.monitor = monitor
        self._candidates, self._iterations = tuple(sorted(candidates, reverse=True)), iterations
        self._drift, self._network_change = drift, network_change
        self._rest, self._every = rest, every
        self._tried: list[TriedRatio] = []
        self._changes = SmoothedMean(_WINDOW, _SMOOTHING)
        self._before: float | None = None
        self._tried_at = 0
        self.decisions: list[Decision] = []

    def step(self, train: Callable[[], object]) -> None:
        """Do one step by ``train``, after trying and choosing where it is time for that."""
        state = self._state
        if state.iter >= state.start_ARTopk_iter:
            if not self._tried:
                self._explore(train, "start")
            elif self._has_drifted():
                self._explore(train, "gain")
            elif state.iter % self._every == 0:
                link = self._link()
                if has_changed(self.decisions[-1].link, link, self._network_change):
                    self._decide("network", link)
        train()
        self._follow(state.gain)

    def _has_drifted(self) -> bool:
        rested = self._state.iter - self._tried_at >= self._rest
        return rested and self._changes.value >= self._drift

    def _follow(self, gain: float) -> None:
        if self._before:
            self._changes.add(abs(gain - self._before) / self._before)
        self._before = gain

    def _link(self) -> Link:
        """Return the link that rank 0 believes in."""
        mine = self._monitor.link(self._state.iter)
        both = torch.tensor([mine.alpha_us, mine.gbs], dtype=torch.float64)
        dist.broadcast(both, group=self._state.process_group, group_src=0)
        return Link(*both.tolist())

    def _explore(self, train: Callable[[], object], reason: Literal["start", "gain"]) -> None:
        """Try every candidate from the same snapshot, then choose."""
        state, saved = self._state, self._snapshot()
        tried = []
        for ratio in self._candidates:
            state.compression_ratio = ratio
            times, gains = [], []
            for _ in range(self._iterations):
                train()
                times.append(state.compression_us)
                gains.append(state.gain)
            tried.append(TriedRatio(ratio, fmean(times), min(fmean(gains), 1.0)))
            self._restore(saved)
        self._tried = tried
        self._tried_at = state.iter
        self._changes, self._before = SmoothedMean(_WINDOW, _SMOOTHING), None
        self._decide(reason, self._link())

    def _decide(self, reason: Literal["start", "gain", "network"], link: Link) -> None:
        """Let rank 0 choose ratio and exchange, and take them on."""
        state = self._state
        ranks = dist.get_world_size(state.process_group)
        elements = sum(p.numel() for p in self._model.parameters() if p.requires_grad)
        costs = self._costs or formula_costs(link, ranks)
        usable = EXCHANGES if state.tree_group is not None else EXCHANGES[:2]

        def us(ratio: float) -> float:
            values = values_sent(elements, ratio)
            return exchange_us(fastest_exchange(values, ranks, costs, usable), values, ranks, costs)

        words = torch.zeros(3, dtype=torch.float64)
        if dist.get_rank(state.process_group) == 0:
            choice = choose_ratio(self._tried, us, search=self._search)
            words = torch.tensor([choice.ratio, choice.us, choice.gain], dtype=torch.float64)
        dist.broadcast(words, group=state.process_group, group_src=0)
        ratio, predicted_us, gain = words.tolist()
        values = values_sent(elements, ratio)
        exchange = fastest_exchange(values, ranks, costs, usable)
        state.compression_ratio, state.collective = ratio, exchange
        worse = regret(values, ranks, link, self._costs) if self._costs is not None else None
        self.decisions.append(
            Decision(state.iter, reason, link, ratio, exchange, predicted_us, gain, worse)
        )

    def _snapshot(self) -> dict[str, Any]:
        return {
            "model": {n: t.detach().clone() for n, t in self._model.state_dict().items()},
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
            "hook": self._state.state_dict(),
            "random": torch.get_rng_state(),
        }

    def _restore(self, saved: dict[str, Any]) -> None:
        self._model.load_state_dict(saved["model"])
        self._optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        self._state.load_state_dict(saved["hook"])
        torch.set_rng_state(saved["random"])
