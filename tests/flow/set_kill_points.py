"""A program: does a set operation again and again, each time killed after its n-th write, rename or sync.

`python set_kill_points.py FOLDER STEP OUT... -- COMMAND...`: FOLDER holds all that the command reads. For
every n (by STEP) the command is killed at that instant (writes: once after it, once in its middle) in a copy
of it. What was there before has to be as it was, every OUT has to be whole or not there, and without any of
them the same command has to end well. Without OUT the command mends the run that is its last word: it has to
end well again, with the manifest and the trajectories of a straight one. Prints one JSON object:
`{operations, wrong: [what]}`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.cli.main import main
from hermes_run.store import adoption, combine, inspect  # noqa: F401 - before the forks, so that they are fast
from tests.flow.kill_points import Killer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEFT_ALIVE = 77


def call(folder: Path, words: Sequence[str], killer: Killer | None = None) -> int:
    """The command in a fork; its exit code, LEFT_ALIVE when the killer was too late."""
    pid = os.fork()
    if not pid:
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if killer is not None:
            killer.install()
        code = main(list(words))
        os._exit(LEFT_ALIVE if killer is not None else code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def told(path: Path) -> bytes:
    """What an OUT comes to."""
    return (path / "manifest.jsonl" if path.is_dir() else path).read_bytes()


class Trial:
    def __init__(self, folder: Path, outs: Sequence[str], words: Sequence[str]) -> None:
        self.source = folder
        self.outs = outs
        self.words = words
        self.before = contents(folder)
        self.copy = folder.with_name(f"{folder.name}-copy")
        self._copied()
        if code := call(self.copy, words):
            raise SystemExit(f"{words}: exit code {code}")
        self.mended = tuple(f"{words[-1]}/{name}" for name in ("manifest.jsonl", "trajectories.jsonl"))
        self.right = {out: told(self.copy / out) for out in outs or self.mended}

    def _copied(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.source, self.copy)

    def wrong(self, at: int, *, in_the_middle: bool) -> Iterator[str] | None:
        """What is wrong after a kill there; None when the command ends before."""
        self._copied()
        code = call(self.copy, self.words, Killer(str(self.copy), at, in_the_middle=in_the_middle))
        return None if code == LEFT_ALIVE else self._looked_at(code)

    def _looked_at(self, code: int) -> Iterator[str]:
        if code != -signal.SIGKILL:
            yield f"exit code {code}"
        if not self.outs:
            yield from self._again(self.mended)
            if call(self.copy, ("verify", self.words[-1])):
                yield "what the next one leaves is damaged"
            return
        after = contents(self.copy)
        yield from (f"{name} has changed" for name, data in self.before.items() if after.get(name) != data)
        there = [out for out in self.outs if (self.copy / out).exists()]
        for out in there:
            is_whole = told(self.copy / out) == self.right[out]
            if not is_whole or ((self.copy / out).is_dir() and call(self.copy, ("verify", out))):
                yield f"{out} is half there"
        if not there:
            yield from self._again(self.outs)

    def _again(self, outs: Sequence[str]) -> Iterator[str]:
        if code := call(self.copy, self.words):
            yield f"exit code {code} of the next one"
        elif any(told(self.copy / out) != self.right[out] for out in outs):
            yield "the next one comes to something else"


def run(folder: Path, step: int, outs: Sequence[str], words: Sequence[str]) -> None:
    trial, at, wrong = Trial(folder, outs, words), 1, []
    while (found := trial.wrong(at, in_the_middle=False)) is not None:
        wrong += [f"killed after {at}: {what}" for what in found]
        wrong += [f"killed within {at}: {what}" for what in trial.wrong(at, in_the_middle=True) or ()]
        at += step
    print(json.dumps({"operations": at, "wrong": wrong}))


if __name__ == "__main__":
    place, by, *rest = sys.argv[1:]
    cut = rest.index("--")
    run(Path(place), int(by), rest[:cut], rest[cut + 1 :])
