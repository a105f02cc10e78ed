"""`spending.jsonl`: what attempts have used that no journal line knows yet. Survives a `kill -9`.

The journal says what an attempt used when it is over; a budget has to know of those, too, that a kill
cut off. While a run has a total limit each model call adds a line here. When the run is opened again,
what belongs to attempts without a journal line is summed up into one line (`carried`), and the rest,
which the journal knows, is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hermes_run.core.messages import Usage
from hermes_run.store import layout
from hermes_run.store.disk import Appender, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Attempt(Struct):
    """An attempt: its rollout key and its batch number, which no other attempt at it has."""

    key: str
    batch: int


class _Line(_Attempt):
    """What a call of an attempt used."""

    usage: Usage


class _Amounts(Struct):
    cost: float
    total_tokens: int


class _Used(Struct):
    """What a journal line says of its attempt's usage."""

    usage: _Amounts


CARRIED = ""
"""Key of the line that sums up attempts which were killed."""

_decode = msgspec.json.Decoder(_Line).decode
_decode_used = msgspec.json.Decoder(_Used).decode
_decode_attempt = msgspec.json.Decoder(_Attempt).decode
_encode = msgspec.json.Encoder().encode


class Spending:
    """The ledger of one run directory, open for appending.

    Attributes:
        carried: what killed attempts of earlier processes used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / layout.SPENDING
        self.carried = _settle(folder, self._path)
        self._file = Appender(self._path)

    def add(self, key: str, batch: int, usage: Usage) -> None:
        """An attempt has used this much more. Raises DiskFull."""
        self._file.append(_encode(_Line(key, batch, usage)))

    def close(self) -> None:
        """Close it; what is in it stays until the next opening."""
        self._file.close()


def largest(folder: Path) -> tuple[float, int]:
    """The most that one attempt in the journal has come to: USD, and tokens (not of the same one)."""
    cost, tokens = 0.0, 0
    with (folder / layout.JOURNAL).open("rb") as file:
        for raw in file:
            try:
                used = _decode_used(raw).usage
            except ValueError:
                continue
            cost, tokens = max(cost, used.cost), max(tokens, used.total_tokens)
    return cost, tokens


def _settle(folder: Path, path: Path) -> Usage:
    total = _orphans(folder, path)
    line = _encode(_Line(CARRIED, -1, total)) + b"\n" if total != Usage() else b""
    if line or path.exists():
        replace_file(path, line)
    return total


def _orphans(folder: Path, path: Path) -> Usage:
    by_attempt: dict[tuple[str, int], Usage] = {}
    if path.is_file():
        with path.open("rb") as file:
            for raw in file:
                try:
                    line = _decode(raw)
                except ValueError:  # the torn last line of a kill
                    continue
                attempt = (line.key, line.batch)
                by_attempt[attempt] = by_attempt.get(attempt, Usage()) + line.usage
    if not by_attempt:
        return Usage()
    for attempt in _finished(folder / layout.JOURNAL):
        by_attempt.pop(attempt, None)
    return sum(by_attempt.values(), Usage())


def _finished(journal: Path) -> Iterator[tuple[str, int]]:
    with journal.open("rb") as file:
        for raw in file:
            try:
                attempt = _decode_attempt(raw)
            except ValueError:
                continue
            yield attempt.key, attempt.batch
