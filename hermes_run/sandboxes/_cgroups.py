"""Limits through control groups, where this machine lets the runner make some (v1 and v2).

One group per sandbox and hierarchy, below the runner's own group where that is possible. A sandbox's
first process moves itself in, through descriptors that the runner opened.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from glob import escape, glob
from typing import TYPE_CHECKING, NamedTuple

from hermes_run.sandboxes._processes import send

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTROLLERS = {"memory": "memory", "pids": "pids", "cpus": "cpu"}
_ROOT = "/sys/fs/cgroup"
_PERIOD_US = 100_000
"""The kernel's default."""
_PATIENCE, _POLL_S = 100, 0.02
OWN_PROCESSES = 2
"""Supervisor and kept shell do not count against the sandbox's pids."""


class Limits(NamedTuple):
    """What one sandbox may use."""

    memory_mb: int
    pids: int
    cpus: float


class Hierarchies(NamedTuple):
    """Where groups can be made: limit (`memory`, `pids`, `cpus`) -> parent folder."""

    parents: dict[str, str]
    version: int

    @property
    def missing(self) -> tuple[str, ...]:
        """The limits that no group can set here."""
        return tuple(name for name in ("cpus", "memory", "pids") if name not in self.parents)


def possible_parents() -> list[str]:
    """The folders in which `find_hierarchies` tries to make groups."""
    own = _own_groups()
    if os.path.exists(f"{_ROOT}/cgroup.controllers"):
        return _at_or_above(own.get("", "/"))
    return [folder for controller in _CONTROLLERS.values() for folder in _v1_folders(own, controller)]


def find_hierarchies(mark: str) -> Hierarchies:
    """Look where this process may make groups; what is tried carries `mark`, as the groups themselves."""
    own = _own_groups()
    trial = f"hermes-run-{mark}-trial"
    if os.path.exists(f"{_ROOT}/cgroup.controllers"):
        return Hierarchies(_find_v2(own.get("", "/"), trial), 2)
    parents = {}
    for limit, controller in _CONTROLLERS.items():
        for folder in _v1_folders(own, controller):
            if _can_make(folder, trial):
                parents[limit] = folder
                break
    return Hierarchies(parents, 1)


def _v1_folders(own: dict[str, str], controller: str) -> list[str]:
    """Our own group of a controller (v1), then the topmost one."""
    paths = dict.fromkeys((own.get(controller, "/"), "/"))
    return [f"{_ROOT}/{controller}{path.rstrip('/')}" for path in paths]


def _own_groups() -> dict[str, str]:
    groups = {}
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def _at_or_above(own: str) -> list[str]:
    """The folders of a group and of those above it (v2), the nearest first."""
    parts = own.strip("/").split("/") if own.strip("/") else []
    return ["/".join([_ROOT, *parts[:depth]]) for depth in range(len(parts), -1, -1)]


def _find_v2(own: str, trial: str) -> dict[str, str]:
    """The nearest group at or above ours that hands controllers on to its children."""
    for folder in _at_or_above(own):
        handed_on = _read(f"{folder}/cgroup.subtree_control").split()
        if {"memory", "pids"} & set(handed_on) and _can_make(folder, trial):
            return {limit: folder for limit, controller in _CONTROLLERS.items() if controller in handed_on}
    return {}


def _can_make(folder: str, name: str) -> bool:
    """Try it: permission bits say nothing about read-only mounts and namespaces."""
    trial = f"{folder}/{name}"
    try:
        os.mkdir(trial)
    except OSError:
        return False
    try:
        with open(f"{trial}/cgroup.procs", "w", encoding="ascii"):
            pass
    except OSError:
        return False
    finally:
        os.rmdir(trial)
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


class Group:
    """The control groups of one sandbox."""

    def __init__(self, hierarchies: Hierarchies, name: str, limits: Limits) -> None:
        self._folders = [f"{parent}/{name}" for parent in dict.fromkeys(hierarchies.parents.values())]
        self._made: list[str] = []
        self.entries: list[int] = []
        """Open `cgroup.procs` files: whoever writes 0 to each is in."""
        try:
            for folder in self._folders:
                os.mkdir(folder)
                self._made.append(folder)
            for limit, parent in hierarchies.parents.items():
                _set_limit(f"{parent}/{name}", limit, limits, hierarchies.version)
            for folder in self._made:
                self.entries.append(os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            self.remove()
            raise

    def close_entries(self) -> None:
        """Nobody else gets in."""
        for entry in self.entries:
            os.close(entry)
        self.entries.clear()

    def remove(self) -> bool:
        """Remove the groups; False when something in them is still alive."""
        self.close_entries()
        self._made = [folder for folder in self._made if not remove_group(folder)]
        return not self._made


def remove_group(folder: str) -> bool:
    """Remove one empty group; False when it is in use."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _set_limit(folder: str, limit: str, limits: Limits, version: int) -> None:
    quota = max(1000, int(limits.cpus * _PERIOD_US))
    size = str(limits.memory_mb << 20)
    pids = str(limits.pids + OWN_PROCESSES)
    if limit == "memory" and version == 1:
        _write(folder, "memory.limit_in_bytes", size)
        _write(folder, "memory.memsw.limit_in_bytes", size, may_be_missing=True)
    elif limit == "memory":
        _write(folder, "memory.max", size)
        _write(folder, "memory.swap.max", "0", may_be_missing=True)
    elif limit == "pids":
        _write(folder, "pids.max", pids)
    elif version == 1:
        _write(folder, "cpu.cfs_quota_us", str(quota))  # of the default period
    else:
        _write(folder, "cpu.max", f"{quota} {_PERIOD_US}")


def _write(folder: str, name: str, value: str, *, may_be_missing: bool = False) -> None:
    """Write one setting; a kernel without swap accounting lacks the files about swap."""
    try:
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if may_be_missing:
            return
        raise
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)


def remove_groups(parents: Iterable[str], mark: str) -> bool:
    """Remove the groups of a dead run's sandboxes, and what may still live in them.

    Args:
        parents: the folders that they are in.
        mark: the mark of the run's ground.

    Returns:
        Whether they are gone.
    """
    found = [folder for parent in parents for folder in glob(f"{escape(parent)}/hermes-run-{mark}-*")]
    for _ in range(_PATIENCE):
        found = [folder for folder in found if not remove_group(folder)]
        if not found:
            return True
        for folder in found:
            send(map(int, _read(f"{folder}/cgroup.procs").split()), signal.SIGKILL)
        time.sleep(_POLL_S)
    return False
