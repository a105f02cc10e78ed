"""Reads what the search scripts print (see `search_shell`): bytes in, lines by file out."""

from __future__ import annotations

import re
from typing import NamedTuple

from hermes_run.tools.shell import text_of

MAX_LINE_CHARS = 500

_CUT = " … [line cut]"
_COUNT = re.compile(rb"\./([^\0]*)\0([1-9]\d*)\n")
_AFTER_NUL = re.compile(rb"(?:--\n)?\./([^\0]*)\0(\d+)([:-])([^\n]*)\n")
_GREP_LINE = re.compile(rb"(\d+)([:-])(.*)")


class Line(NamedTuple):
    """A line of a file: one that matches, or one beside such a line."""

    text: str
    matches: bool


def status(output: bytes, mark: bytes) -> tuple[bytes, bytes]:
    """The output without its last line, and the exit code there; empty when the output was cut."""
    found = re.search(rb"\n" + mark + rb"(\d+)\n\Z", output)
    return (output[: found.start()] + b"\n", found[1]) if found else (output, b"")


def counts(output: bytes, mark: bytes) -> dict[str, int]:
    """File -> how many lines match."""
    del mark
    return {text_of(match[1]): int(match[2]) for match in _COUNT.finditer(output)}


def lines(output: bytes, mark: bytes) -> dict[str, dict[int, Line]]:
    """File -> line number -> line, of any engine's output."""
    if output.startswith(mark):
        return _lines_by_file(output, mark)
    return _lines_after_nul(output) if _AFTER_NUL.match(output) else _ripgrep_lines(output, mark)


def _ripgrep_lines(output: bytes, mark: bytes) -> dict[str, dict[int, Line]]:
    path = rb"\./((?:(?!" + mark + rb").)*?)"
    warning = re.compile(
        rb"^" + path + rb": (?:WARNING: stopped searching )?binary file [^\n]*\n", re.MULTILINE
    )
    binary = {match[1] for match in warning.finditer(output)}
    line = re.compile(path + mark + rb"([mc])(\d+)" + mark + rb"[mc]([^\n]*)\n", re.DOTALL)
    files: dict[str, dict[int, Line]] = {}
    for match in line.finditer(warning.sub(b"", output)):
        if match[1] not in binary:
            found = files.setdefault(text_of(match[1]), {})
            found[int(match[3])] = Line(_shown(match[4]), match[2] == b"m")
    return files


def _lines_after_nul(output: bytes) -> dict[str, dict[int, Line]]:
    files: dict[str, dict[int, Line]] = {}
    for match in _AFTER_NUL.finditer(output):
        found = files.setdefault(text_of(match[1]), {})
        found[int(match[2])] = Line(_shown(match[4]), match[3] == b":")
    return files


def _lines_by_file(output: bytes, mark: bytes) -> dict[str, dict[int, Line]]:
    files: dict[str, dict[int, Line]] = {}
    parts = output.split(mark)
    for path, body in zip(parts[1::2], parts[2::2], strict=False):
        found = files.setdefault(text_of(path.removeprefix(b"./")), {})
        for line in body.split(b"\n")[1:-1]:
            match = _GREP_LINE.match(line)
            if match:
                found[int(match[1])] = Line(_shown(match[3]), match[2] == b":")
    return {path: found for path, found in files.items() if found}


def _shown(line: bytes) -> str:
    text = text_of(line).removesuffix("\r")
    return text if len(text) <= MAX_LINE_CHARS else text[: MAX_LINE_CHARS - len(_CUT)] + _CUT
