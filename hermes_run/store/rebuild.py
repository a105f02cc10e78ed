"""Batch files and the entries that describe them, put together again whatever has become of the files.

An entry's line is the one at its place, else one with its hash, wherever that stands now, else one that
says the same in another spelling. So lines that something has sorted, moved, doubled, glued together or
given other line ends are found again, and nothing that was paid for is lost. A line that no entry describes
is adopted, unless it may be what damage made of one that an entry does describe. All other bytes are kept
aside, in a `.bad` file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hermes_run.core.keys import split_key
from hermes_run.formats.record import decode_record
from hermes_run.store.batches import BatchReader, batch_numbers, batch_path, line_hash, set_aside
from hermes_run.store.disk import replace_file
from hermes_run.store.entry import JUDGED, LOST, JournalLine
from hermes_run.store.lines import adopted_line, encode_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Where: TypeAlias = tuple[int, int, str]
"""Batch, offset and hash of a line, as an entry tells them."""
Span: TypeAlias = tuple[int, int]
"""Offset and length."""

_BEGINS = re.compile(rb'(?=\{"prompt_index":)')
"""Where a line of ours begins. No text inside of one can hold this: quotes are escaped there."""


class Piece(Struct, frozen=True):
    """What stands somewhere in a batch file. `is_line`: on a line of its own."""

    batch: int
    offset: int
    text: bytes
    is_line: bool


class Rebuilt(Struct):
    """What `rebuild` found.

    Attributes:
        lines: of the new journal, in order; not yet sealed.
        adopted: lines that no entry described.
        moved: lines that stood elsewhere, or spelled otherwise.
        lost: entries whose line is nowhere.
        aside: pieces that were kept aside.
    """

    lines: list[JournalLine] = []
    adopted: int = 0
    moved: int = 0
    lost: int = 0
    aside: int = 0

    @property
    def is_changed(self) -> bool:
        """Whether the journal has to say something else."""
        return bool(self.adopted or self.moved or self.lost)


def rebuild(run: Path, known: Sequence[JournalLine]) -> Rebuilt:
    """Find the lines of the known entries, mend the batch files, and say what the journal has to be.

    A batch file is replaced whole; the lines that are in their place keep it. Raises DiskFull.
    """
    search = _Search(run, known)
    for batch in batch_numbers(run):
        for piece in pieces_of(run, batch, sorted(search.spans[batch])):
            search.take(piece)
    moved_to: dict[Where, int] = {}
    for batch in sorted({*batch_numbers(run), *search.homeless}):
        moved_to |= _tidy(run, batch, search)
    search.settle(moved_to)
    return search.rebuilt(known)


class _Search:
    """Which entries have their line in its place, and which of the other pieces are whose.

    Attributes:
        spans: batch -> the lines that stay where they are.
        homeless: batch -> the pieces that are written anew at its end, and whose they are.
        loose: batch -> pieces that are nobody's.
        left: the batches that a piece has left for another place.
    """

    def __init__(self, run: Path, known: Sequence[JournalLine]) -> None:
        self.spans: defaultdict[int, list[Span]] = defaultdict(list)
        self.homeless: defaultdict[int, list[tuple[Where, Piece]]] = defaultdict(list)
        self.loose: defaultdict[int, list[Piece]] = defaultdict(list)
        self.left: set[int] = set()
        self._entries: dict[Where, JournalLine] = {}
        self._written_off: set[Where] = set()
        for line in known:
            if line.line_hash and line.status == LOST:
                self._written_off.add(where(line))
            elif line.line_hash:
                self._entries[where(line)] = line
                self._written_off.discard(where(line))
        self._hashes: set[str] = set()
        self._missing: dict[Where, JournalLine] = {}
        self._by_hash: dict[str, Where] = {}
        self._by_key: defaultdict[str, list[Where]] = defaultdict(list)
        self._places: dict[Where, JournalLine] = {}  # of lines that are found, their entry with its place
        self._adopted: list[JournalLine] = []
        with BatchReader(run) as reader:
            for place, entry in self._entries.items():
                if reader.read(entry) is not None:
                    self._places[place] = entry
                    self._hashes.add(entry.line_hash)
                    self.spans[entry.batch].append((entry.offset, entry.length))
                else:
                    self._missing[place] = entry
                    self._by_hash[entry.line_hash] = place
                    self._by_key[entry.key].append(place)

    def take(self, piece: Piece) -> None:
        """Find out whose a piece is."""
        digest = line_hash(piece.text)
        if digest in self._hashes:  # a copy
            self.loose[piece.batch].append(piece)
            return
        owner = self._by_hash.get(digest)
        if owner in self._missing:
            self._hashes.add(digest)
            self._give(piece, self._missing[owner], owner)
            return
        try:
            text = encode_record(decode_record(piece.text))
            entry = adopted_line(text, piece.batch, piece.offset, ())[1]
        except (ValueError, RecursionError):
            self.loose[piece.batch].append(piece)
            return
        piece = replace(piece, text=text, is_line=piece.is_line and text == piece.text)
        rivals = [place for place in self._by_key[entry.key] if place in self._missing]
        owner = next((place for place in rivals if self._missing[place].hash == entry.hash), None)
        is_damaged = owner is None and any(piece.batch <= place[0] for place in rivals)
        is_copy = entry.line_hash in self._hashes
        if is_damaged or is_copy or split_key(entry.key) is None:
            self.loose[piece.batch].append(piece)
            return
        self._hashes.add(entry.line_hash)
        self._give(piece, entry if owner is None else self._missing[owner], owner)

    def _give(self, piece: Piece, entry: JournalLine, owner: Where | None) -> None:
        """Let an entry (of `owner`; without one it is adopted) have a piece."""
        length, digest = len(piece.text), line_hash(piece.text)
        placed = replace(entry, offset=piece.offset, length=length, line_hash=digest, sum="")
        if owner is None:
            self._adopted.append(placed)
        else:
            del self._missing[owner]
            self._places[owner] = placed
        if piece.is_line and piece.batch == entry.batch:
            self.spans[entry.batch].append((piece.offset, length))
        else:
            self.homeless[entry.batch].append((owner or where(placed), piece))
            self.left.add(piece.batch)

    def settle(self, moved_to: dict[Where, int]) -> None:
        """Take in where the homeless are now."""
        for place, offset in moved_to.items():
            if place in self._places:
                self._places[place] = replace(self._places[place], offset=offset)
        self._adopted = [
            replace(each, offset=moved_to.get(where(each), each.offset)) for each in self._adopted
        ]

    def rebuilt(self, known: Sequence[JournalLine]) -> Rebuilt:
        """The lines of the new journal."""
        found = Rebuilt(adopted=len(self._adopted), aside=sum(map(len, self.loose.values())))
        for line in known:
            place, is_here = where(line), self._places.get(where(line))
            if not line.line_hash:
                found.lines.append(line)
            elif is_here is None:
                found.lines.append(_without_line(line))
            else:
                moved = {"offset": is_here.offset, "length": is_here.length, "line_hash": is_here.line_hash}
                found.lines.append(replace(line, **moved, sum=""))
        for place, entry in self._entries.items():
            is_here, was_lost = self._places.get(place), place in self._written_off
            found.moved += is_here is not None and (was_lost or is_here != entry)
            if is_here is not None and was_lost:
                found.lines.append(replace(is_here, source=JUDGED, sum=""))
            elif is_here is None and not was_lost:
                found.lost += 1
                found.lines.append(replace(_without_line(entry), status=LOST))
        found.lines += self._adopted
        if self._adopted or found.moved:
            found.lines.sort(key=lambda line: line.batch)  # the line in the later batch counts
        return found


def where(line: JournalLine) -> Where:
    """Which line an entry points to."""
    return line.batch, line.offset, line.line_hash


def _without_line(line: JournalLine) -> JournalLine:
    """What an entry says whose line is gone. It keeps the hash, by which a line that comes back is known."""
    return replace(line, offset=0, length=0, sum="")


def pieces_of(run: Path, batch: int, spans: Sequence[Span] = ()) -> Iterator[Piece]:
    """What stands in a batch file between some lines, without white space around it."""
    data, end = batch_path(run, batch).read_bytes(), 0
    for offset, length in [*spans, (len(data), 0)]:
        at = end
        for raw in data[end:offset].split(b"\n"):
            start = at
            for part in _BEGINS.split(raw):
                if text := part.strip():
                    begin = start + len(part) - len(part.lstrip())
                    after = data[begin + len(text) : begin + len(text) + 1]
                    is_line = data[begin - 1 : begin] in (b"", b"\n") and after in (b"", b"\n")
                    yield Piece(batch, begin, text, is_line)
                start += len(part)
            at += len(raw) + 1
        end = offset + length


def _tidy(run: Path, batch: int, search: _Search) -> dict[Where, int]:
    """Keep loose pieces aside and blank them out, write the homeless at the end; where these are now."""
    path, spans = batch_path(run, batch), sorted(search.spans[batch])
    data = path.read_bytes() if path.exists() else b""
    homeless, loose = search.homeless[batch], search.loose[batch]
    if loose:
        bad = path.with_name(f"{path.name}.bad")
        kept = bad.read_bytes() if bad.exists() else b""
        if new := b"\n".join(piece.text for piece in loose if piece.text not in kept):
            set_aside(path, new)
    mended = bytearray()
    for offset, length in spans:
        mended += _blank(offset - len(mended), is_first=not mended) + data[offset : offset + length]
    mended += b"\n" * bool(spans)
    places = {}
    for owner, piece in homeless:
        places[owner] = len(mended)
        mended += piece.text + b"\n"
    ends = (data[offset + length : offset + length + 1] for offset, length in spans)
    if loose or homeless or batch in search.left or any(end != b"\n" for end in ends):
        replace_file(path, bytes(mended))
    return places


def _blank(count: int, *, is_first: bool) -> bytes:
    """So many bytes between two lines: nothing but ends of lines and spaces."""
    if is_first or count <= 1:
        return (b" " * (count - 1) + b"\n") if count else b""
    return b"\n" + b" " * (count - 2) + b"\n"
