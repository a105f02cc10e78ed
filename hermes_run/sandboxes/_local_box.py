"""One local sandbox: a shell on the host in a private folder, the Place of its kept shell."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

from hermes_run.core.contracts import SandboxInfo
from hermes_run.errors import SandboxError
from hermes_run.sandboxes._ending import reap
from hermes_run.sandboxes._kept_shell import KeptShell
from hermes_run.sandboxes._link import Link
from hermes_run.sandboxes._mail import Mail
from hermes_run.sandboxes._processes import (
    call_members,
    carrying,
    descendants,
    kept_shell_of,
    kill_all,
    process_table,
)
from hermes_run.sandboxes._script import Texts, supervisor
from hermes_run.sandboxes._spill import SpillFolder, most_spilled

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes._spill import FileSpill

MISSING = ("cpus", "files", "memory", "network", "pids", "processes")
_MARK = "HERMES_RUN_SANDBOX"
_SURVIVES = "trap : HUP INT QUIT TERM USR1 USR2 ALRM;"
"""`kill 0` in a command reaches the supervisor too; commands themselves start with the defaults."""
_REAP_S = 5.0


class LocalBox:
    """One sandbox. Nothing is made before `start`, and `remove` removes what was."""

    def __init__(self, ground: Ground, request: SandboxRequest) -> None:
        self._ground = ground
        self._request = request
        self._shell_path = shutil.which("bash") or "/bin/sh"
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._mark = b""
        self._mail: Mail | None = None
        self._link: Link | None = None
        self._shell: KeptShell | None = None

    async def start(self) -> KeptShell:
        """Start it and wait for its shell. Raises SandboxError(sandbox_start)."""
        self._ground.boxes.add(self)
        try:
            link = self._link = self._spawn()
        except OSError as error:
            raise SandboxError(
                f"a local shell cannot be started: {error.strerror}", reason="sandbox_start"
            ) from error
        try:
            async with asyncio.timeout(self._request.start_timeout_s):
                await link.start()
        except TimeoutError:
            raise SandboxError(
                f"a local shell did not answer within {self._request.start_timeout_s:g} s",
                reason="sandbox_start",
            ) from None
        except SandboxError:
            said = link.unread.decode("utf-8", "replace").strip()
            raise SandboxError(
                f"a local shell ended before it answered: {said}", reason="sandbox_start"
            ) from None
        self._shell = KeptShell(self, link)
        return self._shell

    def _spawn(self) -> Link:
        self._folder = self._ground.make_box(self._request)
        root = f"{self._folder}/root"
        cwd = root + posixpath.normpath(posixpath.join("/workspace", self._request.cwd))
        self.pipes = self.pipes_inside = f"{self._folder}/pipes"
        for path in (cwd, f"{root}/workspace", f"{root}/tmp", self.pipes):
            os.makedirs(path, exist_ok=True)
        mark = f"{self._ground.mark}-{os.path.basename(self._folder)}"
        self._mark = f"{_MARK}={mark}\0".encode()
        environment = _environment(root, self._shell_path) | {_MARK: mark}
        self._mail = Mail(f"{self._folder}/mail")
        self._spills = SpillFolder(f"{root}/tmp", most_spilled(self._request.memory_mb))
        is_bash = self._shell_path.endswith("bash")
        ours, theirs = socket.socketpair()
        with theirs:
            text = supervisor(self._mail.path("$$"), first=_SURVIVES, own_group=is_bash)
            self._process = subprocess.Popen(
                [self._shell_path, "-c", text, os.path.basename(self._shell_path)],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                cwd=cwd,
                env=environment | {"PWD": cwd},
                pass_fds=(self._mail.file,),
                start_new_session=True,
            )
        mailbox = self._mail.path(self._process.pid)
        self.texts = Texts(self._shell_path, mailbox, tuple(environment), cwd)
        self.info = SandboxInfo(
            backend="local", cwd=cwd, shell=os.path.basename(self._shell_path), missing=MISSING
        )
        return Link(ours, "the local sandbox")

    async def remove(self) -> None:
        """Remove all of it. Not to be cancelled."""
        self.destroy()
        if self._process is not None:
            await reap(self._process)
        self.remove_now()

    def remove_now(self) -> None:
        """Remove all of it, waiting in place."""
        self.destroy()
        if self._shell is not None:
            self._shell.close()
        elif self._link is not None:
            self._link.lose("it was removed")
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_REAP_S)
            self._process = None
        if self._mail is not None:
            self._mail.close()
        if self._folder:
            self._ground.remove_box(self._folder)
            self._folder = ""
        self._ground.boxes.discard(self)

    # ------------------------------------------------------------------ Place

    def destroy(self) -> None:
        """Kill everything that was started in it, as far as it can be found."""
        if self._process is not None:
            kill_all(self._members)

    def _members(self) -> set[int]:
        assert self._process is not None
        table = process_table()
        alive = {self._process.pid} if self._process.poll() is None else set()
        marked = carrying(table, self._mark)
        return marked | alive | descendants(table, alive | marked)

    def write_mail(self, text: bytes) -> None:
        """Replace the mailbox's content."""
        assert self._mail is not None
        self._mail.write(text)

    def read_mail(self) -> bytes:
        """The mailbox's content."""
        assert self._mail is not None
        return self._mail.read()

    def open_spill(self) -> FileSpill | None:
        """A file in the private folder's tmp."""
        try:
            folder = os.open(f"{self._folder}/root/tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            return self._spills.open(folder)
        finally:
            os.close(folder)

    def kill_call(self, started_s: float) -> None:
        """Kill what the call has started, as far as it can be found."""

        def find() -> set[int]:
            assert self._process is not None
            first = self._process.pid
            table = process_table()
            shell = kept_shell_of(table, first)
            below = descendants(table, [first])
            marked = carrying(table, self._mark) - below - {first}
            orphans = {pid for pid in marked if table[pid].parent not in marked}
            return call_members(table, shell, orphans, started_s)

        kill_all(find)


def _environment(root: str, shell: str) -> dict[str, str]:
    """What a command starts with: nothing of the runner's but where programs are."""
    return {
        "PATH": os.pathsep.join(os.get_exec_path()),
        "HOME": f"{root}/workspace",
        "TMPDIR": f"{root}/tmp",
        "SHELL": shell,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }


def kill_marked(mark: str) -> None:
    """Kill the processes that a dead run's sandboxes have left."""

    def find() -> set[int]:
        table = process_table()
        marked = carrying(table, f"{_MARK}={mark}-".encode())
        return marked | descendants(table, marked)

    kill_all(find)
