"""How long an endpoint asks to wait: in the headers of an answer, else in its words.

Google's compatible endpoint has no Retry-After: its errors carry `"retryDelay": "26s"`, or say "Please
retry in 26.4s"; OpenAI's say "Please try again in 6m0s".
"""

from __future__ import annotations

import email.utils
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRY_AFTER_CAP_S = 300.0
"""An endpoint can ask for an hour; more than this is never waited in one go."""

_TOLD = re.compile(r"(?:retry|try again) (?:in|after) (?=\d)|\"retrydelay\": ?\"(?=\d)")
_PART = re.compile(
    r"(\d{1,9}(?:\.\d{1,12})?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)(?![a-z]) ?"
)
_UNITS_S = (("ms", 0.001), ("milli", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0))


def retry_after_s(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The wait that `Retry-After` (seconds or an HTTP date) or `retry-after-ms` asks for, capped.

    `headers` finds lower-case names; `now` is in seconds since the epoch. None when there is none, or it
    makes no sense.
    """
    value = headers.get("retry-after-ms", "").strip()
    seconds = _number(value) / 1000 if value else -1.0
    if seconds < 0:
        value = headers.get("retry-after", "").strip()
        seconds = _number(value)
    if seconds < 0 and value:
        try:
            date_s = email.utils.parsedate_to_datetime(value).timestamp()
        except (ValueError, OverflowError):
            return None
        seconds = max(0.0, date_s - (time.time() if now is None else now))
    return min(seconds, RETRY_AFTER_CAP_S) if seconds >= 0 else None


def told_wait_s(text: str) -> float | None:
    """The wait that an error's text (in lower case) tells, capped; None when it tells none."""
    told = _TOLD.search(text)
    at, seconds = told.end() if told else 0, 0.0
    while told and (part := _PART.match(text, at)):
        value, unit = float(part[1]), part[2]
        seconds += (
            value / 1000 if unit[:2] in ("ms", "mi") and "min" not in unit else value * _UNIT_S[unit[0]]
        )
        at = part.end()
    return min(seconds, RETRY_AFTER_CAP_S) if told and at > told.end() else None


_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text) else -1.0
