"""Identity: canonical JSON, content keys, rollout keys, shards, randomness."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_run.core.keys import (
    canonical_json,
    content_key,
    digest,
    key_chance,
    pack_key,
    rollout_key,
    shard_of,
    split_key,
    unpack_key,
)
from hermes_run.core.text import clean

DATA = Path(__file__).parent.parent / "data"
CONTENT_KEYS = json.loads((DATA / "content_keys.json").read_text(encoding="utf-8"))
CANONICAL = json.loads((DATA / "canonical_json.json").read_text(encoding="utf-8"))

ANY_TEXT = st.text(st.characters(codec=None)) | st.text(
    st.sampled_from('\ud835\udc00\U0010d7ff\U0010d835é\x7f\\"/')
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)
CONTENTS = st.binary(min_size=16, max_size=16).map(bytes.hex)
ORDINALS = st.integers(0, 2**32 - 1)
FIELDS = st.fixed_dictionaries(
    {"prompt": ANY_TEXT.filter(bool)},
    optional={
        "image": ANY_TEXT,
        "cwd": ANY_TEXT,
        "setup": st.lists(ANY_TEXT, max_size=3),
        "files": st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3),
    },
)


def cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): clean(item) for name, item in value.items()}
    return [clean(item) for item in value]


def key_of(row: dict[str, Any]) -> str:
    fields = {name: cleaned(value) for name, value in row.items() if name != "prompt"}
    return content_key(clean(row["prompt"]), **fields)


# ------------------------------------------------------------------ frozen


@pytest.mark.parametrize("vector", CONTENT_KEYS, ids=lambda vector: vector["what"])
def test_content_keys_never_move(vector: dict[str, Any]) -> None:
    assert key_of(vector["row"]) == vector["key"]
    assert xxhash.xxh3_128_hexdigest(vector["canonical"].encode()) == vector["key"]
    assert canonical_json(vector["row"]) == vector["canonical"].encode()


@pytest.mark.parametrize("vector", CANONICAL, ids=lambda vector: vector["what"])
def test_canonical_json_never_changes(vector: dict[str, Any]) -> None:
    spelled = canonical_json(json.loads(vector["json"]))
    assert spelled == vector["canonical"].encode()
    assert digest(spelled) == vector["digest"]


def test_the_frozen_keys_are_all_different() -> None:
    assert len({vector["key"] for vector in CONTENT_KEYS}) == len(CONTENT_KEYS)


@pytest.mark.parametrize(
    ("seed", "key", "purpose", "first"),
    [
        (0, "790c0db829322dcaaa43cbac0fe1eac1#0", "toolset:terminal", 0.7690223867409136),
        (0, "790c0db829322dcaaa43cbac0fe1eac1#1", "toolset:terminal", 0.786270630013188),
        (1, "790c0db829322dcaaa43cbac0fe1eac1#0", "toolset:terminal", 0.87896173556667),
        (-7, "790c0db829322dcaaa43cbac0fe1eac1#0", "toolset:file", 0.08332170735657918),
    ],
)
def test_random_numbers_of_a_rollout_never_change(seed: int, key: str, purpose: str, first: float) -> None:
    assert key_chance(seed, key, purpose) == first


# ------------------------------------------------------------------ canonical JSON


@given(JSON_VALUES)
def test_canonical_json_is_one_spelling_of_one_value(value: Any) -> None:
    spelled = canonical_json(value)
    again = json.loads(spelled)
    assert canonical_json(again) == canonical_json(json.loads(json.dumps(again)))
    assert b"\n" not in spelled


@given(st.dictionaries(ANY_TEXT, st.integers(), min_size=2, max_size=6), st.randoms())
def test_canonical_json_ignores_the_order_of_keys(value: dict[str, int], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)


@given(st.integers(-(2**53), 2**53))
def test_a_number_is_its_value_however_it_is_written(number: int) -> None:
    assert canonical_json(float(number)) == canonical_json(number) == str(number).encode()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_json_number_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="no canonical form"):
        canonical_json({"a": [number]})


@pytest.mark.parametrize("value", [{1: 2}, {"a": {None: 1}}, b"bytes", {"a": {1, 2}}, object()])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)


def test_two_keys_that_become_one_when_cleaned_are_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        canonical_json({"\ud83d\ude00": 1, "\U0001f600": 2})


# ------------------------------------------------------------------ content keys


@given(FIELDS)
@example({"prompt": "\ud835", "files": {"\udc00": "\U0010d835"}})
def test_a_content_key_is_the_digest_of_the_canonical_json_of_what_is_present(row: dict[str, Any]) -> None:
    present = {name: value for name, value in row.items() if value}
    try:
        expected = digest(canonical_json(present))
    except ValueError:  # two file names that are one when cleaned: no dataset line can hold them
        return
    assert key_of(row) == expected


@given(FIELDS, FIELDS)
def test_content_keys_are_equal_only_for_equal_work(one: dict[str, Any], other: dict[str, Any]) -> None:
    def present(row: dict[str, Any]) -> dict[str, Any]:
        return {name: cleaned(value) for name, value in row.items() if value}

    assert (key_of(one) == key_of(other)) == (present(one) == present(other))


def test_a_field_of_a_later_version_moves_no_old_key() -> None:
    """Fields enter only when present, so a key with none of them is that of the prompt alone."""
    assert (
        content_key("hi")
        == content_key("hi", image="", cwd="", setup=(), files={})
        == digest(b'{"prompt":"hi"}')
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"image": "a"},
        {"cwd": "/a"},
        {"setup": ["a"]},
        {"files": {"a": ""}},
        {"setup": ["a", "b"]},
        {"setup": ["b", "a"]},
    ],
)
def test_every_field_that_defines_the_work_changes_the_key(fields: dict[str, Any]) -> None:
    keys = {content_key("hi"), content_key("hi "), content_key("Hi"), content_key("hi", **fields)}
    assert len(keys) == 4


# ------------------------------------------------------------------ rollout keys


@given(CONTENTS, ORDINALS)
def test_a_rollout_key_can_be_split_and_packed(content: str, ordinal: int) -> None:
    key = rollout_key(content, ordinal)
    assert split_key(key) == (content, ordinal)
    assert len(pack_key(key)) == 20
    assert unpack_key(pack_key(key)) == key


@given(CONTENTS, ORDINALS, CONTENTS, ORDINALS)
def test_packed_keys_sort_like_content_and_ordinal(a: str, m: int, b: str, n: int) -> None:
    packed = pack_key(rollout_key(a, m)) < pack_key(rollout_key(b, n))
    assert packed == ((a, m) < (b, n))


@pytest.mark.parametrize(
    "key",
    [
        "",
        "#0",
        "0" * 32,
        "0" * 32 + "#",
        "0" * 31 + "#0",
        "0" * 33 + "#0",
        "0" * 32 + "#00",
        "0" * 32 + "#-1",
        "0" * 32 + "#+1",
        "0" * 32 + "#1_0",
        "0" * 32 + "# 1",
        "0" * 32 + "#1\n",
        "0" * 32 + "#¹",
        "0" * 32 + "#٣",
        "A" * 32 + "#0",
        "g" * 32 + "#0",
        "0" * 32 + "#0#0",
        "0" * 32 + f"#{2**32}",
        "0" * 32 + "#" + "9" * 5000,
    ],
)
def test_what_is_no_rollout_key_is_none(key: str) -> None:
    assert split_key(key) is None


# ------------------------------------------------------------------ shards


@given(CONTENTS, st.integers(1, 1000))
def test_every_content_key_is_in_one_shard(content: str, count: int) -> None:
    assert 0 <= shard_of(content, count) < count


def test_shards_are_of_like_size() -> None:
    sizes = [0] * 7
    for number in range(7000):
        sizes[shard_of(content_key(f"task {number}"), 7)] += 1
    assert min(sizes) > 850
    assert max(sizes) < 1150


def test_all_ordinals_of_a_row_are_in_one_shard() -> None:
    """A shard is chosen by content alone: equal rows and samples must be counted in one place."""
    content = content_key("hi")
    assert shard_of(content, 1) == 0
    assert shard_of("0" * 32, 5) == 0
    assert shard_of("f" * 32, 5) == 4


# ------------------------------------------------------------------ randomness


@given(st.integers(), CONTENTS, ORDINALS, st.text(st.characters(codec="utf-8")))
def test_random_numbers_depend_on_seed_key_and_purpose_alone(
    seed: int, content: str, ordinal: int, purpose: str
) -> None:
    key = rollout_key(content, ordinal)
    first = key_chance(seed, key, purpose)
    assert 0 <= first < 1
    assert key_chance(seed, key, purpose) == first
    others = [(seed + 1, key, purpose), (seed, key + "0", purpose), (seed, key, purpose + "x")]
    assert all(key_chance(*other) != first for other in others)
