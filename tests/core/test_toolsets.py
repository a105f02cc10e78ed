"""Toolsets resolve to tools, and a rollout's are drawn from (seed, rollout key) alone."""

from __future__ import annotations

from collections import Counter
from math import prod, sqrt

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_run.core.keys import content_key, rollout_key
from hermes_run.core.registry import TOOLS
from hermes_run.core.toolsets import TOOLSETS, draw, tools_of
from hermes_run.errors import UnknownName

KEYS = [rollout_key(content_key(f"task {number // 2}"), number % 2) for number in range(20_000)]
DISTRIBUTIONS: dict[str, dict[str, float]] = {
    "coin flips": {"web": 50, "terminal": 50, "file": 50},
    "unequal": {"terminal": 80, "file": 97.5, "web": 30, "vision": 0.5},
    "mostly nothing": {"terminal": 2, "file": 3, "web": 1},
    "one rare toolset": {"web": 1},
    "always and never": {"terminal": 100, "file": 0, "web": 15},
}
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
PERCENTS = st.dictionaries(NAMES, st.floats(0, 100), min_size=1, max_size=6)
SOME_KEYS = st.sampled_from(KEYS)


# ------------------------------------------------------------------ toolsets


@pytest.mark.parametrize(
    ("toolset", "tools"),
    [
        ("terminal", ("terminal", "process")),
        ("file", ("read_file", "write_file", "patch", "search_files")),
        ("search", ("web_search",)),
        ("safe", ("web_search", "web_extract", "vision_analyze", "image_generate")),
        (
            "debugging",
            (
                "terminal",
                "process",
                "web_search",
                "web_extract",
                "read_file",
                "write_file",
                "patch",
                "search_files",
            ),
        ),
    ],
)
def test_a_toolset_is_its_tools_in_the_order_written(toolset: str, tools: tuple[str, ...]) -> None:
    assert tools_of(toolset) == tools


def test_the_toolsets_hold_exactly_the_tools_of_the_registry() -> None:
    assert {tool for toolset in TOOLSETS for tool in tools_of(toolset)} == set(TOOLS)


def test_an_own_toolset_may_include_others_and_wins_over_a_built_in_one() -> None:
    own = {"mine": ["safe", "todo", "terminal"], "web": ["web_search"], "more": ["mine", "mine", "patch"]}
    assert tools_of("mine", own) == ("web_search", "vision_analyze", "image_generate", "todo", "terminal")
    assert tools_of("more", own)[-1] == "patch"
    assert len(set(tools_of("more", own))) == len(tools_of("more", own))


@pytest.mark.parametrize(
    "own", [{"a": ["b"], "b": ["a"]}, {"a": ["b"], "b": ["c"], "c": ["b"]}, {"a": ["file", "b"], "b": ["a"]}]
)
def test_a_toolset_that_includes_itself_is_refused_with_the_way_round(own: dict[str, list[str]]) -> None:
    with pytest.raises(UnknownName, match=r"includes itself: .*a -> b"):
        tools_of("a", own)


def test_an_unknown_toolset_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r'no toolset "terminl".*did you mean "terminal"'):
        tools_of("terminl")


# ------------------------------------------------------------------ draws


def expected(percents: dict[str, float]) -> dict[str, float]:
    """Probability of each toolset: its own, and that of nothing for the highest (first on ties)."""
    nothing = prod(1 - percent / 100 for percent in percents.values())
    fallback = max(percents, key=lambda name: percents[name])
    return {name: percent / 100 + nothing * (name == fallback) for name, percent in percents.items()}


@pytest.mark.parametrize("percents", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_each_toolset_comes_up_as_often_as_its_percentage_says(percents: dict[str, float]) -> None:
    seen = Counter(name for key in KEYS for name in draw(percents, 20260101, key))
    for name, share in expected(percents).items():
        tolerance = 4.5 * sqrt(share * (1 - share) / len(KEYS))
        assert abs(seen[name] / len(KEYS) - share) <= tolerance, name


def test_toolsets_are_drawn_independently_of_each_other() -> None:
    percents = {"a": 50.0, "b": 50.0, "c": 100.0}
    pairs = Counter(("a" in drawn, "b" in drawn) for drawn in (draw(percents, 3, key) for key in KEYS))
    assert all(abs(count / len(KEYS) - 0.25) < 0.015 for count in pairs.values())


@given(PERCENTS, st.integers(), SOME_KEYS)
def test_a_draw_is_never_empty_is_sorted_and_repeats(percents: dict[str, float], seed: int, key: str) -> None:
    drawn = draw(percents, seed, key)
    assert drawn
    assert list(drawn) == sorted(set(drawn))
    assert set(drawn) <= set(percents)
    assert draw(percents, seed, key) == drawn
    always = {name for name, percent in percents.items() if percent == 100}
    never = {name for name, percent in percents.items() if percent == 0}
    assert always <= set(drawn)
    assert not never & set(drawn) or never == set(percents)


@given(PERCENTS, PERCENTS, st.integers(), SOME_KEYS)
def test_other_toolsets_and_their_order_change_nothing_for_a_toolset(
    percents: dict[str, float], others: dict[str, float], seed: int, key: str
) -> None:
    """Beside a toolset that always comes up, so that nothing hangs on the fallback."""
    base = percents | {"always": 100.0}
    more = others | base
    assert set(draw(base, seed, key)) == set(draw(more, seed, key)) & set(base)
    backwards = dict(reversed(more.items()))
    assert draw(backwards, seed, key) == draw(more, seed, key)


def test_when_nothing_comes_up_the_highest_is_taken_and_the_first_of_equals() -> None:
    rare = {"b": 1e-9, "a": 1e-9, "c": 1e-10}
    assert {draw(rare, 0, key) for key in KEYS[:200]} == {("b",)}


@given(PERCENTS, st.integers())
def test_another_seed_or_sample_draws_anew(percents: dict[str, float], seed: int) -> None:
    assume(any(20 < percent < 80 for percent in percents.values()))
    percents |= {"always": 100.0}
    draws = [[draw(percents, each, key) for key in KEYS[:64]] for each in (seed, seed + 1)]
    assert draws[0] != draws[1]
    ordinals = [draw(percents, seed, f"{KEYS[0][:33]}{ordinal}") for ordinal in range(64)]
    assert len(set(ordinals)) > 1


@pytest.mark.parametrize(
    ("key", "toolsets"),
    [
        ("9817c5a857c6baf292dda0de08f32c25#0", ("terminal",)),
        ("9817c5a857c6baf292dda0de08f32c25#1", ("file", "terminal", "todo")),
        ("82723af3032b9546b9448cde3c4c628f#0", ("file", "todo")),
        ("82723af3032b9546b9448cde3c4c628f#1", ("file",)),
        ("57a82b56a0796b058494e882135d7083#0", ("terminal", "todo", "web")),
    ],
)
def test_draws_never_change(key: str, toolsets: tuple[str, ...]) -> None:
    assert draw({"terminal": 50, "file": 50, "web": 30, "todo": 70}, 0, key) == toolsets
