"""What the web said, recorded and replayed: runs with the same cassette see the same web.

A file of JSON lines, each a question (a search, or an address to read) and its answer as tools see it:
there are no headers in it, and what looks like a key in an address is taken out, but for a few digits of its
hash: addresses that differ in nothing else are two questions all the same. What is on the cassette is
answered from it; what is not is asked and added, or refused when the spec says `replay_only`. Failures are on
it too: a replay tells them in the same words, any other run asks again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from hermes_run.core.keys import digest
from hermes_run.errors import EnvironmentStop
from hermes_run.spec.keys_and_hosts import holds_key, looks_like_key, without_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SECRET_WORD = re.compile(
    r"\w*(token|secret|password|passwd|signature|credentials?|(api|access|private)key|sessionid)"
    r"|(key|auth|authorization|session|sid|sig|pwd)"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
TAKEN_OUT = "REDACTED"
_TAKEN_OUT = re.compile(TAKEN_OUT + "-[0-9a-f]{6}")
_ANSWERS: dict[str, dict[str, type]] = {"search": {"hits": list}, "page": {"title": str, "content": str}}
"""What is asked -> what its answers hold."""


class Cassette:
    """One file; None for a run without."""

    def __init__(self, path: Path | None, *, replay_only: bool = False) -> None:
        self._path = path
        self.replay_only = replay_only
        self._known: dict[str, dict[str, Any]] = {}
        self._failures: dict[str, str] = {}
        self._size = -1
        self._read_to = 0  # up to here lines are whole

    def get(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The recorded answer to a question, or None."""
        self._look()
        return self._known.get(_name(question))

    def put(self, question: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        """Record an answer, at once and whole; what is on the cassette now.

        That is another one where another process (a shard, say) was quicker.
        """
        if self._path is None or self.replay_only:
            return answer
        name = _name(question)
        with self._writing() as file:
            if name not in self._known:
                self._known[name] = answer
                _write(file, {"question": json.loads(name), "answer": answer})
        return self._known[name]

    def failure(self, question: dict[str, Any]) -> str:
        """Why a question had no answer when it was recorded, or ""."""
        self._look()
        return self._failures.get(_name(question), "")

    def put_failure(self, question: dict[str, Any], why: str) -> None:
        """Record that there was no answer, in the words that the model was told."""
        if self._path is None or self.replay_only:
            return
        name = _name(question)
        with self._writing() as file:
            if self._failures.get(name) != why:
                self._failures[name] = why
                _write(file, {"question": json.loads(name), "failure": why})

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """The file, locked, and all that is in it known. Raises EnvironmentStop."""
        try:
            file = os.open(str(self._path), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                with suppress(OSError):  # not every file system has locks
                    fcntl.flock(file, fcntl.LOCK_EX)
                self._look()
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise self._unusable("written", error) from error

    def _look(self) -> None:
        """Read what is new. A replay reads once. Raises EnvironmentStop."""
        if self._path is None or (self.replay_only and self._size >= 0):
            return
        try:
            size = self._path.stat().st_size
            if size == self._size:
                return
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unusable("read", error) from error
        for line in data.split(b"\n"):
            self._take(line)
        self._size = size
        self._read_to += data.rfind(b"\n") + 1

    def _unusable(self, how: str, error: OSError) -> EnvironmentStop:
        return EnvironmentStop(
            f"the cassette {self._path} cannot be {how}: {error.strerror}; mend that, and run the same "
            "command again"
        )

    def _take(self, line: bytes) -> None:
        """Take an entry; a line that a kill cut, or that is none, is passed over."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return
        question = entry.get("question") if isinstance(entry, dict) else None
        if not isinstance(question, dict) or not isinstance(question.get("url", ""), str):
            return
        name = _name(question)
        if isinstance(entry.get("failure"), str):
            self._failures[name] = entry["failure"]
        elif _is_answer(question.get("kind"), entry.get("answer")):
            self._known.setdefault(name, entry["answer"])


def _write(file: int, entry: dict[str, Any]) -> None:
    """Add a line, whatever a kill left at the end of the file."""
    line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        line = b"\n" + line
    while line:
        line = line[os.write(file, line) :]


def _is_answer(kind: Any, answer: Any) -> bool:
    wanted = _ANSWERS.get(kind) if isinstance(kind, str) else None
    if wanted is None or not isinstance(answer, dict):
        return False
    rows = answer.get("hits", [])
    return all(isinstance(answer.get(name), what) for name, what in wanted.items()) and all(
        isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row) for row in rows
    )


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
    safe = [(name, _taken_out(value) if _is_secret(name, value) else value) for name, value in pairs]
    query = parts.query if safe == pairs else urlencode(safe)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment=""))


def _is_secret(name: str, value: str) -> bool:
    words = (word.lower() for word in _WORD.findall(name))
    return any(map(_SECRET_WORD.fullmatch, words)) or looks_like_key(value) or holds_key(value)


def _taken_out(value: str) -> str:
    """What stands for a secret: the same for the same one, too short to tell it."""
    if _TAKEN_OUT.fullmatch(value):
        return value
    return f"{TAKEN_OUT}-{digest(value.encode('utf-8', 'surrogatepass'))[:6]}"
