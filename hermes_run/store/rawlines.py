"""Manifest lines as bytes: most set operations need the key of a line, and whether two lines are equal.

Decoding a whole entry costs several times what that does, so entries are decoded only where lines
differ or where their fields are asked for.
"""

from __future__ import annotations

import os
from binascii import unhexlify
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.keys import pack_key, split_key
from hermes_run.errors import JournalDamaged, UsageError
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers
from hermes_run.store.entry import Entry, decode_entry, encode, to_entry
from hermes_run.store.journal import JournalView
from hermes_run.store.manifest import changes, manifest_of
from hermes_run.store.verify import hash_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD = b'{"key":"'
_CONTENT = slice(len(_HEAD), len(_HEAD) + 32)
_ORDINAL = _CONTENT.stop + 1


class _Glance(msgspec.Struct, frozen=True, gc=False):
    key: str
    status: str


_glance = msgspec.json.Decoder(_Glance).decode


def split_line(line: bytes) -> tuple[bytes, int] | None:
    """(packed rollout key, where the key's text ends) of a manifest line as we write it, else None."""
    end = line.find(b'"', _ORDINAL, _ORDINAL + 11)
    if not line.startswith(_HEAD) or end < 0 or line[_ORDINAL - 1] != ord("#"):
        return None
    ordinal = line[_ORDINAL:end]
    if ordinal == b"0":
        tail = b"\0\0\0\0"
    elif ordinal.isdigit() and ordinal[0] != ord("0") and int(ordinal) < 2**32:
        tail = int(ordinal).to_bytes(4, "big")
    else:
        return None
    content = line[_CONTENT]
    try:
        packed = unhexlify(content)
    except ValueError:
        return None
    return (packed + tail, end) if content == content.lower() else None


def read_raw(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """(packed rollout key, line without its newline) of a manifest file, in order.

    A line that spells its entry otherwise than we do comes out in our spelling. Of the others only
    the key is looked at: who uses more of a line has to decode it (`entry_of`).

    Raises UsageError for a line that is no entry, or that does not come after the one before.
    """
    before, number = b"", 0
    with path.open("rb") as stream:
        for raw in stream:
            number += 1
            line = raw[:-1] if raw.endswith(b"\n") else raw
            found = split_line(line)
            if found is None:
                line, packed = _respelled(path, number, line)
            else:
                packed = found[0]
            if packed <= before:
                raise UsageError(f"{path}:{number}: the key is not after the one before; entries are sorted")
            before = packed
            yield packed, line


def _respelled(path: Path, number: int, line: bytes) -> tuple[bytes, bytes]:
    """(line in our spelling, packed key)."""
    entry = entry_of(line, f"{path}:{number}")
    if split_key(entry.key) is None:
        raise UsageError(
            f"{path}:{number}: {entry.key!r} is no rollout key of this version of hermes-run; "
            "a manifest of another key version cannot be compared with one of this"
        )
    return encode(entry), pack_key(entry.key)


def entry_of(line: bytes, where: object) -> Entry:
    """The entry of a manifest line. Raises UsageError, naming `where` it stands."""
    try:
        return decode_entry(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{where}: no manifest entry ({error}); if this is the manifest of a run directory, "
            "running its spec again writes it anew"
        ) from None


def fresh_manifest(run: Path) -> Path | None:
    """The manifest of a run directory when it is known to be the fold of its journal, else None."""
    files = layout.read_json(run / layout.CHECKPOINT).get("files")
    path, journal = run / layout.MANIFEST, run / layout.JOURNAL
    if not isinstance(files, dict) or not path.is_file() or not journal.is_file():
        return None
    is_fresh = files.get("journal_bytes") == journal.stat().st_size
    return path if is_fresh and files.get(layout.MANIFEST) == hash_file(path) else None


def open_view(run: Path) -> JournalView:
    """A run directory's journal, read and folded. Raises JournalDamaged for damage before its tail."""
    journal = run / layout.JOURNAL
    view = JournalView(journal)
    if view.damages:
        view.close()
        raise JournalDamaged(f"{journal}: damaged; rebuild it first: hermes-run repair {run}")
    return view


def lines_of_view(view: JournalView) -> Iterator[tuple[bytes, bytes]]:
    """(packed rollout key, manifest line) of a journal's fold, in order."""
    for key in view.fold.sorted_keys():
        yield key, encode(to_entry(view.at(view.fold.offset(key))))


def journal_or_manifest(run: Path) -> Path | None:
    """The manifest that a run has instead of a journal, or None where a journal is there.

    Raises JournalDamaged where the journal is lost, UsageError where there is neither.
    """
    if (run / layout.JOURNAL).is_file():
        return None
    if run.is_dir() and batch_numbers(run):
        raise JournalDamaged(f"{run / layout.JOURNAL}: missing; rebuild it first: hermes-run repair {run}")
    return manifest_of(run)


@contextmanager
def opened_lines(run: Path) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """(packed rollout key, manifest line) of a run or a manifest file, in order. Raises UsageError."""
    path = fresh_manifest(run) if (run / layout.JOURNAL).is_file() else manifest_of(run)
    if path is not None:
        yield read_raw(path)
        return
    view = open_view(run)
    try:
        yield lines_of_view(view)
    finally:
        view.close()


def diff_lines(a: Iterator[tuple[bytes, bytes]], b: Iterator[tuple[bytes, bytes]]) -> dict[str, Any]:
    """What is only in a, only in b, equal, and changed: one pass over two sorted manifests."""
    only_a: list[str] = []
    only_b: list[str] = []
    changed: list[dict[str, Any]] = []
    same = 0
    end = (b"\xff" * 21, b"")
    (mine, line), (theirs, other) = next(a, end), next(b, end)
    while line or other:
        if mine == theirs:
            fields = _fields_changed(line, other)
            if fields:
                changed.append({"key": _glance_at(line).key, "fields": fields})
            else:
                same += 1
            (mine, line), (theirs, other) = next(a, end), next(b, end)
        elif mine < theirs:
            only_a.append(_glance_at(line).key)
            mine, line = next(a, end)
        else:
            only_b.append(_glance_at(other).key)
            theirs, other = next(b, end)
    return {"only_a": only_a, "only_b": only_b, "same": same, "changed": changed}


def _fields_changed(line: bytes, other: bytes) -> dict[str, list[Any]]:
    if line == other:
        _glance_at(line)  # two equal lines that are no entries are still none
        return {}
    return changes(entry_of(line, "a manifest"), entry_of(other, "the other manifest"))


def _glance_at(line: bytes) -> _Glance:
    try:
        return _glance(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        entry = entry_of(line, f"the manifest line {os.fsdecode(line[:60])!r}")
        return _Glance(entry.key, entry.status)
