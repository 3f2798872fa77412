"""Times NCCL's allreduce between ranks that share one GPU, where NCCL allows that (2.30 and later).

    .venv/bin/python benchmarks/nccl_on_one_gpu.py [--ranks N]

A process a rank, as NCCL wants it. It needs a GPU, libnccl.so.2 and libcudart (of the system, or of
the wheels nvidia-nccl and nvidia-cuda-runtime); else it says in a line what is missing.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import queue
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuccl.errors import Unavailable

__all__ = ["nccl_allreduces"]

_LEAST_VERSION = 23000
_FLOAT, _SUM = 7, 0
_WARMUP, _RUNS = 5, 20
_LIMIT_S = 90.0


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


def nccl_allreduces(ranks: int, sizes: Sequence[int]) -> Mapping[int, float]:
    """Return the time in us of an allreduce of each of ``sizes`` bytes between ``ranks`` ranks.

    Raises:
        Unavailable: there is no NCCL that can, or it fails; says why.
    """
    nccl = _library("libnccl.so.2", "nccl/lib")
    _library("libcudart.so", "cuda_runtime/lib", "cu13/lib")
    version = ctypes.c_int()
    _check(nccl, nccl.ncclGetVersion(ctypes.byref(version)), "reading its version")
    if version.value < _LEAST_VERSION:
        raise Unavailable(
            f"NCCL {version.value}: several ranks on one GPU need 2.30 or later; update libnccl"
        )
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    unique = _UniqueId()
    _check(nccl, nccl.ncclGetUniqueId(ctypes.byref(unique)), "making an id")
    processes = multiprocessing.get_context("spawn")
    results = processes.Queue()
    children = [
        processes.Process(target=_rank, args=(r, ranks, bytes(unique), tuple(sizes), results))
        for r in range(ranks)
    ]
    for child in children:
        child.start()
    try:
        answers = [results.get(timeout=_LIMIT_S) for _ in children]
    except queue.Empty:
        raise Unavailable(f"NCCL: no answer of {ranks} ranks in {_LIMIT_S:g} s") from None
    finally:
        for child in children:
            child.kill()
            child.join()
    if refused := [answer for answer in answers if isinstance(answer, str)]:
        raise Unavailable(f"NCCL: {refused[0]}")
    return {size: max(times) for size, times in zip(sizes, zip(*answers, strict=True), strict=True)}


def _rank(rank: int, ranks: int, unique: bytes, sizes: Sequence[int], times: Any) -> None:  # noqa: ANN401
    """Put the times in us by size into ``times``, or a line that says what went wrong."""
    try:
        times.put(_times(rank, ranks, unique, sizes))
    except (Unavailable, OSError, AttributeError, ctypes.ArgumentError) as error:
        times.put(f"rank {rank}: {error}")


def _times(rank: int, ranks: int, unique: bytes, sizes: Sequence[int]) -> list[float]:
    nccl = _library("libnccl.so.2", "nccl/lib")
    cuda = _library("libcudart.so", "cuda_runtime/lib", "cu13/lib")

    def must(code: int, doing: str) -> None:
        if code != 0:
            raise Unavailable(f"CUDA's error {code} when {doing}")

    must(cuda.cudaSetDevice(0), "taking the GPU")
    data, begin, end, comm = (ctypes.c_void_p() for _ in range(4))
    must(cuda.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(max(sizes))), "allocating")
    for event in (begin, end):
        must(cuda.cudaEventCreate(ctypes.byref(event)), "making an event")
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, _UniqueId, ctypes.c_int]
    joined = nccl.ncclCommInitRank(
        ctypes.byref(comm), ranks, _UniqueId.from_buffer_copy(unique), rank
    )
    _check(nccl, joined, "joining")

    def runs(count: int, nbytes: int) -> None:
        for _ in range(count):
            elements = ctypes.c_size_t(nbytes // 4)
            code = nccl.ncclAllReduce(data, data, elements, _FLOAT, _SUM, comm, None)
            _check(nccl, code, "reducing")

    times = []
    for nbytes in sizes:
        runs(_WARMUP, nbytes)
        must(cuda.cudaEventRecord(begin, None), "recording an event")
        runs(_RUNS, nbytes)
        must(cuda.cudaEventRecord(end, None), "recording an event")
        must(cuda.cudaEventSynchronize(end), "waiting")
        ms = ctypes.c_float()
        must(cuda.cudaEventElapsedTime(ctypes.byref(ms), begin, end), "reading the time")
        times.append(ms.value * 1000 / _RUNS)
    return times


def _check(nccl: ctypes.CDLL, code: int, doing: str) -> None:
    if code != 0:
        nccl.ncclGetErrorString.restype = ctypes.c_char_p
        raise Unavailable(f"NCCL failed when {doing}: {nccl.ncclGetErrorString(code).decode()}")


def _library(name: str, *wheels: str) -> ctypes.CDLL:
    """Return a library of the system, or of one of NVIDIA's wheels."""
    folder = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    places = [*(p for w in wheels for p in sorted((folder / w).glob(f"{name}*"))), name]
    for place in places:
        try:
            return ctypes.CDLL(str(place))
        except OSError:
            continue
    raise Unavailable(f"{name}: not here; install NVIDIA's library, or its wheel by pip")


def main() -> int:
    """Print the times."""
    parser = argparse.ArgumentParser(description="NCCL between ranks on one GPU")
    parser.add_argument("--ranks", type=int, default=8)
    args = parser.parse_args()
    try:
        times = nccl_allreduces(args.ranks, (1 << 10, 1 << 15, 1 << 20, 1 << 25))
    except Unavailable as error:
        print(f"skipped: {error}")
        return 0
    for nbytes, us in times.items():
        print(f"{nbytes:9}  {us:9.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
