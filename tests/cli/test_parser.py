"""The command line as a whole: names of verbs and options, what a start imports, completion."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tuccl.cli import main
from tuccl.cli.arguments import collectives_of
from tuccl.cli.completion import _NAMES, SHELLS, completion_script
from tuccl.cli.parser import VERBS, verb_parsers
from tuccl.cli.renamed import RENAMED_OPTIONS, RENAMED_SEARCHES, RENAMED_VERBS
from tuccl.errors import InputError
from tuccl.tuning import SEARCHES

HEAVY = {
    *("optuna", "networkx", "scipy", "ortools", "rich", "matplotlib", "torch", "dask"),
    # Rooms' own: what verbs import once they run.
    *("tuccl.synth.methods", "tuccl.tuning.options", "tuccl.runtime.baseline.nccl_best"),
}


def test_an_interrupt_while_arguments_are_read_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuccl.cli.parser.build_parser", interrupted)
    assert main(["probe"]) == 130
    assert capsys.readouterr().err == "tuccl: interrupted\n"


def shown(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        name: action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
    }


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("verb", "old", "new"),
    [(verb, *pair) for verb, renamed in RENAMED_OPTIONS.items() for pair in renamed.items()],
)
def test_a_former_option_is_refused_by_naming_the_new_one(
    verb: str, old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = shown(verb_parsers()[verb])
    assert new in options or not new.startswith("-")  # it went elsewhere
    assert old not in options
    assert refusal([verb, old, "3"], capsys) == (
        f"tuccl {verb}: {old} is now {new} (see tuccl {verb} --help)\n"
    )


@pytest.mark.parametrize("words", ["synth --improve", "policy --agent ppo"])
def test_an_option_that_went_is_refused_with_what_took_its_place(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert " is now " in refusal(words.split(), capsys)


@pytest.mark.parametrize(("old", "new"), RENAMED_SEARCHES.items())
def test_a_former_search_is_refused_by_naming_the_new_one(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"--search: {old} is now {new}" in refusal(["tune", "--search", old], capsys)


@pytest.mark.parametrize(("old", "new"), RENAMED_VERBS.items())
def test_a_former_verb_is_refused_by_naming_the_new_one(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{old} is now {new}" in refusal([old, "table"], capsys)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["tun"], "did you mean tune?"),
        (["verfy", "x.xml"], "did you mean verify?"),
        (["bound", "t.json", "-c", "x", "--jsno"], "did you mean --json?"),
        (["doctor", "--logs", "x"], "did you mean --log?"),
    ],
)
def test_a_misspelt_word_is_answered_by_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert meant in refusal(words, capsys)


@pytest.mark.parametrize(
    ("name", "meant"), [("all_reduce", "allreduce"), ("ReduceScatter", "reduce-scatter")]
)
def test_a_misspelt_collective_names_the_likely_one(name: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"did you mean {meant}"):
        collectives_of(name)


def test_an_unlike_word_is_answered_by_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in refusal(["xyzzy"], capsys)


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no option --jso; did you mean --json?" in refusal(["doctor", "--jso"], capsys)


def test_each_option_has_a_help() -> None:
    bare = [
        f"{verb} {'/'.join(action.option_strings) or action.dest}"
        for verb, parser in verb_parsers().items()
        for action in parser._actions
        if not action.help
    ]
    assert not bare


def test_an_option_takes_a_value_in_every_verb_or_in_none() -> None:
    values: dict[str, dict[str, bool]] = {}
    for verb, parser in verb_parsers().items():
        for name, action in shown(parser).items():
            values.setdefault(name, {})[verb] = action.nargs != 0
    assert not {name: of for name, of in values.items() if len(set(of.values())) > 1}


@pytest.mark.parametrize("verb", VERBS)
def test_a_start_imports_no_heavy_package(verb: str) -> None:
    script = (
        "import sys; from tuccl.cli import main\n"
        f"try: main([{verb!r}, '--help'])\n"
        "except SystemExit: pass\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith(f"usage: tuccl {verb}")
    assert ran.stdout.endswith("\n[]\n")


def test_a_verb_loads_its_own_module_only() -> None:
    script = (
        "import sys; from tuccl.cli import main\n"
        "try: main(['completion', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('tuccl.cli.verbs.')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.stdout.splitlines()[-1] == "['tuccl.cli.verbs.completion']"


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_a_module_and_an_example_of_it(verb: str) -> None:
    module = importlib.import_module(f"tuccl.cli.verbs.{verb}")
    assert f"tuccl {verb} " in module.EXAMPLE


@pytest.fixture
def complete(tmp_path: Path) -> Callable[[str], set[str]]:
    """Return bash's own completions of a line, in an empty folder with one file."""
    (tmp_path / "machine.json").write_text("{}")
    script = tmp_path / "completion.sh"
    script.write_text(completion_script("bash"))

    def of(line: str) -> set[str]:
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        bash = (
            f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
            'spec=$(complete -p tuccl); _tuccl; printf "%s\\n" "${COMPREPLY[@]}"; '
            '[[ ${#COMPREPLY[@]} -eq 0 && $spec == *"-o default"* ]] && '
            'compgen -f -- "${COMP_WORDS[COMP_CWORD]}"; true'
        )
        ran = subprocess.run(
            ["bash", "--norc", "-c", bash],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stderr == ""
        return set(ran.stdout.split())

    return of


def test_bash_completes_verbs_options_choices_and_files(
    complete: Callable[[str], set[str]],
) -> None:
    assert complete("tuccl tu") == {"tune"}
    assert complete("tuccl ") >= set(VERBS)
    assert complete("tuccl bound --j") == {"--json"}
    assert complete("tuccl run --mach") == set()
    assert complete("tuccl bench --launch-mode ") == {"process", "mpi", "graph"}
    assert complete("tuccl bound -c allg") == {"allgather"}
    assert complete("tuccl tune --search d") == {"descent"}
    assert complete("tuccl bench --on m") == {"mpi", "mscclpp"}
    assert complete("tuccl completion ") == set(SHELLS)
    assert complete("tuccl bound mach") == {"machine.json"}
    assert complete("tuccl probe --from mach") == {"machine.json"}


def test_completion_knows_the_searches() -> None:
    assert set(_NAMES["search"]) == set(SEARCHES)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_completes_every_option(shell: str) -> None:
    script = completion_script(shell)
    for verb, parser in verb_parsers().items():
        for name in shown(parser):
            word = f"-l {name[2:]}" if shell == "fish" and name.startswith("--") else name
            assert word in script or len(name) == 2, (verb, name)
