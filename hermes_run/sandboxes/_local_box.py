"""One local sandbox: a shell on the host in a private folder."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

from hermes_run.core.contracts import SandboxInfo
from hermes_run.sandboxes._box import Box
from hermes_run.sandboxes._link import Link
from hermes_run.sandboxes._mail import Mail
from hermes_run.sandboxes._processes import (
    carrying,
    descendants,
    kill_all,
    kill_call,
    process_table,
    tree_of,
)
from hermes_run.sandboxes._script import Texts, closable, supervisor
from hermes_run.sandboxes._spill import SpillFolder, most_spilled

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes._processes import Table

MISSING = ("cpus", "files", "memory", "network", "pids", "processes")
_MARK = "HERMES_RUN_SANDBOX"
_SURVIVES = "trap : HUP INT QUIT TERM USR1 USR2 ALRM;"
"""`kill 0` in a command reaches the supervisor too; commands themselves start with the defaults."""


class LocalBox(Box):
    """One sandbox. See `Box`.

    Its folder holds a little root: `workspace`, `tmp`, and whatever `cwd` asks for (an absolute one is
    a folder of that root, never one of the host).
    """

    what = "a local sandbox"
    keeps_files = True

    def __init__(self, ground: Ground, request: SandboxRequest) -> None:
        super().__init__(ground, request)
        self.shell = shutil.which("bash") or "/bin/sh"
        self._mark = b""
        self._watch = -1
        self._is_destroyed = False

    def spawn(self) -> None:
        """See Box."""
        root = f"{self.folder}/root"
        cwd = root + posixpath.normpath(posixpath.join("//workspace", self.request.cwd)).replace("//", "/")
        self.pipes = self.pipes_inside = f"{self.folder}/pipes"
        for path in (cwd, f"{root}/workspace", f"{root}/tmp", self.pipes):
            os.makedirs(path, exist_ok=True)
        mark = f"{self.ground.mark}-{os.path.basename(self.folder)}"
        self._mark = f"{_MARK}={mark}\0".encode()
        environment = _environment(root, self.shell) | {_MARK: mark}
        shell = os.path.basename(self.shell)
        self.info = SandboxInfo(backend="local", cwd=cwd, shell=shell, missing=MISSING)
        self.mail = Mail(f"{self.folder}/mail")
        self.spills = SpillFolder(f"{root}/tmp", most_spilled(self.request.memory_mb))
        ours, theirs = socket.socketpair()
        self.link = Link(ours, self.what)
        with theirs:
            text = supervisor(
                self.mail.path("$$"),
                first=_SURVIVES,
                inherited=closable(self.shell, (self.mail.file,)),
                own_group=shell == "bash",
            )
            wire = theirs.fileno()
            self.process = subprocess.Popen(
                [self.shell, "-c", text, shell],
                stdin=wire,
                stdout=wire,
                stderr=wire,
                cwd=cwd,
                env=environment | {"PWD": cwd},
                pass_fds=(self.mail.file,),
                start_new_session=True,
            )
        self.texts = Texts(self.shell, self.mail.path(self.process.pid), tuple(environment), cwd)

    def settle(self) -> None:
        """Watch the supervisor: its kept shell may outlive it, and would hold the connection open."""
        if hasattr(os, "pidfd_open"):
            self._watch = os.pidfd_open(self.process.pid)
            asyncio.get_running_loop().add_reader(self._watch, self._supervisor_ended)

    def _supervisor_ended(self) -> None:
        self._stop_watching()
        self.link.lose("its first process has ended")
        self.destroy()

    def _stop_watching(self) -> None:
        if self._watch >= 0:
            self.link.loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = -1

    def explain(self, said: str) -> tuple[str, str]:
        """See Box."""
        return (f": {said}" if said else ""), ""

    def destroy(self) -> None:
        """Kill everything that was started in it, as far as it can be found."""
        if hasattr(self, "process") and not self._is_destroyed:
            self._is_destroyed = True
            kill_all(self._members, tree_of(self.process.pid) if self.process.poll() is None else ())

    def _members(self) -> set[int]:
        table = process_table()
        alive = {self.process.pid} if self.process.poll() is None else set()
        marked = self._strays(table)
        return marked | alive | descendants(table, alive | marked)

    def _strays(self, table: Table) -> set[int]:
        """What carries the mark and hangs below no living supervisor.

        Environments are slow to read: those below the supervisors of the run's sandboxes are not.
        """
        roots = [box.process.pid for box in self.ground.boxes if isinstance(box, LocalBox) and box.lives]
        return carrying(table.keys() - descendants(table, roots) - set(roots), self._mark)

    @property
    def lives(self) -> bool:
        """Whether its supervisor's id is still its own."""
        return hasattr(self, "process") and self.process.returncode is None

    def release(self) -> bool:
        """See Box."""
        self._stop_watching()
        return True

    def spill_folder(self) -> int:
        """Its tmp."""
        return os.open(f"{self.folder}/root/tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def kill_call(self, started_s: float) -> None:
        """See Place. Orphans leave the supervisor's tree: their mark shows whose they are."""
        first = self.process.pid

        def orphans(table: Table, shell: int | None) -> set[int]:
            tree = {first} | descendants(table, [first])
            adopted = {p.pid for p in table.values() if p.parent == first and p.pid != shell}
            marked = self._strays(table) - tree
            return adopted | {pid for pid in marked if table[pid].parent not in marked}

        kill_call(first, orphans, started_s)


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
