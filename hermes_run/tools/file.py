"""read_file and write_file. All they need in the sandbox is a POSIX shell with coreutils or busybox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools.lint import check_syntax
from hermes_run.tools.shell import bytes_of, file_script, refuse, run_script, text_of
from hermes_run.tools.stored import BOM, read_start, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_run.core.contracts import Sandbox, ToolSession

MAX_CHARS = 100_000
MAX_LINE_CHARS = 2_000
MAX_LINES = 2_000
DEFAULT_LINES = 500

_CUT = f" … [line cut at {MAX_LINE_CHARS} characters]"
_SMALL_BYTES = 4 * MAX_CHARS  # a file up to here is fetched whole: no page of it can need more
_LINE_BYTES = 4 * MAX_LINE_CHARS + 4
_HEAD_BYTES = 8_000  # as git does: what has a NUL in here is binary

# A file of gigabytes is counted and cut where it is; 420,000 bytes are more than MAX_CHARS can show.
_PAGE = r"""
[ -f "$p" ] || explain
[ -r "$p" ] || exit 73
s=$(wc -c <"$p"); n=$(wc -l <"$p")
{{ if [ -n "$(tail -c 1 "$p")" ]; then n=$((n + 1)); fi; }} 2>/dev/null
echo "$((s)) $((n))"
tail -n +{offset} "$p" | head -n {limit} | cut -b 1-{width} | head -c 420000
"""


class ReadFile:
    """Shows a page of a text file with line numbers."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "read_file",
        "Read a text file. The lines come back numbered, as `N|text`, without their line ends. "
        f"At most {MAX_CHARS} characters and {MAX_LINE_CHARS} a line; when `truncated` is true, go on at "
        "`next_offset`. Binary files are refused.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file; relative to the working directory."},
                "offset": {
                    "type": "integer",
                    "minimum": 1,
                    "default": 1,
                    "description": "First line, from 1.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "default": DEFAULT_LINES,
                    "description": f"Lines at most; more than {MAX_LINES} counts as {MAX_LINES}.",
                },
            },
            "required": ["path"],
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
        """Read. Result: `content`, `total_lines`, `file_size` (bytes), `truncated`, `next_offset`."""
        path = arguments["path"]
        offset = arguments.get("offset", 1)
        limit = min(arguments.get("limit", DEFAULT_LINES), MAX_LINES)
        data = await read_start(self._sandbox, path, _SMALL_BYTES + 1)
        _refuse_binary(path, data[:_HEAD_BYTES])
        if len(data) <= _SMALL_BYTES:
            size = len(data)
            lines = _lines(data)
            total = len(lines)
            page = lines[offset - 1 : offset - 1 + limit]
        else:
            size, total, page = await self._page(path, offset, limit)
        if offset > max(total, 1):
            raise ToolError(f"offset {offset} is past the end: {path} has {total} lines")
        content, shown = _number(page, offset)
        next_line = offset + shown
        return {
            "content": content,
            "total_lines": total,
            "file_size": size,
            "truncated": next_line <= total,
            "next_offset": next_line if next_line <= total else None,
        }

    async def _page(self, path: str, offset: int, limit: int) -> tuple[int, int, list[str]]:
        """Size, number of lines, and some lines of a large file."""
        body = _PAGE.format(offset=offset, limit=limit, width=_LINE_BYTES)
        result = await run_script(self._sandbox, file_script(path, body), max_output=500_000)
        if result.exit_code:
            raise refuse(path, result)
        counts, _, data = result.output.partition(b"\n")
        size, total = (int(count) for count in counts.split())
        return size, total, _lines(data)

    async def aclose(self) -> None:
        """Nothing to give back."""


def _lines(data: bytes) -> list[str]:
    text = text_of(data.removeprefix(BOM))
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _number(lines: Iterable[str], first: int) -> tuple[str, int]:
    """The lines as `N|text` within the limits, and how many of them."""
    shown: list[str] = []
    room = MAX_CHARS
    for number, line in enumerate(lines, first):
        cut = line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - len(_CUT)] + _CUT
        numbered = f"{number}|{cut}"
        room -= len(numbered) + 1
        if room < 0:
            break
        shown.append(numbered)
    return "\n".join(shown), len(shown)


def _refuse_binary(path: str, head: bytes) -> None:
    """Raise ToolError when a file that starts like this is no text."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolError(f"{path} is UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8")
    controls = sum(byte < 32 and byte not in b"\t\n\r\f\b\x1b" for byte in head)
    if b"\0" in head or controls * 10 > len(head) * 3:
        raise ToolError(f"{path} is a binary file; use the terminal (file, strings, od) to look into it")


class WriteFile:
    """Writes a whole file."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "write_file",
        "Write a whole file, replacing what was there; missing folders are made. The old file's mode, byte "
        "order mark and line ends are kept. `lint` says whether the syntax is right (Python, JSON, YAML, "
        "TOML). To change a part of a file use patch.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file; relative to the working directory."},
                "content": {"type": "string", "description": "All that the file is to hold."},
            },
            "required": ["path", "content"],
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
        """Write. Result: `bytes_written`, `dirs_created`, `lint`, `files_modified`."""
        path, content = arguments["path"], arguments["content"]
        written = await write_whole(self._sandbox, path, bytes_of(content))
        return {
            "bytes_written": written.size,
            "dirs_created": written.made_folders,
            "lint": check_syntax(path, content),
            "files_modified": [path],
        }

    async def aclose(self) -> None:
        """Nothing to give back."""
