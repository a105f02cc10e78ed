"""Bounded output: the head and the tail of a stream in memory, the whole of it elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD_PERCENT = 40


class Spill(Protocol):
    """Keeps a whole output somewhere in the sandbox, up to some bound."""

    def write(self, data: bytes) -> None:
        """Add `data`; never raises."""

    def close(self) -> str:
        """Where it is inside the sandbox, or "" when it could not be kept."""


class BoundedOutput:
    """Collects a stream of any length in bounded memory.

    Args:
        most: bytes kept in memory, 40 % of them head and 60 % tail.
        open_spill: called once, when there is more than `most`.
    """

    def __init__(self, most: int, open_spill: Callable[[], Spill | None]) -> None:
        self._most = most
        self._head_size = most * _HEAD_PERCENT // 100
        self._tail_size = most - self._head_size
        self._open_spill = open_spill
        self._all = bytearray()
        self._head = b""
        self._spill: Spill | None = None
        self._is_over = False
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        self._all += data
        if self._is_over:
            if self._spill is not None:
                self._spill.write(data)
            self._trim()
        elif self.total > self._most:
            self._is_over = True
            self._spill = self._open_spill()
            if self._spill is not None:
                self._spill.write(bytes(self._all))
            self._head = bytes(self._all[: self._head_size])
            del self._all[: self._head_size]
            self._trim()

    def _trim(self) -> None:
        if len(self._all) > 2 * self._tail_size + 4096:
            del self._all[: len(self._all) - self._tail_size]

    def finish(self) -> tuple[bytes, int, int, str]:
        """Output, bytes omitted, bytes of head, path of the whole."""
        path = self._spill.close() if self._spill is not None else ""
        if not self._is_over:
            return bytes(self._all), 0, len(self._all), ""
        tail = bytes(self._all[max(0, len(self._all) - self._tail_size) :]) if self._tail_size else b""
        output = self._head + tail
        return output, self.total - len(output), len(self._head), path
