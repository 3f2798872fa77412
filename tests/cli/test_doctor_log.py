"""doctor --log: what NCCL's own lines and the plugins' prove."""

from __future__ import annotations

import io
import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.runtime.conftest import HAND
from tests.runtime.nccl.test_nccl_table import nccl_table
from tuccl.cli import main
from tuccl.runtime import save_table
from tuccl.runtime.jobs import plugin_path, read_lines, read_log, verdicts

SUBSYSTEMS = "NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING"


def process(rank: int, *own: str, ranks: int = 2) -> list[str]:
    """The lines of one rank of NCCL 2.27, as public logs have them, with ``own`` in the middle."""
    where = f"host{rank}:{100 + rank}:{200 + rank} [0]"
    done = (
        f"ncclCommInitRank comm 0x5635705dda9{rank} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 "
        "busId 9a000 commId 0x221dee7fa4558566 - Init COMPLETE"
    )
    lines = [
        "NCCL_TUNER_PLUGIN set by environment to /opt/tuccl/libnccl-tuner-tuccl.so",
        *own,
        done,
    ]
    return [f"{where} NCCL INFO {line}" for line in lines]


LOADED = "TUNER/Plugin: Using tuccl (v4)"
TABLE = "tuccl: tuner: table /shared/table, 12 entries, 2 ranks"
CHOICE = "tuccl: tuner: allreduce of 1048576 bytes: nccl-Tree-Simple (entry 3)"


def judged(lines: list[str], tmp_path: Path, *more: str) -> int:
    (tmp_path / "log").write_text("\n".join(lines))
    return main(["doctor", "--log", str(tmp_path / "log"), *more])


def test_loaded_and_used_on_every_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for rank in range(2) for line in process(rank, LOADED, TABLE, CHOICE)]
    tagged = [f"[1,{n % 2}]<stdout>:{line}" for n, line in enumerate(lines)]  # mpirun --tag-output
    for each in (lines, tagged):
        assert judged(["     1024   256  float  sum  -1", *each], tmp_path) == 0
        text = capsys.readouterr().out
        assert "tuner: loaded and used; 2 of 2 processes" in text
        assert "0x221dee7fa4558566" in text and "nccl-Tree-Simple" in text
    assert judged(lines, tmp_path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] and [r["communicator"]["rank"] for r in told["ranks"]] == [0, 1]
    assert all(r["tuner"]["table"] for r in told["ranks"])


def test_calls_on_symmetric_windows_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They pass by the tuner: NCCL logs them by another line."""
    past = "AllReduce [Symmetric]: 1024 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512"
    lines = [line for rank in range(2) for line in process(rank, LOADED, TABLE, CHOICE, past)]
    assert judged(lines, tmp_path) == 0
    assert "1 calls of a process ran kernels for symmetric windows" in capsys.readouterr().out


MISSING = "TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin."
REFUSED = (
    "tuccl: /shared/table: tuned for another machine than TUCCL_SIGNATURE 0123; tune again, "
    "or give "
    "the table for this one; NCCL's own choices are used"
)


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([[], []], "NCCL says nothing of a tuner"),
        ([[MISSING], [MISSING]], "hand NCCL_TUNER_PLUGIN on to all ranks"),
        ([["TUNER/Plugin: Using nccl_ofi_tuner (v3)"]] * 2, "another tuner was loaded, nccl_ofi_t"),
        ([[LOADED], [LOADED]], "hand TUCCL_TABLE on to all ranks"),
        ([[LOADED, REFUSED]] * 2, "refused: /shared/table: tuned for another machine"),
        ([[LOADED, TABLE]] * 2, "no choice is logged"),
        ([[LOADED, TABLE, CHOICE], []], "1 of 2 processes did not load it (host1:101)"),
        ([[LOADED, TABLE, CHOICE], [MISSING]], "host1:101 found none"),
    ],
)
def test_what_is_missing_is_named_with_its_remedy(
    ranks: list[list[str]], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for rank, own in enumerate(ranks) for line in process(rank, *own)]
    assert judged(lines, tmp_path) == 1
    assert why in capsys.readouterr().out


def test_a_log_without_nccl_says_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(["hello"], tmp_path) == 1
    assert SUBSYSTEMS in capsys.readouterr().out
    assert main(["doctor", "--log", str(tmp_path / "none")]) == 2


def test_msccls_scheduler_is_counted_by_process(tmp_path: Path) -> None:
    held = "tuccl: scheduler: table /shared/table, 12 entries, 2 ranks"
    msccl = [line for rank in range(2) for line in process(rank, "MSCCL: Initialization finished")]
    [whole] = verdicts(read_log([held, held, *msccl]))
    assert whole.plugin == "scheduler" and whole.ok
    [half] = verdicts(read_log([held, *msccl]))
    assert not half.ok and "1 of 2 processes did not load it" in half.remedies[0]
    broken = (
        "host0:1:1 [0] misc.cc:1 NCCL WARN Rank 0 has no transport for send peer 1 on channel 3"
    )
    newer = broken.replace("misc.cc:1", "misc.cc:1 (save)")  # of NCCL 2.32
    for line in (broken, newer):
        [failed] = verdicts(read_log([held, held, *msccl, line]))
        assert not failed.ok and "never connected" in failed.remedies[0]


SERVED = "MSCCL: Setup Kernel finished, smem 1024 needsFence 0"
FOLDER = "Using MSCCL Algo files from /shared/export"


@pytest.mark.parametrize(
    ("ranks", "ok", "why"),
    [
        ([[FOLDER, SERVED, SERVED]] * 2, True, "programs of /shared/export served 2 calls"),
        ([[FOLDER]] * 2, False, "no call of a program of /shared/export is logged"),
        ([[FOLDER, SERVED], [FOLDER]], False, "1 of 2 processes ran none"),
        ([["Parsed MSCCL Algorithm /x/a.xml successfully."]] * 2, True, "loaded /x/a.xml"),
        (
            [
                [
                    "Parsed MSCCL Algorithm /x/a.xml successfully.",
                    "MSCCL: algorithm /x/b.xml failed to initialize. Will be ignored.",
                ]
            ]
            * 2,
            False,
            "failed to load /x/b.xml",
        ),
    ],
)
def test_msccls_own_scheduler_is_proven_by_its_lines(
    ranks: list[list[str]], ok: bool, why: str
) -> None:
    begun = "MSCCL: Initialization finished"
    lines = [
        line
        for rank, own in enumerate(ranks)
        for line in process(rank, *([] if "Parsed" in own[0] else [begun]), *own)
    ]
    [verdict] = verdicts(read_log(lines))
    assert verdict.ok == ok and why in " ".join(verdict.remedies)


def test_the_plugins_own_lines_are_known(tmp_path: Path) -> None:
    """The built tuner, loaded by its host as NCCL does: its lines, not ours, are what is read."""
    hand: SimpleNamespace = HAND
    save_table(nccl_table(hand), tmp_path / "t", hand.mesh(), [])
    tuner = plugin_path("tuner")
    host = tuner.parent / "tuccl-plugin-host"
    asked = subprocess.run(
        [str(host), "tuner", str(tuner), "4", str(hand.ranks), "1"],
        input="allreduce 1024\n",
        capture_output=True,
        text=True,
        env={"TUCCL_TABLE": str(tmp_path / "t"), "NCCL_DEBUG": "INFO"},
        timeout=60,
        check=True,
    )
    [seen] = read_log(asked.stderr.splitlines()).processes
    assert seen.plugins["tuner"].tables == [hand.ranks]
    assert seen.plugins["tuner"].used == {"allreduce of 1024 bytes: nccl-Ring-LL-c4": None}


HOSTILE = ["[", "a", "1", ":", ":1", "a:1:1 [0] ", "a:1:1 [0] x:1 (", "comm 0x0 rank 1 nranks 1 "]


@pytest.mark.parametrize("words", HOSTILE)
def test_a_long_line_takes_linear_time(words: str, tmp_path: Path) -> None:
    """At quadratic time a line of 2 MB would take half an hour."""
    log = tmp_path / "log"
    log.write_text(words * (2_000_000 // len(words)) + "\n" + process(0, LOADED)[1])
    start = time.process_time()
    with log.open() as file:
        read = read_log(read_lines(file))
    assert time.process_time() - start < 10
    assert read.processes[-1].plugins["tuner"].name == "tuccl"


def test_of_a_long_line_the_beginning_is_kept() -> None:
    file = io.StringIO("x" * 100_000 + "\nshort\n" + "y" * 100_000)
    lines = list(read_lines(file))
    assert [line[0] for line in lines] == ["x", "s", "y"] and lines[1] == "short\n"
    assert max(map(len, lines)) < 10_000


def test_equal_lines_of_a_log_are_kept_once() -> None:
    lines = [f"h:1:1 [0] NCCL INFO {words}" for words in (CHOICE, "MSCCL: Initialization finished")]
    [seen] = read_log(lines * 1000).processes
    assert (len(seen.plugins["tuner"].used), len(seen.msccl)) == (1, 1)


def test_a_logs_escape_codes_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = "\x1b[31m\x1b]0;owned\x07\x1b[2J\x9b1m\u202e"
    lines = process(0, f"TUNER/Plugin: Using {codes}other{codes} (v4)", CHOICE + codes)
    lines += [f"{codes}tuccl: scheduler: table {codes}missing; NCCL's own choices are used"]
    judged(lines, tmp_path)
    plain = capsys.readouterr().out
    judged(lines, tmp_path, "--json")
    as_json = json.loads(capsys.readouterr().out)
    assert "other" in plain and "missing" in plain
    assert all(line.isprintable() for line in plain.splitlines())
    assert as_json["ranks"][0]["tuner"]["loaded"] == "other"
