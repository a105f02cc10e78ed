"""`manifest.jsonl`: the canonical fold of the journal, read and written. Contract, section 4."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import to_builtins

from hermes_run.core.keys import split_key
from hermes_run.core.trajectory import Status
from hermes_run.errors import UsageError
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers
from hermes_run.store.disk import replacing
from hermes_run.store.entry import Entry, decode_entry, encode, to_entry
from hermes_run.store.foreign import lost_journal, refuse_foreign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_COMPARED = tuple(name for name in Entry.__struct_fields__ if name not in ("key", "work"))
"""Fields whose difference makes an entry changed; another fingerprint alone makes none."""

STATUSES = frozenset(status.value for status in Status)

_values = attrgetter(*_COMPARED)


def write_manifest(path: Path, entries: Iterable[Entry]) -> None:
    """Write entries that come sorted by key, whole or not at all."""
    with replacing(path) as write:
        for entry in entries:
            write(encode(to_entry(entry)) + b"\n")  # type: ignore[arg-type]


def manifest_of(run: Path) -> Path:
    """The manifest file of a run directory, or the file itself.

    Raises UsageError when it is neither, JournalDamaged where the manifest is lost and the journal, too.
    """
    path = run / layout.MANIFEST if run.is_dir() else run
    if not path.is_file():
        what = "is not there" if not path.exists() else "is no file that can be read twice; write it into one"
        if run.is_dir():
            refuse_foreign(run)
            if batch_numbers(run):
                raise lost_journal(run)
            what = "holds no manifest.jsonl; is it a run directory?"
        raise UsageError(f"{run}: {what}")
    return path


def read_manifest(path: Path) -> Iterator[Entry]:
    """The entries of a manifest file, in order.

    Raises UsageError for a line that is no entry, or that does not come after the one before.
    """
    before = ""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                entry = decode_entry(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UsageError(
                    f"{path}:{number}: no manifest entry ({error}); if this is the manifest of a run "
                    "directory, running its spec again writes it anew"
                ) from None
            if split_key(entry.key) is None:
                raise UsageError(f"{path}:{number}: {entry.key!r} is no rollout key of this version")
            refuse_status(entry, f"{path}:{number}")
            if sort_key(entry.key) <= sort_key(before):
                raise UsageError(f"{path}:{number}: the key is not after the one before; entries are sorted")
            before = entry.key
            yield entry


def refuse_status(entry: Entry, where: str) -> None:
    """Raises UsageError, naming `where` it stands, for an entry that no ledger could count."""
    if entry.status not in STATUSES:
        raise UsageError(f'{where}: no manifest entry: there is no status "{entry.status}"')


def sort_key(key: str) -> tuple[str, int]:
    """The manifest's order: by content key, then by ordinal as a number."""
    content, _, ordinal = key.partition("#")
    return content, int(ordinal or -1)


def changes(a: Entry, b: Entry) -> dict[str, list[Any]]:
    """Field -> [in a, in b], for the fields that differ."""
    return {
        name: [mine, theirs] if isinstance(mine, str) else [to_builtins(mine), to_builtins(theirs)]
        for name, mine, theirs in zip(_COMPARED, _values(a), _values(b), strict=True)
        if mine != theirs
    }
