"""One singularity sandbox: a process of ours, made from an image."""

from __future__ import annotations

import os
import posixpath
import re
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from hermes_run.core.contracts import SandboxInfo
from hermes_run.errors import SandboxError
from hermes_run.sandboxes._cgroups import Group, Limits
from hermes_run.sandboxes._link import Link
from hermes_run.sandboxes._mail import Mail
from hermes_run.sandboxes._namespaced import NamespacedBox
from hermes_run.sandboxes._processes import children_of, send
from hermes_run.sandboxes._script import Texts, quote, supervisor
from hermes_run.sandboxes._singularity_machine import PIPES
from hermes_run.sandboxes._spill import SpillFolder, most_spilled

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes._singularity_images import Image
    from hermes_run.sandboxes._singularity_machine import Machine

_MAILBOX = f"{PIPES}/mail"
_WORKSPACE = "/workspace"
_LONGEST_LINE = 300
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_NAME = re.compile(rb"^(?:declare -[a-zA-Z]+|export) (\w+)", re.MULTILINE)
_SHELL = re.compile(rb"^#shell (/\S+)\n\Z", re.MULTILINE)
_VARIABLES = " ".join(
    f"{kind}_{name}"
    for kind in ("APPTAINER", "SINGULARITY")
    for name in (
        "APPNAME",
        "BIND",
        "COMMAND",
        "CONTAINER",
        "ENVIRONMENT",
        "NAME",
        "NO_EVAL",
        "NV",
        "ROCM",
        "SHELL",
    )
)
_PREPARATION = r"""
unset -v %s PS1 PROMPT_COMMAND USER_PATH
case ${LD_LIBRARY_PATH-} in
/.singularity.d/libs) unset -v LD_LIBRARY_PATH;;
*:/.singularity.d/libs) LD_LIBRARY_PATH=${LD_LIBRARY_PATH%%:/.singularity.d/libs};;
esac
[ "${LANG-}" != C ] || export LANG=C.UTF-8
%s
s=/bin/sh
for b in /bin/bash /usr/bin/bash /usr/local/bin/bash; do [ -x $b ] && s=$b && break; done
mkdir -p -- %s && cd -- %s || exit 97
unset -v OLDPWD SHLVL
export SHELL=$s
{ export -p; echo "#shell $s"; } >|%s || exit 98
( read -r x <%s/life; kill -9 -1 ) </dev/null >/dev/null 2>&1 &
set -- -c %s "${s##*/}"
command -v setsid >/dev/null 2>&1 && exec setsid "$s" "$@"
exec "$s" "$@"
"""
"""What the image's own sh does first: it leaves only the image's environment, and becomes the supervisor.

In a session of its own, where the image can: else `kill -9 0` in a command reaches the program that holds
the sandbox, which is in the same process group outside. Where nobody holds the other end of `life` any
more, the runner is dead, and so is the sandbox then.
"""


class _NamedMail(Mail):
    """A mailbox that is a file, for where the sandbox inherits no descriptor that every sh could close."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class SingularityBox(NamespacedBox):
    """One sandbox. See `Box`.

    What commands write lives in memory: half of the sandbox's, shared by its root, /tmp and /dev/shm.
    """

    what = "a singularity sandbox"

    def __init__(self, machine: Machine, ground: Ground, request: SandboxRequest, image: Image) -> None:
        super().__init__(ground, request)
        self._machine = machine
        self._image = image
        self._cwd = _working_directory(request.cwd, image.workdir)
        self._life = -1
        self.pipes_inside = PIPES
        self.spills = SpillFolder("/tmp", most_spilled(request.memory_mb))

    def spawn(self) -> None:
        """See Box."""
        request, machine = self.request, self._machine
        self.pipes = f"{self.folder}/pipes"
        os.mkdir(self.pipes, 0o700)
        os.mkfifo(f"{self.pipes}/life", 0o600)
        self._life = os.open(f"{self.pipes}/life", os.O_RDWR | os.O_CLOEXEC)
        self.mail = _NamedMail(f"{self.pipes}/mail")
        self.group = Group(
            machine.hierarchies,
            f"hermes-run-{self.ground.mark}-{os.path.basename(self.folder)}",
            Limits(request.memory_mb, request.pids, request.cpus),
        )
        words = ["/bin/sh", "-c", self._preparation(), "sh"]
        command = machine.command(request, self._image, self.folder, self.pipes, words)
        ours, theirs = socket.socketpair()
        self.link = Link(ours, self.what)
        with theirs:
            wire = theirs.fileno()
            self.process = subprocess.Popen(
                command,
                stdin=wire,
                stdout=wire,
                stderr=wire,
                cwd="/",
                env=machine.environment(),
                start_new_session=True,
            )

    def _preparation(self) -> str:
        cwd = quote(os.fsencode(self._cwd)).decode("utf-8", "surrogateescape")
        exports = "\n".join(
            f"command export {quote(os.fsencode(entry)).decode('utf-8', 'surrogateescape')}"
            for entry in self._image.environment
        )
        if os.geteuid() != 0:  # its home is the user's, by a name that is nobody's business
            exports += f"\nexport HOME={cwd}"
        text = quote(supervisor(_MAILBOX).encode()).decode()
        return _PREPARATION % (_VARIABLES, exports, cwd, cwd, _MAILBOX, PIPES, text)

    def settle(self) -> None:
        """Find its first process, put what runs so far under its limits, and read what it has found."""
        super().settle()
        assert self.group is not None  # noqa: S101 - made by spawn
        try:
            for entry in self.group.entries:
                for pid in (self.first, *children_of(self.first)):
                    os.write(entry, b"%d" % pid)
        except OSError as error:
            raise self.start_error(f"its limits cannot be set ({error.strerror})", b"") from error
        self.group.close_entries()
        said = self.mail.read()
        found = _SHELL.search(said)
        if found is None:
            raise self.start_error("its shell cannot be found", b"")
        shell = found[1].decode()
        names = tuple(sorted({name.decode() for name in _NAME.findall(said)}))
        self.texts = Texts(shell, _MAILBOX, names, self._cwd)
        self.info = SandboxInfo(
            backend="singularity",
            cwd=self._cwd,
            shell=os.path.basename(shell),
            image=self.request.image,
            image_digest=self._image.digest,
            missing=self._machine.missing,
        )

    def destroy(self) -> None:
        """See Box. Before its first process is known, the program that starts it takes it along."""
        super().destroy()
        if not self.first and hasattr(self, "process") and self.process.poll() is None:
            send([self.process.pid], signal.SIGKILL)

    def release(self) -> bool:
        """See Box."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        return super().release()

    def explain(self, said: str) -> tuple[str, str]:
        """See Box."""
        lines = [_COLOUR.sub("", line).strip()[-_LONGEST_LINE:] for line in said.splitlines()[-5:]]
        return (": " + " | ".join(lines) if lines else ""), _cure(said)


def _working_directory(asked: str, workdir: str) -> str:
    """Where commands start; a relative one counts from the image's. Raises SandboxError(sandbox_start)."""
    path = "/" + posixpath.normpath(posixpath.join("/", workdir or _WORKSPACE, asked)).lstrip("/")
    if "\0" in path:
        raise SandboxError(f"cwd {asked!r} holds a NUL character", reason="sandbox_start")
    return path


def _cure(said: str) -> str:
    """What to do about a start that failed so."""
    if "/bin/sh" in said and ("no such file" in said or "not found" in said):
        return "the image has no shell: a sandbox needs /bin/sh in its image"
    if "exec format error" in said:
        return "the image is for another CPU than this machine's"
    if "user namespace" in said or "userns" in said:
        return (
            "it needs unprivileged user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1"
            " user.max_user_namespaces=15000` (Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0), or"
            " the setuid package of apptainer"
        )
    if "mount" in said and ("denied" in said or "not permitted" in said):
        return "inside a container, start that with --privileged, or use the backend docker"
    return ""
