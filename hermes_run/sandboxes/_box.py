"""What every sandbox made of a process of ours has in common: how it starts, and how it is removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from hermes_run.errors import SandboxError
from hermes_run.sandboxes._ending import reap
from hermes_run.sandboxes._kept_shell import KeptShell
from hermes_run.sandboxes._removal import removal

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxInfo, SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes._link import Link
    from hermes_run.sandboxes._mail import Mail
    from hermes_run.sandboxes._script import Texts
    from hermes_run.sandboxes._spill import FileSpill, SpillFolder

_REAP_S = 5.0
_POLL_S = 0.01
_PATIENCE = 300


class Box(ABC):
    """One sandbox: the Place of its kept shell. Nothing is made before `start`; `remove` removes what was.

    Attributes:
        what: what it is, for messages.
        keeps_files: whether what commands write is in its folder, and may be much.
    """

    what: str
    keeps_files = False
    info: SandboxInfo
    texts: Texts
    pipes: str
    pipes_inside: str

    def __init__(self, ground: Ground, request: SandboxRequest) -> None:
        self.ground = ground
        self.request = request
        self.folder = ""
        self.mail: Mail
        self.link: Link
        self.process: subprocess.Popen[bytes]
        self.spills: SpillFolder
        self._shell: KeptShell | None = None

    @abstractmethod
    def spawn(self) -> None:
        """Make everything, and set the attributes as soon as there is something to give back."""

    @abstractmethod
    def settle(self) -> None:
        """Its shell has answered. Raises SandboxError(sandbox_start)."""

    @abstractmethod
    def explain(self, said: str) -> tuple[str, str]:
        """Of a failed start's last words: the end of the message, and the cure, or ""."""

    @abstractmethod
    def spill_folder(self) -> int:
        """An open descriptor of the folder for long outputs. Raises OSError."""

    @abstractmethod
    def destroy(self) -> None:
        """Kill everything in it, at once and without waiting; again is harmless."""

    @abstractmethod
    def kill_call(self, started_s: float) -> None:
        """See Place."""

    def release(self) -> bool:
        """Give back what this kind of sandbox has besides. False while something in it still lives."""
        return True

    async def start(self) -> KeptShell:
        """Start it and wait for its shell. Raises SandboxError(sandbox_start)."""
        self.ground.boxes.add(self)
        try:
            self.folder = self.ground.make_box(self.request)
            self.spawn()
        except OSError as error:
            why = f"{self.what} cannot be started: {error.strerror}"
            raise SandboxError(why, reason="sandbox_start") from error
        try:
            async with asyncio.timeout(self.request.start_timeout_s):
                await self.link.start()
        except TimeoutError:
            raise self.start_error(
                f"its shell did not answer within {self.request.start_timeout_s:g} s", self.link.unread
            ) from None
        except SandboxError:
            raise self.start_error("it ended before its shell answered", self.link.unread) from None
        self.settle()
        self._shell = KeptShell(self, self.link)
        return self._shell

    def start_error(self, why: str, said: bytes) -> SandboxError:
        """A failed start, with its last words."""
        text = said.decode("utf-8", "replace").strip()
        for path in (self.folder, self.ground.path):  # random, and equal failures read the same
            text = text.replace(path, "<folder>") if path else text
        words, cure = self.explain(text)
        return SandboxError(f"{self.what} did not start: {why}{words}", reason="sandbox_start", cure=cure)

    async def remove(self) -> None:
        """Remove all of it. Not to be cancelled."""
        self.destroy()
        if hasattr(self, "link"):  # before anything is read: a shell can answer for a command that was killed
            self.link.lose("it was removed", hangs_up=False)
        if hasattr(self, "process"):
            await reap(self.process)
        for _ in range(_PATIENCE):
            if self.release():
                break
            await asyncio.sleep(_POLL_S)
        if self.keeps_files and self.folder:
            for _ in removal(self.folder):
                await asyncio.sleep(0)
        self.remove_now()

    def remove_now(self) -> None:
        """Remove all of it, waiting in place; again is harmless."""
        self.destroy()
        if self._shell is not None:
            self._shell.close()
        if hasattr(self, "link"):
            self.link.lose("it was removed")
        if hasattr(self, "process"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_REAP_S)
        if hasattr(self, "mail"):
            self.mail.close()
        self.release()
        if self.folder:
            self.ground.remove_box(self.folder)
            self.folder = ""
        self.ground.boxes.discard(self)

    # ------------------------------------------------------------------ the rest of Place

    def write_mail(self, text: bytes) -> None:
        """Replace the mailbox's content."""
        self.mail.write(text)

    def read_mail(self) -> bytes:
        """The mailbox's content."""
        return self.mail.read()

    def open_spill(self) -> FileSpill | None:
        """A file in the sandbox for a long output."""
        try:
            folder = self.spill_folder()
        except OSError:
            return None
        try:
            return self.spills.open(folder)
        finally:
            os.close(folder)
