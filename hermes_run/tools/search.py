"""search_files: looks for text in files, or for files by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools import search_output
from hermes_run.tools.globs import read_glob
from hermes_run.tools.patterns import read_regex
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
    from hermes_run.tools.globs import Glob
    from hermes_run.tools.patterns import Regex
    from hermes_run.tools.search_output import Line

DEFAULT_LIMIT = 50
MAX_LIMIT = 1_000
MAX_CONTEXT = 20
MAX_CHARS = 100_000
SEARCH_TIMEOUT_S = 120.0

_NO_RIPGREP = 69
_NO_REGEX = 65


class Seen(NamedTuple):
    """What a search has brought: file -> what was found in it, in order.

    `total` counts all results there are; None when there are more than could be counted.
    """

    files: dict[str, Any]
    total: int | None


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
        end = offset + min(arguments.get("limit", DEFAULT_LIMIT), MAX_LIMIT)
        if arguments.get("target", "content") == "files":
            seen = await query.names(read_glob(arguments["pattern"]))
            return _page("files", list(seen.files), offset, end, seen)
        query.regex = read_regex(arguments["pattern"])
        query.glob = read_glob(arguments.get("file_glob") or "*")
        query.has_ripgrep = self._has_ripgrep
        mode = arguments.get("output_mode", "content")
        if mode == "content":
            context = min(arguments.get("context", 0), MAX_CONTEXT)
            seen = await query.lines(context, end)
            items: list[Any] = [
                match for file, lines in seen.files.items() for match in _matches(file, lines, context)
            ]
            page = _page("matches", items, offset, end, seen)
        else:
            seen = await query.counts()
            items = list(seen.files) if mode == "files_only" else list(seen.files.items())
            page = _page("files" if mode == "files_only" else "counts", items, offset, end, seen)
            if mode == "count":
                page["counts"] = dict(page["counts"])
        self._has_ripgrep = query.has_ripgrep
        return page

    async def aclose(self) -> None:
        """Nothing to give back."""


class _Query:
    """Searches below one path.

    What comes unsorted is sorted here. When there is too much to fetch it is asked for once more, in
    order, so that what is seen never depends on chance.
    """

    regex: Regex
    glob: Glob

    def __init__(self, sandbox: Sandbox, path: str) -> None:
        self._sandbox = sandbox
        self._path = path
        self._is_file = False
        self.has_ripgrep = True
        """Whether the sandbox may have a ripgrep that can be used."""

    async def names(self, glob: Glob) -> Seen:
        """The files that a glob means."""
        self.glob = glob
        output, _ = await self._run(files_script(self._path, glob.names, in_order=False))
        is_all = len(output) < MAX_BYTES
        if not is_all:
            output, _ = await self._run(files_script(self._path, glob.names, in_order=True))
        found = self._meant({text_of(name[2:]): None for name in output.split(b"\0")[:-1]})
        return Seen(found, len(found) if is_all else None)

    async def lines(self, context: int, most: int) -> Seen:
        """The lines that match in each file: all, or at least the first `most`."""
        found, is_all = await self._ask(context)
        if is_all:
            return Seen(found, sum(line.matches for lines in found.values() for line in lines.values()))
        counts = await self.counts()
        found, _ = await self._ask(context, most)
        # ripgrep shows lines of a file before it sees that it is binary, but never counts them.
        found = {name: lines for name, lines in found.items() if name in counts.files or counts.total is None}
        return Seen(found, None if counts.total is None else sum(counts.files.values()))

    async def counts(self) -> Seen:
        """How many lines match in each file."""
        found, is_all = await self._ask(None)
        if not is_all:
            found, _ = await self._ask(None, 1)
        return Seen(found, len(found) if is_all else None)

    async def _ask(self, context: int | None, most: int = 0) -> tuple[dict[str, Any], bool]:
        """What is found in each file, and whether that is all."""
        asked = Asked(self._path, self.regex, self.glob.names, mark(), context, most)
        answer = await self._ripgrep(asked) if self.has_ripgrep else None
        output, status = answer or await self._grep(asked)
        parse = search_output.counts if context is None else search_output.lines
        return self._meant(parse(output, asked.mark.encode())), bool(status)

    async def _ripgrep(self, asked: Asked) -> tuple[bytes, bytes] | None:
        """Output and exit code of ripgrep, or None when there is none, or one that is too old."""
        output, exit_code = await self._run(ripgrep_script(asked))
        sign = asked.mark.encode()
        if exit_code != _NO_RIPGREP:
            output, status = search_output.status(output, sign)
            if status != b"2" or sign in output or b"\0" in output:
                return output, status
            if b"regex" in output.lower():
                raise ToolError(f"invalid regular expression: {text_of(output).strip()}")
        self.has_ripgrep = False
        return None

    async def _grep(self, asked: Asked) -> tuple[bytes, bytes]:
        if self.regex.only_ripgrep:
            raise ToolError(f"{self.regex.only_ripgrep} in a pattern needs ripgrep, which is not here")
        output, exit_code = await self._run(grep_script(asked))
        if exit_code == _NO_REGEX:
            raise ToolError(f"invalid regular expression: {text_of(output).strip()}")
        return search_output.status(output, asked.mark.encode())

    async def _run(self, script: str) -> tuple[bytes, int]:
        """Output and exit code of a script."""
        result = await run_script(
            self._sandbox, script, timeout_s=SEARCH_TIMEOUT_S, max_output=MAX_BYTES + 100_000
        )
        if result.exit_code not in (0, _NO_RIPGREP, _NO_REGEX):
            raise refuse(self._path, result)
        self._is_file = result.output.startswith(b"F")
        return result.output[2:], result.exit_code

    def _meant(self, files: Mapping[str, Any]) -> dict[str, Any]:
        """What the glob means of the files, sorted, named as seen from where the path is written."""
        names = [name for name in files if self.glob.path.fullmatch(name)]
        names.sort(key=lambda name: bytes_of(name).split(b"/"))
        folder = re.sub(r"^(?:\./+)+", "", self._path.rstrip("/") + "/")
        return {self._path if self._is_file else folder + name: files[name] for name in names}


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


def _page(kind: str, items: Sequence[Any], offset: int, end: int, seen: Seen) -> dict[str, Any]:
    """One page of the results. Where not all could be counted, `total_count` is what was."""
    page: list[Any] = []
    room = MAX_CHARS
    for item in items[offset:end]:
        room -= len(repr(item))
        if room < 0 and page:
            break
        page.append(item)
    total = len(items) if seen.total is None else seen.total
    next_offset = offset + len(page)
    result = {
        kind: page,
        "total_count": total,
        "truncated": next_offset < total or seen.total is None,
        "next_offset": next_offset if page and next_offset < total else None,
    }
    if seen.total is None or (not page and offset < total):
        result["note"] = "there is more than can be listed; narrow the search to see the rest"
    return result
