"""Finding and killing processes from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_MOST_ROUNDS = 20


class Process(NamedTuple):
    """A line of the process table. `started` is in clock ticks since boot."""

    pid: int
    parent: int
    started: int


Table: TypeAlias = dict[int, Process]


def process_table() -> Table:
    """Every process of this machine that is not a zombie."""
    if not sys.platform.startswith("linux"):
        return _table_by_ps()
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _read_process(int(name))
            if process is not None:
                table[process.pid] = process
    return table


def _read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in b"ZX" else Process(pid, int(fields[1]), int(fields[19]))


def _table_by_ps() -> Table:
    """Where there is no /proc (macOS): without start times, ids tell what is younger."""
    command = ["ps", "-axo", "pid=,ppid=,stat="]
    said = subprocess.run(command, capture_output=True, check=True, start_new_session=True).stdout
    rows = (line.split() for line in said.splitlines())
    return {int(pid): Process(int(pid), int(parent), 0) for pid, parent, stat in rows if stat[:1] != b"Z"}


def children_of(pid: int) -> list[int]:
    """The living children of one process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except OSError:  # no such process, or a kernel without CONFIG_PROC_CHILDREN
        return [process.pid for process in process_table().values() if process.parent == pid]


def descendants(table: Table, roots: Iterable[int]) -> set[int]:
    """The processes below `roots`, which are not among them."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def tree_of(root: int) -> set[int]:
    """A process and those below it, by the kernel's lists of children, which cost little.

    Not what other threads than the first have started, and nothing where the kernel keeps no such lists.
    """
    found = {root}
    queue = [root]
    while queue:
        pid = queue.pop()
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            fresh = {int(child) for child in file.read().split()} - found
            found |= fresh
            queue.extend(fresh)
    return found


def kept_shell_of(table: Table, supervisor: int) -> int | None:
    """The child of a supervisor that is its kept shell: the one that reads the same requests."""
    children = sorted(process.pid for process in table.values() if process.parent == supervisor)
    if not sys.platform.startswith("linux"):
        return children[0] if children else None
    wire = _stdin_of(supervisor)
    return next((pid for pid in children if _stdin_of(pid) == wire), None)


def _stdin_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/0")
    except OSError:
        return f"of {pid}"


def call_members(table: Table, shell: int | None, orphans: Iterable[int], started_s: float) -> set[int]:
    """The processes that a call has started.

    Args:
        table: the process table.
        shell: pid of the kept shell, None while there is none.
        orphans: other processes of the sandbox whose parent is gone.
        started_s: when the call was sent, since boot.

    What hangs below the kept shell is the call's. An orphan is the call's when it is younger than the
    call's own subshell (or, when that is gone, than the call): older ones, and what they have
    started, are left alone.
    """
    call = descendants(table, [shell] if shell is not None else [])
    subshells = [(table[pid].started, pid) for pid in call if table[pid].parent == shell]
    oldest = min(subshells, default=(int(started_s / _TICK_S), 0))
    young = [pid for pid in orphans if (table[pid].started, pid) > oldest]
    return call | set(young) | descendants(table, young)


def kill_call(
    supervisor: int, find_orphans: Callable[[Table, int | None], Iterable[int]], started_s: float
) -> None:
    """Kill what the call in progress has started, and let its kept shell go on.

    Args:
        supervisor: its pid.
        find_orphans: see `call_members`; is given the process table and the pid of the kept shell.
        started_s: when the call was sent, since boot.
    """
    shell: int | None = None

    def find() -> set[int]:
        nonlocal shell
        table = process_table()
        shell = kept_shell_of(table, supervisor)
        return call_members(table, shell, find_orphans(table, shell), started_s)

    kill_all(find)
    if shell is not None:
        send([shell], signal.SIGCONT)  # the command may have stopped it


def carrying(pids: Iterable[int], mark: bytes) -> set[int]:
    """Those of `pids` that were started with `mark` in their environment, as far as it can be read."""
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read():
                    found.add(pid)
        except OSError:
            continue
    return found


def kill_all(find: Callable[[], set[int]], known: Iterable[int] = ()) -> None:
    """Kill what `find` finds: stopped first, until nothing new turns up, so that no forker gets away.

    What is `known` already to be killed needs not be found.
    """
    stopped = set(known)
    send(stopped, signal.SIGSTOP)
    for _ in range(_MOST_ROUNDS):
        fresh = find() - stopped
        if not fresh:
            break
        send(fresh, signal.SIGSTOP)
        stopped |= fresh
    send(stopped, signal.SIGKILL)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each, whoever is gone by now.

    A control group lists a process that is just ending as 0, and to `kill` 0 is the caller's own group
    and -1 is everybody: no number that is not one process is ever passed on.
    """
    for pid in pids:
        if pid <= 1 or pid == os.getpid():
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
