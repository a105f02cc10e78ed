"""What an unquoted scalar of YAML means.

YAML 1.1 with the traps taken out: dates and `1:30` are text, `1e5` is a number, leading zeros are
refused, `yes/no/on/off` are booleans (whoever wants text there says how they were written).
"""

from __future__ import annotations

import math
import re
from typing import Any

_TRUE = {word for w in ("true", "yes", "on") for word in (w, w.title(), w.upper())}
_FALSE = {word for w in ("false", "no", "off") for word in (w, w.title(), w.upper())}
_NULL = {"", "~", "null", "Null", "NULL"}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-fA-F][0-9a-fA-F_]*")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAX_DIGITS = 300


class ScalarTrap(Exception):
    """A scalar that YAML readers do not agree on, or that is no JSON value; says so, with the cure."""


def _number(text: str) -> int | float | None:
    digits = text.replace("_", "")
    if _LEADING_ZERO.fullmatch(text):
        raise ScalarTrap(
            f"{text[:20]} has a leading zero, which YAML reads as octal; "
            f'write {digits.lstrip("+-0")[:20] or "0"}, or "{text[:20]}" in quotes for text'
        )
    is_float, is_hexadecimal = _FLOAT.fullmatch(text), _HEXADECIMAL.fullmatch(text)
    if not is_float and not is_hexadecimal:
        return None
    if len(text) > _MAX_DIGITS:
        raise ScalarTrap(f"{text[:20]}… is too large for a number")
    if is_hexadecimal or _INTEGER.fullmatch(text):
        return int(digits, 16 if is_hexadecimal else 10)
    number = float(digits)
    if math.isinf(number):
        raise ScalarTrap(f"{text} is too large for a number")
    return number


def plain_value(text: str) -> Any:
    """What an unquoted scalar means. Raises ScalarTrap for what no JSON can hold or nobody agrees on."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _NOT_FINITE.fullmatch(text):
        raise ScalarTrap(f"{text} is no finite number; write a number, or quotes around text")
    number = _number(text) if text[0] in "+-.0123456789" else None
    return text if number is None else number


def is_number_text(text: str) -> bool:
    """Whether `text` would be a number without its quotes."""
    try:
        value = plain_value(text)
    except ScalarTrap:
        return False
    return isinstance(value, int | float) and not isinstance(value, bool)


def reads_as_text(text: str) -> bool:
    """Whether `text` without quotes is the text itself."""
    try:
        return isinstance(plain_value(text), str)
    except ScalarTrap:
        return False
