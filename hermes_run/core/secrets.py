"""How a secret can stand in a text, and taking it out in each of those forms."""

from __future__ import annotations

import base64
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARK = "[redacted]"
SHORTEST = 4
"""Shorter values are placeholders; taking them out would only make the text unreadable."""


def make_redactor(secrets: Iterable[str], mark: str = MARK) -> Callable[[str], str]:
    """A function that replaces every form of every secret by `mark`."""
    forms = {form for secret in secrets if len(secret) >= SHORTEST for form in forms_of(secret)}
    if not forms:
        return str
    # the longest first: a form may hold another; %2F is %2f too
    pattern = re.compile(
        "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)), re.IGNORECASE
    )
    return lambda text: pattern.sub(mark, text)


@lru_cache(maxsize=64)
def redactor_of(secret: str, mark: str = MARK) -> Callable[[str], str]:
    """`make_redactor` of one secret, made once."""
    return make_redactor((secret,), mark)


@lru_cache(maxsize=64)
def forms_of(secret: str) -> frozenset[str]:
    """How a secret can stand in a text: as it is, escaped, percent-encoded, base64 at any offset, hex."""
    data = secret.encode("utf-8", "surrogatepass")
    plain = json.dumps(secret)[1:-1]
    return frozenset(
        {
            secret,
            plain,
            plain.replace("/", "\\/"),
            json.dumps(secret, ensure_ascii=False)[1:-1],
            repr(secret)[1:-1],
            data.hex(),
            data.hex().upper(),
            *_percent_forms(data),
            *_base64_forms(data),
        }
    )


def _percent_forms(data: bytes) -> Iterable[str]:
    for form in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield form
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), form)


def _base64_forms(data: bytes) -> Iterable[str]:
    """The characters that `data` alone decides, for each of the three places it can have in a text.

    A key in `Basic base64(user:key)` starts anywhere; the first and last character may hold
    bits of its neighbours and are left standing.
    """
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data).decode().rstrip("=")
        whole_bits = (offset + len(data)) * 8 // 6
        inner = encoded[-(-offset * 8 // 6) : whole_bits]
        if len(inner) >= SHORTEST:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
            yield inner.replace("/", "\\/")
            yield quote(inner, safe="")
