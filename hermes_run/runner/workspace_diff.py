"""The final diff of a workspace against what it was before the first turn, as git writes diffs.

Needs nothing in the sandbox but a POSIX shell with find, cksum, cp and du: the texts are compared here.
`git apply` takes the result. Folders named .git are left out, as are links and modes.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hermes_run.errors import ToolError
from hermes_run.runner.artifacts import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_run.core.contracts import Sandbox

_MOST_KIB = 256 << 10
"""A bigger workspace is not copied."""
_MOST_LISTED = 16 << 20
_MOST_CHANGED = 500
_MOST_COMPARED = 512 << 10
"""Bytes: comparing longer texts would hold up other rollouts. They are said to differ, like binary ones."""
_COPY_S = 60.0
_BASE = '"${TMPDIR:-/tmp}/.hermes-run-workspace"'
_SUMS = "find . -name .git -prune -o -type f -exec cksum {} +"
_COPY = f"""b={_BASE}; case "$b/" in "${{PWD%/}}"/*) exit 7;; esac
set -- $(du -sk . 2>/dev/null); [ "${{1:-0}}" -le {_MOST_KIB} ] || exit 8
rm -rf "$b" && mkdir "$b" && cp -RPp . "$b/" && cd "$b" &&
find . -name .git -prune -exec rm -rf {{}} + && {_SUMS}"""
_WHY = {
    7: "the diff: the workspace holds the sandbox's folder for temporary files",
    8: f"the diff: the workspace was over {_MOST_KIB >> 10} MiB at its start",
}
_SUM = re.compile(rb"^(\d+ \d+) \./(.*(?:\n(?!\d+ \d+ \./|\Z).*)*)$", re.MULTILINE)
_NEEDS_QUOTES = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
_SHORT = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}


class WorkspaceDiff:
    """Remembers a workspace (`remember`), and says later what became of it (`text`)."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._why = "the diff: the workspace was not looked at"
        self._before: dict[bytes, bytes] = {}

    async def remember(self) -> None:
        """Copy the workspace aside, inside the sandbox. Raises SandboxError when that is gone."""
        cwd = self._sandbox.info.cwd
        result = await self._sandbox.exec(_COPY, timeout_s=_COPY_S, workdir=cwd, max_output=_MOST_LISTED)
        if result.exit_code or result.omitted:
            self._why = _WHY.get(result.exit_code, "the diff: the workspace could not be copied at its start")
        else:
            self._why, self._before = "", sums_of(result.output)

    async def text(self) -> bytes:
        """The diff; b"" when nothing changed. Raises ToolError with the reason why there is none."""
        if self._why:
            raise ToolError(self._why)
        aside = await self._sums(f"cd {_BASE} && {_SUMS}")
        if aside != self._before:
            raise ToolError("the diff: the copy of the workspace was changed meanwhile")
        after = await self._sums(_SUMS)
        changed = sorted(
            path for path in self._before.keys() | after.keys() if self._before.get(path) != after.get(path)
        )
        if len(changed) > _MOST_CHANGED:
            raise ToolError(f"the diff: over {_MOST_CHANGED} files changed")
        files = [await self._both(path, after) for path in changed]
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="hermes-run-diff") as pool:
            parts = await loop.run_in_executor(pool, lambda: [file_diff(*file) for file in files])
        return b"".join(parts)

    async def _sums(self, command: str) -> dict[bytes, bytes]:
        cwd = self._sandbox.info.cwd
        result = await self._sandbox.exec(command, timeout_s=_COPY_S, workdir=cwd, max_output=_MOST_LISTED)
        if result.omitted or result.timed_out:
            raise ToolError("the diff: the workspace has too many files")
        return sums_of(result.output)

    async def _both(self, path: bytes, after: dict[bytes, bytes]) -> tuple[bytes, bytes | None, bytes | None]:
        old = new = None
        if path in self._before:
            old = await self._old(path)
        if path in after:
            new = await read_bytes(self._sandbox, path, _MOST_COMPARED)
            new = b"\0" if new is None else new
        return path, old, new

    async def _old(self, path: bytes) -> bytes:
        """What a file was; a NUL for one that is too long, which counts as binary."""
        where = f"cd {_BASE} && head -c {_MOST_COMPARED + 1} <./"
        quoted = "'" + path.decode("utf-8", "surrogateescape").replace("'", "'\\''") + "'"
        result = await self._sandbox.exec(where + quoted, timeout_s=_COPY_S, max_output=_MOST_COMPARED + 4096)
        return result.output if len(result.output) <= _MOST_COMPARED else b"\0"


def sums_of(output: bytes) -> dict[bytes, bytes]:
    """Path -> sum and size, of what cksum printed. A path may hold newlines."""
    return {match[2]: match[1] for match in _SUM.finditer(output)}


def file_diff(path: bytes, old: bytes | None, new: bytes | None) -> bytes:
    """The diff of one file as git writes it; None is a file that is not there."""
    head = b"diff --git %b %b\n" % (_quoted(b"a/" + path), _quoted(b"b/" + path))
    if old is None:
        head += b"new file mode 100644\n"
    if new is None:
        head += b"deleted file mode 100644\n"
    before = b"/dev/null" if old is None else _quoted(b"a/" + path)
    after = b"/dev/null" if new is None else _quoted(b"b/" + path)
    if b"\0" in (old or b"") or b"\0" in (new or b""):
        return head + b"Binary files %b and %b differ\n" % (before, after)
    return head + b"".join(_hunks(old or b"", new or b"", before, after))


def _hunks(old: bytes, new: bytes, before: bytes, after: bytes) -> Iterator[bytes]:
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(old), _lines(new), before, after)
    for number, line in enumerate(lines):
        if number < 2:  # a name with a blank in it is followed by a tab, or patch would cut it there
            yield line.rstrip(b"\n") + (b"\t\n" if b" " in line[4:] and b'"' not in line else b"\n")
        elif line.endswith(b"\n"):
            yield line
        else:
            yield line + b"\n\\ No newline at end of file\n"


def _lines(text: bytes) -> list[bytes]:
    """Lines with their ends; only a line feed ends one."""
    pieces = text.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _quoted(path: bytes) -> bytes:
    """A path as git writes it: in quotes with C's escapes when it holds anything odd."""
    if not _NEEDS_QUOTES.search(path):
        return path
    return b'"%b"' % _NEEDS_QUOTES.sub(_escaped, path)


def _escaped(match: re.Match[bytes]) -> bytes:
    byte = match[0][0]
    return b"\\" + (_SHORT.get(byte) or b"%03o" % byte)
