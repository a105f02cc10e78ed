"""The schemas of what a run writes: complete, strict, and in step with the types and the registry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import msgspec.inspect
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hermes_run.core.keys import split_key
from hermes_run.core.messages import Usage
from hermes_run.core.registry import TOOLS
from hermes_run.core.trajectory import DISCARDED_REASONS, FAILED_REASONS, Status, StopReason
from hermes_run.formats.record import TrajectoryRecord
from hermes_run.spec.schema import load_schema
from hermes_run.store.entry import Entry
from tests.trajectories import HEX, KEYS, TEXTS, USAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITTEN = ("manifest-entry", "trajectory", "statistics")
JSON_TYPES: dict[Any, str] = {
    msgspec.inspect.StrType: "string",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.FloatType: "number",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.VarTupleType: "array",
    msgspec.inspect.ListType: "array",
    msgspec.inspect.DictType: "object",
    msgspec.inspect.StructType: "object",
    msgspec.inspect.NoneType: "null",
}


def places(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from places(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from places(schema[name], f"{path}.{name}")


def json_type(kind: Any) -> Any:
    if isinstance(kind, msgspec.inspect.UnionType):
        return [JSON_TYPES[type(each)] for each in kind.types]
    return JSON_TYPES[type(kind)]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_schema_is_sound_titled_strict_and_says_what_each_field_is(name: str) -> None:
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    for path, inner in places(schema):
        if "properties" in inner:
            assert inner["additionalProperties"] is False, path
            assert inner["required"] == list(inner["properties"]), path
            assert all(each.get("description") for each in inner["properties"].values()), path


@pytest.mark.parametrize(("name", "kind"), [("manifest-entry", Entry), ("trajectory", TrajectoryRecord)])
def test_a_schema_has_the_fields_of_its_type_in_their_order_with_their_json_types(
    name: str, kind: Any
) -> None:
    def compare(kind: Any, schema: dict[str, Any], path: str) -> None:
        described: Any = msgspec.inspect.type_info(kind)
        assert [each.encode_name for each in described.fields] == list(schema["properties"]), path
        for each in described.fields:
            inner = schema["properties"][each.encode_name]
            where = f"{path}.{each.encode_name}"
            expected = json_type(each.type)
            found = inner["type"]
            assert sorted(found) == sorted(expected) if isinstance(expected, list) else found == expected, (
                where
            )
            deeper = getattr(each.type, "item_type", getattr(each.type, "value_type", each.type))
            below = inner.get("items", inner.get("additionalProperties"))
            if isinstance(deeper, msgspec.inspect.StructType):
                compare(deeper.cls, below if isinstance(below, dict) else inner, where)
            elif isinstance(below, dict):
                assert below["type"] == json_type(deeper), where

    compare(kind, load_schema(name), name)


def test_the_values_that_a_schema_allows_are_those_that_the_code_knows() -> None:
    entry, trajectory = load_schema("manifest-entry")["properties"], load_schema("trajectory")["properties"]
    reasons = (*(reason.value for reason in StopReason), *DISCARDED_REASONS, *FAILED_REASONS)
    assert entry["status"]["enum"] == [status.value for status in Status]
    assert sorted(entry["reason"]["enum"]) == sorted(reasons)
    stops = trajectory["metadata"]["properties"]["stop_reason"]["enum"]
    assert stops == [reason.value for reason in StopReason]
    assert (
        set(trajectory["tool_stats"]["required"])
        == set(trajectory["tool_error_counts"]["required"])
        == set(TOOLS)
    )
    outcomes = load_schema("statistics")["properties"]["outcomes"]["required"]
    assert outcomes == [*(status.value for status in Status), "invalid", "pending"]


@given(KEYS)
def test_every_rollout_key_fits_the_pattern(key: str) -> None:
    for name in ("manifest-entry", "trajectory"):
        assert re.search(load_schema(name)["properties"]["key"]["pattern"], key)
    assert split_key(key) is not None


ENTRIES = st.builds(
    Entry,
    key=KEYS,
    status=st.sampled_from([status.value for status in Status]),
    reason=st.sampled_from([*(reason.value for reason in StopReason), *DISCARDED_REASONS, *FAILED_REASONS]),
    hash=st.just("") | HEX,
    work=HEX,
    toolsets=st.lists(TEXTS).map(tuple),
    turns=st.integers(0, 99),
    api_calls=st.integers(0, 99),
    usage=USAGES,
    cost=st.none() | st.floats(0, 10),
    model=TEXTS,
    image_digest=TEXTS,
    error=TEXTS,
)


@given(ENTRIES)
def test_every_entry_fits_its_schema(entry: Entry) -> None:
    Draft202012Validator(load_schema("manifest-entry")).validate(
        msgspec.json.decode(msgspec.json.encode(entry))
    )


@pytest.mark.parametrize(
    "change",
    [
        {"key": "x"},
        {"status": "lost"},
        {"reason": "bored"},
        {"hash": "0"},
        {"turns": -1},
        {"cost": "1"},
        {"usage": {}},
        {"toolsets": [1]},
        {"offset": 5},
    ],
    ids=str,
)
def test_what_is_no_entry_does_not_fit(change: dict[str, Any]) -> None:
    good = {
        "key": "0" * 32 + "#0",
        "status": "failed",
        "reason": "image",
        "hash": "",
        "work": "0" * 32,
        "toolsets": ["file"],
        "turns": 0,
        "api_calls": 0,
        "usage": msgspec.to_builtins(Usage()),
        "cost": None,
        "model": "",
        "image_digest": "",
        "error": "no such image",
    }
    schema = Draft202012Validator(load_schema("manifest-entry"))
    assert schema.is_valid(good)
    assert not schema.is_valid(good | change)
    for name in good:
        assert not schema.is_valid({key: value for key, value in good.items() if key != name})
