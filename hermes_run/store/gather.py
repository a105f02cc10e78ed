"""The first pass of putting runs together, by packed keys; and the second, which writes what was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.keys import unpack_key
from hermes_run.core.text import command_line
from hermes_run.dataset.plan import equal_rows, planned_keys
from hermes_run.errors import UsageError
from hermes_run.store.batches import batch_path
from hermes_run.store.entry import REUSED, ROLLOUT, Entry, JournalLine, decode_entry, encode
from hermes_run.store.rawlines import entry_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import IO

    from hermes_run.store.algebra import Candidate
    from hermes_run.store.assemble import Assembly
    from hermes_run.store.parts import Part
    from hermes_run.store.unionplan import UnionPlan

_CONTENT_BYTES = 16
_ORDINAL_BITS = 32


class Gathered:
    """What was chosen: new packed key -> where its entry is.

    Attributes:
        index: packed key -> number of its part and its old ordinal; or, of a manifest alone,
            -1 - (where its line is in the spool).
        taken: how many entries of each part were chosen.

    Of `payers` (all parts, unless told otherwise) no two give an entry for one key: what one of them took
    over (`reuse`) counts as paid where another one has paid for it.
    """

    def __init__(
        self, parts: Sequence[Part], spool: IO[bytes] | None, payers: Sequence[Part] | None = None
    ) -> None:
        self._parts = parts
        self._payers = parts if payers is None else payers
        self._spool = spool
        self.index: dict[bytes, int] = {}
        self.taken = [0] * len(parts)

    def take(self, chosen: Iterable[tuple[Candidate, bytes]]) -> None:
        """Take in (candidate, its old packed key)."""
        offset = 0
        for (packed, number, line), old in chosen:
            part = self._parts[number]
            self.taken[number] += 1
            if part.view is None and self._spool is not None:
                spelled = encode(entry_of(line, part.path)) + b"\n"
                self._spool.write(spelled)
                self.index[packed] = -1 - offset
                offset += len(spelled)
            else:
                ordinal = int.from_bytes(old[_CONTENT_BYTES:], "big")
                self.index[packed] = number << _ORDINAL_BITS | ordinal

    def contents(self) -> set[bytes]:
        """The content keys of what was chosen."""
        return {packed[:_CONTENT_BYTES] for packed in self.index}

    def write(self, new: Assembly, union: UnionPlan) -> None:
        """Write it: the plan's in its order, then what is outside. The index is used up."""
        samples = union.plan.selection.samples
        for position, packed in planned_keys(union.keys, equal_rows(union.keys), samples):
            where = self.index.pop(packed, None)
            if where is not None:
                self._add(new, packed, where, union.places[position])
        for packed in sorted(self.index):
            self._add(new, packed, self.index[packed], None)
        new.set_plan(union.plan, union.keys)

    def _add(self, new: Assembly, packed: bytes, where: int, place: int | None) -> None:
        line, text, origin = self._found(packed, where)
        new.add(line, text, place, origin)

    def _found(self, packed: bytes, where: int) -> tuple[JournalLine, bytes, Path | None]:
        if where < 0 and self._spool is not None:
            self._spool.seek(-1 - where)
            return bare_line(decode_entry(self._spool.readline())), b"", None
        part, ordinal = self._parts[where >> _ORDINAL_BITS], where & (1 << _ORDINAL_BITS) - 1
        old = packed[:_CONTENT_BYTES] + ordinal.to_bytes(4, "big")
        line = find(part, old)
        if line.source == REUSED and any(each.has_paid(old, line.hash) for each in self._payers):
            line = msgspec.structs.replace(line, source=ROLLOUT)
        return msgspec.structs.replace(line, key=unpack_key(packed)), read_text(part, line), part.path


def find(part: Part, packed: bytes) -> JournalLine:
    """The entry of a part that its manifest has listed. Raises UsageError when its journal lacks it."""
    line = part.view.find(packed) if part.view is not None else None
    if line is None:
        raise UsageError(
            f"{part.path}: its manifest lists {unpack_key(packed)}, which its journal does not know; "
            f"rebuild them: {command_line('repair', part.path)}"
        )
    return line


def read_text(part: Part, line: JournalLine) -> bytes:
    """The trajectory line of an entry, b"" when it has none here. Raises UsageError when it is damaged."""
    if not line.length:
        return b""
    text = part.reader.read(line)
    if text is None:
        raise UsageError(
            f"{batch_path(part.path, line.batch)}: the line of {line.key} is missing or damaged; mend "
            f"it first ({command_line('repair', part.path)}), or run that spec again"
        )
    return text


def bare_line(entry: Entry) -> JournalLine:
    """The journal line of an entry whose trajectory line is not here."""
    fields = {name: getattr(entry, name) for name in Entry.__struct_fields__}
    place: dict[str, Any] = {
        "batch": 0,
        "offset": 0,
        "length": 0,
        "line_hash": "",
        "finished_at": "",
        "duration_s": None,
    }
    return JournalLine(**fields, **place)
