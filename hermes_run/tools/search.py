"""search_files: looks for text in files, or for files by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools import search_output
from hermes_run.tools.patterns import read_glob, read_regex
from hermes_run.tools.search_shell import (
    MAX_BYTES,
    SKIPPED,
    Asked,
    files_script,
    grep_script,
    ripgrep_script,
)
from hermes_run.tools.shell import bytes_of, mark, refuse, run_script, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hermes_run.core.contracts import Sandbox, ToolSession
    from hermes_run.tools.patterns import Glob, Regex
    from hermes_run.tools.search_output import Line

DEFAULT_LIMIT = 50
MAX_LIMIT = 1_000
MAX_CONTEXT = 20
MAX_CHARS = 100_000
SEARCH_TIMEOUT_S = 120.0

_NO_RIPGREP = 69


class Seen(NamedTuple):
    """What a search has brought: file -> what was found in it, in order.

    `is_file`: a single file was searched. `is_all`: nothing was left out.
    """

    files: dict[str, Any]
    is_file: bool
    is_all: bool


class SearchFiles:
    """Searches the contents or the names of files."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "search_files",
        "Search in files, or for files. target content: `pattern` is a regular expression, looked for in "
        "each line of text files. target files: `pattern` is a glob for names such as *.py or "
        f"src/**/*.ts. Hidden files are searched; {', '.join(SKIPPED)} and binary files are not. Results "
        "are sorted by path; go on at `next_offset`.",
        {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "A regular expression, or a glob."},
                "target": {"type": "string", "enum": ["content", "files"], "default": "content"},
                "path": {"type": "string", "default": ".", "description": "Where: a directory or a file."},
                "file_glob": {"type": "string", "description": "Search only in files of this glob."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "default": DEFAULT_LIMIT,
                    "description": f"Results at most; more than {MAX_LIMIT} counts as {MAX_LIMIT}.",
                },
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "default": 0,
                    "description": "How many results to leave out at the start.",
                },
                "output_mode": {
                    "type": "string",
                    "enum": ["content", "files_only", "count"],
                    "default": "content",
                    "description": "Matching lines, files that match, or how many lines match in each.",
                },
                "context": {
                    "type": "integer",
                    "minimum": 0,
                    "default": 0,
                    "description": f"Lines before and after each match; more than {MAX_CONTEXT} counts as "
                    f"{MAX_CONTEXT}.",
                },
            },
            "required": ["pattern"],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        self._sandbox: Sandbox = session.sandbox
        self._has_ripgrep = True  # until the sandbox says otherwise

    @staticmethod
    def missing(machine: Any) -> str:
        """Nothing: find and grep are everywhere."""
        del machine
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Search.

        Result: `matches[] {path, line, content}` (with context also `before[]` and `after[]`), or
        `files[]`, or `counts {path: lines}`; and `total_count`, `truncated`, `next_offset`.
        """
        query = _Query(self._sandbox, arguments.get("path") or ".")
        offset = arguments.get("offset", 0)
        limit = min(arguments.get("limit", DEFAULT_LIMIT), MAX_LIMIT)
        if arguments.get("target", "content") == "files":
            seen = await query.names(read_glob(arguments["pattern"]))
            return _page("files", list(seen.files), offset, limit, seen)
        regex = read_regex(arguments["pattern"])
        glob = read_glob(arguments.get("file_glob") or "*")
        mode = arguments.get("output_mode", "content")
        context = min(arguments.get("context", 0), MAX_CONTEXT) if mode == "content" else None
        seen, self._has_ripgrep = await query.contents(regex, glob, context, with_ripgrep=self._has_ripgrep)
        if mode == "files_only":
            return _page("files", list(seen.files), offset, limit, seen)
        if mode == "count":
            page = _page("counts", list(seen.files.items()), offset, limit, seen)
            return {**page, "counts": dict(page["counts"])}
        matches = [
            match for file, lines in seen.files.items() for match in _matches(file, lines, context or 0)
        ]
        return _page("matches", matches, offset, limit, seen)

    async def aclose(self) -> None:
        """Nothing to give back."""


class _Query:
    """Searches below one path."""

    def __init__(self, sandbox: Sandbox, path: str) -> None:
        self._sandbox = sandbox
        self._path = path

    async def names(self, glob: Glob) -> Seen:
        """The files that a glob means."""
        for in_order in (False, True):  # in order only when there are too many to fetch
            is_file, output, _ = await self._run(files_script(self._path, glob.names, in_order=in_order))
            is_all = len(output) < MAX_BYTES
            if is_all:
                break
        found = (text_of(name.removeprefix(b"./")) for name in output.split(b"\0")[:-1])
        return self._seen(dict.fromkeys(found), glob, is_file=is_file, is_all=is_all)

    async def contents(
        self, regex: Regex, glob: Glob, context: int | None, *, with_ripgrep: bool
    ) -> tuple[Seen, bool]:
        """The lines that match in each file, or with `context` None their number.

        Returns also whether the sandbox has a ripgrep that can be used.
        """
        for in_order in (False, True):
            asked = Asked(self._path, regex, glob.names, mark(), context, in_order)
            found = await self._ripgrep(asked) if with_ripgrep else None
            with_ripgrep = found is not None
            is_file, output, status = found or await self._grep(asked)
            if status:
                break
        parse = search_output.counts if context is None else search_output.lines
        files = parse(output, asked.mark.encode())
        return self._seen(files, glob, is_file=is_file, is_all=bool(status)), with_ripgrep

    async def _ripgrep(self, asked: Asked) -> tuple[bool, bytes, bytes] | None:
        """What ripgrep says, or None when the sandbox has none, or one that is too old."""
        is_file, output, exit_code = await self._run(ripgrep_script(asked))
        if exit_code == _NO_RIPGREP:
            return None
        output, status = search_output.status(output, asked.mark.encode())
        if status == b"2" and asked.mark.encode() not in output and b"\0" not in output:
            if b"regex" not in output.lower():
                return None
            raise ToolError(f"invalid regular expression: {text_of(output).strip()}")
        return is_file, output, status

    async def _grep(self, asked: Asked) -> tuple[bool, bytes, bytes]:
        if asked.regex.only_ripgrep:
            raise ToolError(f"{asked.regex.only_ripgrep} in a pattern needs ripgrep, which is not here")
        is_file, output, _ = await self._run(grep_script(asked))
        return is_file, *search_output.status(output, asked.mark.encode())

    async def _run(self, script: str) -> tuple[bool, bytes, int]:
        """Whether it is a file that is searched, the output, the exit code."""
        result = await run_script(
            self._sandbox, script, timeout_s=SEARCH_TIMEOUT_S, max_output=MAX_BYTES + 100_000
        )
        if result.exit_code not in (0, _NO_RIPGREP):
            raise refuse(self._path, result)
        return result.output.startswith(b"F"), result.output[2:], result.exit_code

    def _seen(self, files: Mapping[str, Any], glob: Glob, *, is_file: bool, is_all: bool) -> Seen:
        """What the glob means of the files, sorted, named as seen from where the path is written."""
        meant = [name for name in files if glob.path.fullmatch(name)]
        meant.sort(key=lambda name: bytes_of(name).split(b"/"))
        folder = re.sub(r"^(?:\./+)+", "", self._path.rstrip("/") + "/")
        named = {self._path if is_file else folder + name: files[name] for name in meant}
        return Seen(named, is_file, is_all)


def _matches(file: str, lines: Mapping[int, Line], context: int) -> Iterator[dict[str, Any]]:
    """Each match of a file, with the lines around it."""
    for number, line in sorted(lines.items()):
        if not line.matches:
            continue
        match = {"path": file, "line": number, "content": line.text}
        if context:
            before = range(number - context, number)
            after = range(number + 1, number + context + 1)
            match["before"] = [f"{n}|{lines[n].text}" for n in before if n in lines]
            match["after"] = [f"{n}|{lines[n].text}" for n in after if n in lines]
        yield match


def _page(kind: str, items: Sequence[Any], offset: int, limit: int, seen: Seen) -> dict[str, Any]:
    """One page of the results; `total_count` counts all of them that were fetched."""
    page: list[Any] = []
    room = MAX_CHARS
    for item in items[offset : offset + limit]:
        room -= len(repr(item))
        if room < 0 and page:
            break
        page.append(item)
    end = offset + len(page)
    result = {
        kind: page,
        "total_count": len(items),
        "truncated": end < len(items) or not seen.is_all,
        "next_offset": end if end < len(items) else None,
    }
    if not seen.is_all:
        result["note"] = f"there is more than these {len(items)}; narrow the search to see the rest"
    return result
