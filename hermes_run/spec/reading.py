"""Files of YAML and JSON that people write: small, UTF-8, and with a reason when they cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.core.registry import did_you_mean
from hermes_run.spec.locate import Mistakes, Node, Place, Source, shown
from hermes_run.spec.yaml_tree import parse_yaml

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE_BYTES = 1_048_576
"""A spec is read by people; a bigger file is a dataset in the wrong place."""


def read_text(path: Path, source: Source, mistakes: Mistakes) -> str | None:
    """The text of a small UTF-8 file, or None after noting why there is none."""
    whole = Place(source)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        mistakes.add(whole, (), f"there is no such file{nearest_file(path)}; check the path")
        return None
    except IsADirectoryError:
        mistakes.add(whole, (), "is a folder; name a file in it")
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        mistakes.add(whole, (), f"cannot be read: {reason}; check the path and its permissions")
        return None
    if len(data) > MAX_FILE_BYTES:
        mistakes.add(whole, (), f"is larger than {MAX_FILE_BYTES} bytes; is this the right file?")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        mistakes.add(
            Place(source, line, column),
            (),
            f"is not UTF-8 (byte 0x{data[error.start]:02x}); save it as UTF-8",
        )
        return None


def nearest_file(path: Path) -> str:
    """`; did you mean "x.yaml"?`, from the names in the same folder."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except (OSError, ValueError):
        return ""
    # Equal suffixes make any two names alike: there the rest decides.
    stems = {name.removesuffix(path.suffix): name for name in names if name.endswith(path.suffix)}
    hint = did_you_mean(path.stem, stems)
    if hint:
        return f"; did you mean {shown(stems[hint.split(chr(34))[1]])}"
    return did_you_mean(path.name, [name for name in names if not name.endswith(path.suffix)]).removesuffix(
        "?"
    )


def read_file(path: Path, source: Source, mistakes: Mistakes, *, may_be_empty: bool = False) -> Node | None:
    """The tree of a YAML file whose root is a map, or None after noting what is wrong.

    With `may_be_empty`, None without a mistake is a file that says nothing.
    """
    text = read_text(path, source, mistakes)
    if text is None:
        return None
    before = len(mistakes)
    node = parse_yaml(text, source, mistakes)
    if node is None or (node.value is None and not node.written):
        if len(mistakes) == before and not may_be_empty:
            mistakes.add(Place(source), (), "is empty; write at least the required keys")
        return None
    if not isinstance(node.value, dict):
        mistakes.add(
            node.place, (), f"must be a map of keys and values, not {shown(node.value)}; write key: value"
        )
        return None
    return node
