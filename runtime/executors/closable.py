"""What is closed at the end of a ``with`` statement."""

from __future__ import annotations

from types import TracebackType
from typing import Self

__all__ = ["Closable"]


class Closable:
    """Has ``close``, which may be called twice; a ``with`` statement calls it, whatever happened."""

    def __enter__(self) -> Self:
        """Return itself; ``close`` comes at the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, and let any error pass."""
        self.close()

    def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError
