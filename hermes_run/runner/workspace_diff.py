"""The final diff of a workspace against what it was before the first turn, as git writes diffs.

Needs nothing in the sandbox but a POSIX shell with find, cp, du and one of cksum, sha256sum and md5sum (not
every busybox has the first): the files are compared here. `git apply` takes the result, whatever was left
out of it. Folders named .git are left out, as are links and modes.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hermes_run.errors import ToolError
from hermes_run.runner.artifacts import PLAINLY, read_bytes
from hermes_run.runner.git_patch import file_diff
from hermes_run.tools.shell import quote

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox

_MOST_KIB = 256 << 10
"""A bigger workspace is not copied."""
_MOST_LISTED = 16 << 20
_MOST_CHANGED = 500
_MOST_FILE = 4 << 20
_MOST_READ = 64 << 20
"""Bytes of one file, and of all that changed, before and after: they are in the runner's memory at once."""
_COPY_S = 60.0
_LOOKS = 3
"""A file may go between its listing and its sum, when something is still running there."""
_NAME = ".hermes-run-workspace"
_STAMP = """'for f; do printf "%d %d %s\\n" "$(date -r "$f" +%s)" "$(wc -c <"$f")" "$f"; done'"""
"""In place of its sum: time and size of a file that is too long for the diff: reading it may take minutes."""
_SUMS = (
    f"{PLAINLY}s=; for p in cksum sha256sum md5sum; do command -v $p >/dev/null && s=$p && break; done;"
    f' [ "$s" ] || exit 9; find . -name .git -prune -o -type f -size +{_MOST_FILE >> 9}'
    f" -exec sh -c {_STAMP} sh {{}} + -o -type f -exec $s {{}} +"
)
# Says first where the copy is. What could not be copied whole takes no room from the commands.
_COPY = f"""{PLAINLY}b=${{TMPDIR-}}; case $b in /*) [ -d "$b" ] && [ -w "$b" ] || b=/tmp;; *) b=/tmp;; esac
a=$(df -Pk "$b" | {{ read -r x; read -r x x x a x; printf %s "$a"; }})
b=$b/{_NAME}; case "$b/" in "${{PWD%/}}"/*) exit 7;; esac
set -- $(du -sk . 2>/dev/null); [ "${{1:-0}}" -le {_MOST_KIB} ] || exit 8
case $a in ''|*[!0-9]*) ;; *) [ "${{1:-0}}" -le $((a/2)) ] || exit 10;; esac
printf '%s\n' "$b"; ( rm -rf "$b" && mkdir "$b" && cp -RPp . "$b/" && cd "$b" &&
find . -name .git -prune -exec rm -rf {{}} + && {{ {_SUMS}; }} ) || {{ s=$?; rm -rf "$b"; exit $s; }}"""
_WHY = {
    7: "the diff: the workspace holds the sandbox's folder for temporary files",
    8: f"the diff: the workspace was over {_MOST_KIB >> 10} MiB at its start",
    9: "the diff: the sandbox has neither cksum nor sha256sum nor md5sum",
    10: "the diff: the workspace would have taken over half of the room for temporary files at its start",
}
_ENTRY = rb"(?:\d+ \d+ |\\?[0-9a-f]{32,64}  )\./"
_SUM = re.compile(rb"^(\d+ \d+ |\\?[0-9a-f]{32,64}  )\./(.*(?:\n(?!%b|\Z).*)*)$" % _ENTRY, re.MULTILINE)
_ESCAPE = re.compile(rb"\\(.)")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


class WorkspaceDiff:
    """Remembers a workspace (`remember`), and says later what became of it (`text`).

    Attributes:
        left_out: why files that changed are not in the diff, one reason for each.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._why = "the diff: the workspace was not looked at"
        self._copy = ""
        self._before: dict[bytes, bytes] = {}
        self._room = _MOST_READ
        self.left_out: list[str] = []

    async def remember(self) -> None:
        """Copy the workspace aside, inside the sandbox. Raises SandboxError when that is gone."""
        cwd = self._sandbox.info.cwd
        result = await self._sandbox.exec(_COPY, timeout_s=_COPY_S, workdir=cwd, max_output=_MOST_LISTED)
        if result.exit_code or result.omitted:
            self._why = _WHY.get(result.exit_code, "the diff: the workspace could not be copied at its start")
        else:
            copy, _, sums = result.output.partition(b"\n")
            self._why, self._copy, self._before = "", quote(copy), sums_of(sums)

    async def text(self) -> bytes:
        """The diff; b"" when nothing changed. Raises ToolError with the reason why there is none."""
        if self._why:
            raise ToolError(self._why)
        aside = await self._sums(f"cd {self._copy} && {_SUMS}")
        if aside != self._before:
            raise ToolError("the diff: the copy of the workspace was changed meanwhile")
        after = await self._sums(_SUMS)
        changed = sorted(
            path for path in self._before.keys() | after.keys() if self._before.get(path) != after.get(path)
        )
        if len(changed) > _MOST_CHANGED:
            raise ToolError(f"the diff: over {_MOST_CHANGED} files changed")
        both = [await self._both(path, after) for path in changed]
        files = [each for each in both if each is not None]
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="hermes-run-diff") as pool:
            parts = await loop.run_in_executor(pool, lambda: [file_diff(*file) for file in files])
        return b"".join(parts)

    async def _sums(self, command: str) -> dict[bytes, bytes]:
        cwd = self._sandbox.info.cwd
        for _ in range(_LOOKS):
            result = await self._sandbox.exec(
                command, timeout_s=_COPY_S, workdir=cwd, max_output=_MOST_LISTED
            )
            if result.omitted or result.timed_out:
                raise ToolError("the diff: the workspace has too many files")
            if not result.exit_code:
                return sums_of(result.output)
        raise ToolError("the diff: the workspace could not be read to its end")

    async def _both(
        self, path: bytes, after: dict[bytes, bytes]
    ) -> tuple[bytes, bytes | None, bytes | None] | None:
        """The file before and after, where it is there; None for one that is left out."""
        old = await self._old(path) if path in self._before else b""
        new = await read_bytes(self._sandbox, path, _MOST_FILE) if path in after else b""
        if old is None or new is None:
            self.left_out.append(f"of the diff: unreadable, or over {_MOST_FILE >> 20} MiB")
            return None
        self._room -= len(old) + len(new)
        if self._room < 0:
            self.left_out.append(f"of the diff: over {_MOST_READ >> 20} MiB in all")
            return None
        return path, old if path in self._before else None, new if path in after else None

    async def _old(self, path: bytes) -> bytes | None:
        """What a file was; None for one that is too long, or cannot be read any more."""
        where = f"{PLAINLY}cd {self._copy} && head -c {_MOST_FILE + 1} <./"
        quoted = "'" + path.decode("utf-8", "surrogateescape").replace("'", "'\\''") + "'"
        result = await self._sandbox.exec(where + quoted, timeout_s=_COPY_S, max_output=_MOST_FILE + 4096)
        is_whole = not result.exit_code and len(result.output) <= _MOST_FILE
        return result.output if is_whole else None


def sums_of(output: bytes) -> dict[bytes, bytes]:
    """Path -> sum, of what cksum, sha256sum or md5sum printed. A path may hold newlines.

    GNU's sha256sum begins the line of a path with a newline or a backslash by a backslash, and escapes both.
    """
    found = {}
    for match in _SUM.finditer(output):
        path = match[2]
        if match[1].startswith(b"\\"):
            path = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[0]), path)
        found[path] = match[1]
    return found
