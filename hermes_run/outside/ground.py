"""The browser's folder outside the runner's process, and how what dead runs left is told from what lives.

`hermes-run-chromium-<uid>-<mark>` in the system's temporary folder. Its `run` file says whose it is and is
locked as long as the runner lives: the kernel drops the lock however it dies. The jail has the folder's
path in its command line, so that its processes are known by that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from hermes_run.core.contracts import Leftover

_PREFIX = "hermes-run-chromium-"
_RUN_FILE = "run"
_ENDING_S = 5.0


class BrowserGround:
    """One run's folder. Made at once, gone with `remove`."""

    def __init__(self, run: str) -> None:
        left = BrowserLeftovers()
        for leftover in left.leftovers():
            if leftover.run == run:  # what a `kill -9` of this very run left
                left.remove(leftover)
        self.path, self._lock = _make()
        os.write(self._lock, json.dumps({"run": run, "pid": os.getpid()}).encode())

    def remove(self) -> None:
        """End what still runs in it, and remove it."""
        end_processes(str(self.path))
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)


class BrowserLeftovers:
    """What dead runs left of their browsers, as `clean` asks a backend for it."""

    name: ClassVar[str] = "chromium"

    def leftovers(self) -> list[Leftover]:
        """Folders, with their processes, whose runner is gone."""
        found = []
        for path in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}{os.getuid()}-*")):
            lock, run = _look(path)
            if lock >= 0:
                os.close(lock)
                found.append(Leftover(run=run, what=f"browser folder {path}", handle=str(path)))
        return found

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them; a living run's is left alone."""
        lock, _ = _look(Path(leftover.handle))
        if lock >= 0:
            end_processes(leftover.handle)
            shutil.rmtree(leftover.handle, ignore_errors=True)
            os.close(lock)


def _make() -> tuple[Path, int]:
    """A new folder and its lock; not one that was swept as a dead run's before it was locked."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getuid()}-"))
        lock = os.open(path / _RUN_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)


def _look(path: Path) -> tuple[int, str]:
    """The lock of a dead run's folder and the run's name; -1 when it lives or is none of ours.

    The lock is shared, so that two who look at the same time are not taken for the runner.
    """
    try:
        if path.is_symlink() or path.stat().st_uid != os.getuid():
            return -1, ""
        lock = os.open(path / _RUN_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return -1, ""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        label = json.loads(os.read(lock, 1 << 16) or b"{}")
    except OSError:
        os.close(lock)
        return -1, ""
    except ValueError:
        label = {}
    return lock, str(label.get("run", "")) if isinstance(label, dict) else ""


def end_processes(path: str) -> None:
    """Kill every process with the folder in its command line, and wait until they are gone."""
    end = time.monotonic() + _ENDING_S
    while (pids := processes_of(path)) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def processes_of(path: str) -> list[int]:
    """Processes of ours with the folder in their command line, this one aside."""
    wanted = path.encode()
    found = []
    for entry in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if wanted in words and entry.stat().st_uid == os.getuid() and _is_alive(entry):
                found.append(int(entry.name))
    return found


def _is_alive(entry: Path) -> bool:
    """Whether it is no zombie, which only its parent can remove."""
    return b") Z" not in (entry / "stat").read_bytes()
