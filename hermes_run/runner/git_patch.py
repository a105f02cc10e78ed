"""What became of one file, as git writes it and `git apply` takes it. Pure."""

from __future__ import annotations

import base64
import difflib
import hashlib
import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_COMPARED = 512 << 10
"""Bytes: comparing the lines of longer texts would take seconds. They are given whole, as binary ones are."""
_LINE = 52
"""Bytes in a line of git's base 85."""
_NO_BLOB = b"0" * 40
_NEEDS_QUOTES = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]| (?=/)')
"""Beside what git quotes itself, the last blank of a folder: older gits cannot read that without quotes."""
_SHORT = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}


def file_diff(path: bytes, old: bytes | None, new: bytes | None) -> bytes:
    """The diff of one file; None is a file that is not there."""
    head = b"diff --git %b %b\n" % (_quoted(b"a/" + path), _quoted(b"b/" + path))
    if old is None:
        head += b"new file mode 100644\n"
    if new is None:
        head += b"deleted file mode 100644\n"
    if _is_given_whole(old or b"") or _is_given_whole(new or b""):
        return head + _binary(old, new)
    before = b"/dev/null" if old is None else _quoted(b"a/" + path)
    after = b"/dev/null" if new is None else _quoted(b"b/" + path)
    return head + b"".join(_hunks(old or b"", new or b"", before, after))


def _is_given_whole(data: bytes) -> bool:
    return b"\0" in data or len(data) > _MOST_COMPARED


def _binary(old: bytes | None, new: bytes | None) -> bytes:
    """Both contents, packed: git takes a binary patch by the names of its blobs, and can turn it round."""
    index = b"index %b..%b\nGIT binary patch\n" % (_blob(old), _blob(new))
    return index + _literal(new or b"") + _literal(old or b"")


def _blob(data: bytes | None) -> bytes:
    if data is None:
        return _NO_BLOB
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest().encode()


def _literal(data: bytes) -> bytes:
    packed = zlib.compress(data)
    lines = [packed[start : start + _LINE] for start in range(0, len(packed), _LINE)]
    written = (b"%c%b\n" % (_length(len(line)), base64.b85encode(line, pad=True)) for line in lines)
    return b"literal %d\n%b\n" % (len(data), b"".join(written))


def _length(count: int) -> int:
    """A to Z are 1 to 26 bytes, a to z 27 to 52."""
    return ord("A") + count - 1 if count <= 26 else ord("a") + count - 27


def _hunks(old: bytes, new: bytes, before: bytes, after: bytes) -> Iterator[bytes]:
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(old), _lines(new), before, after)
    for number, line in enumerate(lines):
        if number < 2:  # a name with a blank in it is followed by a tab, or patch would cut it there
            yield line.rstrip(b"\n") + (b"\t\n" if b" " in line[4:] and b'"' not in line else b"\n")
        elif line.endswith(b"\n"):
            yield line
        else:
            yield line + b"\n\\ No newline at end of file\n"


def _lines(text: bytes) -> list[bytes]:
    """Lines with their ends; only a line feed ends one."""
    pieces = text.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _quoted(path: bytes) -> bytes:
    """A path as git writes it: in quotes with C's escapes when it holds anything odd."""
    if not _NEEDS_QUOTES.search(path):
        return path
    return b'"%b"' % _NEEDS_QUOTES.sub(_escaped, path)


def _escaped(match: re.Match[bytes]) -> bytes:
    byte = match[0][0]
    return b"\\" + (_SHORT.get(byte) or b"%03o" % byte)
