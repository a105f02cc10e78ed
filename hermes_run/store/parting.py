"""Where the trajectories of one rollout in two runs part: the first turn in which they differ."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.keys import pack_key
from hermes_run.errors import UsageError
from hermes_run.formats.equality import number_calls
from hermes_run.formats.record import decode_record
from hermes_run.store import layout
from hermes_run.store.batches import BatchReader
from hermes_run.store.rawlines import open_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from hermes_run.store.journal import JournalView

_SCHEDULED = ("batch_num", "timestamp", "row", "work")


class Records:
    """The trajectory lines of a run directory, by rollout key."""

    def __init__(self, run: Path, stack: ExitStack) -> None:
        """Open it until `stack` ends. Raises UsageError when its journal is damaged."""
        self._view: JournalView = open_view(run)
        stack.callback(self._view.close)
        self._reader = stack.enter_context(BatchReader(run))

    def find(self, key: str) -> dict[str, Any] | None:
        """The record as plain values, call ids replaced by places; None when it is not there or damaged."""
        line = self._view.find(pack_key(key))
        text = self._reader.read(line) if line is not None and line.length else None
        if text is None:
            return None
        try:
            record: dict[str, Any] = msgspec.to_builtins(decode_record(text))
        except ValueError:
            return None
        number_calls(record["conversations"])
        return record


def partings(a: Path, b: Path, changed: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Where the trajectories of changed entries part, for those whose trajectories differ.

    Each is `{key, turn, a, b, differs}`: `turn` is the place in `conversations`, from 1, of the first
    turn that differs, `a` and `b` are those turns (None: it has ended before). With equal turns, `turn` is
    None and `differs` names what else of the record differs. A side without the trajectory (it failed,
    or its line is elsewhere or damaged) is named in `missing`.

    Raises UsageError at once unless both are run directories.
    """
    for run in (a, b):
        if not (run / layout.JOURNAL).is_file():
            raise UsageError(
                f"{run}: there are no trajectories here to compare; --trajectories takes two run directories"
            )
    return _partings(a, b, changed)


def _partings(a: Path, b: Path, changed: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        mine, theirs = Records(a, stack), Records(b, stack)
        for entry in changed:
            if "hash" in entry["fields"]:
                key = entry["key"]
                yield {"key": key, **_parting(mine.find(key), theirs.find(key))}


def _parting(mine: dict[str, Any] | None, theirs: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"turn": None, "a": None, "b": None, "differs": []}
    if mine is None or theirs is None:
        return found | {"missing": [side for side, it in (("a", mine), ("b", theirs)) if it is None]}
    pairs = zip_longest(mine.pop("conversations"), theirs.pop("conversations"))
    for turn, (one, other) in enumerate(pairs, 1):
        if one != other:
            return found | {"turn": turn, "a": one, "b": other}
    one, other = dict(_parts(mine)), dict(_parts(theirs))
    return found | {"differs": sorted(name for name in one | other if one.get(name) != other.get(name))}


def _parts(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    metadata = record.pop("metadata")
    yield from ((f"metadata.{name}", value) for name, value in metadata.items() if name not in _SCHEDULED)
    yield from ((name, value) for name, value in record.items() if name not in ("key", "prompt_index"))
