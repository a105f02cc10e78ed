"""What is put together: run directories and manifest files, opened for reading and held still."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_run.core.text import clean_within, command_line
from hermes_run.errors import RunLocked
from hermes_run.store import layout
from hermes_run.store.assemble import MEMORY
from hermes_run.store.batches import BatchReader, batch_path
from hermes_run.store.entry import REUSED
from hermes_run.store.planfile import PlanFile, read_plan, refuse_other_keys
from hermes_run.store.rawlines import (
    Block,
    blocks_of_view,
    fresh_manifest,
    journal_or_manifest,
    open_view,
    read_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hermes_run.store.journal import JournalView

_AT_ONCE = 1 << 15
"""Bytes of a manifest that are read at once: of several, all that together stays in the processor's cache."""


@dataclass(slots=True, kw_only=True)
class Part:
    """One run, or what is left of one.

    Attributes:
        path: as it was named.
        manifest: the file its entries are read from; None when they come from the journal.
        view: its journal; None for a manifest alone, whose entries have no line here.
        reader: of its batch files.
        plan, keys: its plan and packed content keys; None and b"" for a manifest alone.
        spec: contents of spec.yaml, or {}.
        warnings: what a person should know of it.
    """

    path: Path
    manifest: Path | None
    view: JournalView | None
    reader: BatchReader
    plan: PlanFile | None
    keys: bytes
    spec: dict[str, Any]
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[tuple[bytes, bytes]]:
        """(packed rollout key, manifest line) of every entry, in order."""
        for keys, lines in self.blocks():
            yield from zip(keys, lines, strict=True)

    def blocks(self) -> Iterator[Block]:
        """The same, some at once."""
        if self.manifest is not None:
            return read_blocks(self.manifest, _AT_ONCE)
        return blocks_of_view(self.view) if self.view is not None else iter(())

    def has_line(self, key: bytes) -> bool:
        """Whether the trajectory of a packed key is in this directory."""
        return self.view is not None and not self.view.fold.is_line_elsewhere(key)

    def has_paid(self, key: bytes, content: str) -> bool:
        """Whether this run itself paid for the trajectory with this hash that it has of a packed key."""
        line = self.view.find(key) if self.view is not None else None
        return line is not None and line.source != REUSED and line.hash == content

    @property
    def remembered(self) -> dict[str, Any]:
        """What its spec.yaml says of the run."""
        known = self.spec.get(MEMORY)
        return known if isinstance(known, dict) else {}

    def tools(self) -> list[dict[str, Any]]:
        """Contents of tools.json, or []."""
        try:
            tools = clean_within(json.loads((self.path / layout.TOOLS).read_bytes()))
        except (OSError, ValueError, RecursionError):
            return []
        return tools if isinstance(tools, list) else []

    def statistics(self) -> dict[str, Any]:
        """Contents of statistics.json, or {}."""
        return layout.read_json(self.path / layout.STATISTICS) if self.path.is_dir() else {}


@contextmanager
def opened_parts(paths: Sequence[Path]) -> Iterator[list[Part]]:
    """Parts opened together; no run can begin in one of them meanwhile.

    Raises UsageError (JournalDamaged among them) for what is no run or is damaged, RunLocked for a run
    that is going on.
    """
    with ExitStack() as stack:
        yield [_open(path, stack) for path in paths]


def _open(path: Path, stack: ExitStack) -> Part:
    if path.is_dir():
        stack.enter_context(held(path))
    manifest = journal_or_manifest(path)
    view = None
    if manifest is None:
        view = open_view(path)
        stack.callback(view.close)
        manifest = fresh_manifest(path)
    has_plan = path.is_dir() and (view is not None or (path / layout.PLAN).exists())
    plan, keys = read_plan(path) if has_plan else (None, b"")
    if plan is not None:
        refuse_other_keys(path, plan)
    part = Part(
        path=path,
        manifest=manifest,
        view=view,
        reader=stack.enter_context(BatchReader(path)),
        plan=plan,
        keys=keys,
        spec=layout.read_spec(path) if path.is_dir() else {},
    )
    part.warnings += _unfinished(part)
    return part


def _unfinished(part: Part) -> Iterator[str]:
    """A kill's traces: trajectories that were written, whose entries were not."""
    if part.view is None:
        return
    for number, end in sorted(part.view.batches.items()):
        path = batch_path(part.path, number)
        size = path.stat().st_size if path.exists() else 0
        if size > end:
            yield (
                f"{path}: {size - end} bytes after the last entry are left out; running its spec, or "
                f"{command_line('repair', part.path)}, takes over what is usable of them"
            )


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep runs out of a run directory while it is read. Several may read. Raises RunLocked."""
    try:
        file = os.open(folder / layout.LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # never locked, as in a clone: nobody works in it
        yield
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            holder = os.pread(file, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise RunLocked(
                f"{folder}: {holder} is working in this run directory; wait until it has ended, "
                "and what it is writing now will be taken along"
            ) from None
        yield
    finally:
        os.close(file)
