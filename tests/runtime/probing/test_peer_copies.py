"""Copies between GPUs: what the program prints is read strictly; it compiles where nvcc is."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tuccl.errors import InputError, Unavailable
from tuccl.runtime.probing import run_peer_copies
from tuccl.runtime.probing.peer_copies import peer_copies_program, read_peer_copies
from tuccl.topology import load_profile, path
from tuccl.topology.probing import with_peer_rates

SIZES = (16, 1 << 20, 8 << 20, 64 << 20)


def printed(gbs: float = 20.0, both_gbs: float = 18.0, gpus: int = 4) -> str:
    """Return the lines of four GPUs that copy at those rates, 3 us after they are told to."""
    lines = [
        f"# gpu {n} 00000000:{n:02X}:00.0{''.join(f' {m}' for m in range(gpus) if m != n)}"
        for n in range(gpus)
    ]
    for a in range(gpus):
        for b in range(gpus):
            for way, rate in (("one", gbs), ("both", both_gbs)):
                lines += [
                    f"{a} {b} {way} {size} {3 + size / rate / 1e3 + 0.1 * k:.3f}"
                    for size in SIZES
                    for k in range(3)
                    if a != b
                ]
    return "\n".join([*lines, "# done", ""])


def test_pairs_are_fitted_one_way_and_both_ways() -> None:
    copies = read_peer_copies(printed())
    assert copies.bus_ids[3] == "00000000:03:00.0"
    assert len(copies.direct) == len(copies.one_way) == len(copies.both_ways) == 12
    assert copies.one_way[2, 1].gbs.value == pytest.approx(20, rel=0.01)
    assert copies.both_ways[2, 1].gbs.value == pytest.approx(18, rel=0.01)
    assert copies.one_way[0, 3].alpha_us.value == pytest.approx(3.1, rel=0.05)


def test_they_are_measured_rates_of_the_machine() -> None:
    machine = load_profile("v100x4")
    found = with_peer_rates(machine, read_peer_copies(printed(45.0)).one_way, "copies")
    assert {x.origin for x in found.links if x.kind == "nvlink"} == {"measured"}
    direct = next(x for x in found.links if x.kind == "nvlink")
    assert direct.measured == pytest.approx(45 * direct.bandwidth / path(machine, 0, 1).bandwidth)
    assert all(x.measured is None for x in found.links if x.kind == "pcie")


def test_half_an_output_is_refused() -> None:
    text = printed()
    lines = text.splitlines()
    for bad in (
        "",
        "\n".join(lines[:-1]),
        text.replace("# done\n", "# done\nmore\n"),
        "\n".join(line for line in lines if not line.startswith("2 1 both")),
        text.replace("# gpu 1", "# gpu 2"),
        text.replace("0 1 one 16 ", "0 9 one 16 "),
        text.replace("0 1 one 16 ", "0 1 one sixteen "),
    ):
        with pytest.raises(InputError, match="peer copies"):
            read_peer_copies(bad)
    chance = random.Random(0)
    for _ in range(50):
        with pytest.raises(InputError):
            read_peer_copies(text[: chance.randrange(len(text) - 1)])


def test_without_nvcc_or_gpus_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="no nvcc"):
        run_peer_copies()
    nvcc = tmp_path / "nvcc"
    for text, why in (
        ("echo bad flag >&2; exit 2", "cannot compile .*bad flag"),
        ('printf "#!/bin/sh\\necho no driver >&2; exit 1\\n" > "$3"; chmod +x "$3"', "no driver"),
        ('printf "#!/bin/sh\\necho \\"# gpu 0 0:0:0.0\\"\\n" > "$3"; chmod +x "$3"', "1 GPU on"),
    ):
        nvcc.write_text(f"#!/bin/sh\nPATH={os.defpath}\n{text}\n")
        nvcc.chmod(0o755)
        shutil.rmtree(tmp_path / "tuccl", ignore_errors=True)
        with pytest.raises(Unavailable, match=why):
            run_peer_copies()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the PATH")
def test_the_program_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = peer_copies_program()
    assert peer_copies_program() == program
    assert subprocess.run([program], capture_output=True, check=False).returncode in (0, 1)
