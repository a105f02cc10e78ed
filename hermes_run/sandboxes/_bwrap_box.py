"""One bubblewrap sandbox."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

from hermes_run.core.contracts import SandboxInfo
from hermes_run.sandboxes import _bwrap_root
from hermes_run.sandboxes._cgroups import Group, Limits
from hermes_run.sandboxes._link import Link
from hermes_run.sandboxes._mail import Mail
from hermes_run.sandboxes._namespaced import NamespacedBox
from hermes_run.sandboxes._script import Texts, closable, supervisor
from hermes_run.sandboxes._spill import SpillFolder, most_spilled

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes.bubblewrap import Machine

_LONGEST_LINE = 300
_CURE = (
    "it needs unprivileged user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1"
    " user.max_user_namespaces=15000` (Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0); inside a"
    " container, start that with --security-opt seccomp=unconfined --cap-add SYS_ADMIN; or write"
    " `sandbox: {backend: local}` into the spec (no isolation)"
)


class BwrapBox(NamespacedBox):
    """One sandbox. See `Box`."""

    what = "a bubblewrap sandbox"

    def __init__(self, machine: Machine, ground: Ground, request: SandboxRequest) -> None:
        super().__init__(ground, request)
        self._machine = machine
        self._cwd = _bwrap_root.working_directory(request.cwd)
        self.pipes_inside = _bwrap_root.PIPES
        self.spills = SpillFolder("/tmp", most_spilled(request.memory_mb))
        self.info = SandboxInfo(
            backend="bubblewrap",
            cwd=self._cwd,
            shell=os.path.basename(machine.shell),
            missing=machine.missing,
        )

    def spawn(self) -> None:
        """See Box."""
        machine, request = self._machine, self.request
        self.pipes = self.folder
        group = self.group = Group(
            machine.hierarchies,
            f"hermes-run-{self.ground.mark}-{os.path.basename(self.folder)}",
            Limits(request.memory_mb, request.pids, request.cpus),
        )
        self.mail = Mail("")
        mailbox = self.mail.path(1)
        self.texts = Texts(machine.shell, mailbox, tuple(machine.environment), self._cwd)
        ours, theirs = socket.socketpair()
        self.link = Link(ours, self.what)
        has_network = request.network == "full"
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
            filters = machine.open_filter()
            command += [word for file in filters for word in ("--seccomp", str(file))]
            command += ["--chdir", self._cwd, machine.shell, "-c"]
            kept = closable(machine.shell, (self.mail.file,))
            command += [supervisor(mailbox, first=self._first_steps(group), inherited=kept)]
            try:
                self.process = subprocess.Popen(
                    [*command, os.path.basename(machine.shell)],
                    stdin=wire,
                    stdout=wire,
                    stderr=wire,
                    env=machine.environment,
                    pass_fds=(self.mail.file, *filters, *group.entries),
                    start_new_session=True,  # out of reach of the terminal's Ctrl-C
                )
            finally:
                for file in filters:
                    os.close(file)
        group.close_entries()

    def _first_steps(self, group: Group) -> str:
        """What the supervisor does before anything else: it goes into its control groups."""
        steps = [f"echo 0 >&{entry} && exec {entry}>&- || exit 98;" for entry in group.entries]
        return " ".join([*steps, *self._machine.own_limits(self.request)])

    def explain(self, said: str) -> tuple[str, str]:
        """See Box."""
        lines = [line[-_LONGEST_LINE:] for line in said.splitlines()[-5:]]
        cure = _CURE if "namespace" in said or "uid map" in said else ""
        return (": " + " | ".join(lines) if lines else ""), cure
