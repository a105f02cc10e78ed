"""What may stand in a dataset row, and what is said of what may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hermes_run.core.keys import canonical_json, content_key, digest
from hermes_run.core.text import clean, restore
from hermes_run.dataset.rows import BadRow, Row, parse_row
from hermes_run.spec.schema import load_schema

ANY_TEXT = st.text(st.characters(codec=None), max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


def line_of(**row: Any) -> bytes:
    return json.dumps(row).encode()


def why_bad(line: bytes, field: str = "prompt") -> str:
    with pytest.raises(BadRow) as caught:
        parse_row(line, field)
    return str(caught.value)


# ------------------------------------------------------------------ what a row is


def test_a_row_has_its_work_its_id_and_its_other_columns() -> None:
    row = parse_row(
        line_of(
            prompt="do it",
            image="python:3.11",
            cwd="/app",
            setup=["make", "make test"],
            files={"a/b.txt": "x", "c": ""},
            id=7,
            difficulty="hard",
        )
    )
    assert row == Row(
        prompt="do it",
        image="python:3.11",
        cwd="/app",
        setup=("make", "make test"),
        files={"a/b.txt": "x", "c": ""},
        row_id="7",
        rest='{"id":7,"difficulty":"hard"}',
    )


def test_the_prompt_alone_is_a_row() -> None:
    assert parse_row(b'{"prompt":"x"}') == Row("x")


def test_null_is_like_absent() -> None:
    row = parse_row(
        line_of(
            prompt="x", image=None, docker_image=None, cwd=None, setup=None, files=None, id=None, check=None
        )
    )
    assert row.key == parse_row(b'{"prompt":"x"}').key
    assert row.row_id == ""


def test_docker_image_is_the_image_and_both_may_say_the_same() -> None:
    assert parse_row(line_of(prompt="x", docker_image="a:1")).image == "a:1"
    assert parse_row(line_of(prompt="x", docker_image="a:1", image="a:1")).image == "a:1"
    assert parse_row(line_of(prompt="x", docker_image="a:1", image=None)).key == content_key("x", image="a:1")


def test_one_setup_command_may_stand_without_a_list() -> None:
    assert (
        parse_row(line_of(prompt="x", setup="make")).key == parse_row(line_of(prompt="x", setup=["make"])).key
    )


def test_another_column_can_be_the_prompt_and_prompt_is_then_carried_along() -> None:
    row = parse_row(line_of(question="why?", prompt=5), "question")
    assert (row.prompt, row.rest) == ("why?", '{"prompt":5}')


@pytest.mark.parametrize("prompt", [" ", "a\x00b", "\u2028", "\ufeff", "x" * 5_000_000])
def test_every_text_is_a_prompt(prompt: str) -> None:
    assert parse_row(line_of(prompt=prompt)).prompt == prompt
    assert parse_row(json.dumps({"prompt": prompt}, ensure_ascii=False).encode()).prompt == prompt


def test_normal_form_case_and_trailing_space_make_another_row() -> None:
    prompts = ["caf\u00e9", "cafe\u0301", "caf\u00e9 ", "Caf\u00e9", "cafe"]
    assert len({parse_row(line_of(prompt=prompt)).key for prompt in prompts}) == len(prompts)


# ------------------------------------------------------------------ its key


@given(
    st.fixed_dictionaries(
        {"prompt": ANY_TEXT.filter(bool)},
        optional={
            "setup": st.lists(ANY_TEXT.filter(bool).filter(lambda t: "\x00" not in t), min_size=1, max_size=2)
        },
    ),
    st.dictionaries(ANY_TEXT.map("x {}".format), JSON_VALUES, max_size=3),
    st.randoms(),
)
@example({"prompt": "\ud835"}, {"x \udc00": "\ud800"}, __import__("random").Random(0))
@example({"prompt": "\U0010d835"}, {}, __import__("random").Random(0))
def test_a_key_is_that_of_the_canonical_json_whatever_else_stands_in_the_row(
    work: dict[str, Any], other: dict[str, Any], random: Any
) -> None:
    items = list((work | other).items())
    random.shuffle(items)
    row = parse_row(json.dumps(dict(items)).encode())
    assert row.key == digest(canonical_json(work))
    assert row.prompt == clean(work["prompt"])


@given(st.dictionaries(ANY_TEXT.map("x {}".format), JSON_VALUES, max_size=4))
def test_other_columns_are_carried_as_they_are(other: dict[str, Any]) -> None:
    for line in (
        json.dumps({"prompt": "p", **other}),
        json.dumps({**other, "prompt": "p"}, separators=(",", ":")),
    ):
        rest = parse_row(line.encode()).rest
        rest.encode()
        assert json.loads(rest) == json.loads(json.dumps(other))


@pytest.mark.parametrize(
    "value",
    [
        "123456789012345678901234567890",
        "-123456789012345678901234567890.10",
        "1.10",
        "1E+2",
        "-0.0",
        "1e400",
        "0.1000000000000000055511151231257827",
        '"\\u00e9\\/"',
        '{"a": [1,  2]}',
    ],
)
@pytest.mark.parametrize("beside", ['"a"', '"\\ud835"', '"k\\":"'])
def test_values_of_other_columns_keep_their_spelling(value: str, beside: str) -> None:
    """Also beside a lone surrogate, which the fast reader refuses, and beside what looks like a key."""
    row = parse_row(f'{{"prompt": "p", "n": {value}, "t": {beside}}}'.encode())
    assert row.rest == f'{{"n":{value},"t":{beside}}}'


def test_an_id_of_thirty_digits_stays_one() -> None:
    row = parse_row(b'{"prompt":"p","id":123456789012345678901234567890}')
    assert row.row_id == "123456789012345678901234567890"


def test_halves_of_a_character_are_joined_or_replaced_reversibly() -> None:
    assert parse_row(b'{"prompt":"\\ud83d\\ude00"}').prompt == "\U0001f600"
    assert restore(parse_row(b'{"prompt":"\\ud835"}').prompt) == "\ud835"
    row = parse_row(b'{"prompt":"p","files":{"\\udc00":"\\ud800"},"setup":["\\udfff"],"id":"\\ud800"}')
    assert row.files == {clean("\udc00"): clean("\ud800")}
    assert row.setup == (clean("\udfff"),)
    assert row.row_id == clean("\ud800")


# ------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"prompt": 123}', '"prompt" is a number; it takes a non-empty string'),
        (b'{"prompt": 1.5}', '"prompt" is a number'),
        (b'{"prompt": null}', '"prompt" is null'),
        (b'{"prompt": true}', '"prompt" is a boolean'),
        (b'{"prompt": ""}', '"prompt" is an empty string'),
        (b'{"prompt": ["a","b"]}', '"prompt" is a list'),
        (b'{"prompt": {"a":1}}', '"prompt" is an object'),
        (b"{}", 'it has no "prompt"'),
        (b"{", "; a row is one object on one line: jq -c . makes that"),
        (b"[", "; a row is one object on one line: jq -c '.[]' makes that of a list"),
        (b'[{"prompt": "x"},', "jq -c '.[]' makes that of a list"),
        (b'[{"prompt": "x"}]', "it is no JSON object; a row is one object on one line: jq -c '.[]'"),
        (b"caf\xe9", "it is not UTF-8 (byte 3); save the file as UTF-8"),
        (b'{"promt": "x"}', 'did you mean "promt"?'),
        (b'{"question": "x", "id": 1}', "; its columns: question, id (dataset.prompt_field"),
        (
            b"{%s}" % b",".join(b'"c%d": 1' % n for n in range(99)),
            "its columns: c0, c1, c2, c3, c4, c5, c6, c7, … (",
        ),
        (b'{"messages": [{"role": "user", "content": "x"}]}', 'it has "messages" and no "prompt"'),
        (b'{"conversations": [{"from": "system", "value": "x"}]}', 'it has "conversations" and no "prompt"'),
        (b"# a comment", "it is no JSON: "),
        (b'{"prompt": "x"', "it is no JSON: "),
        (b'{"prompt": "x"} trailing', "it is no JSON: "),
        (b'{"prompt": "x"}{"prompt": "y"}', "it is no JSON: "),
        (b"{'prompt': 'x'}", "it is no JSON: "),
        (b'{"prompt": "x",}', "it is no JSON: "),
        (b'{"prompt": "a\x01b"}', "it is no JSON: "),
        (b"[]", "it is no JSON object"),
        (b'"prompt"', "it is no JSON object"),
        (b"null", "it is no JSON object"),
        (b"12", "it is no JSON object"),
        (b'{"prompt": "x", "prompt": "y"}', 'the key "prompt" stands twice'),
        (b'{"prompt": "x", "a": 1, "a": 1}', 'the key "a" stands twice'),
        (b'{"prompt": "x", "a": 1, "\\u0061": 2}', 'the key "a" stands twice'),
        (b'{"prompt": "x", "files": {"f": "1", "f": "2"}}', 'the key "f" stands twice'),
        (b'{"prompt": "x", "deep": [{"a": {"b": 1, "b": 2}}]}', 'the key "b" stands twice'),
        (b'{"prompt": "\\":", "a": 1, "a": 2}', 'the key "a" stands twice'),
        (b'{"prompt": "x", "n": NaN}', "NaN is no JSON value"),
        (b'{"prompt": "x", "n": -Infinity}', "-Infinity is no JSON value"),
        (b'{"prompt": NaN}', "NaN is no JSON value"),
        (b'{"prompt": "\xff"}', "it is not UTF-8 (byte 12)"),
        (b'\xff\xfe{\x00"\x00', "it is not UTF-8 (byte 0)"),
        (b'{"prompt": "x", "n": ' + b"1" * 5000 + b"}", "more than 4300 digits"),
        (b'{"prompt": "x", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"prompt": "x", "image": 5}', '"image" is a number; it takes a string'),
        (b'{"prompt": "x", "image": "a\\u0000"}', '"image" holds a NUL character'),
        (b'{"prompt": "x", "image": "a b"}', '"image" is "a b"; it takes a registry reference such as'),
        (b'{"prompt": "x", "docker_image": "Py:3"}', "; names in registries are lower case"),
        (b'{"prompt": "x", "image": "a", "docker_image": "b"}', '"image" is "a" and "docker_image" is "b"'),
        (b'{"prompt": "x", "cwd": ["/a"]}', '"cwd" is a list'),
        (b'{"prompt": "x", "cwd": "a/b"}', "it takes an absolute path inside the sandbox"),
        (b'{"prompt": "x", "setup": 5}', '"setup" takes a shell command or a list of them'),
        (b'{"prompt": "x", "setup": ["a", 5]}', '"setup" takes a shell command or a list of them'),
        (b'{"prompt": "x", "setup": {"a": "b"}}', '"setup" takes a shell command or a list of them'),
        (b'{"prompt": "x", "setup": ["a\\u0000"]}', '"setup" holds a NUL character'),
        (b'{"prompt": "x", "files": ["a"]}', '"files" takes a map'),
        (b'{"prompt": "x", "files": {"a": 5}}', 'the text of "a" is a number'),
        (b'{"prompt": "x", "files": {"a": null}}', 'the text of "a" is null'),
        (b'{"prompt": "x", "id": ["a"]}', '"id" is a list; it takes a string or a number'),
        (b'{"prompt": "x", "id": true}', '"id" is a boolean'),
        (b'{"prompt": "x", "check": {"command": "true"}}', '"check" is not available yet'),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_a_bad_row_is_told_what_is_wrong(line: bytes, words: str) -> None:
    assert words in why_bad(line)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "..", "../x", "a/../b", "a/..", "a/", ".", "a/.", "./", "a\x00b", "a/../../x", "//x"],
)
def test_a_file_outside_the_workspace_is_refused(path: str) -> None:
    assert "is no path inside the workspace" in why_bad(line_of(prompt="x", files={path: ""}))


@pytest.mark.parametrize(
    "path", ["a", "a/b", "..a", "a..", "...", "a b", "-rf", "~", "a\nb", ".hidden", "./a", "a//b", "..\\x"]
)
def test_a_file_inside_the_workspace_is_taken(path: str) -> None:
    assert parse_row(line_of(prompt="x", files={path: "t"})).files == {path: "t"}


@pytest.mark.parametrize(
    "paths", [("a", "./a"), ("a/b", "a//b"), ("a", "a/b"), ("x/y/z", "x/./y"), ("./a/b", "a"), ("é/b", "é")]
)
def test_two_files_that_cannot_both_be_there_are_refused(paths: tuple[str, str]) -> None:
    """Which of them is written last would hang on the order of keys, which is no part of the identity."""
    for order in (paths, paths[::-1]):
        assert "same place" in why_bad(line_of(prompt="x", files=dict.fromkeys(order, "t")))


@pytest.mark.parametrize(
    "line",
    [
        line_of(**{"x" * 100_000: 1, "prompt": ""}),
        line_of(prompt="x", image="i" * 100_000, docker_image="d"),
        line_of(prompt="x", image="i\x1b[31m", docker_image="d\n\x9b"),
        line_of(prompt="x", cwd="c" * 100_000),
        line_of(prompt="x", cwd="c\n\x1b[2J"),
        line_of(prompt="x", files={"../" + "f" * 100_000: ""}),
        line_of(prompt="x", files={"../\n\x1b[2J\u202e": ""}),
        line_of(prompt="x", files={"f" * 100_000: 5}),
        line_of(prompt="x", files={"f\n": 5}),
        b'{"prompt":"x","%s":1,"%s":2}' % (b"k" * 100_000, b"k" * 100_000),
        b'{"prompt":"x","k\\n\\u001b\\ud800":1,"k\\n\\u001b\\ud800":2}',
        line_of(**{"promp\n\x1b": "x"}),
        line_of(promp="x" * 100_000),
    ],
)
def test_what_is_said_of_a_row_is_one_short_printable_line(line: bytes) -> None:
    words = why_bad(line)
    assert len(words) < 400
    assert words.isprintable()
    words.encode()


@given(st.binary(max_size=60) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_line_is_a_crash(line: bytes) -> None:
    try:
        parse_row(line)
    except BadRow as bad:
        assert str(bad)  # noqa: PT017 - either way is right


@given(
    st.fixed_dictionaries(
        {"prompt": st.just("x")},
        optional={
            "image": st.none() | st.sampled_from(["a", "a/b:1", "./x.sif"]) | ANY_TEXT,
            "docker_image": st.none() | st.sampled_from(["a", "a/b:1"]) | ANY_TEXT,
            "cwd": st.none() | ANY_TEXT.map("/{}".format),
            "setup": st.none() | ANY_TEXT | st.lists(ANY_TEXT),
            "files": st.none() | st.dictionaries(ANY_TEXT, ANY_TEXT),
            "id": st.none() | ANY_TEXT | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
            "other": JSON_VALUES,
        },
    ),
    st.dictionaries(
        st.sampled_from(["prompt", "image", "cwd", "setup", "files", "id"]), JSON_VALUES, max_size=1
    ),
)
def test_a_row_that_is_taken_fits_the_schema_and_types_that_do_not_fit_are_refused(
    row: dict[str, Any], odd: dict[str, Any]
) -> None:
    row |= odd
    schema = Draft202012Validator(load_schema("dataset-row"))
    fits = schema.is_valid(row)
    try:
        parse_row(json.dumps(row).encode())
    except BadRow as bad:
        beyond = ("NUL", "absolute", "no path inside", "same place", "keep one of them", "registry")
        assert not fits or any(word in str(bad) for word in beyond)  # noqa: PT017 - either way is right
    else:
        assert fits
