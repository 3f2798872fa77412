"""Scripts that complete verbs, options and choices in a shell, made from the parsers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from tuccl.cli.arguments import COLLECTIVES
from tuccl.cli.parser import VERBS, verb_parsers

SHELLS = ("bash", "fish", "zsh")
_NAMES = {
    "collective": COLLECTIVES,  # a list by comma, of which the first is completed
    "on": ("sim", "mpi", "cuda", "nccl-tests", "mscclpp"),
    "protocol": ("Simple", "LL", "LL128"),
    "search": ("descent", "mraco", "tpe", "rl"),
}
"""What may follow options whose values the parsers leave to the functions behind."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a verb: its spellings, its help, and what may follow it."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerbWords:
    """A verb's options, and the words that stand where other verbs take files."""

    options: tuple[Option, ...]
    words: tuple[str, ...]


def completion_script(shell: str) -> str:
    """Return the script for ``shell``, one of SHELLS; where nothing else fits it offers files."""
    verbs = {verb: words_of(parser) for verb, parser in verb_parsers().items()}
    return {"bash": _bash, "fish": _fish, "zsh": _zsh}[shell](verbs)


def words_of(parser: argparse.ArgumentParser) -> VerbWords:
    """Return what may be typed after the verb of ``parser``, as far as its help shows it."""
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    options = tuple(
        Option(
            tuple(action.option_strings),
            _plain((action.help or "").partition(";")[0].partition(" (")[0]),
            action.nargs != 0,
            _choices(action),
        )
        for action in actions
        if action.option_strings
    )
    words = tuple(c for action in actions if not action.option_strings for c in _choices(action))
    return VerbWords(options, words)


def _choices(action: argparse.Action) -> tuple[str, ...]:
    if action.dest in _NAMES:
        return _NAMES[action.dest]
    return tuple(str(choice) for choice in action.choices or ())


def _plain(text: str) -> str:
    """Return ``text`` without what a shell would read."""
    return "".join(c for c in text.replace("%%", "%") if c not in "'\"`[]$\\:")


def _bash(verbs: dict[str, VerbWords]) -> str:
    cases = "\n".join(
        f'        {verb}) options="{" ".join(n for o in of_verb.options for n in o.names)}" '
        f'words="{" ".join(of_verb.words)}" ;;'
        for verb, of_verb in verbs.items()
    )
    values = "\n".join(
        f"        {'|'.join(f'{verb}:{name}' for name in option.names)}) "
        f'choices="{" ".join(option.choices)}" ;;'
        for verb, of_verb in verbs.items()
        for option in of_verb.options
        if option.choices
    )
    return _BASH.format(verbs=" ".join(verbs), cases=cases, values=values)


def _zsh(verbs: dict[str, VerbWords]) -> str:
    cases = []
    for verb, of_verb in verbs.items():
        words = f"'1:word:({' '.join(of_verb.words)})'" if of_verb.words else "'*:file:_files'"
        parts = [*(_zsh_option(option) for option in of_verb.options), words]
        cases.append(f"        {verb}) _arguments " + " \\\n            ".join(parts) + " ;;")
    summaries = "\n".join(f"        '{verb}:{_plain(VERBS[verb])}'" for verb in verbs)
    return _ZSH.format(verbs=summaries, cases="\n".join(cases))


def _zsh_option(option: Option) -> str:
    value = ""
    if option.takes_value:
        value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
    return " ".join(f"'*{name}[{option.help}]{value}'" for name in option.names)


def _fish(verbs: dict[str, VerbWords]) -> str:
    lines = [
        f"complete -c tuccl -n __fish_use_subcommand -f -a {verb} -d '{_plain(VERBS[verb])}'"
        for verb in verbs
    ]
    for verb, of_verb in verbs.items():
        at = f"complete -c tuccl -n '__fish_seen_subcommand_from {verb}'"
        lines += [f"{at} -f -a '{' '.join(of_verb.words)}'"] if of_verb.words else []
        lines += [f"{at} {_fish_option(option)}" for option in of_verb.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    parts = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    if option.takes_value:
        parts.append(f"-x -a '{' '.join(option.choices)}'" if option.choices else "-r")
    return " ".join([*parts, f"-d '{option.help}'"])


_BASH = """\
# bash completion of tuccl: source this, or put it into /etc/bash_completion.d
_tuccl() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local verb="${{COMP_WORDS[1]}}" options="" words="" choices=""
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{verbs} --help --version" -- "$word"))
        return
    fi
    case "$verb" in
{cases}
    esac
    case "$verb:$before" in
{values}
    esac
    if [[ -n $choices ]]; then
        COMPREPLY=($(compgen -W "$choices" -- "$word"))
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}}
complete -o default -F _tuccl tuccl
"""
_ZSH = """\
#compdef tuccl
# zsh completion of tuccl: save this as _tuccl in a folder of $fpath, or source it
_tuccl() {{
    local -a verbs
    verbs=(
{verbs}
    )
    if ((CURRENT == 2)); then
        _describe verb verbs
        return
    fi
    local verb="${{words[2]}}"
    shift words
    ((CURRENT--))
    case "$verb" in
{cases}
    esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _tuccl "$@"; else compdef _tuccl tuccl; fi
"""
