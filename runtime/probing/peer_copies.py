"""Rates between this host's GPUs, by copies that a CUDA program times."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import msgspec

from tuccl.errors import InputError, Unavailable
from tuccl.runtime.jobs.child_tree import run_to_end
from tuccl.runtime.jobs.launch import cache_folder
from tuccl.topology.probing import Fit, fit

_SOURCE = Path(__file__).with_suffix(".cu")
_COMPILE_S, _RUN_S = 300, 600
_MOST_BYTES = 1 << 26
_GPU = re.compile(r"# gpu ([0-9]{1,4}) ([0-9A-Fa-f:.]{7,20})((?: [0-9]{1,4})*)")
_TIME = re.compile(r"([0-9]{1,4}) ([0-9]{1,4}) (one|both) ([0-9]{1,12}) ([0-9]{1,12}\.[0-9]{1,6})")


class PeerCopies(msgspec.Struct, frozen=True):
    """Copies between the GPUs of a host.

    Attributes:
        bus_ids: of the GPUs, by index.
        direct: pairs that reach each other's memory; others are staged through the host's.
        one_way: latency and rate of each ordered pair, alone.
        both_ways: the same while the opposite copy runs.
    """

    bus_ids: tuple[str, ...]
    direct: frozenset[tuple[int, int]]
    one_way: dict[tuple[int, int], Fit]
    both_ways: dict[tuple[int, int], Fit]


def read_peer_copies(text: str) -> PeerCopies:
    """Return what the program printed.

    Raises:
        InputError: a line is none of its lines, a pair of GPUs is missing, or the end is.
    """
    bus_ids: list[str] = []
    direct = set()
    times: dict[tuple[str, int, int], dict[int, list[float]]] = defaultdict(dict)
    lines = text[:_MOST_BYTES].splitlines()
    for number, line in enumerate(lines, 1):
        if gpu := _GPU.fullmatch(line):
            if int(gpu[1]) != len(bus_ids):
                raise InputError(f"peer copies:{number}: GPU {gpu[1]}; expected {len(bus_ids)}")
            bus_ids.append(gpu[2])
            direct |= {(int(gpu[1]), int(peer)) for peer in gpu[3].split()}
        elif time := _TIME.fullmatch(line):
            key = time[3], int(time[1]), int(time[2])
            times[key].setdefault(int(time[4]), []).append(float(time[5]))
        elif line != "# done" or number != len(lines):
            raise InputError(f"peer copies:{number}: {line[:60]!r} is no line of the program")
    if not lines or lines[-1] != "# done":
        raise InputError("peer copies: cut off before `# done`; run the program again")
    pairs = {(a, b) for a in range(len(bus_ids)) for b in range(len(bus_ids)) if a != b}
    ways = {way: {key[1:] for key in times if key[0] == way} for way in ("one", "both")}
    if not pairs or any(ways[way] != pairs for way in ways):
        raise InputError(
            f"peer copies: expected times of all {len(pairs)} pairs of GPUs, both ways"
        )
    fits = {key: fit(by_size) for key, by_size in times.items()}
    return PeerCopies(
        tuple(bus_ids),
        frozenset(direct),
        {pair: fits["one", *pair] for pair in sorted(pairs)},
        {pair: fits["both", *pair] for pair in sorted(pairs)},
    )


def run_peer_copies() -> PeerCopies:
    """Return the copies between this host's GPUs, in the order of their PCI addresses.

    Raises:
        Unavailable: there is no nvcc, or fewer than two GPUs that CUDA can use.
    """
    program = peer_copies_program()
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    finished = run_to_end([str(program)], environment, _RUN_S)
    if finished.code != 0:
        why = " ".join(finished.err.split())[-200:] or f"not done after {_RUN_S} s"
        raise Unavailable(f"GPUs of this host cannot be measured: {why}")
    if finished.out.count("# gpu") < 2:
        raise Unavailable(f"{finished.out.count('# gpu')} GPU on this host; nothing to measure")
    return read_peer_copies(finished.out)


def peer_copies_program() -> Path:
    """Return the program, compiled on first use into the user's cache folder.

    Raises:
        Unavailable: there is no nvcc, or it cannot compile it.
    """
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=str(Path(home) / "bin"))
    if nvcc is None:
        raise Unavailable(
            "pairs of GPUs are measured by a CUDA program, and there is no nvcc: put the CUDA "
            "toolkit's bin folder on the PATH"
        )
    inputs = "\0".join([_SOURCE.read_text(), str(Path(nvcc).resolve())])
    program = cache_folder() / f"peer-copies-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        binary = Path(folder) / "peer-copies"
        command = [nvcc, "-O2", "-o", str(binary), str(_SOURCE)]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=_COMPILE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{nvcc} cannot compile {_SOURCE.name}: {error}") from None
        if result.returncode != 0 or not binary.exists():
            why = " ".join(result.stderr.split())[:300]
            raise Unavailable(f"{nvcc} cannot compile {_SOURCE.name}: {why}")
        binary.replace(program)
    return program
