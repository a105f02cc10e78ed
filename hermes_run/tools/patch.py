"""patch: replaces a text in a file, found by the nine strategies of `matching`, or applies a V4A patch."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools import matching
from hermes_run.tools.changeset import Changeset, read_text
from hermes_run.tools.lint import check_syntax
from hermes_run.tools.shell import bytes_of
from hermes_run.tools.stored import write_exactly
from hermes_run.tools.v4a import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_run.core.contracts import Sandbox, ToolSession

MAX_DIFF_CHARS = 20_000
_CONTEXT_LINES = 3
_MAX_DIFF_LINES = 10_000
_HUNK = re.compile(r"([-+])(\d+)(?=[, ])")


class Patch:
    """Changes files: one text by another, or several files in one go."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "patch",
        "Change files. Mode replace: old_string becomes new_string in the file at path; old_string should be "
        "the file's text with enough lines around it to be found once; small slips (indentation, spaces, "
        "quotes, escapes) are forgiven; when it stands in several places, give more context or set "
        "replace_all. Mode patch: `patch` changes several files in one go, all or none. The diff shows what "
        "was done.",
        {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "enum": ["replace", "patch"], "default": "replace"},
                "path": {
                    "type": "string",
                    "description": "replace: the file; relative to the working directory.",
                },
                "old_string": {"type": "string", "description": "replace: what stands there now."},
                "new_string": {"type": "string", "description": "replace: what is to stand there instead."},
                "replace_all": {
                    "type": "boolean",
                    "default": False,
                    "description": "replace: in every place.",
                },
                "patch": {
                    "type": "string",
                    "description": "patch: in V4A form, between *** Begin Patch and *** End Patch. Per file "
                    "*** Update File: PATH, *** Add File: PATH, *** Delete File: PATH or *** Move File: "
                    "OLD -> NEW. An update has hunks: @@ a line that stands before it @@, then lines that "
                    "begin with a space (context), - (removed) or + (added). Lines of an added file begin "
                    "with +.",
                },
            },
            "required": [],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        self._sandbox: Sandbox = session.sandbox

    @staticmethod
    def missing(machine: Any) -> str:
        """Nothing: it works in every sandbox."""
        del machine
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace, or apply a patch.

        Result: `success`, `diff` (unified, bounded), `files_modified`, `files_created`,
        `files_deleted`, `lint`; for replace `strategy` (how the place was found) and `replacements` (how
        many) besides. With mode patch `lint` is an object of them, by path.
        """
        is_patch = arguments.get("mode", "patch" if set(arguments) == {"patch"} else "replace") == "patch"
        wanted = ("patch",) if is_patch else ("path", "old_string", "new_string")
        for name in wanted:
            if name not in arguments:
                raise ToolError(
                    f'patch: missing parameter "{name}"; mode {"patch" if is_patch else "replace"} '
                    f"takes {', '.join(wanted)}"
                )
        return await (self._patch(arguments["patch"]) if is_patch else self._replace(arguments))

    async def _replace(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        path = arguments["path"]
        text = await read_text(self._sandbox, path)
        edit = Edit(text, path)
        after = edit.replaced(
            arguments["old_string"],
            arguments["new_string"],
            in_all_places=arguments.get("replace_all", False),
        )
        await write_exactly(self._sandbox, path, bytes_of(after))
        return {
            "success": True,
            "diff": diff(path, text, after),
            "files_modified": [path],
            "files_created": [],
            "files_deleted": [],
            "lint": check_syntax(path, after),
            "strategy": edit.strategy,
            "replacements": edit.replacements,
        }

    async def _patch(self, text: str) -> Mapping[str, Any]:
        changes = Changeset(self._sandbox)
        await changes.prove(parse(text))
        await changes.write()
        done = changes.done
        diffs = [
            diff(path, before, after)
            for part in (done.modified, done.created, done.deleted)
            for path, (before, after) in part.items()
        ]
        return {
            "success": True,
            "diff": cut("\n".join(part for part in diffs if part)),
            "files_modified": list(done.modified),
            "files_created": list(done.created),
            "files_deleted": list(done.deleted),
            "lint": {
                path: check_syntax(path, after)
                for path, (_, after) in {**done.modified, **done.created}.items()
            },
        }

    async def aclose(self) -> None:
        """Nothing to give back."""


class Edit:
    r"""One replacement in one text, whatever its line ends and byte order mark.

    The matching sees `\n` only; what is not replaced stays byte for byte, and what is new gets the line
    ends of what it replaces.
    """

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path
        self._bom = "\ufeff" if text.startswith("\ufeff") else ""
        body = text.removeprefix(self._bom)
        parts = body.split("\r\n")
        self._plain = "\n".join(parts)
        self._returns: list[int] = []  # where in the plain text a \r stood before the \n
        at = -1
        for part in parts[:-1]:
            at += len(part) + 1
            self._returns.append(at)
        self._is_crlf = len(self._returns) * 2 > self._plain.count("\n")
        self.strategy = ""
        self.replacements = 0

    def replaced(self, old: str, new: str, *, in_all_places: bool) -> str:
        """The text with `old` replaced by `new`. Raises ToolError when that is not clear."""
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        if not old:
            raise ToolError("old_string is empty; write_file writes a whole file")
        if old == new:
            raise ToolError("old_string and new_string are the same; nothing would change")
        found = matching.find(self._plain, old, new)
        if found is None:
            raise ToolError(
                f"old_string was not found in {self._path}{self._nearest(old)}; read the file again"
            )
        if len(found.places) > 1 and not in_all_places:
            raise ToolError(self._ambiguous(found))
        self.strategy, self.replacements = found.strategy, len(found.places)
        return self._put(zip(found.places, found.replacements, strict=True))

    def _put(self, edits: Iterable[tuple[matching.Place, str]]) -> str:
        body = self._text.removeprefix(self._bom)
        pieces: list[str] = [self._bom]
        at = 0
        for place, new in edits:
            start, end = (position + bisect_left(self._returns, position) for position in place)
            stood = body[start:end]
            newlines = stood.count("\n")
            is_crlf = stood.count("\r\n") * 2 > newlines if newlines else self._is_crlf
            pieces += [body[at:start], new.replace("\n", "\r\n") if is_crlf else new]
            at = end
        return "".join([*pieces, body[at:]])

    def _ambiguous(self, found: matching.Found) -> str:
        lines = [self._plain.count("\n", 0, place.start) + 1 for place in found.places]
        shown = ", ".join(str(line) for line in lines[:10]) + (", …" if len(lines) > 10 else "")
        return (
            f"old_string stands in {len(lines)} places in {self._path} (lines {shown}; {found.strategy} "
            "match); give more context so that it stands in one, or set replace_all"
        )

    def _nearest(self, old: str) -> str:
        """A hint at the line that is most like the first of the wanted text."""
        wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")
        lines = [line.strip()[:200] for line in self._plain.split("\n")[:3_000]]
        near = difflib.get_close_matches(wanted[:200], lines, n=1, cutoff=0.6) if wanted else []
        return f"; the nearest is line {lines.index(near[0]) + 1}: {near[0]}" if near else ""


def diff(path: str, before: str, after: str) -> str:
    """A unified diff of two texts, line ends aside, cut at MAX_DIFF_CHARS."""
    old, new = _diff_lines(before), _diff_lines(after)
    shorter = min(len(old), len(new))
    # difflib is quadratic: only what lies between the common start and end is compared.
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    first = max(0, head - _CONTEXT_LINES)
    last = max(0, tail - _CONTEXT_LINES)
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if len(old) + len(new) > _MAX_DIFF_LINES:
        return f"[left out: a diff of {len(old)} old and {len(new)} new lines]"
    name = path.lstrip("/")
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="", n=_CONTEXT_LINES)
    text = "\n".join(_moved(line, first) if line.startswith("@@ ") else line for line in lines)
    return cut(text)


def cut(text: str) -> str:
    """A diff within MAX_DIFF_CHARS, saying how much was left out."""
    if len(text) <= MAX_DIFF_CHARS:
        return text
    return text[:MAX_DIFF_CHARS] + f"\n[{len(text) - MAX_DIFF_CHARS} characters of the diff left out]"


def _diff_lines(text: str) -> list[str]:
    *lines, last = text.replace("\r\n", "\n").split("\n")
    return [*lines, last + "\n\\ No newline at end of file"] if last else lines


def _moved(header: str, by: int) -> str:
    """A hunk header with its line numbers moved."""
    return _HUNK.sub(lambda match: f"{match[1]}{int(match[2]) + by}", header)
