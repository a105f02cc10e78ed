"""One dataset row: what may stand in it, and what is wrong with it. Contract, section 3."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from msgspec import Struct

from hermes_run.core.keys import content_key
from hermes_run.core.registry import did_you_mean
from hermes_run.core.text import clean

WORK_FIELDS = ("image", "docker_image", "cwd", "setup", "files")
"""With the prompt, the columns that define a row's work; all others are carried in `metadata.row`."""

_decode = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_MEMBER = re.compile(rb'"[ \t\r\n]*:')


class BadRow(ValueError):
    """Why a row cannot be run."""


class Row(Struct, frozen=True):
    """A row that can be run. `rest` are its other columns as one JSON text."""

    prompt: str
    image: str = ""
    cwd: str = ""
    setup: tuple[str, ...] = ()
    files: dict[str, str] = {}
    row_id: str = ""
    rest: str = "{}"

    @property
    def key(self) -> str:
        """Its content key."""
        return content_key(self.prompt, image=self.image, cwd=self.cwd, setup=self.setup, files=self.files)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            raise BadRow(f'the key "{name}" stands twice')
        seen[name] = value
    return seen


def _refuse_constant(name: str) -> None:
    raise BadRow(f"{name} is no JSON value")


def _count_members(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_members, value.values()))
    if isinstance(value, list):
        return sum(map(_count_members, value))
    return 0


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line, refused when a key stands twice or a number is none.

    The fast decoder lets the last of two equal keys win and refuses lone surrogates, so a line in
    which either is possible is read by the slower one. Raises BadRow.
    """
    try:
        value = _decode(line)
        if isinstance(value, dict) and len(_MEMBER.findall(line)) == _count_members(value):
            return value
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise BadRow("it is nested too deeply") from None
    try:
        value = json.loads(
            line.decode("utf-8"), object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise BadRow(f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise BadRow(f"it is no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise BadRow("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise BadRow("it is no JSON object")
    return value


def _kind(value: Any) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return "null" if value is None else kinds.get(type(value), "an object")


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRow(f'"{name}" is {_kind(value)}; it takes a string')
    if "\x00" in value:
        raise BadRow(f'"{name}" holds a NUL character')
    return clean(value)


def _prompt(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if isinstance(value, str) and value:
        return clean(value)
    if field in row:
        what = "an empty string" if value == "" else _kind(value)
        raise BadRow(f'"{field}" is {what}; it takes a non-empty string')
    for other in ("messages", "conversations"):
        if other in row:
            raise BadRow(
                f'it has "{other}" and no "{field}"; put the first human turn into "{field}", '
                "or name its column with dataset.prompt_field"
            )
    raise BadRow(
        f'it has no "{field}"{did_you_mean(field, row)} (dataset.prompt_field names the column that holds it)'
    )


def _image(row: dict[str, Any]) -> str:
    image, docker_image = _text(row, "image"), _text(row, "docker_image")
    if image and docker_image and image != docker_image:
        raise BadRow(f'"image" is "{image}" and "docker_image" is "{docker_image}"; keep one of them')
    return image or docker_image


def _setup(row: dict[str, Any]) -> tuple[str, ...]:
    value = row.get("setup")
    commands = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(commands, list) or not all(isinstance(item, str) for item in commands):
        raise BadRow('"setup" takes a shell command or a list of them')
    if any("\x00" in item for item in commands):
        raise BadRow('"setup" holds a NUL character')
    return tuple(clean(item) for item in commands if item)


def _files(row: dict[str, Any]) -> dict[str, str]:
    value = row.get("files")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRow('"files" takes a map from a path in the workspace to its text')
    for path, text in value.items():
        if not isinstance(text, str):
            raise BadRow(f'"files": the text of "{path}" is {_kind(text)}; it takes a string')
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or "\x00" in path or not parts[-1] or parts[-1] == ".":
            raise BadRow(f'"files": "{path}" is no path inside the workspace (relative, without "..")')
    return {clean(path): clean(text) for path, text in value.items()}


def _row_id(row: dict[str, Any]) -> str:
    value = row.get("id")
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRow(f'"id" is {_kind(value)}; it takes a string or a number')
    return clean(str(value))


def _rest(line: bytes, row: dict[str, Any], field: str) -> str:
    """The other columns, their values as they were written (a number of 30 digits stays one)."""
    names = [name for name in row if name != field and name not in WORK_FIELDS]
    if not names:
        return "{}"
    try:
        raw = _decode_raw(line)
        return _encode({name: raw[name] for name in names}).decode()
    except (msgspec.MsgspecError, UnicodeError):
        try:
            return json.dumps({name: row[name] for name in names}, separators=(",", ":"), allow_nan=False)
        except ValueError:
            raise BadRow("it holds a number that is too large") from None


def parse_row(line: bytes, prompt_field: str = "prompt") -> Row:
    """The row of a line. Raises BadRow, whose text says what is wrong and what would be right."""
    row = parse_object(line)
    prompt = _prompt(row, prompt_field)
    if row.get("check") is not None:
        raise BadRow('"check" is not available yet in this version; leave it out')
    cwd = _text(row, "cwd")
    if cwd and not cwd.startswith("/"):
        raise BadRow(f'"cwd" is "{cwd}"; it takes an absolute path inside the sandbox')
    return Row(
        prompt, _image(row), cwd, _setup(row), _files(row), _row_id(row), _rest(line, row, prompt_field)
    )
