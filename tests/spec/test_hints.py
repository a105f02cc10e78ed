"""Type hints as people write them -> JSON Schema, without running anything."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from hermes_run.spec.hints import NoSchema, names_of, schema_of

FILE = '''
import typing as t
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import ClassVar, Literal, NotRequired, TypeAlias, TypedDict

Unit = Literal["celsius", "fahrenheit"]
Units: TypeAlias = "list[Unit]"
number = 3

class Colour(Enum):
    """Which."""
    RED = "red"
    BLUE = "blue"
    _ignore_ = []

class Level(IntEnum):
    LOW = 1
    HIGH = 2

class Odd(Enum):
    NOW = make()

@dataclass(frozen=True)
class Place:
    city: str
    colours: list[Colour] = field(default_factory=list)
    days: int = field()
    found: int = field(init=False, default=0)
    kind: ClassVar[str] = "x"

class Row(TypedDict):
    a: int
    b: NotRequired[str]

class Loose(TypedDict, total=False):
    a: int

@dataclass
class Tree:
    children: list["Tree"]

class Plain:
    x: int
'''
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
COLOUR = {"type": "string", "enum": ["red", "blue"]}
PLACE = {
    "type": "object",
    "properties": {"city": TEXT, "colours": {"type": "array", "items": COLOUR}, "days": WHOLE},
    "required": ["city", "days"],
    "additionalProperties": False,
}
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
SCHEMAS: dict[str, Any] = {
    "Unit": UNIT,
    "Unit | None": {"anyOf": [UNIT, {"type": "null"}]},
    "Units": {"type": "array", "items": UNIT},
    "Colour": COLOUR,
    "Level": {"type": "integer", "enum": [1, 2]},
    "Place": PLACE,
    "'Place'": PLACE,
    "t.Sequence[str]": {"type": "array", "items": TEXT},
    "t.Mapping[str, int]": {"type": "object", "additionalProperties": WHOLE},
    "tuple[int, ...]": {"type": "array", "items": WHOLE},
    "tuple[()]": {"type": "array", "items": {}, "minItems": 0, "maxItems": 0},
    "tuple[int, int]": {"type": "array", "items": WHOLE, "minItems": 2, "maxItems": 2},
    "tuple[int, str]": {
        "type": "array",
        "items": {"type": ["integer", "string"]},
        "minItems": 2,
        "maxItems": 2,
    },
    "t.Annotated[int, 'how many', 5]": {"type": "integer", "description": "how many"},
    "object": {},
    "None": {"type": "null"},
}


def schema(hint: str) -> dict[str, Any]:
    return schema_of(ast.parse(hint, mode="eval").body, names_of(ast.parse(FILE)))


@pytest.mark.parametrize("hint", SCHEMAS)
def test_hint_has_the_schema_that_it_means(hint: str) -> None:
    assert schema(hint) == SCHEMAS[hint]


def test_fields_of_typed_dicts_may_be_left_out() -> None:
    assert schema("Row")["required"] == ["a"]
    assert schema("Loose")["required"] == []


@pytest.mark.parametrize(
    "hint",
    [
        *("Odd", "Tree", "Plain", "Unknown", "number", "set[str]", "bytes", "dict[int, str]"),
        *("list[()]", "t.Annotated[()]", "t.Union[()]", "t.Literal[()]"),
    ],
)
def test_what_has_no_schema_is_refused(hint: str) -> None:
    with pytest.raises(NoSchema):
        schema(hint)
