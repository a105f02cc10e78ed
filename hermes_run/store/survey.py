"""Many runs at once: the run directories under a folder, and how far each of them is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.errors import UsageError
from hermes_run.store import layout
from hermes_run.store.entry import decode_entry
from hermes_run.store.inspect import opened_entries, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hermes_run.store.entry import Entry


def is_run(path: Path) -> bool:
    """Whether a path is one run: a run directory or a file, which can only be a manifest."""
    return not path.is_dir() or layout.is_run_dir(path)


def find_runs(place: Path) -> list[Path]:
    """The runs at or under a place, sorted by path; a run directory is not looked into.

    Raises UsageError when there are none.
    """
    if is_run(place):
        return [place]
    found = []
    for folder, inner, _ in os.walk(place):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in list(inner):
            path = Path(folder) / name
            if layout.is_run_dir(path):
                found.append(path)
                inner.remove(name)
    if not found:
        raise UsageError(
            f"{place}: neither a run directory (there is no manifest.jsonl or journal.jsonl in it) nor a "
            "folder of some"
        )
    return sorted(found)


def survey(runs: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """`{run, outcomes, pending, outside_plan, running, last_change}` of each run.

    `last_change` is when its journal (of a manifest alone: that) was last written, in seconds since 1970.
    A run that cannot be read has `error` instead of the counts.
    """
    for run in runs:
        told: dict[str, Any] = {"run": str(run)}
        try:
            told |= status(run)
        except UsageError as error:
            told["error"] = str(error)
        except OSError as error:  # another user's, in a folder of all
            told["error"] = f"{error.filename}: {error.strerror}"
        yield told | {"last_change": _last_change(run)}


def _last_change(run: Path) -> float | None:
    files = [run / layout.JOURNAL, run / layout.MANIFEST, run / layout.CHECKPOINT] if run.is_dir() else [run]
    try:
        return next((path.stat().st_mtime for path in files if path.is_file()), None)
    except OSError:
        return None


def entries_or_lines(run: Path) -> Iterator[Entry | bytes]:
    """The entries of a run; of a file also the lines that are no entries (conflict markers, say) as they are.

    Raises UsageError when there is nothing to read.
    """
    if run.is_dir():
        with opened_entries(run) as entries:
            yield from entries
        return
    with run.open("rb") as stream:
        for line in stream:
            try:
                yield decode_entry(line)
            except (ValueError, RecursionError):
                yield line.rstrip(b"\r\n")
