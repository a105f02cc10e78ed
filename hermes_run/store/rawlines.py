"""Manifest lines as bytes: most set operations need the key of a line, and whether two lines are equal.

Decoding a whole entry costs several times what that does, so entries are decoded only where lines
differ or where their fields are asked for.
"""

from __future__ import annotations

import operator
from binascii import unhexlify
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from hermes_run.core.keys import pack_key, split_key
from hermes_run.core.text import command_line
from hermes_run.errors import JournalDamaged, UsageError
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers
from hermes_run.store.checkpoint import read_checkpoint
from hermes_run.store.entry import Entry, decode_entry, encode_lines, split_line, to_entry
from hermes_run.store.foreign import lost_journal, refuse_foreign
from hermes_run.store.journal import JournalView
from hermes_run.store.manifest import STATUSES, manifest_of, refuse_status
from hermes_run.store.verify import hash_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BEFORE, _AFTER = b'{"key":"', b'#0"'
_HEAD = len(_BEFORE) + 32 + len(_AFTER)

Block: TypeAlias = tuple[list[bytes], list[bytes]]
"""Packed rollout keys, and their manifest lines, each with its newline."""

BLOCK_BYTES = 1 << 16
"""What is read at once: little, so that what is read is in the processor's cache when it is used."""


def read_blocks(path: Path, at_once: int = BLOCK_BYTES) -> Iterator[Block]:
    """(packed rollout keys, lines) of a manifest file, in order; about `at_once` bytes of them together.

    A line that spells its entry otherwise than we do comes out in our spelling. Of the others only
    the key is looked at: who uses more of a line has to decode it (`entry_of`).

    Raises UsageError for a line that is no entry, or that does not come after the one before.
    """
    before, number = b"", 1
    for found in _line_blocks(path, at_once):
        keys, lines = _keys_of(found), found
        if keys is None:
            keys, lines = _keys_one_by_one(path, number, found)
        if not (before < keys[0] and all(map(operator.lt, keys, keys[1:]))):
            pairs = enumerate(pairwise((before, *keys)))
            wrong = number + next(place for place, (one, other) in pairs if one >= other)
            raise UsageError(f"{path}:{wrong}: the key is not after the one before; entries are sorted")
        before = keys[-1]
        number += len(lines)
        yield keys, lines


def _line_blocks(path: Path, at_once: int) -> Iterator[list[bytes]]:
    with path.open("rb", buffering=at_once) as stream:
        while lines := stream.readlines(at_once):
            if not lines[-1].endswith(b"\n"):
                lines[-1] += b"\n"
            yield lines


def _keys_of(lines: list[bytes]) -> list[bytes] | None:
    """The packed keys of lines that all are as most lines are, ordinal 0 and our spelling; else None."""
    count = len(lines)
    heads = b"".join([line[:_HEAD] for line in lines])
    if len(heads) != _HEAD * count:
        return None
    if heads[::_HEAD] != b"{" * count or heads[_HEAD - 1 :: _HEAD] != b'"' * count:
        return None  # these two are taken out below with what they belong to, or are no digits
    digits = heads.replace(_BEFORE, b"").replace(_AFTER, b"00000000")
    try:
        packed = unhexlify(digits)
    except ValueError:
        return None
    return [packed[at : at + 20] for at in range(0, 20 * count, 20)] if digits.islower() else None


def _keys_one_by_one(path: Path, number: int, found: list[bytes]) -> Block:
    keys, lines = [], []
    for place, raw in enumerate(found, number):
        line, split = raw, split_line(raw)
        if split is None:
            line, packed = _respelled(path, place, raw)
        else:
            packed = split[0]
        keys.append(packed)
        lines.append(line)
    return keys, lines


def _respelled(path: Path, number: int, line: bytes) -> tuple[bytes, bytes]:
    """(line in our spelling, packed key)."""
    entry = entry_of(line, f"{path}:{number}")
    if split_key(entry.key) is None:
        raise UsageError(
            f"{path}:{number}: {entry.key!r} is no rollout key of this version of hermes-run; "
            "a manifest of another key version cannot be compared with one of this"
        )
    return encode_lines((entry,)), pack_key(entry.key)


def entry_of(line: bytes, where: Path | str) -> Entry:
    """The entry of a manifest line.

    Raises UsageError, naming `where` it stands; of a run or a manifest file, the line's number too.
    """
    try:
        entry = decode_entry(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{_place(line, where)}: no manifest entry ({error}); if this is the manifest of a run "
            "directory, running its spec again writes it anew"
        ) from None
    if entry.status not in STATUSES:
        refuse_status(entry, _place(line, where))
    return entry


def _place(line: bytes, where: Path | str) -> str:
    if isinstance(where, str):
        return where
    path = manifest_of(where)
    with path.open("rb") as stream:
        number = next((n for n, each in enumerate(stream, 1) if each.strip() == line.strip()), None)
    return str(path) if number is None else f"{path}:{number}"


def fresh_manifest(run: Path) -> Path | None:
    """The manifest of a run directory when it is known to be the fold of its journal, else None."""
    files = read_checkpoint(run).get("files")
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
        raise JournalDamaged(f"{journal}: damaged; rebuild it first: {command_line('repair', run)}")
    return view


def lines_of_view(view: JournalView) -> Iterator[tuple[bytes, bytes]]:
    """(packed rollout key, manifest line) of a journal's fold, in order."""
    for key in view.fold.sorted_keys():
        yield key, encode_lines((to_entry(view.at(view.fold.offset(key))),))


def blocks_of_view(view: JournalView) -> Iterator[Block]:
    """The same, some at once."""
    lines = lines_of_view(view)
    while some := list(islice(lines, 1024)):
        yield [key for key, _ in some], [line for _, line in some]


def journal_or_manifest(run: Path) -> Path | None:
    """The manifest that a run has instead of a journal, or None where a journal is there.

    Raises JournalDamaged where the journal is lost, UsageError where there is neither.
    """
    if (run / layout.JOURNAL).is_file():
        return None
    if run.is_dir() and batch_numbers(run):
        refuse_foreign(run)
        raise lost_journal(run)
    return manifest_of(run)


@contextmanager
def opened_blocks(run: Path) -> Iterator[Iterator[Block]]:
    """(packed rollout keys, manifest lines) of a run or a manifest file, in order. Raises UsageError."""
    if run.is_fifo():  # such as the shell's <(git show …)
        yield read_blocks(run)
        return
    path = fresh_manifest(run) if (run / layout.JOURNAL).is_file() else manifest_of(run)
    if path is not None:
        yield read_blocks(path)
        return
    view = open_view(run)
    try:
        yield blocks_of_view(view)
    finally:
        view.close()
