"""The folders of this installation that hold built files."""

from pathlib import Path

from tuccl import _native

__all__ = ["built_folder"]


def built_folder(name: str) -> Path:
    """Return the folder of built files: "cuda" (libraries), "plugins" or "worker" (programs)."""
    return Path(str(_native.__file__)).parent / name
