"""What endpoints say of their limits in the headers of an answer.

| who | requests left | until |
|---|---|---|
| OpenAI, Groq, Nous and others | `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` | `6m0s`, `20ms` |
| OpenRouter and others | `x-ratelimit-{limit,remaining,reset}` | epoch in s or ms, or seconds |
| Anthropic | `anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}` | RFC 3339 |
| the IETF's draft | `ratelimit-{limit,remaining,reset}` | seconds |
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MARK = b"ratelimit"
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_LONGEST_S = 3600.0
"""A limit that is reset later than this (a day's) says nothing about the next minutes."""
_NAMES = (
    *(
        (f"x-ratelimit-{{}}-{what}{window}", what == "tokens")
        for what in ("requests", "tokens")
        for window in ("", "-minute")
    ),
    ("anthropic-ratelimit-requests-{}", False),
    ("anthropic-ratelimit-tokens-{}", True),
    ("x-ratelimit-{}", False),
    ("ratelimit-{}", False),
)


class Hint(Struct, frozen=True):
    """What is left of a limit.

    Attributes:
        remaining: requests or tokens that are left.
        limit: the most there can be; 0 when it was not said.
        reset_s: seconds until it is whole again.
        is_tokens: whether it counts tokens.
    """

    remaining: float
    limit: float
    reset_s: float
    is_tokens: bool = False


def has_hints(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether any header is about a limit: quick, since it is asked of every reply."""
    return any(_MARK in name.lower() for name, _ in headers)


def read_hints(headers: Mapping[str, str], now: float | None = None) -> list[Hint]:
    """The limits in an answer's headers (which find lower-case names); what makes no sense is left out.

    `now` is in seconds since the epoch.
    """
    now = time.time() if now is None else now
    found = []
    for form, is_tokens in _NAMES:
        remaining = _number(headers.get(form.format("remaining"), ""))
        reset_s = _seconds(headers.get(form.format("reset"), ""), now)
        if remaining is not None and reset_s is not None and reset_s <= _LONGEST_S:
            limit = _number(headers.get(form.format("limit"), "")) or 0.0
            found.append(Hint(remaining, limit, reset_s, is_tokens))
    return found


def _number(text: str) -> float | None:
    text = text.split(",", maxsplit=1)[0].split(";", maxsplit=1)[0].strip()
    return float(text) if re.fullmatch(r"\d{1,15}(\.\d{0,9})?", text) else None


def _seconds(text: str, now: float) -> float | None:
    """Seconds from now: of a duration, a date, an epoch (s, ms), or a plain number of seconds."""
    text = text.strip()
    number = _number(text)
    if number is not None:
        if number > 1e11:
            return max(0.0, number / 1000 - now)
        return max(0.0, number - now) if number > 1e9 else number
    if _DURATION.fullmatch(text):
        return sum(float(value) * _UNITS_S[unit] for value, unit in _PART.findall(text))
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None
