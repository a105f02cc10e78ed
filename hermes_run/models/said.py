"""What the body of an error says, whatever its shape.

Some endpoints repeat in their errors what was sent, or what the model wrote. Those are the words of one row:
what they speak of (credit, keys, contexts) says nothing of the endpoint, so they are heard by nobody.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_MOST_READ = 10_000
"""Characters: what is longer holds the request again."""

_ECHOES = frozenset({"input", "failed_generation", "request", "request_body", "prompt"})
"""Fields of errors that repeat a request or a reply: of FastAPI (vLLM and many others), Groq, proxies."""
_ECHO_IN_TEXT = re.compile(
    r"['\"](?:input|failed_generation|request|request_body|prompt|messages)\\*['\"]\s*:\s*\\*['\"\[({].*",
    re.DOTALL,
)


class Said(msgspec.Struct, frozen=True):
    """An error body.

    Attributes:
        message: for people.
        code: its codes and types, in lower case.
        field: the field of the request that it is about, in lower case, or "".
        heard: the message in lower case, without echoes.
        haystack: all of the body likewise, unless it is very long.
        moderated: whether it has the fields of a moderation.
    """

    message: str
    code: str
    field: str
    heard: str
    haystack: str
    moderated: bool

    @property
    def known(self) -> str:
        """Where it is looked for what it is about, in lower case."""
        return f"{self.code} {self.heard} {self.haystack}"


def read_body(body: bytes) -> Said:
    """What an HTTP body says: JSON, a page, or text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return read_value(json.loads(text), text)
    except (ValueError, RecursionError):
        plain = re.sub(r"<[^>]{0,200}>", " ", text)
        heard = _without_echo(plain).lower()
        return Said(plain, "", "", heard, heard, moderated=False)


def read_value(parsed: Any, text: str) -> Said:
    """What a JSON value says; `text` is what it was read from."""
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    whole = parsed if isinstance(parsed, dict) else {"error": parsed}
    error = whole.get("error", whole)
    if not isinstance(error, dict):
        error = {"message": error}
    message, field = _text(error.get("message")), _text(error.get("param"))
    detail = whole.get("detail")
    if not message and isinstance(detail, list) and detail and isinstance(detail[0], dict):
        message = _text(detail[0].get("msg"))
        field = ".".join(str(part) for part in detail[0].get("loc", ()) if part != "body")
    elif not message:
        message = _text(detail) or text
    metadata = error.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    raw = _text(metadata.get("raw"))
    message = f"{message}: {raw}" if raw and raw not in message else message
    heard = _without_echo(message).lower()
    return Said(
        message=message,
        code=f"{_text(error.get('code'))} {_text(error.get('type'))} {_text(error.get('status'))}".lower(),
        field=field.lower(),
        heard=heard,
        haystack=_words(parsed).lower() if len(text) < _MOST_READ else heard,
        moderated="flagged_input" in metadata or bool(metadata.get("reasons")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _without_echo(text: str) -> str:
    return _ECHO_IN_TEXT.sub("", text)


def _words(value: Any) -> str:
    """A JSON value as text, without the fields that repeat what was sent or written."""
    try:
        return json.dumps(_own(value), ensure_ascii=False)
    except RecursionError:
        return ""


def _own(value: Any) -> Any:
    if isinstance(value, str):
        return _without_echo(value)
    if isinstance(value, dict):
        return {name: _own(item) for name, item in value.items() if name not in _ECHOES}
    return [_own(item) for item in value] if isinstance(value, list) else value
