"""The kernels compile where nvcc is, in registers that let a whole block run, and hardly spill."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "msccl_ext"
REGISTERS = 65536  # of a multiprocessor
THREADS = {0: 512, 1: 512, 2: 640}  # at most, by the protocol's number
MOST_SPILLED = 128  # bytes of a thread; a fifth of LL128's registers are lines in flight
MOST_SHARED = 4096  # bytes of a block: 16 of 32 threads find room in 64 KB

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def architectures() -> list[str]:
    if shutil.which("nvcc") is None:
        return []
    listed = subprocess.run(
        ["nvcc", "--list-gpu-arch"], capture_output=True, text=True, check=True
    ).stdout
    return [line.removeprefix("compute_") for line in listed.split()]


def compiled(architecture: str, folder: Path) -> str:
    """Return what ptxas says of the kernels."""
    done = subprocess.run(
        [
            *("nvcc", "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Xptxas=-v"),
            *(f"-arch=sm_{architecture}", f"-I{SOURCES / 'include'}", f"-I{SOURCES / 'src'}"),
            *("-c", str(SOURCES / "src/cuda/kernels.cu"), "-o", str(folder / "kernels.o")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def check(report: str) -> None:
    """Hold each kernel to registers for its most threads, few bytes spilled, few shared."""
    entries = report.split("Compiling entry function")[1:]
    seen = set()
    for entry in entries:
        if not (number := re.search(r"interpret\w*ProtocolE(\d)", entry)):
            continue
        registers = re.search(r"Used (\d+) registers", entry)
        # Those of functions that it calls come after its own.
        spilled = re.search(r"(\d+) bytes spill stores", entry)
        assert registers and spilled, entry
        threads = THREADS[int(number[1])]
        print(f"protocol {number[1]}: {registers[1]} registers, {spilled[1]} bytes spilled")
        assert int(registers[1]) * threads <= REGISTERS
        assert int(spilled[1]) <= MOST_SPILLED
        shared = re.search(r"(\d+) bytes smem", entry)
        assert shared and int(shared[1]) <= MOST_SHARED
        seen.add(int(number[1]))
    assert seen == set(THREADS)


@needs_nvcc
def test_kernels_compile_for_one_architecture(tmp_path: Path) -> None:
    check(compiled("90" if "90" in architectures() else architectures()[0], tmp_path))


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("architecture", architectures())
def test_kernels_compile_for_every_architecture(architecture: str, tmp_path: Path) -> None:
    check(compiled(architecture, tmp_path))
