"""`comparison`: two manifests against what plain sets and sums say, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_run.core.messages import Usage
from hermes_run.errors import UsageError
from hermes_run.store.comparison import Comparison, compare

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

USAGE = msgspec.to_builtins(Usage())


def entry(
    number: int, ordinal: int, kind: tuple[str, str], tokens: int, cost: float | None
) -> dict[str, Any]:
    return {
        "key": f"{number:032x}#{ordinal}",
        "status": kind[0],
        "reason": kind[1],
        "hash": f"{tokens:032x}",
        "work": "",
        "toolsets": ["file"],
        "turns": tokens % 7,
        "api_calls": tokens % 5,
        "usage": USAGE | {"prompt_tokens": tokens, "total_tokens": 2 * tokens},
        "cost": cost,
        "model": "m" if tokens % 2 else "",
        "image_digest": "",
        "error": "",
    }


ENTRIES = st.builds(
    entry,
    st.integers(0, 6),
    st.sampled_from((0, 2, 10)),
    st.sampled_from((("completed", "finished"), ("partial", "max_turns"), ("failed", "internal"))),
    st.integers(0, 3),
    st.sampled_from((None, 0.0, 0.1, 0.2, 0.7)),
)
MANIFESTS = st.lists(ENTRIES, max_size=12, unique_by=lambda e: e["key"])


def write(path: Path, entries: Sequence[dict[str, Any]]) -> Path:
    def place(each: dict[str, Any]) -> tuple[str, int]:
        content, ordinal = each["key"].split("#")
        return content, int(ordinal)

    path.write_text("".join(f"{json.dumps(each)}\n" for each in sorted(entries, key=place)))
    return path


def total(entries: Sequence[dict[str, Any]], name: str) -> int:
    return sum(each[name] for each in entries)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=MANIFESTS, b=MANIFESTS)
def test_it_says_what_sets_and_sums_say(tmp_path: Path, a: list[Any], b: list[Any]) -> None:
    found = compare(write(tmp_path / "a.jsonl", a), write(tmp_path / "b.jsonl", b))
    mine, theirs = {each["key"]: each for each in a}, {each["key"]: each for each in b}
    both = mine.keys() & theirs.keys()
    assert (set(found.only_a), set(found.only_b)) == (mine.keys() - both, theirs.keys() - both)
    changed = {each["key"]: each["fields"] for each in found.changed()}
    assert changed == {
        key: {n: [mine[key][n], theirs[key][n]] for n in mine[key] if mine[key][n] != theirs[key][n]}
        for key in both
        if mine[key] != theirs[key]
    }
    assert found.same == len(both) - len(changed)
    about = found.about
    assert (about["turns"], about["api_calls"]) == tuple(
        [total(a, name), total(b, name)] for name in ("turns", "api_calls")
    )
    assert about["tokens"]["total_tokens"] == [2 * about["tokens"]["prompt_tokens"][side] for side in (0, 1)]
    for side, entries in enumerate((a, b)):
        statuses = [each["status"] for each in entries]
        assert {name: pair[side] for name, pair in about["outcomes"].items()} == {
            name: statuses.count(name) for name in ("completed", "partial", "discarded", "failed")
        }
        known = [each["cost"] for each in entries if each["cost"] is not None]
        unknown = len(entries) - len(known)
        assert about["cost_unknown"][side] == unknown
        assert about["cost"][side] == (round(sum(known), 10) or (None if unknown else 0.0))
        assert about["served_models"].get("m", [0, 0])[side] == [e["model"] for e in entries].count("m")
    assert sum(move["count"] for move in about["moves"]) == sum("status" in f for f in changed.values())


def test_more_entries_than_are_decoded_at_once_are_all_counted(tmp_path: Path) -> None:
    kind = ("completed", "finished")
    a = [entry(n, 0, kind, n % 4, 0.1) for n in range(0, 12_000, 2)]
    b = [entry(n, 0, kind, n % 4 + n % 3, 0.1) for n in range(0, 12_000, 3)]
    found = compare(write(tmp_path / "a.jsonl", a), write(tmp_path / "b.jsonl", b))
    assert (len(found.only_a), len(found.only_b), found.same) == (4000, 2000, 2000)
    assert found.about["cost"] == [600.0, 400.0]
    assert found.about["tokens"]["prompt_tokens"] == [
        sum(each["usage"]["prompt_tokens"] for each in entries) for entries in (a, b)
    ]


LINE = json.dumps(entry(1, 0, ("completed", "finished"), 1, None)).encode()


@pytest.mark.parametrize(
    "line",
    [LINE[:-1], LINE.replace(b'"turns": 1', b'"turns": "1"'), LINE + b"," + LINE, b'{"key":"x#0"}', b"\xff"],
)
def test_a_line_that_is_no_entry_is_refused_wherever_it_stands(tmp_path: Path, line: bytes) -> None:
    good, bad, empty = tmp_path / "good.jsonl", tmp_path / "bad.jsonl", tmp_path / "empty.jsonl"
    good.write_bytes(LINE + b"\n")
    bad.write_bytes(line + b"\n")
    empty.write_bytes(b"")
    for a, b in ((good, bad), (bad, good), (bad, bad), (empty, bad), (bad, empty)):
        with pytest.raises(UsageError):
            compare(a, b)


def test_a_new_comparison_is_equal() -> None:
    found = Comparison()
    found.read(iter(()), iter(()))
    assert found.is_equal
