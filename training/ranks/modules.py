"""Models that really compute: what ``module:function`` names, their layers' times, a small one.

The function takes a rank and returns a ``torch.nn.Module``, equal on all ranks, and a function from
the number of a step to the loss of that step's batch on that rank, a tensor of one element.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch

from tuccl.errors import InputError
from tuccl.training.model import Model, Parameter

Loss = Callable[[int], torch.Tensor]
_WARM_UP, _PASSES = 3, 10
_INPUTS, _WIDTH, _CLASSES, _BATCH = 64, 256, 10, 32


def mlp(rank: int) -> tuple[torch.nn.Module, Loss]:
    """Return a small net of 150,000 weights on random images of ten classes, and its loss."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(_INPUTS, _WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(_WIDTH, _WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(_WIDTH, _WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(_WIDTH, _CLASSES),
    )
    centres = torch.randn(_CLASSES, _INPUTS, generator=torch.Generator().manual_seed(1))

    def loss(step: int) -> torch.Tensor:
        seeded = torch.Generator().manual_seed(1000 * step + rank + 2)
        labels = torch.randint(_CLASSES, (_BATCH,), generator=seeded)
        images = centres[labels] + 0.5 * torch.randn(_BATCH, _INPUTS, generator=seeded)
        result: torch.Tensor = torch.nn.functional.cross_entropy(module(images), labels)
        return result

    return module, loss


def module_of(factory: str, rank: int) -> tuple[torch.nn.Module, Loss]:
    """Return the module and the loss that ``module:function`` makes on ``rank``; ``mlp`` is ours.

    Raises:
        InputError: it cannot be imported, or makes something else.
    """
    if factory == "mlp":
        return mlp(rank)
    where, _, name = factory.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(where), name)(rank)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"--model {factory[:80]}: {error}; expected module:function") from None
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise InputError(f"--model {factory[:80]}: expected a pair of a torch.nn.Module and a loss")
    return made


def measured_model(
    name: str, module: torch.nn.Module, loss: Loss, batch: int | None = None
) -> Model:
    """Return the model of ``module`` as measured here: when its gradients became ready.

    ``batch`` is the number of samples of a loss; None: 32 of ``mlp``, else 1.

    Notes:
        As MG-WFBP: differences between the hooks of consecutive gradients, the mean of several
        passes. Tensors count in the order of ``module.parameters()``, backward goes against it;
        a gradient ready before one behind it counts as ready with it.
    """
    weights = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    ready: dict[int, float] = {}

    def record(place: int) -> Callable[[torch.Tensor], None]:
        return lambda _: ready.__setitem__(place, time.perf_counter())

    hooks = [
        weight.register_post_accumulate_grad_hook(record(place))
        for place, (_, weight) in enumerate(weights)
    ]
    forwards, differences = [], [[0.0] for _ in weights]
    for number in range(_WARM_UP + _PASSES):
        module.zero_grad()
        begin = time.perf_counter()
        result = loss(number)
        middle = last = time.perf_counter()
        result.backward()
        for place in reversed(range(len(weights))):
            at = max(ready.get(place, last), last)
            if number >= _WARM_UP:
                differences[place].append((at - last) * 1e6)
            last = at
        if number >= _WARM_UP:
            forwards.append((middle - begin) * 1e6)
    for hook in hooks:
        hook.remove()
    module.zero_grad()
    forward_us, elements = fmean(forwards), sum(weight.numel() for _, weight in weights)
    return Model(
        name=name,
        parameters=tuple(
            Parameter(
                weight_name,
                weight.numel(),
                forward_us * weight.numel() / elements,
                fmean(differences[place][1:]),
            )
            for place, (weight_name, weight) in enumerate(weights)
        ),
        batch=batch or (_BATCH if name == "mlp" else 1),
        source="measured on one rank of this machine",
    )
