"""Arrays and streams of a PyTorch function that spans several cards of one host, in one process.

The harness has a context on the first card alone, with one row of every array for each card. PyTorch opens
the other cards, by their primary contexts. Each of their rows has a copy there, which is written before the
timed interval, and read back after it. The streams of the other cards begin after the harness's stream, which
then waits for them. So events on that stream enclose the work of all cards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.device.backends.base import POISON


@dataclass(frozen=True)
class RowCopy:
    """The row of an array for another card."""

    here: Any
    """Its tensor in the harness's memory, on the first card."""
    there: Any
    """Its copy on the other card."""
    is_written: bool
    """True for a row of an output."""


class OtherCards:
    """The cards after the harness's, and a stream on each of them."""

    def __init__(self, torch: Any, stream: Any, index: int, cards: int) -> None:
        self.torch, self.stream = torch, stream
        self._indices = range(index + 1, index + cards)
        self._streams = [torch.cuda.Stream(device=other) for other in self._indices]
        self._evicting: dict[int, Any] = {}
        """Memory on each card that is read to evict other memory from its L2."""

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make all streams current. They begin after the harness's stream, which then waits for them."""
        with contextlib.ExitStack() as stack:
            for stream in (*self._streams, self.stream):  # the last one's card becomes current
                stack.enter_context(self.torch.cuda.stream(stream))
            for stream in self._streams:
                stream.wait_stream(self.stream)
            try:
                yield
            finally:
                for stream in self._streams:
                    self.stream.wait_stream(stream)

    def rows(self, tensor: Any, *, is_written: bool) -> list[RowCopy]:
        """Return the rows of an array for the other cards, with new memory there."""
        return [
            RowCopy(tensor[number], self.torch.empty_like(tensor[number], device=f"cuda:{other}"), is_written)
            for number, other in enumerate(self._indices, 1)
        ]

    def write(self, rows: Sequence[RowCopy], evict_bytes: int) -> None:
        """Enqueue copies of rows to their cards. Then evict them from the L2 by reading so many bytes."""
        with self.current():
            for row in rows:
                row.there.copy_(row.here, non_blocking=True)
            for other in self._indices if evict_bytes else ():
                self._memory(other, evict_bytes).sum()

    def _memory(self, other: int, size_bytes: int) -> Any:
        if other not in self._evicting:
            made = self.torch.zeros(size_bytes // 4, dtype=self.torch.int32, device=f"cuda:{other}")
            self._evicting[other] = made
        return self._evicting[other]

    def poison(self, rows: Sequence[RowCopy]) -> None:
        """Enqueue a fill of the outputs' rows on the other cards."""
        with self.current():
            for row in rows:
                if row.is_written:
                    row.there.reshape(-1).view(self.torch.uint8).fill_(POISON)
