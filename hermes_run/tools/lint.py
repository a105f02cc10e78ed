"""Syntax checks of text by file kind, made on the host: the text is parsed, never run.

The result is a JSON object: `{"status": "ok"}`, `{"status": "error", "message": ...}` with the place of
the first fault, or `{"status": "skipped", "message": ...}` with the reason.
"""

from __future__ import annotations

import json
import sys
import tomllib
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CHARS = 200_000
"""Longer text is not checked: the Python compiler takes half a second for it, with the run waiting."""


def check_syntax(path: str, text: str) -> dict[str, str]:
    """Whether `text` is well-formed for a file named `path`."""
    _, dot, kind = path.rsplit("/", 1)[-1].rpartition(".")
    check = _CHECKS.get(kind.lower()) if dot else None
    if check is None:
        return {"status": "skipped", "message": "no syntax check for this kind of file"}
    if len(text) > MAX_CHARS:
        return {"status": "skipped", "message": f"not checked: longer than {MAX_CHARS} characters"}
    try:
        fault = _fault(check, text.removeprefix("\ufeff"))
    except (RecursionError, MemoryError):
        return {"status": "skipped", "message": "not checked: nested too deeply"}
    return {"status": "error", "message": fault} if fault else {"status": "ok"}


def _fault(check: Callable[[str], None], text: str) -> str:
    """The first fault that a check finds, or ""."""
    try:
        check(text)
    except SyntaxError as error:
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        return f"{error.msg} (line {error.lineno}, column {error.offset}; checked as {python})"
    except UnicodeError:
        return "the text is not valid UTF-8"
    except ValueError as error:  # JSON and TOML say the line and column themselves
        return str(error)
    return ""


def _check_python(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in a string is no fault of syntax
        compile(text, "<file>", "exec", dont_inherit=True)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _check_json(text: str) -> None:
    json.loads(text, parse_constant=_refuse)


def _check_json_lines(text: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                _check_json(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None


def _check_yaml(text: str) -> None:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text.encode()  # surrogates would be a confusing error of the C library
    try:
        # Events only: nothing is built, so aliases cannot multiply and tags mean nothing.
        for _ in yaml.parse(text, Loader=loader):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"{error.problem or error.context}{place}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _check_toml(text: str) -> None:
    tomllib.loads(text)


_CHECKS: dict[str, Callable[[str], None]] = {
    "py": _check_python,
    "pyi": _check_python,
    "json": _check_json,
    "ipynb": _check_json,
    "jsonl": _check_json_lines,
    "yaml": _check_yaml,
    "yml": _check_yaml,
    "toml": _check_toml,
}
"""File name ending -> a function that raises for text that is no such file."""
