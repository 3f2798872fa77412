"""Times tuccl's interpreter on this machine's GPUs beside copies and flags without a protocol.

    .venv/bin/python benchmarks/gpu.py [--device N] [--peer N]

Two ranks, on one GPU or two. A send and its receive of 64 MB are timed against two copies at the
same time, by as many blocks and threads: the way into the FIFO and out of it. A way through LL is
timed against a flag's: half of a ping-pong of 8 bytes, the starts of kernels taken off. Then eight
ranks: every method's allreduce by each protocol. It needs `make cuda` and a GPU.
"""

from __future__ import annotations

import argparse
import ctypes

from report import publish

from tuccl._native import Gpu, Knobs, Program, Step, ThreadBlock, replicate
from tuccl.errors import TucclError
from tuccl.runtime import CudaExecutor, Effort, Operands
from tuccl.runtime.executors.cuda import cuda_library
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import keep_gpus, load_profile

_COPY_BYTES = 64 << 20
_TURNS = 24


def yardstick(name: str, *arguments: int) -> float:
    """Return the time in us that a function of the library measures.

    Raises:
        TucclError: it says why not.
    """
    library, text = ctypes.CDLL(str(cuda_library())), ctypes.c_void_p()
    values = [ctypes.c_size_t(a) if a > 1 << 20 else ctypes.c_int(a) for a in arguments]
    code = getattr(library, name)(*values, ctypes.byref(text))
    answer = (ctypes.cast(text, ctypes.c_char_p).value or b"").decode()
    if code != 0:
        raise TucclError(answer)
    return float(answer.removeprefix("us "))


def program(name: str, blocks: list[list[Step]]) -> Program:
    """Return a broadcast-like program of two ranks, one block each."""
    gpus = [
        Gpu(rank, 1, 1, 0, [ThreadBlock(0, 1 - rank, 1 - rank, 0, steps)])
        for rank, steps in enumerate(blocks)
    ]
    return Program(name, "allreduce", "Simple", 1, 1, gpus)


def pair() -> Program:
    """Return a program in which rank 0 sends the array to rank 1."""
    return program("pair", [[Step("s", "i", 0, "o", -1, 1)], [Step("r", "i", -1, "o", 0, 1)]])


def ping_pong(turns: int) -> Program:
    """Return a program in which the array goes to rank 1 and back, ``turns`` times."""
    send, recv = Step("s", "o", 0, "o", -1, 1), Step("r", "i", -1, "o", 0, 1)
    return program("ping-pong", [[send, recv] * turns, [recv, send] * turns])


def copies(executor: CudaExecutor, device: int, peer: int) -> None:
    """Print a send and receive beside two copies, by blocks and threads."""
    print(f"send and receive of {_COPY_BYTES >> 20} MiB beside two copies at the same time")
    print("blocks  threads  send+receive us  two copies us  share")
    for channels in (1, 4, 8, 16):
        for threads in (128, 512):
            if threads < 32 * channels:
                continue
            knobs = Knobs("Simple", channels, threads)
            us = executor.time(replicate(pair(), channels), knobs, _COPY_BYTES).us
            two = yardstick("tucclTwoStageCopy", device, peer, channels, threads, _COPY_BYTES)
            print(f"{channels:6}  {threads:7}  {us:15.1f}  {two:13.1f}  {two / us:5.2f}")


def hops(executor: CudaExecutor, device: int, peer: int) -> None:
    """Print a way by each protocol beside a flag's."""
    flag = yardstick("tucclFlagRoundTrip", device, peer) / 2
    print(f"\nway of 8 bytes; of a flag alone {flag:.2f} us")
    for protocol in ("LL", "LL128", "Simple"):
        knobs = Knobs(protocol, 1, 32)
        few, many = (executor.time(ping_pong(n), knobs, 8).us for n in (_TURNS // 2, _TURNS))
        way = (many - few) / _TURNS  # as many turns more, two ways each
        print(f"{protocol:6}  {way:6.2f} us  {way / flag:5.2f} times a flag's")


def allreduces(ranks: int) -> None:
    """Print msccl-default's allreduce by protocol, every element compared."""
    host = keep_gpus(load_profile("dgx-2"), range(ranks))
    made = lower(msccl_default(host, Collective("allreduce", ranks)))
    print(f"\nallreduce of {ranks} ranks, msccl-default, 512 threads: us")
    print("bytes     Simple        LL     LL128")
    for nbytes in (1 << 10, 1 << 15, 1 << 20, 1 << 25):
        row = []
        for protocol in ("Simple", "LL", "LL128"):
            timing = CudaExecutor(ranks, Operands(check=True)).time(made, Knobs(protocol), nbytes)
            assert timing.wrong == 0, timing.first_wrong
            row.append(f"{timing.us:9.1f}")
        print(f"{nbytes:8}", *row)


def main() -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(description="tuccl's interpreter on GPUs")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--peer", type=int, default=0)
    args = parser.parse_args()
    executor = CudaExecutor(2, effort=Effort(seconds=1.0), devices=(args.device, args.peer))
    print(executor.label, end="\n\n")
    copies(executor, args.device, args.peer)
    hops(executor, args.device, args.peer)
    allreduces(8)
    return 0


if __name__ == "__main__":
    publish(main, "Measured")
