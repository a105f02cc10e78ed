"""One bubblewrap sandbox: the Place of its kept shell, from its start to its removal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from hermes_run.core.contracts import SandboxInfo
from hermes_run.errors import SandboxError
from hermes_run.sandboxes import _bwrap_root
from hermes_run.sandboxes._cgroups import Group, Limits
from hermes_run.sandboxes._ending import reap
from hermes_run.sandboxes._kept_shell import KeptShell
from hermes_run.sandboxes._link import Link
from hermes_run.sandboxes._mail import Mail
from hermes_run.sandboxes._processes import call_members, kept_shell_of, kill_all, process_table, send
from hermes_run.sandboxes._script import Texts, quote, supervisor
from hermes_run.sandboxes._spill import SpillFolder, most_spilled

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes._spill import FileSpill
    from hermes_run.sandboxes.bubblewrap import Machine

_CHILD = re.compile(rb'"child-pid": (\d+)')
_INFO = re.compile(rb'\{\s*"child-pid"[^}]*\}\s*')
_REAP_S = 5.0
_CURE = (
    "; it needs unprivileged user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1"
    " user.max_user_namespaces=15000` (Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0); inside a"
    " container, start that with --security-opt seccomp=unconfined --cap-add SYS_ADMIN; or write"
    " `sandbox: {backend: local}` into the spec (no isolation)"
)


class BwrapBox:
    """One sandbox. Nothing is made before `start`, and `remove` removes what was."""

    def __init__(self, machine: Machine, ground: Ground, request: SandboxRequest) -> None:
        self._machine = machine
        self._ground = ground
        self._request = request
        self._cwd = _bwrap_root.working_directory(request.cwd)
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._mail: Mail | None = None
        self._group: Group | None = None
        self._shell: KeptShell | None = None
        self._link: Link | None = None
        self._spills = SpillFolder("/tmp", most_spilled(request.memory_mb))  # noqa: S108 - its own /tmp
        self.pipes = ""
        self.pipes_inside = _bwrap_root.PIPES
        self.info = SandboxInfo(
            backend="bubblewrap",
            cwd=self._cwd,
            shell=os.path.basename(machine.shell),
            missing=machine.hierarchies.missing,
        )

    # ------------------------------------------------------------------ life

    async def start(self) -> KeptShell:
        """Start it and wait for its shell. Raises SandboxError(sandbox_start)."""
        self._ground.boxes.add(self)
        try:
            link = self._link = self._spawn()
        except OSError as error:
            raise SandboxError(
                f"bubblewrap cannot be started: {error.strerror}", reason="sandbox_start"
            ) from error
        try:
            async with asyncio.timeout(self._request.start_timeout_s):
                said = await link.start()
        except TimeoutError:
            why = f"its shell did not answer within {self._request.start_timeout_s:g} s"
            raise self._start_error(why, link.unread) from None
        except SandboxError:
            raise self._start_error("it ended before its shell answered", link.unread) from None
        child = _CHILD.search(said)
        if child is None:
            raise self._start_error("it did not say which its first process is", said)
        self._first = int(child[1])
        self._shell = KeptShell(self, link)
        return self._shell

    def _start_error(self, why: str, said: bytes) -> SandboxError:
        text = _INFO.sub(b"", said).decode("utf-8", "replace").replace(self.pipes, "<pipes>").strip()
        cure = _CURE if "namespace" in text else ""
        last = ": " + " | ".join(text.splitlines()[-5:]) if text else ""
        return SandboxError(f"a bubblewrap sandbox did not start: {why}{last}{cure}", reason="sandbox_start")

    def _spawn(self) -> Link:
        request, machine = self._request, self._machine
        self.pipes = self._ground.make_box(request)
        limits = Limits(request.memory_mb, request.pids, request.cpus)
        name = f"hermes-run-{self._ground.mark}-{os.path.basename(self.pipes)}"
        self._group = Group(machine.hierarchies, name, limits)
        self._mail = Mail("")
        mailbox = self._mail.path(1)
        self.texts = Texts(machine.shell, mailbox, tuple(machine.environment), self._cwd)
        has_network = request.network == "full"
        ours, theirs = socket.socketpair()
        with theirs:
            wire = theirs.fileno()
            command = [machine.bwrap]
            command += _bwrap_root.arguments(
                etc=machine.etc(has_network=has_network),
                pipes=self.pipes,
                cwd=self._cwd,
                memory_mb=request.memory_mb,
                has_network=has_network,
            )
            command += ["--info-fd", str(wire), "--chdir", "/", machine.shell, "-c"]
            command += [supervisor(mailbox, first=self._first_steps()), os.path.basename(machine.shell)]
            self._process = subprocess.Popen(
                command,
                stdin=wire,
                stdout=wire,
                stderr=wire,
                env=machine.environment,
                pass_fds=(wire, self._mail.file, *self._group.entries),
                close_fds=True,
            )
        self._group.close_entries()
        return Link(ours, "the bubblewrap sandbox")

    def _first_steps(self) -> str:
        """What the supervisor does before anything else: into its control groups, to its folder."""
        assert self._group is not None
        steps = [f"echo 0 >&{entry} && exec {entry}>&- || exit 98;" for entry in self._group.entries]
        missing = self._machine.hierarchies.missing
        if "memory" in missing:  # per process only, so `memory` stays in `missing`
            steps.append(f"ulimit -v {self._request.memory_mb << 10};")
        cwd = quote(self._cwd.encode()).decode()
        steps.append(
            f"mkdir -p -- {cwd} && cd -- {cwd} || exit 97;"
            if self._cwd != _bwrap_root.WORKSPACE
            else f"cd {cwd};"
        )
        return " ".join(steps)

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
        if self._mail is not None:
            self._mail.close()
        if self._group is not None:
            self._group.remove()
        if self.pipes:
            self._ground.remove_box(self.pipes)
            self.pipes = ""
        self._ground.boxes.discard(self)

    # ------------------------------------------------------------------ Place

    def destroy(self) -> None:
        """Kill the first process: the kernel kills the rest with it."""
        if self._process is None or self._process.poll() is not None:
            return
        if self._first:
            send([self._first], signal.SIGKILL)
        else:
            self._process.kill()

    def write_mail(self, text: bytes) -> None:
        """Replace the mailbox's content."""
        assert self._mail is not None
        self._mail.write(text)

    def read_mail(self) -> bytes:
        """The mailbox's content."""
        assert self._mail is not None
        return self._mail.read()

    def open_spill(self) -> FileSpill | None:
        """A file in the sandbox's /tmp, which is a mount of its own that nothing inside can replace."""
        try:
            folder = os.open(f"/proc/{self._first}/root/tmp", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            return self._spills.open(folder)
        finally:
            os.close(folder)

    def kill_call(self, started_s: float) -> None:
        """Kill what the call has started."""

        def find() -> set[int]:
            table = process_table()
            shell = kept_shell_of(table, self._first)
            orphans = {p.pid for p in table.values() if p.parent == self._first and p.pid != shell}
            return call_members(table, shell, orphans, started_s)

        kill_all(find)
