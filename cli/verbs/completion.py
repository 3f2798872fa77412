"""``tuccl completion``: the script that completes the command line in a shell."""

from __future__ import annotations

import argparse

from tuccl.cli.completion import SHELLS, completion_script

EXAMPLE = (
    "source <(tuccl completion bash); tuccl completion zsh > DIR/_tuccl, with DIR in $fpath; "
    "tuccl completion fish > ~/.config/fish/completions/tuccl.fish"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(completion_script(args.shell), end="")
    return 0
