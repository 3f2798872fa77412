"""A stand-in for nccl-tests and its launchers that obeys the environment."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

BINARIES = tuple(
    f"{name}_perf" for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
)

# Times: a latency and a rate by algorithm and protocol; an MSCCL program that fits is the fastest.
_BINARY = '''#!{python}
import glob, json, os, re, sys, time
rank = int(next((os.environ[n] for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
                 if n in os.environ), "0"))
ranks = int(next((os.environ[n] for n in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
                  if n in os.environ), "1"))
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open({seen!r}, "a") as seen:
    env = {{k: v for k, v in os.environ.items() if "NCCL" in k or "MSCCL" in k or "TUCCL" in k}}
    seen.write(json.dumps({{"rank": rank, "argv": sys.argv, "env": env}}) + "\\n")
fault = {fault!r}
def fit(size):
    """The program MSCCL would run, as its built-in scheduler picks it."""
    if not {msccl!r} or os.environ.get("NCCL_MSCCL_ENABLE") == "0":
        return None
    for path in sorted(glob.glob(os.path.join(os.environ.get("MSCCL_ALGO_DIR", "/-"), "*.xml"))):
        head = dict(re.findall(r'(\\w+)="([^"]*)"', open(path).readline()))
        low, high, chunks = (int(head[n]) for n in ("minBytes", "maxBytes", "nchunksperloop"))
        if low <= size <= (high or size) and size % (4 * chunks) == 0 and int(head["ngpus"]) == ranks:
            return path
def us(size):
    if fit(size):
        return 5.0 + size / 50e3
    if options.get("-R") == "2" and fault != "no-windows":
        return 4.0 + size / 60e3
    if fault == "good-default" and size > 100000 and "NCCL_ALGO" not in os.environ:
        return 1.0
    algorithm = os.environ.get("NCCL_ALGO", "Ring")
    protocol = os.environ.get("NCCL_PROTO", "Simple")
    channels = int(os.environ.get("NCCL_MAX_NCHANNELS", "4"))
    if os.environ.get("TUCCL_TABLE"):
        channels = 16
    latency = {{"LL": 8.0, "LL128": 10.0, "Simple": 20.0}}[protocol]
    rate = {{"LL": 5e3, "LL128": 15e3, "Simple": 18e3}}[protocol] * min(channels, 8) / 8
    return latency * (0.7 if algorithm == "Tree" else 1.0) + channels * 0.1 + size / rate
def row(size):
    return {{"size": size, "us": us(size), "wrong": 3 if fault == "wrong" else 0}}
def walked():
    sizes, size, last = [], int(options["-b"]), int(options["-e"])
    while size <= last:
        sizes.append(size)
        size = size * int(options["-f"]) if "-f" in options else size + int(options.get("-i", "1048576"))
    return sizes
def ran(size):
    """What NCCL logs of a call: newer versions count a rank's share."""
    names = {{"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_per": "Reduce"}}
    name = names.get(os.path.basename(sys.argv[0])[:10], "Broadcast")
    algorithm, protocol = os.environ.get("NCCL_ALGO", "Ring"), os.environ.get("NCCL_PROTO", "Simple")
    if fault == "no-trees" and size > 4096:
        algorithm = "Ring"
    share = size // ranks if name == "AllGather" else size
    return "%s: %d Bytes -> Algo %s proto %s channel{{Lo..Hi}}={{0..1}}" % (name, share, algorithm.upper(), protocol.upper())
if fault != "no-log" and "NCCL_DEBUG_FILE" in os.environ and os.environ.get("NCCL_DEBUG") == "INFO":
    name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "host0").replace("%p", str(os.getpid()))
    with open(name, "w") as log:
        log.write("host0:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0\\n")
        if {msccl!r}:
            log.write("host0:1:1 [0] NCCL INFO MSCCL: Initialization finished\\n")
            if fault == "unloaded":
                log.write("host0:1:1 [0] graph/topo.cc:1 NCCL WARN MSCCL: algorithm a failed to initialize. Will be ignored.\\n")
            elif fault != "unused" and any(fit(size) for size in walked()):
                log.write("host0:1:1 [0] NCCL INFO MSCCL: Setup Kernel finished, smem 0 needsFence 0\\n")
        if rank == 0 and "TUNING" in os.environ.get("NCCL_DEBUG_SUBSYS", ""):
            log.writelines("host0:1:1 [0] NCCL INFO %s\\n" % ran(size) for size in walked() for _ in range(4))
if fault == "hang":
    time.sleep(600)
if fault == "crash":
    print("host0: Test NCCL failure common.cu:303 'unhandled cuda error'", file=sys.stderr)
    sys.exit(3)
if rank == 0 or fault == "no-mpi":
    sizes = walked()
    if options.get("-R") == "2" and fault == "no-windows":
        print("Option -R 2 (symmetric) is not supported before NCCL 2.27. Defaulting to local registration")
    print("# nThread 1 nGpus 1 minBytes %d maxBytes %d step: 2(factor) warmup iters: 5 iters: 20" % (sizes[0], sizes[-1]))
    print("#\\n# Using devices")
    for n in range(1 if fault == "no-mpi" else ranks - (fault == "ranks")):
        print("#  Rank %2d Group  0 Pid %6d on host%d device %2d [0x07] NVIDIA A100" % (n, os.getpid(), n // 8, n % 8))
    print("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong")
    rows = [row(size) for _ in range(int(options.get("-N", "1"))) for size in sizes]
    for r in rows:
        cells = "  %7.2f  %6.2f  %6.2f  %6g" % (r["us"], r["size"] / r["us"] / 1e3, 0, r["wrong"])
        print("%12d  %12d  %8s  %6s  %6s" % (r["size"], r["size"] // 4, options["-d"], "sum", -1) + cells * 2)
        print("host0:1:1 [0] NCCL INFO a line of another between", flush=True)
    print("# Out of bounds values : %d %s" % (sum(r["wrong"] for r in rows), "FAILED" if fault == "wrong" else "OK"))
    print("# Avg bus bandwidth    : 1.0")
    if "-J" in options:
        placed = lambda r: {{"time": r["us"] + 0.001, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": r["wrong"]}}
        results = [{{"size": r["size"], "count": 1, "type": "float", "redop": "sum", "root": "-1",
                    "out_of_place": placed(r), "in_place": placed(r)}} for r in rows]
        devices = [{{"rank": n}} for n in range(ranks)]
        with open(options["-J"], "w") as file:
            json.dump({{"version": 2, "config": {{"devices": devices}}, "results": results}}, file)
sys.exit(1 if fault == "wrong" else 0)
'''

# Only what it is told to hand on reaches the ranks; of these it starts the first, who prints.
_LAUNCHER = """#!{python}
import os, subprocess, sys
if "--version" in sys.argv:
    print({version!r})
    sys.exit(0)
words, handed, ranks = sys.argv[1:], {{}}, "1"
kept = ("PATH", "HOME")
while words and words[0].startswith("-"):
    option = words.pop(0)
    if option in ("-np", "-n"):
        ranks = words.pop(0)
    elif option == "-x":
        name = words.pop(0)
        handed[name] = os.environ[name]
    elif option == "-genv":
        name = words.pop(0)
        handed[name] = words.pop(0)
    elif option == "--export=ALL":
        handed = dict(os.environ)
    elif option in ("-H", "-N"):
        words.pop(0)
env = {{n: os.environ[n] for n in kept if n in os.environ}} | handed
env |= {{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": ranks}}
sys.exit(subprocess.call(words, env=env))
"""
_VERSIONS = {
    "mpirun": "mpirun (Open MPI) 4.1.4",
    "mpiexec": "HYDRA build details:\n    Version: 4.0.2",
    "srun": "slurm 23.02",
}


@dataclass(frozen=True)
class Fakes:
    """Folders with the fake binaries and launchers; each start adds a line of JSON to ``seen``."""

    tests: Path
    launchers: Path
    seen: Path

    def launcher(self, name: str) -> str:
        """The path of a launcher."""
        return str(self.launchers / name)


def make_fakes(folder: Path, *, fault: str = "", msccl: bool = True) -> Fakes:
    """Write nccl-tests that behave as ``fault`` says, of a runtime with or without MSCCL."""
    fakes = Fakes(folder / "nccl-tests", folder / "launchers", folder / "seen.jsonl")
    fakes.tests.mkdir(parents=True)
    fakes.launchers.mkdir()
    for name in BINARIES:
        text = _BINARY.format(python=sys.executable, seen=str(fakes.seen), fault=fault, msccl=msccl)
        _write(fakes.tests / name, text)
    for name, version in _VERSIONS.items():
        _write(fakes.launchers / name, _LAUNCHER.format(python=sys.executable, version=version))
    return fakes


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
