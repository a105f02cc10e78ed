"""A call's arguments: coerced where there is one meaning, refused by name where there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.tools.arguments import BadArguments, parse_arguments

TEXT = {"type": "string"}
WHOLE = {"type": "integer", "minimum": 1, "maximum": 100}
REAL = {"type": "number"}
YES_NO = {"type": "boolean"}
LIST = {"type": "array", "items": TEXT, "maxItems": 3}
NUMBERS = {"type": "array", "items": {"type": "integer"}}
OBJECT = {"type": "object", "properties": {"n": WHOLE}, "required": ["n"], "additionalProperties": False}
MAP = {"type": "object", "additionalProperties": NUMBERS}
NEEDY = {"type": "object", "required": ["n"]}
CLOSED = {"type": "object", "additionalProperties": False}
KIND = {"type": "string", "enum": ["one", "two"]}
EITHER = {"type": ["integer", "string"]}
ANY_OF = {"anyOf": [{"type": "integer"}, {"type": "null"}]}


def parse(text: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return parse_arguments(text, {"type": "object", "properties": properties, "required": list(required)})


@pytest.mark.parametrize(
    ("schema", "written", "meant"),
    [
        (WHOLE, '"42"', 42),
        (WHOLE, '" 42 "', 42),
        (WHOLE, "42.0", 42),
        (WHOLE, '"42.0"', 42),
        (WHOLE, "42", 42),
        (REAL, '"1.5"', 1.5),
        (REAL, '"1e2"', 100.0),
        (REAL, '"-7"', -7),
        (REAL, "7", 7),
        (YES_NO, '"true"', True),
        (YES_NO, '"False"', False),
        (YES_NO, "true", True),
        (TEXT, "42", "42"),
        (TEXT, "4.5", "4.5"),
        (TEXT, '"42"', "42"),
        (TEXT, '"true"', "true"),
        (LIST, '"a"', ["a"]),
        (LIST, "7", ["7"]),
        (LIST, '["a", 7]', ["a", "7"]),
        (LIST, '"[\\"a\\", \\"b\\"]"', ["a", "b"]),
        (LIST, '"[not json"', ["[not json"]),
        (NUMBERS, '"5"', [5]),
        (NUMBERS, '["5", 6]', [5, 6]),
        ({"type": "array", "items": OBJECT}, '{"n": "3"}', [{"n": 3}]),
        (OBJECT, '"{\\"n\\": 3}"', {"n": 3}),
        (MAP, '{"a": ["1", 2], "b": "3"}', {"a": [1, 2], "b": [3]}),
        ({"anyOf": [MAP, {"type": "null"}]}, '{"a": "1"}', {"a": [1]}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5", 5),
        ({"anyOf": [{"type": "array"}, {"type": "string"}]}, '"x"', "x"),
        ({"anyOf": [{"type": "array"}, {"type": "integer"}]}, '"x"', ["x"]),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
        (NEEDY, '{"n": 1, "m": 2}', {"n": 1, "m": 2}),
        (KIND, '"two"', "two"),
        (EITHER, '"42"', "42"),
        (EITHER, "42", 42),
        (ANY_OF, "null", None),
        (ANY_OF, '"3"', 3),
        ({}, '{"free": [1, null]}', {"free": [1, None]}),
    ],
)
def test_value_with_one_meaning_is_coerced(schema: dict[str, Any], written: str, meant: Any) -> None:
    value = parse(f'{{"it": {written}}}', it=schema)["it"]
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("schema", "written", "complaint"),
    [
        (WHOLE, '"many"', 'parameter "it" must be a whole number, not text: "many"'),
        (WHOLE, "4.5", 'parameter "it" must be a whole number, not a number: 4.5'),
        (WHOLE, '"4.5"', 'parameter "it" must be a whole number, not text: "4.5"'),
        (WHOLE, "true", 'parameter "it" must be a whole number, not a boolean: true'),
        (WHOLE, "[3]", 'parameter "it" must be a whole number, not a list: [3]'),
        (WHOLE, "0", 'parameter "it" must be at least 1, not 0'),
        (WHOLE, '"101"', 'parameter "it" must be at most 100, not 101'),
        (REAL, '"nan"', 'parameter "it" must be a number, not text: "nan"'),
        (REAL, '"1e999"', 'parameter "it" must be a number, not text: "1e999"'),
        (YES_NO, "1", 'parameter "it" must be true or false, not a number: 1'),
        (YES_NO, '"yes"', 'parameter "it" must be true or false, not text: "yes"'),
        (TEXT, "true", 'parameter "it" must be text, not a boolean: true'),
        (TEXT, '{"a": 1}', 'parameter "it" must be text, not an object: {"a": 1}'),
        (LIST, "null", 'parameter "it" must be a list, not null: null'),
        (LIST, "[[1]]", 'parameter "it[0]" must be text, not a list: [1]'),
        (LIST, '["a", "b", "c", "d"]', 'parameter "it" takes at most 3 items, not 4'),
        (NUMBERS, '["a"]', 'parameter "it[0]" must be a whole number, not text: "a"'),
        (OBJECT, '"text"', 'parameter "it" must be an object, not text: "text"'),
        (OBJECT, "{}", 'missing parameter "it.n" (a whole number)'),
        (OBJECT, '{"n": 1, "m": 2}', 'unknown parameter "it.m"; did you mean'),
        (MAP, '{"a": ["x"]}', 'parameter "it.a[0]" must be a whole number, not text: "x"'),
        (NEEDY, "{}", 'missing parameter "it.n"'),
        (CLOSED, '{"n": 1}', 'unknown parameter "it.n"; there are none'),
        (KIND, '"One"', 'parameter "it" must be one of "one", "two", not text: "One"'),
        (ANY_OF, '"x"', 'parameter "it" must be a whole number, not text: "x"'),
    ],
)
def test_value_without_a_meaning_is_refused_by_name(
    schema: dict[str, Any], written: str, complaint: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        parse(f'{{"it": {written}}}', ("it",), it=schema)
    assert complaint.partition("; did")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "arguments are empty"),
        ("  \n", "arguments are empty"),
        ('{"it": ', "not valid JSON: Expecting value at line 1, column 8 (character 7)"),
        ('{"it": "a"', "Expecting ',' delimiter at line 1, column 11"),
        ("{'it': 1}", "Expecting property name enclosed in double quotes at line 1, column 2"),
        ('{"it": "a"} {}', "Extra data at line 1, column 13"),
        ('{"it": NaN}', "NaN is no JSON value"),
        ('{"it": -Infinity}', "-Infinity is no JSON value"),
        ('{"it": "a", "it": "b"}', '"it" is given twice'),
        ('["a"]', 'must be a JSON object such as {"it": ...}, not a list: ["a"]'),
        ('"a"', "not text"),
        ("null", "not null"),
        ("42", "not a number"),
        ('{"it": ' + "[" * 100_000, "nested too deeply"),
        ('{"it": ' + "9" * 5_000 + "}", "not valid JSON"),
    ],
)
def test_text_that_is_no_object_is_quoted_with_its_fault(text: str, said: str) -> None:
    with pytest.raises(BadArguments) as caught:
        parse(text, it=TEXT)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


def test_fault_in_long_json_is_quoted_where_it_is() -> None:
    text = '{"it": "' + "x" * 10_000 + '" oops}'
    with pytest.raises(BadArguments, match=r"xxxx\" <<<HERE>>>oops}"):
        parse(text, it=TEXT)


def test_missing_and_unknown_parameters_are_all_named_at_once() -> None:
    with pytest.raises(BadArguments) as caught:
        parse('{"comand": "ls", "extra": 1}', ("command", "path"), command=TEXT, path=TEXT)
    assert 'unknown parameter "comand"; did you mean "command"?' in str(caught.value)
    assert 'unknown parameter "extra". Known: command, path' in str(caught.value)
    assert 'missing parameter "path" (text)' in str(caught.value)


def test_null_for_an_optional_parameter_leaves_it_out() -> None:
    assert parse('{"a": null, "b": "x"}', ("b",), a=WHOLE, b=TEXT) == {"b": "x"}
    with pytest.raises(BadArguments, match='parameter "b" must be text, not null'):
        parse('{"b": null}', ("b",), b=TEXT)


def test_lone_surrogates_and_controls_in_text_are_kept() -> None:
    assert parse(r'{"it": "a\udc00b\u0000\u2028"}', it=TEXT) == {"it": "a\udc00b\x00\u2028"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.sampled_from([TEXT, WHOLE, REAL, YES_NO, LIST, NUMBERS, OBJECT, KIND, EITHER, ANY_OF])


@given(JSON, SCHEMAS)
def test_whatever_comes_out_fits_the_schema(value: Any, schema: dict[str, Any]) -> None:
    import jsonschema

    try:
        arguments = parse(json.dumps({"it": value}), ("it",), it=schema)
    except BadArguments:
        return
    jsonschema.validate(arguments["it"], schema)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        arguments = parse(text, it=TEXT)
    except BadArguments:
        return
    assert set(arguments) <= {"it"}
