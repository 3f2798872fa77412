"""Lossy methods, which training on ranks has beside dense ones: their names, labels and ratios."""

from __future__ import annotations

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import values_sent
from tuccl.training.methods import GRADIENT_METHODS, GradientMethod, Label

LOSSY = {
    "ar-topk-star": "sparsification",
    "ar-topk-var": "sparsification",
    "lw-topk": "sparsification",
    "ms-topk": "sparsification",
    "powersgd": "low rank",
}
"""Hooks of DDP by name, with the survey's word for what they do to gradients."""
_RATIO = 0.01


def is_lossy(method: str) -> bool:
    """Return whether ``method`` names a hook, with a ratio or without."""
    return method.partition("@")[0] in LOSSY


def hook_and_ratio(method: str) -> tuple[str, float]:
    """Return the hook of a lossy method and the part of the values that it sends.

    >>> hook_and_ratio("lw-topk@0.1"), hook_and_ratio("powersgd")
    (('lw-topk', 0.1), ('powersgd', 1.0))

    Raises:
        InputError: there is no such hook, or it has no such ratio.
    """
    hook, at, text = method.partition("@")
    if hook not in LOSSY or (hook == "powersgd" and at):
        raise InputError(f"method {method[:40]!r}: expected one of {', '.join(LOSSY)}, and @RATIO")
    if hook == "powersgd":
        return hook, 1.0
    try:
        ratio = float(text) if at else _RATIO
    except ValueError:
        raise InputError(f"method {method[:40]!r}: expected a number behind @") from None
    values_sent(1, ratio)
    return hook, ratio


def with_ratios(methods: list[str], ratios: list[float]) -> list[str]:
    """Return ``methods`` with one of each ratio for every hook that is named without.

    >>> with_ratios(["bsp", "lw-topk"], [0.1, 0.01])
    ['bsp', 'lw-topk@0.1', 'lw-topk@0.01']
    """
    out = []
    for method in methods:
        bare = method in LOSSY and method != "powersgd"
        out += [f"{method}@{ratio:g}" for ratio in ratios] if bare and ratios else [method]
    return out


def lossy_method(name: str) -> GradientMethod:
    """Return the method of a hook: its label; what it sends is of one bucket, as BSP's."""
    hook, _ = hook_and_ratio(name)
    return GradientMethod(
        name, Label("BSP", LOSSY[hook], "A2A", "none"), GRADIENT_METHODS["bsp"].schedule
    )
