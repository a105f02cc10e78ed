"""What the web said, recorded and replayed: runs with the same cassette see the same web.

A file of JSON lines, each a question (a search, or an address to read) and its answer as tools see it:
there are no headers in it, and what looks like a key in an address is taken out. What is on the cassette is
answered from it; what is not is asked and added, or refused when the spec says `replay_only`. Failures are on
it too: a replay tells them in the same words, any other run asks again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from hermes_run.spec.keys_and_hosts import holds_key, looks_like_key, without_keys

if TYPE_CHECKING:
    from pathlib import Path

_SECRET_NAMES = ("key", "token", "secret", "password", "passwd", "auth", "signature", "credential", "session")
TAKEN_OUT = "REDACTED"


class Cassette:
    """One file; None for a run without."""

    def __init__(self, path: Path | None, *, replay_only: bool = False) -> None:
        self._path = path
        self.replay_only = replay_only
        self._known: dict[str, dict[str, Any]] | None = None
        self._failures: dict[str, str] = {}

    def get(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The recorded answer to a question, or None."""
        return self._entries().get(_name(question))

    def put(self, question: dict[str, Any], answer: dict[str, Any]) -> None:
        """Record an answer, at once and whole."""
        if self._path is None or self.replay_only:
            return
        name = _name(question)
        self._entries()[name] = answer
        self._write({"question": json.loads(name), "answer": answer})

    def failure(self, question: dict[str, Any]) -> str:
        """Why a question had no answer when it was recorded, or ""."""
        self._entries()
        return self._failures.get(_name(question), "")

    def put_failure(self, question: dict[str, Any], why: str) -> None:
        """Record that there was no answer, in the words that the model was told."""
        if self._path is None or self.replay_only or self.failure(question) == why:
            return
        name = _name(question)
        self._failures[name] = why
        self._write({"question": json.loads(name), "failure": why})

    def _write(self, entry: dict[str, Any]) -> None:
        if self._path is None:
            return
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, line.encode("utf-8", "replace"))
        finally:
            os.close(file)

    def _entries(self) -> dict[str, dict[str, Any]]:
        if self._known is None:
            self._known = {}
            if self._path is not None and self._path.exists():
                for line in self._path.read_bytes().split(b"\n"):
                    try:
                        entry = json.loads(line)
                        name = _name(entry["question"])
                        if "failure" in entry:
                            self._failures[name] = str(entry["failure"])
                        else:
                            self._known.setdefault(name, entry["answer"])
                    except (ValueError, KeyError, TypeError):
                        continue  # a line that a kill cut
        return self._known


def _name(question: dict[str, Any]) -> str:
    safe = {key: _safe(key, value) for key, value in question.items()}
    return json.dumps(safe, sort_keys=True, ensure_ascii=False)


def _safe(key: str, value: Any) -> Any:
    if key == "url":
        return without_secrets(value)
    return without_keys(value) if isinstance(value, str) else value


def without_secrets(url: str) -> str:
    """An address without what may be a key: user and password, parameters that are named or look like one."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return url
    safe = [(name, TAKEN_OUT if _is_secret(name, value) else value) for name, value in pairs]
    query = parts.query if safe == pairs else urlencode(safe)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment=""))


def _is_secret(name: str, value: str) -> bool:
    return any(part in name.lower() for part in _SECRET_NAMES) or looks_like_key(value) or holds_key(value)
