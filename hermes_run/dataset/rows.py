"""One dataset row: what may stand in it, and what is wrong with it. Contract, section 3."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hermes_run.core.images import is_local, plain_reference
from hermes_run.core.keys import content_key
from hermes_run.core.registry import did_you_mean
from hermes_run.core.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

WORK_FIELDS = ("image", "docker_image", "cwd", "setup", "files")
"""With the prompt and `images`, the columns that define a row's work; all but these are carried in
`metadata.row`, `images` among them."""

_MEANINGFUL = frozenset((*WORK_FIELDS, "images", "id", "check"))
"""Columns beside the prompt that are more than carried along."""

_decode = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_scan = json.JSONDecoder().raw_decode
_MEMBER = re.compile(rb'"[ \t\r\n]*:')
_SPACE = re.compile(r"[ \t\r\n]*")
_PICTURE = re.compile(r"https?://[^\s]+\Z|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*\Z")
_SHOWN_CHARS = 60
"""How much of a row's own text its error quotes."""
_MOST_COLUMNS = 8


class BadRow(ValueError):
    """Why a row cannot be run."""


def shown(text: str) -> str:
    """A text of the row, quoted, short, and without anything that a terminal would obey."""
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return f'"{"".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)}"'


class Row(Struct, frozen=True):
    """A row that can be run. `rest` are its other columns as one JSON text."""

    prompt: str
    image: str = ""
    cwd: str = ""
    setup: tuple[str, ...] = ()
    files: dict[str, str] = {}
    row_id: str = ""
    rest: str = "{}"
    images: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its content key."""
        return content_key(
            self.prompt,
            image=self.image,
            cwd=self.cwd,
            setup=self.setup,
            files=self.files,
            images=self.images,
        )


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            raise BadRow(f"the key {shown(name)} stands twice")
        seen[name] = value
    return seen


def _refuse_constant(name: str) -> None:
    raise BadRow(f"{name} is no JSON value")


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python's own limit, against numbers that take minutes to read
        raise BadRow("it holds a number of more than 4300 digits") from None


def _count_members(values: Iterable[Any]) -> int:
    """How many members the objects within some values have."""
    count = 0
    for value in values:
        if isinstance(value, dict):
            count += len(value) + _count_members(value.values())
        elif isinstance(value, list):
            count += _count_members(value)
    return count


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line, refused when a key stands twice or a number is none.

    The fast decoder lets the last of two equal keys win and refuses lone surrogates, so a line in
    which either is possible is read by the slower one. Raises BadRow.
    """
    try:
        value = _decode(line)
        if isinstance(value, dict):
            members = len(value) + _count_members(value.values())
            if members == len(_MEMBER.findall(line)):
                return value
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise BadRow("it is nested too deeply") from None
    try:
        value = json.loads(
            line.decode("utf-8"),
            object_pairs_hook=_refuse_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise BadRow(f"it is not UTF-8 (byte {error.start}); save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadRow(f"it is no JSON: {error.msg} at column {error.colno}{_as_lines(line)}") from None
    except RecursionError:
        raise BadRow("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise BadRow(f"it is no JSON object{_as_lines(line)}")
    return value


def _as_lines(line: bytes) -> str:
    """The cure where a line looks like the beginning of JSON that is laid out over several."""
    if line.startswith(b"["):
        return "; a row is one object on one line: jq -c '.[]' makes that of a list"
    return "; a row is one object on one line: jq -c . makes that" if line == b"{" else ""


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
    near = [name for name in row if len(name) <= _SHOWN_CHARS and name.isprintable()]
    hint = did_you_mean(field, near)
    if near and not hint:
        more = ", …" if len(row) > _MOST_COLUMNS else ""
        hint = f"; its columns: {', '.join(near[:_MOST_COLUMNS])}{more}"
    raise BadRow(f'it has no "{field}"{hint} (dataset.prompt_field names the column that holds it)')


def _image(row: dict[str, Any]) -> str:
    image, docker_image = _text(row, "image"), _text(row, "docker_image")
    if image and docker_image and image != docker_image:
        raise BadRow(
            f'"image" is {shown(image)} and "docker_image" is {shown(docker_image)}; keep one of them'
        )
    image = image or docker_image
    if image and not is_local(image):  # a local one is the backend's to judge, by the machine's settings
        try:
            plain_reference(image)
        except ValueError as why:
            raise BadRow(f'"image" is {shown(image)}; {why}') from None
    return image


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
            raise BadRow(f'"files": the text of {shown(path)} is {_kind(text)}; it takes a string')
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or "\x00" in path or not parts[-1] or parts[-1] == ".":
            raise BadRow(f'"files": {shown(path)} is no path inside the workspace (relative, without "..")')
    _refuse_clashes(value)
    return {clean(path): clean(text) for path, text in value.items()}


def _refuse_clashes(files: Iterable[str]) -> None:
    """Two paths of one place: what is there in the end would hang on the order of the keys."""
    places: dict[tuple[str, ...], str] = {}
    for path in files:
        place = tuple(part for part in path.split("/") if part not in ("", "."))
        other = places.setdefault(place, path)
        if other is not path:
            raise BadRow(f'"files": {shown(other)} and {shown(path)} are the same place')
    for place, path in places.items():
        folder = next((places[place[:n]] for n in range(1, len(place)) if place[:n] in places), None)
        if folder is not None:
            raise BadRow(
                f'"files": {shown(folder)} and {shown(path)} want the same place, as file and folder'
            )


def _images(row: dict[str, Any]) -> tuple[str, ...]:
    value = row.get("images")
    images = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(images, list) or not all(isinstance(item, str) for item in images):
        raise BadRow('"images" takes a list of addresses or data URLs; rename the column if it is another')
    for image in images:
        if not _PICTURE.match(image):
            raise BadRow(
                f'"images": {shown(image)} is no picture that can be sent; write https://… or '
                "data:image/png;base64,… (png, jpeg, gif or webp)"
            )
    return tuple(clean(image) for image in images)


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
    except msgspec.DecodeError:  # a lone surrogate
        spelled = _spelled(line.decode())
        return "{" + ",".join(f"{json.dumps(name)}:{spelled[name]}" for name in names) + "}"


def _spelled(text: str) -> dict[str, str]:
    """Key -> value as it is written, of an object that is known to be sound."""

    def skip_space(at: int) -> int:
        match = _SPACE.match(text, at)
        return match.end() if match else at

    spelled: dict[str, str] = {}
    at = skip_space(text.index("{") + 1)
    while text[at] != "}":
        name, at = _scan(text, at)
        start = skip_space(text.index(":", at) + 1)
        _, end = _scan(text, start)
        spelled[name] = text[start:end]
        at = skip_space(end)
        at = skip_space(at + 1) if text[at] == "," else at
    return spelled


def parse_row(line: bytes, prompt_field: str = "prompt") -> Row:
    """The row of a line. Raises BadRow, whose text says what is wrong and what would be right."""
    row = parse_object(line)
    return _row(row, _prompt(row, prompt_field), _rest(line, row, prompt_field))


def parse_work(line: bytes, prompt_field: str = "prompt") -> tuple[str, str]:
    """(content key, image) of the row of a line: all that planning needs of it. Raises BadRow likewise."""
    row = parse_object(line)
    prompt = _prompt(row, prompt_field)
    if _MEANINGFUL.isdisjoint(row):
        return content_key(prompt), ""
    parsed = _row(row, prompt, "{}")
    return parsed.key, parsed.image


def _row(row: dict[str, Any], prompt: str, rest: str) -> Row:
    if row.get("check") is not None:
        raise BadRow('"check" is not available yet in this version; leave it out')
    cwd = _text(row, "cwd")
    if cwd and not cwd.startswith("/"):
        raise BadRow(f'"cwd" is {shown(cwd)}; it takes an absolute path inside the sandbox')
    return Row(prompt, _image(row), cwd, _setup(row), _files(row), _row_id(row), rest, _images(row))
