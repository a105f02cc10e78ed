"""Schemas of others: whatever they hold, arguments can be fitted to them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_run.tools.arguments import BadArguments, parse_arguments
from hermes_run.tools.schemas import sound_schema

NAMES = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "anyOf",
        "enum",
        "required",
        "additionalProperties",
        "minimum",
        "a",
        "$ref",
    ]
)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["object", "string", "array", "odd", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(ODD, st.dictionaries(st.sampled_from(["a", "type"]), ODD, max_size=2))
def test_no_schema_breaks_the_fitting_of_arguments(schema: Any, arguments: dict[str, Any]) -> None:
    whole = {"type": "object", "properties": {}, **sound_schema({"properties": {"a": schema}})}
    for each in (whole, {"type": "object", "properties": {}, **sound_schema(schema)}):
        with suppress(BadArguments):
            parse_arguments(json.dumps(arguments), each)


def test_a_usual_schema_stays_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "default": None},
            "b": {"anyOf": [{"type": "integer"}]},
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"x": {"type": "string"}},
    }
    assert sound_schema({**schema, "$schema": "http://json-schema.org/draft-07/schema#"}) == schema
    assert sound_schema({"properties": {"a": True}}) == {"properties": {"a": {}}}
