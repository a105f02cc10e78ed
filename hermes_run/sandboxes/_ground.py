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
import shutil
import tempfile
from typing import TYPE_CHECKING, Protocol

from hermes_run.core.contracts import Leftover
from hermes_run.core.keys import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hermes_run.core.contracts import SandboxRequest

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

    def prepare(self) -> None:
        """Make the folder, if it is not there yet."""
        if self.path:
            return
        for path, run in list(dead_grounds(self._backend)):
            if run == self._run:  # what a `kill -9` of this very run left is in memory, or on the disk
                self._sweep(path)
        stamp = f"{self._run}\x1f{self._backend}\x1f{os.getpid()}\x1f{os.urandom(8).hex()}"
        self.mark = digest(stamp.encode())[:16]
        parent = _parents()[0 if self._in_memory else -1]
        path = f"{parent}/{_PREFIX}{os.getuid()}-{self.mark}"
        os.mkdir(path, 0o700)
        self._lock = os.open(f"{path}/{_RUN_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        label = {"run": self._run, "backend": self._backend, "pid": os.getpid()}
        os.write(self._lock, json.dumps(label).encode())
        self.path = path
        atexit.register(self.remove_now)

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
        _remove_tree(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.label")

    def remove_now(self) -> None:
        """Remove every sandbox and the folder: the backstop at exit, and the end of a run."""
        if not self.path or os.getpid() != self._runner:
            return  # a forked child has no sandboxes of its own
        for box in tuple(self.boxes):
            box.remove_now()
        atexit.unregister(self.remove_now)
        _remove_tree(self.path)
        os.close(self._lock)
        self.path = ""


def _parents() -> list[str]:
    """Where grounds can be: in memory first, where there is some."""
    folders = [tempfile.gettempdir()]
    if os.path.isdir(_IN_MEMORY) and os.access(_IN_MEMORY, os.W_OK | os.X_OK):
        folders.insert(0, _IN_MEMORY)
    return folders


def dead_grounds(backend: str) -> Iterator[tuple[str, str]]:
    """Grounds of `backend` that no living process holds: (path, run)."""
    mine = f"{_PREFIX}{os.getuid()}-"
    for parent in _parents():
        for name in sorted(os.listdir(parent)):
            path = f"{parent}/{name}"
            label = _label_of_the_dead(path) if name.startswith(mine) else None
            if label is not None and label.get("backend") == backend:
                yield path, str(label.get("run", ""))


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
    if _label_of_the_dead(path) is not None:
        _remove_tree(path)


def _label_of_the_dead(path: str) -> dict[str, object] | None:
    """The label of a ground of ours that nobody holds, else None."""
    try:
        if os.lstat(path).st_uid != os.getuid():
            return None
        lock = os.open(f"{path}/{_RUN_FILE}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        label = json.loads(os.read(lock, 1 << 16) or b"null")
    except (OSError, ValueError):
        return None
    finally:
        os.close(lock)
    return label if isinstance(label, dict) else None


def _remove_tree(path: str) -> None:
    """Remove a folder, with what a command may have made unremovable by its mode."""

    def unlock(_: object, name: str, __: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(name), 0o700)
            os.chmod(name, 0o700)
            if os.path.isdir(name) and not os.path.islink(name):
                shutil.rmtree(name, ignore_errors=True)
            else:
                os.unlink(name)

    shutil.rmtree(path, onerror=unlock)
