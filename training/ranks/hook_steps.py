"""DDP with a communication hook that sends less: AR-Topk, LWTopk, MSTopk, PyTorch's PowerSGD."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)

from tuccl.training.compression.hooks import ar_topk_hook, lw_topk_hook, ms_topk_hook
from tuccl.training.compression.measuring import measured_costs
from tuccl.training.compression.state import ARTopkState
from tuccl.training.lossy import hook_and_ratio
from tuccl.training.ranks.module_steps import DdpSteps
from tuccl.training.ranks.modules import Loss

_SPARSE = {
    "ar-topk-star": ar_topk_hook,
    "ar-topk-var": ar_topk_hook,
    "lw-topk": lw_topk_hook,
    "ms-topk": ms_topk_hook,
}


class HookSteps(DdpSteps):
    """DDP by the hook of a lossy method; AR-Topk's exchange goes by times measured on the group."""

    def __init__(self, method: str, module: torch.nn.Module, loss: Loss, group: Any) -> None:  # noqa: ANN401
        """Wrap the module, and register the hook."""
        super().__init__(module, loss, group)
        hook, ratio = hook_and_ratio(method)
        self._state: ARTopkState | None = None
        if hook == "powersgd":
            self.ddp.register_comm_hook(PowerSGDState(group, start_powerSGD_iter=2), powerSGD_hook)
            return
        star = hook == "ar-topk-star"
        costs = measured_costs(group, repeats=3) if _SPARSE[hook] is ar_topk_hook else None
        self._state = ARTopkState(group, ratio, "star" if star else "var", costs=costs)
        self.ddp.register_comm_hook(self._state, _SPARSE[hook])

    @property
    def calls_made(self) -> int:
        """Return the collectives of a step: PowerSGD's are of one bucket.

        Notes:
            PowerSGD reduces uncompressed tensors, then P, then Q. AR-Topk broadcasts indices
            before it reduces values; var gathers norms before that.
        """
        if self._state is None:
            return 3
        if self._state.exchange == "allgather":
            return 1
        return 2 if self._state.selection == "star" else 3
