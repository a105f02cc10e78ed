"""What a run's sandboxes leave outside the runner's process, each labelled before it exists.

A ground is one private folder of one run, `hermes-run-<uid>-<hash>`, in memory (/dev/shm: a named pipe
costs a hundredth there of what it costs on a disk) or in the system's temporary folder.
Its `run` file says whose it is and is locked as long as the runner lives (the kernel drops the lock
however it dies), so that what a `kill -9` left is known from what is in use, even across containers
that share the folder. Names are hashes; the labels are symbolic links, whose text is there whole or
not at all.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import socket
import tempfile
from typing import TYPE_CHECKING, Protocol

from hermes_run.core.contracts import Leftover
from hermes_run.core.keys import digest
from hermes_run.sandboxes._removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hermes_run.core.contracts import SandboxRequest

OWNER, PLACE = "hermes-run.owner", "hermes-run.place"
_PREFIX = "hermes-run-"
_IN_MEMORY = "/dev/shm"
_RUN_FILE = "run"
_MOST_LABEL = 3000
"""Bytes of a label: a symbolic link holds 4095."""


class Removable(Protocol):
    """A sandbox, as the backstop sees it."""

    def remove_now(self) -> None:
        """Remove it without an event loop, as far as that goes; never raises."""


class Ground:
    """The folder of one run's sandboxes of one backend. Made when first used.

    Args:
        run: name of the run.
        backend: name of the backend.
        sweep: removes the ground of a dead run, given its path.
        in_memory: whether it holds nothing big.
    """

    def __init__(self, run: str, backend: str, sweep: Callable[[str], None], *, in_memory: bool) -> None:
        self._sweep = sweep
        self._in_memory = in_memory
        self._run = run
        self._backend = backend
        self._lock = -1
        self._made = 0
        self._runner = os.getpid()
        self.path = ""
        self.mark = ""
        """Names this ground, and no other, in names elsewhere (control groups)."""
        self.boxes: set[Removable] = set()

    @property
    def parent(self) -> str:
        """The folder that it is made in."""
        return _parents()[0 if self._in_memory else -1]

    def prepare(self) -> None:
        """Make the folder, if it is not there yet."""
        if self.path:
            return
        for path, run in list(dead_grounds(self._backend)):
            if run == self._run:  # what a `kill -9` of this very run left is in memory, or on the disk
                self._sweep(path)
        while not self.path:
            stamp = f"{self._run}\x1f{self._backend}\x1f{os.getpid()}\x1f{os.urandom(8).hex()}"
            self.mark = digest(stamp.encode())[:16]
            path = f"{self.parent}/{_PREFIX}{os.getuid()}-{self.mark}"
            os.mkdir(path, 0o700)
            self._lock = _claim(path)
            self.path = path if self._lock >= 0 else ""
        atexit.register(self.remove_now)
        label = {"run": self._run, "backend": self._backend, "pid": os.getpid()}
        os.write(self._lock, json.dumps(label).encode())

    def make_box(self, request: SandboxRequest) -> str:
        """An empty folder for one sandbox, labelled. Returns its path."""
        self.prepare()
        self._made += 1
        rollout = f"{request.run}\x1f{request.key}"
        name = f"{digest(rollout.encode())[:12]}-{self._made}"
        label = json.dumps([request.run, request.key, request.row_id])
        os.symlink(label.encode()[:_MOST_LABEL], f"{self.path}/{name}.label".encode())
        path = f"{self.path}/{name}"
        os.mkdir(path, 0o700)
        return path

    def remove_box(self, path: str) -> None:
        """Remove a sandbox's folder and label."""
        remove_tree(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.label")

    def remove_now(self) -> None:
        """Remove every sandbox and the folder: the backstop at exit, and the end of a run."""
        if not self.path or os.getpid() != self._runner:
            return  # a forked child has no sandboxes of its own
        for box in tuple(self.boxes):
            box.remove_now()
        atexit.unregister(self.remove_now)
        path, self.path = self.path, ""
        os.close(self._lock)
        self._sweep(path)


def _parents() -> list[str]:
    """Where grounds can be: in memory first, where there is some."""
    folders = [tempfile.gettempdir()]
    if os.path.isdir(_IN_MEMORY) and os.access(_IN_MEMORY, os.W_OK | os.X_OK):
        folders.insert(0, _IN_MEMORY)
    return folders


def _claim(path: str) -> int:
    """The lock of a ground just made; -1 when a sweep took it for a dead one's, and removed it."""
    file = f"{path}/{_RUN_FILE}"
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return -1
    fcntl.flock(lock, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        if os.stat(file).st_ino == os.fstat(lock).st_ino:
            return lock
    os.close(lock)
    return -1


def dead_grounds(backend: str) -> Iterator[tuple[str, str]]:
    """Grounds of `backend` that no living process holds: (path, run).

    One whose runner was killed before it had written the label is everybody's, and of no run.
    """
    mine = f"{_PREFIX}{os.getuid()}-"
    for parent in _parents():
        for name in sorted(os.listdir(parent)):
            path = f"{parent}/{name}"
            if name.startswith(mine):
                lock, label = _look(path)
                _let_go(lock)
                if label is not None and label.get("backend", backend) == backend:
                    yield path, str(label.get("run", ""))


def grounds() -> list[str]:
    """Every ground of this user on this machine, whoever holds it."""
    mine = f"{_PREFIX}{os.getuid()}-"
    return [
        f"{parent}/{name}" for parent in _parents() for name in os.listdir(parent) if name.startswith(mine)
    ]


def owner() -> dict[str, str]:
    """Labels for what is not on this machine's disk: whose it is, and where its run's lock can be looked at.

    Where both are the same and the lock is not there, its runner is dead. One user's runs may not see each
    other's locks: in another container of the same host, or with another folder for temporary files.
    """
    who = f"{socket.gethostname()}\x1f{os.getuid()}\x1f{_text('/etc/machine-id')}"
    start = _text("/proc/sys/kernel/random/boot_id")
    folder = os.stat(_parents()[0])
    place = f"{folder.st_dev}\x1f{folder.st_ino}"
    return {
        OWNER: digest(who.encode())[:16],
        PLACE: "-".join(digest(part.encode())[:16] for part in (start, place)),
    }


def is_of_earlier_start(labels: Mapping[str, str]) -> bool:
    """Whether this user gave something the `labels` of `owner` before this machine was started anew."""
    ours = owner()
    theirs, here = (each.get(PLACE, "").partition("-")[0] for each in (labels, ours))
    return labels.get(OWNER) == ours[OWNER] and theirs not in ("", here)


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def leftover_folders(backend: str) -> list[Leftover]:
    """The grounds that dead runs left."""
    return [
        Leftover(run=run, what=f"{backend} folder {path}", handle=path) for path, run in dead_grounds(backend)
    ]


def mark_of(path: str) -> str:
    """The mark of the ground at `path`."""
    return path.rpartition("-")[2]


def remove_ground(path: str) -> None:
    """Remove a dead run's ground; a living one's is left alone."""
    lock, label = _look(path)
    if lock >= 0 and label is not None:
        remove_tree(path)
    elif label is not None:
        with contextlib.suppress(OSError):  # not empty any more: its runner lives
            os.rmdir(path)
    _let_go(lock)


def _look(path: str) -> tuple[int, dict[str, object] | None]:
    """A ground's lock and label; no label when it is a living run's, or none of ours.

    The lock is shared, so that two who look at the same time are not taken for the runner.

    The label is empty when its runner died, or has not come further, between making and labelling it;
    the lock is -1 when it did not even come to that.
    """
    try:
        if os.lstat(path).st_uid != os.getuid():
            return -1, None
        lock = os.open(f"{path}/{_RUN_FILE}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return -1, {} if _is_empty_folder(path) else None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        label = json.loads(os.read(lock, 1 << 16) or b"{}")
    except (OSError, ValueError):
        label = None
    return lock, label if isinstance(label, dict) else None


def _is_empty_folder(path: str) -> bool:
    try:
        return not os.path.islink(path) and not os.listdir(path)
    except OSError:
        return False


def _let_go(lock: int) -> None:
    if lock >= 0:
        os.close(lock)
