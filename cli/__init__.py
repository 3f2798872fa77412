"""The ``tuccl`` command: a verb parses, calls one public function and prints."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code; an interrupt while it is loaded is none of a verb."""
    try:
        from tuccl.cli.parser import run

        return run(argv)
    except KeyboardInterrupt:
        print("tuccl: interrupted", file=sys.stderr)
        return 130
