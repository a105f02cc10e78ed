"""The mailbox of a kept shell: the runner writes a call's text, the call leaves its state there."""

from __future__ import annotations

import os

_MOST = 5 << 20
"""Bytes read back: more than any state that is carried."""


class Mail:
    """Memory without a name, shared with the sandbox by an inherited descriptor; a file elsewhere.

    Args:
        fallback: path of the file, where the system has no such memory (macOS).
    """

    def __init__(self, fallback: str) -> None:
        self._path = ""
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create("mail")
        else:
            self._path = fallback
            self.file = os.open(fallback, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def path(self, supervisor: int | str) -> str:
        """Its path, given the pid of the supervisor that has inherited it."""
        return self._path or f"/proc/{supervisor}/fd/{self.file}"

    def write(self, text: bytes) -> None:
        """Replace its content."""
        os.pwrite(self.file, text, 0)
        os.ftruncate(self.file, len(text))

    def read(self) -> bytes:
        """Its content, up to a bound."""
        return os.pread(self.file, _MOST, 0)

    def close(self) -> None:
        """Give the descriptor back."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
