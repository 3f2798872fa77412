"""Packages whose names are imported when they are first used, so that importing one is quick."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

__all__ = ["make_lazy"]


def make_lazy(package: str) -> None:
    """Let ``package`` import its names when they are first used; its ``__init__.py`` calls this.

    The names, and the module that each is imported from, stand there under ``if TYPE_CHECKING:``,
    where type checkers and editors read them too.
    """
    sys.modules[package].__class__ = _LazyPackage


class _LazyPackage(ModuleType):
    """A package that looks up its names in the imports of its source."""

    def __getattr__(self, name: str) -> object:
        """Import ``name`` and keep it."""
        home = _homes(self).get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, attribute = home
        if module == self.__name__:
            return importlib.import_module(f"{module}.{attribute}")
        value: object = getattr(importlib.import_module(module), attribute)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """Set ``name``, except to a module whose name the package gives to one of its values."""
        home = _homes(self).get(name) if isinstance(value, ModuleType) else None
        if home is None or home[0] == self.__name__:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        """Return the names, also those that are not imported yet."""
        return sorted({*super().__dir__(), *_homes(self)})


@cache
def _homes(package: ModuleType) -> dict[str, tuple[str, str]]:
    """Return the module that each name of ``package`` is imported from, and its name there."""
    return dict(_imports(ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))))


def _imports(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    for alias in line.names:
                        yield alias.asname or alias.name, (line.module, alias.name)
