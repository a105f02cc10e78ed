"""Several changes of files as one: all of them are proven first, and undone when one fails after all.

The proof reads every file concerned and asks whether its folder can be written; only then is anything
written. Nothing is deleted before the end: a file that goes is renamed within its folder until all is
done, so that undoing brings back the same file with its mode.
"""

from __future__ import annotations

import posixpath
import secrets
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.errors import ToolError
from hermes_run.tools.hunks import apply_hunks
from hermes_run.tools.shell import PRELUDE, bytes_of, file_script, path_word, refuse, run_script, text_of
from hermes_run.tools.stored import read_start, write_exactly

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hermes_run.core.contracts import Sandbox
    from hermes_run.tools.v4a import FileChange

_MAX_MIB = 8
MAX_BYTES = _MAX_MIB * 2**20
"""Larger files are refused: matching would hold up everything else."""

_CAN_CHANGE = r"""
[ -f "$p" ] || [ -L "$p" ] || explain
d=${p%/*}; d=${d:-/}
{ [ -r "$p" ] && [ -w "$d" ]; } || exit 73
"""
# Prints the topmost folder that has to be made, or nothing.
_CAN_ADD = r"""
[ ! -d "$p" ] || exit 71
if [ -e "$p" ] || [ -L "$p" ]; then echo 'there is a file already'; exit 75; fi
case $p in */) echo 'the path names a directory'; exit 75 ;; esac
d=${p%/*}; d=${d:-/}; top=
while [ ! -e "$d" ]; do
  top=$d
  case $d in */*) d=${d%/*}; d=${d:-/} ;; *) d=. ;; esac
done
if [ ! -d "$d" ]; then echo "$d is no directory"; exit 75; fi
[ -w "$d" ] || exit 73
printf '%s' "$top"
"""
# Prints where the file "$p" really is, also one that is not there yet; with "$l" a link's target.
_WHERE = r"""
where() {
  if [ "$l" ] && [ -L "$p" ] && t=$(readlink -f "$p" && echo .); then printf '%s\0' "${t%??}"; return; fi
  d=${p%/*}; d=${d:-/}; n=${p##*/}
  while [ ! -d "$d" ] && [ "$d" != / ]; do n=${d##*/}/$n; d=${d%/*}; d=${d:-/}; done
  t=$(cd -P "$d" && pwd -P && echo .) && t=${t%??} && printf '%s\0' "${t%/}/$n" || printf '%s\0' "$p"
}
"""


class Done(Struct):
    """What a changeset did: path -> text before and after ("" where there was or is none)."""

    modified: dict[str, tuple[str, str]]
    created: dict[str, tuple[str, str]]
    deleted: dict[str, tuple[str, str]]


def _is_edit(change: FileChange) -> bool:
    """Whether it changes a file's text and not its name: then a link stands for its target."""
    return change.act == "update" and not change.target


async def read_text(sandbox: Sandbox, path: str) -> str:
    """A text file, whole. Raises ToolError when it is none, or too large to be patched."""
    data = await read_start(sandbox, path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ToolError(f"{path} is larger than {_MAX_MIB} MiB; change it with sed in the terminal")
    if b"\0" in data[:8_000]:
        raise ToolError(f"{path} is a binary file; patch changes text only")
    return text_of(data)


class Changeset:
    """The files as they will be. `prove` all changes, then `write` them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._now: dict[str, str | None] = {}  # path -> text after the changes so far; None: no file
        self._steps: list[Callable[[], Awaitable[None]]] = []
        self._undo: list[str] = []  # shell text, the last to be run first
        self._restore: list[tuple[str, str]] = []
        self._places: dict[tuple[str, bool], str] = {}  # of the files that the patch names in several ways
        self._gone: list[str] = []
        self.done = Done({}, {}, {})

    async def prove(self, changes: Sequence[FileChange]) -> None:
        """Work out every change. Raises ToolError for the first that cannot be; nothing is written."""
        await self._find_names(changes)
        for change in changes:
            path = self._path(change.path, is_edit=_is_edit(change))
            match change.act:
                case "add":
                    await self._prove_new(path)
                    self._plan_write(path, None, change.content)
                case "delete":
                    self._plan_delete(path, await self._text(path, or_binary=True))
                case "move":
                    await self._plan_move(path, self._path(change.target))
                case "update":
                    before = await self._text(path)
                    after = apply_hunks(before, change.hunks, path)
                    if after != before:
                        self._plan_write(path, before, after)
                    if change.target:
                        await self._plan_move(path, self._path(change.target))

    async def _find_names(self, changes: Sequence[FileChange]) -> None:
        """Find the files that have several names in a patch: each change has to see the ones before it."""
        named = {(posixpath.normpath(change.path), _is_edit(change)) for change in changes}
        named |= {(posixpath.normpath(change.target), False) for change in changes if change.target}
        if len({path for path, _ in named}) == 1:
            return
        names = sorted(named)
        asked = "".join(f"p={path_word(path)} l={'1' * is_edit}\nwhere\n" for path, is_edit in names)
        result = await run_script(self._sandbox, f"{PRELUDE}{_WHERE}{asked}", max_output=1_000_000)
        found = dict(zip(names, text_of(result.output).split("\0"), strict=False))
        paths: dict[str, set[str]] = {}
        for (path, _), place in found.items():
            paths.setdefault(place, set()).add(path)
        self._places = {name: place for name, place in found.items() if len(paths[place]) > 1}

    def _path(self, path: str, *, is_edit: bool = False) -> str:
        path = posixpath.normpath(path)
        return self._places.get((path, is_edit), path)

    async def _text(self, path: str, *, or_binary: bool = False) -> str:
        """A file's text as the changes so far leave it; "" for one that is no text, where that will do."""
        if path in self._now:
            text = self._now[path]
            if text is None:
                raise ToolError(f"there is no file {path} any more: the patch took it away before")
            return text
        result = await run_script(self._sandbox, file_script(path, _CAN_CHANGE), max_output=500_000)
        if result.exit_code:
            raise refuse(path, result)
        try:
            text = await read_text(self._sandbox, path)
        except ToolError:
            if not or_binary:
                raise
            return ""
        self._now[path] = text
        return text

    async def _prove_new(self, path: str) -> None:
        """That a file can be made there; its missing folders are noted for undoing."""
        if self._now.get(path, "") is None:
            return  # the patch itself took away what was there
        if path in self._now:
            raise ToolError(f"{path}: there is a file already; use *** Update File")
        result = await run_script(self._sandbox, file_script(path, _CAN_ADD), max_output=10_000)
        if result.exit_code == 75 and result.output.startswith(b"there is a file"):
            raise ToolError(f"{path}: there is a file already; use *** Update File, or delete it first")
        if result.exit_code:
            raise refuse(path, result)
        top = text_of(result.output)
        if top:
            # deepest first; what somebody else put there meanwhile stays
            self._undo.append(f"find {path_word(top)} -depth -type d -exec rmdir {{}} ';'")

    def _plan_write(self, path: str, before: str | None, after: str) -> None:
        self._now[path] = after
        done = self.done
        if before is None and path in done.deleted:
            done.modified[path] = (done.deleted.pop(path)[0], after)
        else:
            part = done.created if before is None or path in done.created else done.modified
            part[path] = (part.get(path, (before or "", ""))[0], after)

        async def write() -> None:
            await write_exactly(self._sandbox, path, bytes_of(after))
            if before is None:
                self._undo.append(f"rm -f {path_word(path)}")
            else:
                self._restore.append((path, before))
                self._undo.append("")

        self._steps.append(write)

    def _plan_delete(self, path: str, text: str) -> None:
        self._now[path] = None
        if self.done.created.pop(path, None) is None:
            old, _ = self.done.modified.pop(path, (text, ""))
            self.done.deleted[path] = (old, "")
        aside = posixpath.join(posixpath.dirname(path), f".hermes-{secrets.token_hex(6)}.gone")

        async def delete() -> None:
            await self._shell(path, f"mv {path_word(path)} {path_word(aside)}")
            self._gone.append(aside)
            self._undo.append(f"mv -f {path_word(aside)} {path_word(path)}")

        self._steps.append(delete)

    async def _plan_move(self, path: str, target: str) -> None:
        text = await self._text(path, or_binary=True)
        if path == target:
            raise ToolError(f"{path} is moved to itself; give another name")
        await self._prove_new(target)
        self._now[path], self._now[target] = None, text
        old, _ = self.done.modified.pop(path, (text, ""))
        if self.done.created.pop(path, None) is None:
            self.done.deleted[path] = (old, "")
        self.done.created[target] = ("", text)
        folder = posixpath.dirname(target)

        async def move() -> None:
            made = f"mkdir -p {path_word(folder)} && " if folder else ""
            await self._shell(path, f"{made}mv {path_word(path)} {path_word(target)}")
            self._undo.append(f"mv -f {path_word(target)} {path_word(path)}")

        self._steps.append(move)

    async def write(self) -> None:
        """Do all of it. Raises ToolError, everything undone, when the sandbox refuses a part."""
        try:
            for step in self._steps:
                await step()
        except ToolError as error:
            await self._undo_all()
            raise ToolError(f"{error}; everything is as it was before the patch") from error
        if self._gone:
            await self._shell("", "rm -f " + " ".join(map(path_word, self._gone)))

    async def _undo_all(self) -> None:
        for command in reversed(self._undo):
            if command:
                await run_script(self._sandbox, f"{PRELUDE}{command} 2>/dev/null", max_output=1_000)
            else:
                path, text = self._restore.pop()
                await write_exactly(self._sandbox, path, bytes_of(text))

    async def _shell(self, path: str, command: str) -> None:
        result = await run_script(self._sandbox, PRELUDE + command, max_output=10_000)
        if result.exit_code:
            raise refuse(path, result)
