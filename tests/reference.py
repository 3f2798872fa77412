"""What a collective must leave on every rank, by numpy alone: no program, no native code."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# How elements lie in memory; bfloat16 as the upper half of a float.
STORED = {
    **{name: name for name in ("int8", "uint8", "int32", "uint32", "int64", "uint64")},
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "uint16",
}
# Significant bits of the types that round, and the exponent of their least subnormal.
_BITS = {"half": (11, -24), "bfloat16": (8, -133), "float": (24, -149), "double": (53, -1074)}


def drawn(datatype: str, op: str, count: int, rng: np.random.Generator) -> Array:
    """Return `count` elements: any bits for integers, any reals that no reduction overflows."""
    if datatype not in _BITS:
        stored = np.dtype(STORED[datatype])
        return np.frombuffer(rng.bytes(count * stored.itemsize), stored)
    reals = rng.uniform(0.7, 1.4, count) if op == "prod" else rng.standard_normal(count)
    return _narrowed(reals * rng.choice((-1.0, 1.0), count), datatype)


def _narrowed(reals: Array, datatype: str) -> Array:
    if datatype != "bfloat16":
        return reals.astype(STORED[datatype])
    return (reals.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _wide(stored: Array, datatype: str) -> Array:
    """Return the numbers in a type in which sums of a few of them hardly round."""
    if datatype == "bfloat16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(stored, np.longdouble)


def fault(
    collective: str, root: int, datatype: str, op: str, inputs: list[Array], outputs: list[Array]
) -> str:
    """Return which element of which output is wrong; "" where all are right."""
    for rank, found in enumerate(outputs):
        if collective in ("reduce", "gather") and rank != root:
            right = np.zeros(found.size, bool)  # it has none
        elif collective in ("allreduce", "reduce", "reduce-scatter"):
            right = _right_sums(_parts(collective, rank, inputs), found, datatype, op)
        else:
            expected = _moved(collective, rank, root, inputs)
            if expected.size != found.size:
                return f"rank {rank} has {found.size} elements, expected {expected.size}"
            right = found == expected if datatype not in _BITS else _bits(found) == _bits(expected)
        if not right.all():
            return f"rank {rank} element {int(np.argmin(right))} of {found.size}"
    return ""


def _bits(stored: Array) -> Array:
    return np.asarray(stored.view(f"uint{8 * stored.itemsize}"))


def _parts(collective: str, rank: int, inputs: list[Array]) -> list[Array]:
    """Return what each rank brings to the output of `rank`."""
    if collective != "reduce-scatter":
        return inputs
    return [given.reshape(len(inputs), -1)[rank] for given in inputs]


def _moved(collective: str, rank: int, root: int, inputs: list[Array]) -> Array:
    if collective in ("allgather", "gather"):
        return np.concatenate(inputs)
    if collective == "broadcast":
        return np.asarray(inputs[root])
    if collective == "scatter":
        return np.asarray(inputs[root].reshape(len(inputs), -1)[rank])
    return np.concatenate([given.reshape(len(inputs), -1)[rank] for given in inputs])  # alltoall


def _right_sums(parts: list[Array], found: Array, datatype: str, op: str) -> Array:
    if datatype not in _BITS:
        expected = _reduced_integers(np.stack(parts), op)
        return np.asarray(found == expected)
    values, result = np.stack([_wide(p, datatype) for p in parts]), _wide(found, datatype)
    if op in ("min", "max"):
        return np.asarray(result == (values.min(0) if op == "min" else values.max(0)))
    return np.asarray(np.abs(result - _real(values, op)) <= _slack(values, datatype, op))


def _real(values: Array, op: str) -> Array:
    if op == "prod":
        return np.asarray(values.prod(0))
    return np.asarray(values.mean(0) if op == "avg" else values.sum(0))


def _slack(values: Array, datatype: str, op: str) -> Array:
    """Return how far rounding may lead away, in whatever order the ranks' values were joined.

    Notes:
        N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1 and 4.2: n - 1
        operations that each round by at most u leave an error of at most gamma = n u / (1 - n u)
        times the sum of magnitudes, or times the product's; one operation more divides.
    """
    bits, least = _BITS[datatype]
    n, unit = len(values), 2.0**-bits
    gamma = n * unit / (1 - n * unit)
    size = np.abs(values.prod(0)) if op == "prod" else np.abs(values).sum(0)
    return np.asarray(gamma * size / (n if op == "avg" else 1) + n * 2.0 ** (least + n))


def _reduced_integers(values: Array, op: str) -> Array:
    """Return the result of integers that wrap; the mean is the wrapped sum's, towards zero."""
    if op in ("min", "max"):
        return np.asarray(values.min(0) if op == "min" else values.max(0))
    if op == "prod":
        return np.asarray(np.multiply.reduce(values, 0, dtype=values.dtype))
    total = np.add.reduce(values, 0, dtype=values.dtype)
    if op == "sum":
        return np.asarray(total)
    n = len(values)
    if np.issubdtype(total.dtype, np.unsignedinteger):
        return np.asarray(total // total.dtype.type(n))
    whole = np.abs(total.astype(object)) // n  # Python's integers: the least has no opposite
    return np.asarray(np.where(total < 0, -whole, whole).astype(total.dtype))
