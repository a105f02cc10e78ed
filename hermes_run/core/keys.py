r"""Identity: canonical JSON, content keys, rollout keys, and the randomness that hangs on them.

Canonical JSON, version 1 (frozen by golden vectors in `tests/data`):

- UTF-8, no white space; object keys sorted by code point, each once; keys are strings.
- Strings as they are, never normalised: composed and decomposed accents, trailing spaces and case
  make a difference. Escaped are only `"`, the backslash and characters below U+0020 (short forms
  where JSON has them, else lower-case `\u00xx`). Lone surrogates by the rule of `core.text`.
- Numbers by value: an integral float is written as the integer (1.0 is 1, -0.0 is 0) up to 2**53,
  other floats in Python's shortest form. NaN and infinities are refused.
- null is a value: a member that is null is not the same as an absent one. (Content keys leave absent
  *and* null fields out before they come here.)
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from hermes_run.core.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY_VERSION = 1
"""Version of the content key's definition. Raising it moves every key: never for a new row field."""

_EXACT = 2**53
_KEY = re.compile("([0-9a-f]{32})#(0|[1-9][0-9]{0,9})")
_LAST_ORDINAL = 2**32 - 1

_encode_text = msgspec.json.Encoder(order="sorted").encode
"""Canonical JSON where there are only clean strings, lists and maps of them: several times faster."""


def _canonical(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
            raise ValueError(f"{value} has no canonical form")
        return int(value) if value.is_integer() and abs(value) <= _EXACT else value
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("canonical JSON has string keys only")
        cleaned = {clean(name): _canonical(item) for name, item in value.items()}
        if len(cleaned) < len(value):
            raise ValueError("two keys of an object are the same text and would stand twice")
        return cleaned
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    raise TypeError(f"{type(value).__name__} is no JSON value")


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value.

    Raises ValueError for NaN and for keys that are the same text, TypeError for what is no JSON.
    """
    text = json.dumps(
        _canonical(value), ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
    )
    return text.encode()


def digest(data: bytes) -> str:
    """xxh3_128 of `data`, 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(data)


def content_key(
    prompt: str,
    *,
    image: str = "",
    cwd: str = "",
    setup: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    images: Sequence[str] = (),
) -> str:
    """xxh3_128 (hex) over the canonical JSON of what defines a row's work. Empty fields are left out.

    The texts are clean (`core.text`), as rows hold them: cleaned here again, a row with a lone
    surrogate would get another key than its canonical JSON has.
    """
    work: dict[str, Any] = {"prompt": prompt}
    if image:
        work["image"] = image
    if cwd:
        work["cwd"] = cwd
    if setup:
        work["setup"] = setup
    if files:
        work["files"] = files
    if images:
        work["images"] = images
    return digest(_encode_text(work))


def rollout_key(content: str, ordinal: int) -> str:
    """`<content key>#<ordinal>`."""
    return f"{content}#{ordinal}"


def split_key(key: str) -> tuple[str, int] | None:
    """Content key and ordinal of a rollout key, or None when `key` is none."""
    match = _KEY.fullmatch(key)
    if match is None or int(match[2]) > _LAST_ORDINAL:
        return None
    return match[1], int(match[2])


def pack_key(key: str) -> bytes:
    """A rollout key in 20 bytes: 16 of content, 4 of ordinal (big-endian, so that order is kept)."""
    return bytes.fromhex(key[:32]) + int(key[33:]).to_bytes(4, "big")


def unpack_key(packed: bytes) -> str:
    """The rollout key that `pack_key` was given."""
    return f"{packed[:16].hex()}#{int.from_bytes(packed[16:], 'big')}"


def key_chance(seed: int, key: str, purpose: str) -> float:
    """A number in [0, 1), random for one rollout and one purpose: from (seed, rollout key) alone.

    A hash, since to seed a generator costs ten times as much, and a plan draws for a million rows.
    """
    material = f"{seed}\x1f{key}\x1f{purpose}".encode()
    return (xxhash.xxh3_64_intdigest(material) >> 11) * 2**-53


def shard_of(content: str, count: int) -> int:
    """Which of `count` shards (from 0) a content key belongs to: by its leading 64 bits."""
    return int(content[:16], 16) * count >> 64
