"""TACCL's topology profiles: link costs of one machine at one message size."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason

TacclMachine = Literal["HubAndSpoke", "DGX2", "NDv2", "custom"]

SHIPPED_UNITS: dict[str, tuple[int, float]] = {
    "NDv2_1MB": (1 << 20, 1.0),
    "NDv2_32KB": (32 << 10, 0.1),
    "NDv2_1KB": (1 << 10, 0.01),
    "DGX2_1MB": (1 << 20, 1.0),
    "DGX2_1KB": (1 << 10, 0.01),
}
"""Bytes of a chunk and us of a time unit in the profiles that TACCL ships, by their name. The
files do not say; both were recovered from their ratios, which are powers of two."""

_MOST_GPUS = 256
_LONGEST = 1e12

# GPUs and NICs of a node (0: as the file says) and kinds of links in it.
_SHAPES: dict[str, tuple[int, int, int]] = {
    "HubAndSpoke": (0, 0, 1),
    "DGX2": (16, 8, 1),
    "NDv2": (8, 1, 2),
}

# Pairs of an NDv2 (DGX-1V) node joined by two NVLinks, and by one: the hybrid cube mesh.
_NDV2_DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
_NDV2_SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))


class TacclProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One node's links and its NICs, in us and us per 1e6 bytes.

    Attributes:
        name: The profile's name.
        gpus_per_node: GPUs of a node.
        nics_per_node: NICs of a node; 0 where the file names none.
        alpha_us: Latency of a link inside the node.
        betas: Cost of the link [src][dst] inside the node in us per 1e6 bytes; 0 is no link.
        remote_alpha_us: Latency of a link between nodes.
        remote_beta_us_per_mb: Cost of a NIC that one link uses alone.
    """

    name: str
    gpus_per_node: int
    nics_per_node: int
    alpha_us: float
    betas: tuple[tuple[float, ...], ...]
    remote_alpha_us: float
    remote_beta_us_per_mb: float


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    gpus_per_node: int
    alpha: float
    nics_per_node: int = -1
    remote_alpha: float = -1
    remote_beta: float = -1
    remote_invbw: float = -1
    node_betas_list: list[float] | None = None
    node_invbws_list: list[float] | None = None
    links: list[list[int]] | None = None
    betas: list[list[float]] | None = None
    invbws: list[list[float]] | None = None


def decode_taccl_profile(
    data: bytes,
    path: str,
    machine: TacclMachine,
    chunk_bytes: int,
    us_per_unit: float,
) -> TacclProfile:
    """Return the profile in `data` with its times turned into us and us per 1e6 bytes.

    Args:
        data: The JSON.
        path: What to call it in messages.
        machine: Which of TACCL's topologies the file is for; decides what its lists mean.
        chunk_bytes: Bytes of the chunk whose times the file holds.
        us_per_unit: us in one of the file's time units (TACCL scales small times up, because it
            cuts them to integers). For TACCL's own files see `SHIPPED_UNITS`.

    Raises:
        InputError: damaged, or not a profile of that machine.

    Notes:
        A file's beta is the time of one chunk. Its ``invbw`` is alpha + beta cut to an integer
        and says nothing new, so it is checked for presence only.
    """
    if chunk_bytes < 1 or not us_per_unit > 0:
        raise InputError(f"{path[:200]}: a chunk and a time unit must be above 0")
    file = _decoded(data, path)
    _check_numbers(file, path)
    scale = us_per_unit * 1e6 / chunk_bytes
    times = _custom(file, path) if machine == "custom" else _known(file, machine, path)
    return TacclProfile(
        name=file.name,
        gpus_per_node=file.gpus_per_node,
        nics_per_node=max(file.nics_per_node, 0),
        alpha_us=file.alpha * us_per_unit,
        betas=tuple(tuple(time * scale for time in row) for row in times),
        remote_alpha_us=max(file.remote_alpha, 0) * us_per_unit,
        remote_beta_us_per_mb=max(file.remote_beta, 0) * scale,
    )


def _decoded(data: bytes, path: str) -> _File:
    try:
        return msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path[:200]}: {decode_reason(error, _File)}; expected a TACCL profile"
        ) from None


def _check_numbers(file: _File, path: str) -> None:
    if not 1 <= file.gpus_per_node <= _MOST_GPUS:
        raise _fault(path, "gpus_per_node", f"{file.gpus_per_node}: expected 1 to {_MOST_GPUS}")
    if file.nics_per_node != -1 and not 1 <= file.nics_per_node <= _MOST_GPUS:
        raise _fault(path, "nics_per_node", f"{file.nics_per_node}: expected 1 to {_MOST_GPUS}")
    if not 0 <= file.alpha < _LONGEST:
        raise _fault(path, "alpha", f"{file.alpha}: expected a latency of at least 0")
    if file.nics_per_node == -1:
        return
    for key in ("remote_alpha", "remote_beta", "remote_invbw"):
        if not 0 <= getattr(file, key) < _LONGEST:
            raise _fault(path, key, "missing or out of range; a profile with NICs needs it")
    if file.remote_beta == 0:
        raise _fault(path, "remote_beta", "0: expected the time of a chunk, above 0")


def _fault(path: str, key: str, what: str) -> InputError:
    return InputError(f"{path[:200]}: $.{key}: {what}")


def _known(file: _File, machine: TacclMachine, path: str) -> list[list[float]]:
    """Return the times [src][dst] of one of the machines whose links TACCL knows itself."""
    for key in ("links", "betas", "invbws"):
        if getattr(file, key) is not None:
            raise _fault(path, key, f"a matrix is for custom machines; {machine} has lists")
    gpus, nics, kinds = _SHAPES[machine]
    if gpus and file.gpus_per_node != gpus:
        raise _fault(path, "gpus_per_node", f"{file.gpus_per_node}: {machine} has {gpus}")
    if nics and file.nics_per_node != nics:
        raise _fault(path, "nics_per_node", f"{file.nics_per_node}: {machine} has {nics}")
    for key in ("node_betas_list", "node_invbws_list"):
        values = getattr(file, key)
        if values is None or len(values) != kinds or not all(0 < v < _LONGEST for v in values):
            raise _fault(path, key, f"expected {kinds} times above 0, one a kind of link")
    betas = file.node_betas_list or []
    if machine == "NDv2":
        return _cube_mesh(betas[0], betas[1])
    every = range(file.gpus_per_node)
    return [[0.0 if src == dst else betas[0] for dst in every] for src in every]


def _cube_mesh(double: float, single: float) -> list[list[float]]:
    times = [[0.0] * 8 for _ in range(8)]
    for pairs, time in ((_NDV2_DOUBLE, double), (_NDV2_SINGLE, single)):
        for one, other in pairs:
            times[one][other] = times[other][one] = time
    return times


def _custom(file: _File, path: str) -> list[list[float]]:
    """Return the times [src][dst] of a custom machine, whose matrices are [dst][src]."""
    for key in ("node_betas_list", "node_invbws_list"):
        if getattr(file, key) is not None:
            raise _fault(path, key, "a list is for known machines; a custom one has matrices")
    size = file.gpus_per_node
    for key in ("links", "betas", "invbws"):
        rows = getattr(file, key)
        if rows is None or len(rows) != size or any(len(row) != size for row in rows):
            raise _fault(path, key, f"expected a {size} x {size} matrix, [dst][src]")
    links, betas = file.links or [], file.betas or []
    for dst in range(size):
        for src in range(size):
            lanes, beta = links[dst][src], betas[dst][src]
            if lanes < 0 or (src == dst and lanes) or (lanes and not 0 < beta < _LONGEST):
                raise _fault(path, f"links[{dst}][{src}]", "expected no link, or a beta above 0")
    return [
        [betas[dst][src] / links[dst][src] if links[dst][src] else 0.0 for dst in range(size)]
        for src in range(size)
    ]
