"""Times tuccl's interpreter on this machine's GPUs: beside bare copies and flags, by knob, tuned.

    .venv/bin/python benchmarks/gpu.py [--device N] [--peer N] [--quick]

Two ranks, on one GPU or two. A send and its receive of 64 MB are timed against two copies at the
same time, by as many blocks and threads: the path into the FIFO and out of it. A path through LL is
timed against a flag's: half of a ping-pong of 8 bytes, the starts of kernels taken off. Then eight
ranks on one GPU: msccl-default's allreduce by each value of each knob, every element compared; a
tuned table beside msccl-default; NCCL itself where it allows several ranks on a GPU; and a class of
the simulator fitted to the times (build/gpu-class.json). `make gpu` builds what it needs and runs
it, in about 5 minutes. --quick has tiny sizes, for rehearsals without a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from report import ROOT, publish

from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.eval import RunErrors, Trial, cross_validate, errors_of, fit
from tuccl.eval.calibrate import Case
from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock, replicate
from tuccl.runtime import Effort, Operands
from tuccl.runtime.executors import cuda_devices
from tuccl.runtime.executors.cuda import CudaExecutor
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import (
    Link,
    Node,
    Topology,
    encode_machine,
    keep_gpus,
    load_profile,
    machine_class,
    network,
    read_machine,
)
from tuccl.topology.machine import interpreter_machine_of
from tuccl.tuning import TuneOptions, tune

_BASELINES = ROOT / "build" / "cuda" / "libraw-baselines.so"
_RANKS = 8
_TURNS = 24
_PROTOCOLS = ("Simple", "LL", "LL128")
_MEMORY_GBS = {"A100": 2039.0, "H100": 3350.0, "H200": 4800.0, "B200": 8000.0}  # data sheets
_USUAL_MEMORY_GBS = 2000.0


@dataclass(frozen=True)
class Extent:
    """Amount that is measured: bytes, and seconds."""

    copy_bytes: int = 64 << 20
    sizes: Sequence[int] = (1 << 10, 1 << 15, 1 << 20, 1 << 25)
    seconds: float = 0.25
    tune_seconds: float = 60.0
    budget: int = 40


QUICK = Extent(1 << 14, (1 << 9, 1 << 11), 0.01, 20.0, 2)


def yardstick(name: str, *arguments: int | ctypes.c_size_t) -> float:
    """Return the time in us that a function of raw_baselines.cu measures.

    Raises:
        TucclError: it says why not.
    """
    if not _BASELINES.is_file():
        raise Unavailable(f"{_BASELINES}: no such library; `make gpu` builds it")
    function, us = getattr(ctypes.CDLL(str(_BASELINES)), name), ctypes.c_double()
    function.restype = ctypes.c_char_p
    if error := function(ctypes.byref(us), *arguments):
        raise TucclError(error.decode())
    return us.value


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


def copies(executor: CudaExecutor, device: int, peer: int, nbytes: int) -> None:
    """Print a send and receive beside two copies, by blocks and threads."""
    print(f"send and receive of {nbytes >> 10} KiB beside two copies at the same time")
    print("blocks  threads  send+receive us  two copies us  share")
    for channels in (1, 4, 8, 16):
        for threads in (128, 512):
            if threads < 32 * channels:
                continue
            knobs = Knobs("Simple", channels, threads)
            us = executor.time(replicate(pair(), channels), knobs, nbytes).us
            extent = (channels, threads, ctypes.c_size_t(nbytes))
            two = yardstick("tucclTwoStageCopy", device, peer, *extent)
            print(f"{channels:6}  {threads:7}  {us:15.1f}  {two:13.1f}  {two / us:5.2f}")


def hops(executor: CudaExecutor, device: int, peer: int) -> float:
    """Print the latency of each protocol beside a flag's, which is returned in us."""
    flag = yardstick("tucclFlagRoundTrip", device, peer) / 2
    print(f"\nlatency of 8 bytes; of a flag alone {flag:.2f} us")
    for protocol in ("LL", "LL128", "Simple"):
        knobs = Knobs(protocol, 1, 32)
        few, many = (executor.time(ping_pong(n), knobs, 8).us for n in (_TURNS // 2, _TURNS))
        us = (many - few) / _TURNS  # as many turns more, both ways each
        print(f"{protocol:6}  {us:6.2f} us  {us / flag:5.2f} times a flag's")
    return flag


def shared_gpu(model: str, ranks: int, flag_us: float) -> Topology:
    """Return ``ranks`` ranks on one GPU as a topology: all bytes pass its memory.

    A byte on its way is read and written twice, at the sender and at the receiver.
    """
    rate = next((r for name, r in _MEMORY_GBS.items() if name in model), _USUAL_MEMORY_GBS)
    gpus = [Node(f"rank{r}", "gpu", "n0", r, model) for r in range(ranks)]
    memory = [Node("memory-in", "nvswitch", "n0"), Node("memory-out", "nvswitch", "n0")]
    links = [Link("memory-in", "memory-out", "nvlink", rate / 4, flag_us)]
    links += [Link(gpu.id, "memory-in", "nvlink", rate, 0.0) for gpu in gpus]
    links += [Link("memory-out", gpu.id, "nvlink", rate, 0.0) for gpu in gpus]
    return Topology(f"{ranks} ranks on one GPU", (*gpus, *memory), tuple(links))


def knob_values() -> Iterator[tuple[str, Knobs]]:
    """Yield what is measured of the knobs: which varies, and all of them."""
    for protocol in _PROTOCOLS:
        most = 640 if protocol == "LL128" else 512
        for threads in (32, 64, 128, 256, 512, 640):
            if threads <= most:
                yield "threads", Knobs(protocol, 1, threads)
        for buffer_bytes in (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20):
            yield "buffer", Knobs(protocol, 1, most, buffer_bytes)
        for channels in (2, 4):
            yield "channels", Knobs(protocol, channels, most)


def default_program(ranks: int) -> Program:
    """Return msccl-default's allreduce."""
    host = keep_gpus(load_profile("dgx-2"), range(ranks))
    return lower(msccl_default(host, Collective("allreduce", ranks)))


def knob_effects(executor: CudaExecutor, ranks: int, sizes: Sequence[int]) -> dict[str, list[Case]]:
    """Print msccl-default's allreduce by each knob; return the times by protocol."""
    print(f"\nallreduce of {ranks} ranks, msccl-default: us by size in bytes")
    print(f"protocol varies    channels threads   buffer {''.join(f'{n:>11}' for n in sizes)}")
    cases: dict[str, list[Case]] = defaultdict(list)
    made = default_program(ranks)
    for varies, knobs in knob_values():
        row = []
        for nbytes in sizes:
            copied = replicate(made, knobs.channels).replace(protocol=knobs.protocol)
            try:
                timing = executor.time(copied, knobs, nbytes)
            except InputError as error:  # the grid does not fit on the GPU
                if "cannot run at once" not in str(error):
                    raise
                row.append(f"{'refused':>11}")
                continue
            assert not timing.wrong, timing.first_wrong
            cases[knobs.protocol].append(Case(copied, knobs, nbytes, timing.us))
            row.append(f"{timing.us:11.1f}")
        buffer = knobs.buffer_bytes or "default"
        print(
            f"{knobs.protocol:8} {varies:9} {knobs.channels:8} {knobs.threads:7} {buffer:>8} "
            f"{''.join(row)}"
        )
    return cases


def tuned(executor: CudaExecutor, topology: Topology, extent: Extent, out: Path) -> None:
    """Print a table tuned here, which ``out`` gets, beside msccl-default with msccl's knobs."""
    options = TuneOptions(budget=extent.budget, seconds=extent.tune_seconds)
    result = tune(
        topology, ["allreduce"], extent.sizes, lambda _: executor, options, path=out
    ).result
    print(f"\nallreduce of {topology.ranks} ranks, tuned on the GPU, against {result.baseline}")
    print(f"{result.evaluations} evaluations in {result.seconds:.0f} s")
    print("    bytes  default us   tuned us  speed-up  choice")
    for row in result.tuned:
        us = row.best_us or row.default_us
        print(
            f"{row.size:9}  {row.default_us:10.1f} {us:10.1f} {row.default_us / us:8.2f}x"
            f"  {row.best or 'default'}"
        )


def beside_nccl(ranks: int, sizes: Sequence[int], table: Path) -> None:
    """Print NCCL's allreduce between ranks of one GPU, and tuccl's of ``table`` in its place."""
    print(f"\nallreduce of {ranks} ranks on one GPU, called as NCCL's, launches included: us")
    script = [sys.executable, str(ROOT / "benchmarks" / "nccl_on_one_gpu.py")]
    calls = [*script, "--ranks", str(ranks), "--sizes", *map(str, sizes)]
    run = [sys.executable, "-m", "tuccl.cli", "run", "--table", str(table), "--cuda"]
    here = ["--topology", str(table / "topology.json"), "--"]  # ranks that share a GPU
    for name, command, said in (
        ("NCCL", calls, ""),
        ("tuccl", [*run, *here, *calls], "calls that the table covers are served"),
    ):
        try:
            times = _nccl_times(command, said)
        except Unavailable as error:
            print(f"{name:6} skipped: {error}")
        else:
            print(f"{name:6}" + "".join(f"{us:11.1f}" for us in times))


def _nccl_times(command: Sequence[str], said: str) -> list[float]:
    environment = {**os.environ, "NCCL_DEBUG": "INFO"}
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=90, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("not done after 90 s") from None
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"exit {error.returncode}: {error.stderr[-400:]}") from None
    lines = run.stdout.splitlines()
    if reasons := [line for line in lines if line.startswith("skipped: ")]:
        raise Unavailable(reasons[0].removeprefix("skipped: "))
    if said not in run.stdout + run.stderr:
        raise Unavailable(f"the table was left out: {run.stderr[-400:]}")
    rows = [line.split() for line in lines if re.fullmatch(r"\d+ [\d.]+ \d+", line)]
    assert all(wrong == "0" for _, _, wrong in rows), run.stdout
    return [float(us) for _, us, _ in rows]


def fitted_class(topology: Topology, cases: dict[str, list[Case]], path: Path) -> None:
    """Fit the interpreter's class to the times, print its errors, and write it to ``path``."""
    start = read_machine(interpreter_machine_of(topology).name.split(" ")[0])
    links = network(topology)
    trials = [Trial(p, links, tuple(c), launch="process") for p, c in cases.items()]
    before = [errors_of(trial, machine_class(start)) for trial in trials]
    result = fit(trials, start)
    named = msgspec.structs.replace(result.machine, name=f"{start.name}, fitted")
    path.write_bytes(encode_machine(named))
    unseen = cross_validate(trials, start)
    print(f"\nclass {start.name} of the simulator, mean errors from 64 KiB, and below")
    print("protocol        as shipped         fitted    fitted to the others")
    for rows in zip(before, result.errors, unseen, strict=True):
        print(f"{rows[0].name:8}  " + "    ".join(f"{_percent(row):>12}" for row in rows))
    print(f"written to {path.name}; use it with --machine")


def _percent(errors: RunErrors) -> str:
    parts = (errors.large, errors.small)
    return ", ".join("-" if part is None else f"{part:.1%}" for part in parts)


def main() -> int:
    """Print all tables, or say in a line why there are none."""
    parser = argparse.ArgumentParser(description="tuccl's interpreter on GPUs")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--peer", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=_RANKS, help="of the allreduces")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    try:
        measure(parser.parse_args())
    except TucclError as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    return 0


def measure(args: argparse.Namespace) -> None:
    """Print all tables.

    Raises:
        TucclError: there is no GPU or no library, or a run went wrong.
    """
    extent = QUICK if args.quick else Extent()
    effort = Effort(1, 1, extent.seconds) if args.quick else Effort(seconds=extent.seconds)
    two = CudaExecutor(2, effort=effort, devices=(args.device, args.peer))
    print(two.label, end="\n\n")
    copies(two, args.device, args.peer, extent.copy_bytes)
    flag_us = hops(two, args.device, args.peer)
    model = cuda_devices()[args.device].removeprefix("NVIDIA ")
    topology = shared_gpu(model, args.ranks, min(flag_us, 10.0))
    devices = (args.device,)
    checked = CudaExecutor(args.ranks, Operands(check=True), effort, devices=devices)
    cases = knob_effects(checked, args.ranks, extent.sizes)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table"
        tuned(CudaExecutor(args.ranks, effort=effort, devices=devices), topology, extent, table)
        beside_nccl(args.ranks, extent.sizes, table)
    (ROOT / "build").mkdir(exist_ok=True)
    name = "gpu-class-rehearsed.json" if args.quick else "gpu-class.json"
    fitted_class(topology, cases, ROOT / "build" / name)


if __name__ == "__main__":
    publish(main, "Measured")
