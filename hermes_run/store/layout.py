"""The run directory: the names of its files, and who may write in it. Contract, section 5."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes_run.errors import EnvironmentStop, RunLocked, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOURNAL = "journal.jsonl"
MANIFEST = "manifest.jsonl"
TRAJECTORIES = "trajectories.jsonl"
PLAN = "plan.json"
PLAN_KEYS = "plan.keys"
CHECKPOINT = "checkpoint.json"
STATISTICS = "statistics.json"
TOOLS = "tools.json"
SPEC = "spec.yaml"
CARD = "README.md"
LOG = "run.log"
SPENDING = "spending.jsonl"
LOCK = ".lock"

DERIVED = (TRAJECTORIES, MANIFEST, STATISTICS, TOOLS, PLAN, PLAN_KEYS, SPEC, CARD)
"""Files whose hashes checkpoint.json keeps, so that `verify` finds a flipped byte in any of them."""

_TRACES = (JOURNAL, MANIFEST, PLAN, CHECKPOINT)
"""Not spec.yaml: many a user's own spec has that name."""

_LOOKING_S = 0.5
"""How long a lock that others share is waited for: who only looks has it for microseconds."""
_POLL_S = 0.005

_RUN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def is_run_name(name: str) -> bool:
    """Whether a spec could have this `run_name`. Contract, section 2."""
    return _RUN_NAME.fullmatch(name) is not None


def is_run_dir(folder: Path) -> bool:
    """Whether a folder holds anything that only a run writes."""
    return any((folder / name).exists() for name in _TRACES) or has_entries(folder)


def has_entries(folder: Path) -> bool:
    """Whether a run in this folder came to an outcome."""
    files = (path for path in (folder / JOURNAL, folder / MANIFEST) if path.exists())
    return any(path.stat().st_size for path in files) or any(folder.glob("batch_*.jsonl"))


def create_run_dir(
    folder: Path, cure: str = "change output.dir or run_name", *, name: Path | None = None
) -> None:
    """Make the run directory; `cure` says how another one is named, `name` is what errors call it.

    Raises UsageError or EnvironmentStop when that cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{name or folder}: a file is in the way of the run directory; {cure}") from None
    except OSError as error:
        raise EnvironmentStop(
            f"{name or folder}: the run directory cannot be made: {error.strerror}; {cure}, or mend that"
        ) from error


def set_old_aside(folder: Path) -> Path | None:
    """Rename a run directory out of the way (`--fresh`); where it is now, or None when there was none."""
    if not folder.exists():
        return None
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    names = [f"{folder.name}.old-{stamp}", *(f"{folder.name}.old-{stamp}-{n}" for n in range(2, 1000))]
    for name in names:
        aside = folder.with_name(name)
        if not aside.exists():
            folder.rename(aside)
            return aside
    raise UsageError(f"{folder}: no free name to set it aside")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run directory. The lock dies with the process, however that ends.

    Raises RunLocked naming the process that holds it.
    """
    path = folder / LOCK
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EnvironmentStop(
            f"{path}: the run directory cannot be written: {error.strerror}; mend its permissions"
        ) from error
    try:
        _take(file, folder)
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def _take(file: int, folder: Path) -> None:
    """Take the lock for writing; who only looks at it (`status`) is waited for. Raises RunLocked."""
    until = time.monotonic() + _LOOKING_S
    while not _flock(file, fcntl.LOCK_EX):
        is_read = _flock(file, fcntl.LOCK_SH)
        if is_read and time.monotonic() < until:
            time.sleep(_POLL_S)
            continue
        if is_read:
            holder = "another command is reading"
        else:
            words = os.pread(file, 200, 0).decode("utf-8", "replace").strip() or "another process"
            holder = f"{words} is working in"
        raise RunLocked(
            f"{folder}: {holder} this run directory; wait until it has ended, "
            "or give this run another run_name"
        )


def _flock(file: int, kind: int) -> bool:
    """Whether a lock could be had at once. Raises OSError where there are no locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def read_json(path: Path) -> dict[str, object]:
    """A JSON object of the run directory, or {} when it is missing or none."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def read_spec(run: Path) -> dict[str, Any]:
    """The run's spec.yaml, or {} when it is missing or damaged."""
    import yaml

    try:
        content = yaml.load((run / SPEC).read_bytes(), Loader=yaml.CSafeLoader)
    except (OSError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def is_locked(folder: Path) -> bool:
    """Whether a living process holds the run directory."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
