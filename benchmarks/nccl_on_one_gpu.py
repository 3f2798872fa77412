"""Times NCCL's allreduce between ranks that share one GPU, which NCCL allows from 2.30 on.

    .venv/bin/python benchmarks/nccl_on_one_gpu.py [--ranks N] [--sizes BYTES ...]

One process drives all ranks, each on a stream of its own, so that their kernels run at the same
time. What is loaded before NCCL, or by it, takes part: `tuccl run --table T -- python ...` loads
the table into NCCL's tuner, and with --cuda puts libnccl-tuccl.so in NCCL's place. A line has the
size, the time of a call in us from the host (launches included) and how many elements are wrong.
It needs a GPU, numpy, libnccl.so.2 (TUCCL_NCCL_LIBRARY, the system's or a wheel's) and libcudart.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tuccl.errors import Unavailable

_LEAST_VERSION = 23000
_FLOAT, _SUM = 7, 0
_WARMUP, _RUNS = 5, 20
_TO_DEVICE, _TO_HOST = 1, 2
_BLOCKS = 128  # A kernel's blocks wait for those of other ranks: all must be on the GPU at once.


def allreduces(ranks: int, sizes: Sequence[int]) -> Iterator[tuple[int, float, int]]:
    """Yield size in bytes, time in us and elements that are wrong, for an allreduce of each size.

    Raises:
        Unavailable: there is no NCCL that can, or it fails; says why.
    """
    os.environ |= {
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_NCHANNELS": str(max(1, _BLOCKS // ranks)),
        # Streams that share a queue of the GPU would wait for each other.
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }
    nccl, cuda = _nccl(), _library("libcudart.so", "cuda_runtime/lib", "cu13/lib")
    nccl.ncclGetErrorString.restype = cuda.cudaGetErrorString.restype = ctypes.c_char_p
    nccl_call, cuda_call = _checked(nccl, "nccl"), _checked(cuda, "cuda")
    version = ctypes.c_int()
    nccl_call("GetVersion", ctypes.byref(version))
    if version.value < _LEAST_VERSION:
        raise Unavailable(
            f"NCCL {version.value}: several ranks on one GPU need 2.30 or later; update libnccl"
        )
    comms, streams, sends, receives = ((ctypes.c_void_p * ranks)() for _ in range(4))
    nccl_call("CommInitAll", comms, ranks, (ctypes.c_int * ranks)())
    for rank in range(ranks):
        cuda_call("StreamCreateWithFlags", _at(streams, rank), 1)
        for buffers in (sends, receives):
            cuda_call("Malloc", _at(buffers, rank), ctypes.c_size_t(max(sizes)))

    def run(count: int) -> None:
        nccl_call("GroupStart")
        each = map(_pointers, (sends, receives, comms, streams))
        for send, receive, comm, stream in zip(*each, strict=True):
            elements = ctypes.c_size_t(count)
            nccl_call("AllReduce", send, receive, elements, _FLOAT, _SUM, comm, stream)
        nccl_call("GroupEnd")

    for nbytes in sizes:
        count = nbytes // 4
        values = [(np.arange(count) * (r + 3) % 13).astype(np.float32) for r in range(ranks)]
        for send, receive, data in zip(_pointers(sends), _pointers(receives), values, strict=True):
            cuda_call("Memcpy", send, _data(data), ctypes.c_size_t(data.nbytes), _TO_DEVICE)
            cuda_call("Memset", receive, 255, ctypes.c_size_t(data.nbytes))
        for _ in range(_WARMUP):
            run(count)
        cuda_call("DeviceSynchronize")
        begin = time.perf_counter()
        for _ in range(_RUNS):
            run(count)
        cuda_call("DeviceSynchronize")
        us = (time.perf_counter() - begin) / _RUNS * 1e6
        wrong, result, expected = 0, np.empty(count, np.float32), sum(values)
        for receive in _pointers(receives):
            cuda_call("Memcpy", _data(result), receive, ctypes.c_size_t(result.nbytes), _TO_HOST)
            wrong += int((result != expected).sum())
        yield nbytes, us, wrong
    for comm in _pointers(comms):
        nccl_call("CommDestroy", comm)


def _at(array: ctypes.Array[ctypes.c_void_p], index: int) -> object:
    return ctypes.byref(array, index * ctypes.sizeof(ctypes.c_void_p))


def _pointers(array: ctypes.Array[ctypes.c_void_p]) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(value) for value in array]


def _data(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _checked(library: ctypes.CDLL, prefix: str) -> Callable[..., None]:
    def call(name: str, *arguments: object) -> None:
        code = getattr(library, prefix + name)(*arguments)
        if code != 0:
            text = getattr(library, prefix + "GetErrorString")(code).decode()
            raise Unavailable(f"{prefix}{name} failed: {text}")

    return call


def _nccl() -> ctypes.CDLL:
    """Return what stands in NCCL's place in this process, else NCCL."""
    preloaded = ctypes.CDLL(None)
    if hasattr(preloaded, "ncclGetVersion"):
        return preloaded
    if path := os.environ.get("TUCCL_NCCL_LIBRARY"):
        return ctypes.CDLL(path)
    return _library("libnccl.so.2", "nccl/lib")


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
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1 << 10, 1 << 15, 1 << 20, 1 << 25]
    )
    args = parser.parse_args()
    try:
        for nbytes, us, wrong in allreduces(args.ranks, args.sizes):
            print(f"{nbytes} {us:.1f} {wrong}", flush=True)
    except Unavailable as error:
        print(f"skipped: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
