"""A program: runs a spec again and again, each time killed after its n-th write, rename or sync.

`python kill_points.py FOLDER STEP` expects FOLDER/spec.yaml, whose run name is `r`. For every n (by
STEP) the run is started in a fork, killed at that instant (writes: once after it, once in its middle),
and run to its end again; its outputs are compared with those of a straight run. Prints one JSON object:
`{operations, kills, wrong: [what]}`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.cli.main import main
from hermes_run.runner import flow  # noqa: F401 - imported before the forks, so that they are fast
from tests.flow.lab import comparable

if TYPE_CHECKING:
    from collections.abc import Callable

PATCHED = ("write", "pwrite", "fsync", "ftruncate", "truncate", "rename", "replace", "unlink")


class Killer:
    """Counts what is done to files under a folder, and kills the process at the n-th."""

    def __init__(self, folder: str, at: int, *, in_the_middle: bool) -> None:
        self.folder = folder
        self.at = at
        self.in_the_middle = in_the_middle
        self.count = 0

    def install(self) -> None:
        for name in PATCHED:
            setattr(os, name, self._wrap(name, getattr(os, name)))

    def _is_ours(self, target: Any) -> bool:
        path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
        return str(path).startswith(self.folder)

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *rest: Any, **named: Any) -> Any:
            if not self._is_ours(target):
                return real(target, *rest, **named)
            self.count += 1
            if self.count == self.at and self.in_the_middle and name == "write":
                real(target, rest[0][: len(rest[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(target, *rest, **named)
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


def run_in_fork(folder: Path, killer: Killer | None = None) -> tuple[int, int]:
    """Exit status of a run in a fork (negative: the signal), and how many operations it did."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(null, stream)
        counting = killer or Killer(str(folder / "data"), -1, in_the_middle=False)
        counting.install()
        code = main([str(folder / "spec.yaml"), "--quiet"])
        os.write(writer, str(counting.count).encode())
        os._exit(code)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    text = os.read(reader, 100)
    os.close(reader)
    return os.waitstatus_to_exitcode(status), int(text or 0)


def check(folder: Path, step: int) -> dict[str, Any]:
    """See the module."""
    run_dir = folder / "data" / "r"
    code, operations = run_in_fork(folder)
    if code:
        return {"operations": operations, "kills": 0, "wrong": [f"the straight run ended with {code}"]}
    straight, wrong, kills = comparable(run_dir), [], 0
    for at in range(1, operations + 1, step):
        for in_the_middle in (False, True):
            shutil.rmtree(run_dir)
            killer = Killer(str(folder / "data"), at, in_the_middle=in_the_middle)
            code, _ = run_in_fork(folder, killer)
            kills += code == -signal.SIGKILL
            reported = run_dir / "journal.jsonl"
            entries = reported.read_bytes().count(b"\n") if reported.exists() else 0
            what = f"killed at operation {at}{' in the middle' if in_the_middle else ''}"
            code, _ = run_in_fork(folder)
            if code:
                wrong.append(f"{what}: the resume ended with {code}")
            elif comparable(run_dir) != straight:
                wrong.append(f"{what}: other outputs than the straight run's ({entries} entries before)")
    return {"operations": operations, "kills": kills, "wrong": wrong}


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    print(json.dumps(check(Path(sys.argv[1]), int(sys.argv[2]))))
