"""The manifest's entry and the journal's line. Contract, section 4."""

from __future__ import annotations

import re
from binascii import unhexlify

import msgspec
import xxhash
from msgspec import Struct

from hermes_run.core.messages import Usage

LOST = "lost"
"""Status of a journal line that says: this trajectory line was found damaged. If it is the one that
counts, and no older one, its rollout is pending."""

ROLLOUT, ADOPTED, JUDGED, REUSED = "rollout", "adopted", "judged", "reused"
"""Where a journal line comes from: a rollout just run; a trajectory line found without an entry (its
rollout was paid for all the same); a kept line judged again; a rollout of another run taken over."""

UNPAID = (JUDGED, REUSED)
"""Lines for which this run paid nothing: `spent` leaves them out."""


class Entry(Struct, frozen=True, gc=False):
    """What a rollout came to, with nothing volatile in it.

    Attributes:
        key: rollout key.
        status, reason: the outcome.
        hash: `formats.equality.content_hash` of its trajectory, or "" when it has none.
        work: fingerprint of the spec that it ran under.
        toolsets: really offered.
        turns: assistant turns kept.
        api_calls: model replies received.
        usage, cost: of its own attempt, billed retries included; cost None is unknown.
        model: the one that served.
        image_digest: of the sandbox's image, or "".
        error: why it failed, or "".
    """

    key: str
    status: str
    reason: str
    hash: str
    work: str
    toolsets: tuple[str, ...]
    turns: int
    api_calls: int
    usage: Usage
    cost: float | None
    model: str
    image_digest: str
    error: str


class JournalLine(Entry, frozen=True, gc=False):
    """An entry and where its line is. `batch` and the rest are scheduling fields.

    `offset` and `length` (without the newline) are in `batch_<batch>.jsonl`; `length` 0: no line.
    `sum` is xxh3_64 over this line without `sum`, seeded with the `sum` of the line before: a flipped
    byte, a line deleted from the middle and a doubled line all break the chain.
    """

    batch: int
    offset: int
    length: int
    line_hash: str
    finished_at: str
    duration_s: float | None
    source: str = ROLLOUT
    sum: str = ""


class Place(Struct, frozen=True, gc=False):
    """The part of a journal line that the fold needs: cheap to decode."""

    key: str
    status: str
    batch: int
    offset: int
    length: int
    line_hash: str
    usage: Usage
    source: str


def is_same_line(a: Place | JournalLine, b: Place | JournalLine) -> bool:
    """Whether two entries point to the same trajectory line."""
    return (a.batch, a.offset, a.line_hash) == (b.batch, b.offset, b.line_hash)


encode = msgspec.json.Encoder().encode
encode_lines = msgspec.json.Encoder().encode_lines
decode_line = msgspec.json.Decoder(JournalLine).decode
decode_entry = msgspec.json.Decoder(Entry).decode
decode_entries = msgspec.json.Decoder(Entry).decode_lines
decode_place = msgspec.json.Decoder(Place).decode

_KEY = re.compile(rb'\{"key":"([0-9a-f]{32})#(0|[1-9][0-9]{0,9})"')
_SUM = b',"sum":"'
_TAIL = len(_SUM) + 16 + len(b'"}')


def split_line(line: bytes) -> tuple[bytes, int] | None:
    """(packed rollout key, where the key's text ends) of an entry's line as we write it, else None."""
    if line.startswith(b'#0"', 40) and line.startswith(b'{"key":"') and (digits := line[8:40]).islower():
        try:
            return unhexlify(digits) + b"\0\0\0\0", 42
        except ValueError:
            return None
    match = _KEY.match(line)
    if match is None:
        return None
    content, ordinal = match.groups()
    if ordinal == b"0":
        return unhexlify(content) + b"\0\0\0\0", match.end() - 1
    number = int(ordinal)
    return (unhexlify(content) + number.to_bytes(4, "big"), match.end() - 1) if number < 2**32 else None


def next_sum(raw: bytes, before: int) -> int:
    """The sum of a journal line (with its newline) that is sound and follows the one with sum `before`.

    -1 when it is neither.
    """
    total = xxhash.xxh3_64_intdigest(raw[: -_TAIL - 1], before)
    return total if raw.endswith(b'%s%016x"}\n' % (_SUM, total)) else -1


def seal(line: JournalLine, before: str) -> tuple[bytes, str]:
    """The bytes of a journal line (no newline) and its sum, given the sum of the line before."""
    body = encode(line)
    return seal_body(body[: body.rindex(_SUM)], before)


def seal_body(body: bytes, before: str = "") -> tuple[bytes, str]:
    """The same of a JSON object's bytes without its closing brace."""
    total = chain(body, before)
    return body + _SUM + total.encode() + b'"}', total


def unseal(raw: bytes) -> tuple[bytes, str] | None:
    """Body and sum of a journal line, or None when it is not built like one."""
    tail = raw[-_TAIL:]
    if len(raw) <= _TAIL or not tail.startswith(_SUM) or not tail.endswith(b'"}'):
        return None
    total = tail[len(_SUM) : -2].decode("ascii", "replace")
    return (raw[:-_TAIL], total) if all(c in "0123456789abcdef" for c in total) else None


def follows(body: bytes, total: str, before: str) -> bool:
    """Whether a body with this sum comes right after the line whose sum was `before`."""
    return chain(body, before) == total


def chain(body: bytes, before: str) -> str:
    """The `sum` of a journal line, given its other bytes and the `sum` of the line before."""
    return xxhash.xxh3_64_hexdigest(body, seed=int(before, 16) if before else 0)


def to_entry(line: JournalLine) -> Entry:
    """The manifest's part of a journal line."""
    return Entry(*(getattr(line, name) for name in Entry.__struct_fields__))
