"""Indices of the gradients to send: the largest of a model, of each layer, or above a threshold."""

from __future__ import annotations

from collections.abc import Sequence

import torch

INDEX = torch.int32  # as the formulas count them
_ROUNDS = 25


def largest_indices(gradient: torch.Tensor, count: int) -> torch.Tensor:
    """Return where the ``count`` values of the largest magnitude are, in no order, as int32."""
    return torch.topk(gradient.abs(), count, sorted=False).indices.to(INDEX)


def layer_indices(
    gradient: torch.Tensor, sizes: Sequence[int], counts: Sequence[int]
) -> torch.Tensor:
    """Return where the largest ``counts`` values of parts of ``sizes`` elements are (LWTopk)."""
    parts, first = [], 0
    for part, count in zip(gradient.split(list(sizes)), counts, strict=True):
        parts.append(largest_indices(part, count) + first)
        first += part.numel()
    return torch.cat(parts)


def threshold_indices(gradient: torch.Tensor, count: int) -> torch.Tensor:
    """Return where about the largest ``count`` values are, found by a threshold (MSTopk).

    Notes:
        25 rounds of halving leave two thresholds, one with too few values above and one with
        enough: all above the first are taken, and of those between as many as are missing.
    """
    magnitude = gradient.abs()
    low, high = 0.0, float(magnitude.max())
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if int((magnitude > middle).sum()) >= count:
            low = middle
        else:
            high = middle
    above = (magnitude > high).nonzero().view(-1)[:count]
    between = ((magnitude >= low) & (magnitude <= high)).nonzero().view(-1)
    return torch.cat([above, between[: count - above.numel()]]).to(INDEX)
