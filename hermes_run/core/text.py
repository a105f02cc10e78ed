"""Text that is always valid UTF-8: the one reversible replacement of lone surrogates; commands as text.

JSON and file names can hold half of a UTF-16 pair (U+D800 to U+DFFF), which no UTF-8 file can. The
rule: a lone half U+Dxxx is written as the private-use character U+10Dxxx, and a private-use character
of that range (or the mark itself) that was there before is written with the mark U+10D7FF before it.
So every text has exactly one clean form and `restore(clean(text)) == text`; two halves that make a
pair are joined into their character first.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_MARK = "\U0010d7ff"
_ODD = re.compile("[\ud800-\udfff\U0010d7ff-\U0010dfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_CLEAN = re.compile("\U0010d7ff([\U0010d7ff-\U0010dfff])|([\U0010d800-\U0010dfff])")
_NO_BYTES = re.compile("([\ud800-\udc7f\udd00-\udfff]+)")
_OFFSET = 0x100000


def _join(match: re.Match[str]) -> str:
    return match[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _replace(match: re.Match[str]) -> str:
    char = match[0]
    return chr(ord(char) + _OFFSET) if char <= "\udfff" else _MARK + char


def _restore(match: re.Match[str]) -> str:
    return match[1] or chr(ord(match[2]) - _OFFSET)


def clean(text: str) -> str:
    """The form of `text` that can be stored and sent as UTF-8. Idempotent only for plain text."""
    if text.isascii() or not _ODD.search(text):
        return text
    return _ODD.sub(_replace, _PAIR.sub(_join, text))


def restore(text: str) -> str:
    """The text that `clean` was given (pairs joined)."""
    if text.isascii():
        return text
    return _CLEAN.sub(_restore, text)


def restore_within(value: Any) -> Any:
    """A JSON value with every text in it restored."""
    if isinstance(value, str):
        return restore(value)
    if isinstance(value, list):
        return [restore_within(item) for item in value]
    if isinstance(value, dict):
        return {restore(name): restore_within(item) for name, item in value.items()}
    return value


def clean_within(value: Any) -> Any:
    """A JSON value with every text in it cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_within(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): clean_within(item) for name, item in value.items()}
    return value


def clean_bytes(data: bytes) -> str:
    """Bytes that should be UTF-8, as clean text; a byte that is not becomes U+10DCxx, reversibly."""
    return clean(data.decode("utf-8", "surrogateescape"))


def restore_bytes(text: str) -> bytes:
    """The bytes that `clean_bytes` was given; halves that are no bytes are kept in their 3-byte form."""
    parts = _NO_BYTES.split(restore(text))  # halves stand in every second place
    return b"".join(
        part.encode("utf-8", "surrogatepass" if place % 2 else "surrogateescape")
        for place, part in enumerate(parts)
    )


def command_line(*words: str | Path) -> str:
    """The command line `hermes-run WORDS` for a message, as it can be pasted into a shell."""
    return shlex.join(["hermes-run", *map(str, words)])
