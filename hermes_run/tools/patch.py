"""patch: replaces a text in a file, found by the nine strategies of `matching`."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools import matching
from hermes_run.tools.lint import check_syntax
from hermes_run.tools.shell import bytes_of, text_of
from hermes_run.tools.stored import read_start, write_exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_run.core.contracts import Sandbox, ToolSession

_MAX_MIB = 8
MAX_BYTES = _MAX_MIB * 2**20
"""Larger files are refused: matching would hold up everything else."""

MAX_DIFF_CHARS = 20_000
_CONTEXT_LINES = 3
_MAX_DIFF_LINES = 10_000
_HUNK = re.compile(r"([-+])(\d+)(?=[, ])")


class Patch:
    """Replaces one text by another in a file."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "patch",
        "Replace old_string by new_string in a file. old_string should be the file's text with enough lines "
        "around it to be found once; small slips (indentation, spaces, quotes, escapes) are forgiven. When "
        "it stands in several places, give more context or set replace_all. The diff shows what was done.",
        {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "enum": ["replace"], "default": "replace"},
                "path": {"type": "string", "description": "The file; relative to the working directory."},
                "old_string": {"type": "string", "description": "What stands there now."},
                "new_string": {"type": "string", "description": "What is to stand there instead."},
                "replace_all": {
                    "type": "boolean",
                    "default": False,
                    "description": "Replace it in every place.",
                },
            },
            "required": ["path", "old_string", "new_string"],
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
        """Replace.

        Result: `success`, `diff` (unified, bounded), `files_modified`, `files_created`,
        `files_deleted`, `lint`, `strategy` (how the place was found), `replacements` (how many).
        """
        path = arguments["path"]
        before = await self._read(path)
        text = text_of(before)
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

    async def _read(self, path: str) -> bytes:
        data = await read_start(self._sandbox, path, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ToolError(f"{path} is larger than {_MAX_MIB} MiB; change it with sed in the terminal")
        if b"\0" in data[:8_000]:
            raise ToolError(f"{path} is a binary file; patch changes text only")
        return data

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
    if len(text) > MAX_DIFF_CHARS:
        text = text[:MAX_DIFF_CHARS] + f"\n[{len(text) - MAX_DIFF_CHARS} characters of the diff left out]"
    return text


def _diff_lines(text: str) -> list[str]:
    *lines, last = text.replace("\r\n", "\n").split("\n")
    return [*lines, last + "\n\\ No newline at end of file"] if last else lines


def _moved(header: str, by: int) -> str:
    """A hunk header with its line numbers moved."""
    return _HUNK.sub(lambda match: f"{match[1]}{int(match[2]) + by}", header)
