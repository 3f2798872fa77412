"""The ``tuccl`` command: a verb parses, calls one public function and prints."""

from tuccl.cli.main import main

__all__ = ["main"]
