"""A sign that something is going on, for what has no number of steps."""

from __future__ import annotations

__all__ = ["Waiting"]

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from typing_extensions import Self


class Waiting:
    """A spinner on standard error, in a terminal alone; what it is told comes after its words."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.console = Console(stderr=True)
        self.status = self.console.status(words)

    def tell(self, what: str) -> None:
        self.status.update(f"{self.words}: {escape(what)}")

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.status.stop()
