"""What is kept of a workspace when its rollout is over: files by globs, and the diff against its start.

Bounded, since a model decides what is there: `MOST_FILES` files, `MOST_BYTES` bytes in all, and `MOST_S`
seconds each for the diff and the files. What is over is left out, and the record says so.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

from hermes_run.core.artifacts import Artifact
from hermes_run.core.text import clean_bytes
from hermes_run.errors import SandboxError, ToolError
from hermes_run.tools.globs import read_glob
from hermes_run.tools.shell import PRELUDE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from hermes_run.core.contracts import Sandbox
    from hermes_run.runner.workspace_diff import WorkspaceDiff

MOST_FILES = 200
MOST_BYTES = 16 << 20
MOST_S = 60.0
_MOST_LISTED = 8 << 20
"""Bytes of names: about a hundred thousand files."""
PLAINLY = f"exec 2>/dev/null; {PRELUDE}"
"""Before every command of ours in a workspace that a model has used: its variables do not count, and
complaints are no output."""
_OPEN = PLAINLY + 'w={}; [ -L "$w" ] || chmod -R u+rwX -- "$w"'
"""Modes are no part of what is kept, and files that their own user cannot read would be."""
_LIST = PLAINLY + "find . -name .git -prune -o -type f -exec printf '%s\\0' {} +"
_LONGEST_NAME = 255
_LONGEST_PATH = 800
"""Bytes that file systems here and elsewhere hold, with the run directory before them. A name that is no text
takes more of them here than in its sandbox."""
DIFF_NAME = "workspace.diff"
FOLDER = "workspace"


class Kept:
    """The artifacts of one rollout, within bounds.

    Attributes:
        artifacts: so far; paths are relative to the rollout's own folder of artifacts.
    """

    def __init__(self) -> None:
        self.artifacts: list[Artifact] = []
        self._bytes = 0
        self._reasons: dict[str, int] = {}

    def add(self, path: str, data: bytes) -> None:
        """Keep a file, or count it as left out."""
        if not _can_be_written(path):
            self.leave_out("of too long a name")
        elif len(self.artifacts) >= MOST_FILES:
            self.leave_out(f"over {MOST_FILES} files")
        elif self._bytes + len(data) > MOST_BYTES:
            self.leave_out(f"over {MOST_BYTES >> 20} MiB in all")
        else:
            self._bytes += len(data)
            self.artifacts.append(Artifact(path, data))

    @property
    def room(self) -> int:
        """Bytes that can still be kept."""
        return MOST_BYTES - self._bytes

    def leave_out(self, why: str) -> None:
        """Count a file that is not kept."""
        self._reasons[why] = self._reasons.get(why, 0) + 1

    @property
    def left_out(self) -> str:
        """Why some files are not there: `2 x over 16 MiB in all; the sandbox was gone`; or ""."""
        return "; ".join(why if count == 1 else f"{count} x {why}" for why, count in self._reasons.items())


def _can_be_written(path: str) -> bool:
    names = path.encode("utf-8", "surrogateescape").split(b"/")
    return sum(map(len, names)) + len(names) <= _LONGEST_PATH and max(map(len, names)) <= _LONGEST_NAME


async def collect(sandbox: Sandbox, globs: Sequence[str], diff: WorkspaceDiff | None, kept: Kept) -> None:
    """Keep what the spec asks for. The trajectory is complete by now: nothing here makes it fail."""
    if diff is None and not globs:
        return
    try:
        workspace = shlex.quote(sandbox.info.cwd)
        await _in_time(sandbox.exec(_OPEN.format(workspace), timeout_s=MOST_S), "opening the workspace", kept)
        if diff is not None:
            await _in_time(_keep_diff(diff, kept), "the diff", kept)
        if globs:
            await _in_time(_keep_files(sandbox, globs, kept), "files", kept)
    except SandboxError:
        kept.leave_out("the sandbox was gone")
    except ToolError as why:
        kept.leave_out(f"files: {why}")


async def _in_time(work: Awaitable[object], what: str, kept: Kept) -> None:
    """Each part has its own time: what one needs is not taken from the next."""
    try:
        async with asyncio.timeout(MOST_S):
            await work
    except TimeoutError:
        kept.leave_out(f"{what}: what took longer than {MOST_S:g} s")


async def _keep_diff(diff: WorkspaceDiff, kept: Kept) -> None:
    try:
        text = await diff.text()
    except ToolError as why:
        kept.leave_out(str(why))
    else:
        kept.add(DIFF_NAME, text)
        for reason in diff.left_out:
            kept.leave_out(reason)


async def _keep_files(sandbox: Sandbox, globs: Sequence[str], kept: Kept) -> None:
    workspace = sandbox.info.cwd
    listed = await sandbox.exec(_LIST, timeout_s=MOST_S, workdir=workspace, max_output=_MOST_LISTED)
    if listed.omitted:
        kept.leave_out("a workspace of too many files to list")
    elif listed.exit_code:
        kept.leave_out("files: the workspace could not be listed to its end")
    paths = [path.removeprefix(b"./") for path in listed.output[: listed.head or None].split(b"\0")[:-1]]
    patterns = [read_glob(glob).path for glob in globs]
    wanted = sorted(
        (clean_bytes(path), path)
        for path in paths
        if any(pattern.fullmatch(clean_bytes(path)) for pattern in patterns)
    )
    for number, (name, path) in enumerate(wanted):
        if len(kept.artifacts) >= MOST_FILES:
            for _ in wanted[number:]:
                kept.leave_out(f"over {MOST_FILES} files")
            return
        data = await read_bytes(sandbox, path, kept.room)
        if data is None:
            kept.leave_out(f"unreadable, or over {MOST_BYTES >> 20} MiB in all")
        else:
            kept.add(f"{FOLDER}/{name}", data)


async def read_bytes(sandbox: Sandbox, path: bytes, most: int) -> bytes | None:
    """A file of the workspace; None when it cannot be read, or is longer than `most` bytes."""
    quoted = shlex.quote(path.decode("utf-8", "surrogateescape"))
    command = f"{PLAINLY}[ -f ./{quoted} ] && [ ! -L ./{quoted} ] && head -c {most + 1} <./{quoted}"
    result = await sandbox.exec(command, timeout_s=MOST_S, workdir=sandbox.info.cwd, max_output=most + 4096)
    if result.exit_code or result.omitted or len(result.output) > most:
        return None
    return result.output
