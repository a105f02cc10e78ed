"""Limits through control groups, where this machine lets the runner make some (v1 and v2).

One group per sandbox and hierarchy, below the runner's own group where that is possible. A sandbox's
first process moves itself in, through descriptors that the runner opened.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import NamedTuple

_V1 = {"memory": "memory", "pids": "pids", "cpus": "cpu"}
_V2 = {"memory": "memory", "pids": "pids", "cpus": "cpu"}
_ROOT = "/sys/fs/cgroup"
_PERIOD_US = 100_000
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


def find_hierarchies() -> Hierarchies:
    """Look where this process may make groups."""
    own = _own_groups()
    if os.path.exists(f"{_ROOT}/cgroup.controllers"):
        return Hierarchies(_find_v2(own.get("", "/")), 2)
    parents = {}
    for limit, controller in _V1.items():
        for path in dict.fromkeys((own.get(controller, "/"), "/")):
            folder = f"{_ROOT}/{controller}{path.rstrip('/')}"
            if _can_make(folder):
                parents[limit] = folder
                break
    return Hierarchies(parents, 1)


def _own_groups() -> dict[str, str]:
    groups = {}
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def _find_v2(own: str) -> dict[str, str]:
    """The nearest group at or above ours that hands controllers on to its children."""
    path = own.rstrip("/")
    while True:
        folder = _ROOT + path
        handed_on = _read(f"{folder}/cgroup.subtree_control").split()
        if {"memory", "pids"} & set(handed_on) and _can_make(folder):
            return {limit: folder for limit, controller in _V2.items() if controller in handed_on}
        if not path:
            return {}
        path = path.rpartition("/")[0]


def _can_make(folder: str) -> bool:
    """Try it: permission bits say nothing about read-only mounts and namespaces."""
    trial = f"{folder}/hermes-run-trial-{os.getpid()}"
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
    for _ in range(5):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            time.sleep(0.001)  # its last process is a moment from being gone
        else:
            return True
    return False


def _set_limit(folder: str, limit: str, limits: Limits, version: int) -> None:
    quota = max(1000, int(limits.cpus * _PERIOD_US))
    size = str(limits.memory_mb << 20)
    if version == 1:
        values = {
            "memory": {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size},
            "pids": {"pids.max": str(limits.pids + OWN_PROCESSES)},
            "cpus": {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)},
        }[limit]
    else:
        values = {
            "memory": {"memory.max": size, "memory.swap.max": "0"},
            "pids": {"pids.max": str(limits.pids + OWN_PROCESSES)},
            "cpus": {"cpu.max": f"{quota} {_PERIOD_US}"},
        }[limit]
    for name, value in values.items():
        path = f"{folder}/{name}"
        if "sw" in name.partition(".")[2] and not os.path.exists(path):
            continue  # a kernel without swap accounting has no such file
        with open(path, "w", encoding="ascii") as file:
            file.write(value)


def remove_groups(hierarchies: Hierarchies, mark: str) -> None:
    """Remove the groups of a dead run's sandboxes."""
    for parent in set(hierarchies.parents.values()):
        for name in os.listdir(parent):
            if name.startswith(f"hermes-run-{mark}-"):
                remove_group(f"{parent}/{name}")
