"""What sandboxes with a pid namespace of their own have in common: the namespace's first process."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from hermes_run.sandboxes._box import Box
from hermes_run.sandboxes._cgroups import find_hierarchies, possible_parents, remove_groups
from hermes_run.sandboxes._ground import mark_of, remove_ground
from hermes_run.sandboxes._processes import children_of, kill_all, kill_call, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._cgroups import Group, Hierarchies
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes._processes import Table

_GROUPS = "groups"
"""File of a ground: the folders in which the run makes control groups."""


class NamespacedBox(Box):
    """One sandbox whose supervisor is the first process of a pid namespace.

    The runner's own child waits for that process outside. When the first process dies, the kernel kills
    the rest; it adopts the orphans.
    """

    def __init__(self, ground: Ground, request: SandboxRequest) -> None:
        super().__init__(ground, request)
        self.first = 0
        self.group: Group | None = None

    def settle(self) -> None:
        """Find its first process: the one child of the process that waits for it outside."""
        children = children_of(self.process.pid)
        if len(children) != 1:
            raise self.start_error("its first process cannot be found", b"")
        (self.first,) = children

    def destroy(self) -> None:
        """Kill the first process: the kernel kills the rest with it."""
        if not hasattr(self, "process") or self.process.poll() is not None:
            return
        first = [self.first] if self.first else children_of(self.process.pid)
        if first:
            send(first, signal.SIGKILL)
        else:
            self.process.kill()

    def release(self) -> bool:
        """Remove its control groups."""
        return self.group is None or self.group.remove()

    def spill_folder(self) -> int:
        """Its /tmp: a mount of its own, which nothing inside can replace."""
        return os.open(f"/proc/{self.first}/root/tmp", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)

    def kill_call(self, started_s: float) -> None:
        """See Place. Orphans are adopted by the first process."""

        def orphans(table: Table, shell: int | None) -> list[int]:
            return [p.pid for p in table.values() if p.parent == self.first and p.pid != shell]

        kill_call(self.first, orphans, started_s)


def groups_of(ground: Ground) -> Hierarchies:
    """Where control groups can be made; noted in the ground, so that a sweep finds them. Raises OSError."""
    with open(f"{ground.path}/{_GROUPS}", "w", encoding="utf-8") as file:
        file.writelines(f"{parent}\n" for parent in possible_parents())
    return find_hierarchies(ground.mark)


def sweep_namespaced(path: str, find_orphans: Callable[[], set[int]]) -> None:
    """Remove the ground of a dead run, with its control groups; both stay while those cannot be removed.

    Args:
        path: the ground.
        find_orphans: processes of its sandboxes that may be in no control group.
    """
    kill_all(find_orphans)
    try:
        with open(f"{path}/{_GROUPS}", encoding="utf-8") as file:
            parents = file.read().splitlines()
    except FileNotFoundError:  # it died before it made any
        parents = []
    if remove_groups(parents, mark_of(path)):
        remove_ground(path)
