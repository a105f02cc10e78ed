"""Names lead to classes, and what is missing is said."""

from __future__ import annotations

import pytest

from hermes_run.core import registry
from hermes_run.core.registry import Row, did_you_mean, load
from hermes_run.errors import MissingExtra, UnknownName
from hermes_run.formats.sharegpt import ShareGPT


def test_a_name_is_loaded() -> None:
    assert load("format", registry.FORMATS, "sharegpt") is ShareGPT


def test_an_unknown_name_is_refused_with_the_nearest_and_all_known() -> None:
    with pytest.raises(UnknownName, match='no format "shargpt"; did you mean "sharegpt"\\? Known: sharegpt'):
        load("format", registry.FORMATS, "shargpt")
    with pytest.raises(UnknownName, match=r'^there is no format "zzz"\. Known: sharegpt'):
        load("format", registry.FORMATS, "zzz")


def test_a_name_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match='the engine "later" is not available yet'):
        load("engine", {**registry.ENGINES, "later": Row("")}, "later")


def test_a_missing_extra_is_named_with_the_pip_line() -> None:
    table = {"odd": Row("module_that_is_nowhere.part:Thing", needs="odd")}
    with pytest.raises(MissingExtra, match=r'needs module_that_is_nowhere: pip install "hermes-run\[odd\]"'):
        load("tool", table, "odd")


@pytest.mark.parametrize(
    "row", [Row("module_that_is_nowhere:Thing"), Row("hermes_run.tools.nowhere:Thing", needs="odd")]
)
def test_a_module_of_ours_that_is_missing_is_a_bug_and_no_missing_extra(row: Row) -> None:
    with pytest.raises(ModuleNotFoundError):
        load("tool", {"odd": row}, "odd")


def test_a_hint_is_given_only_when_something_is_near() -> None:
    assert did_you_mean("wokers", ["workers", "samples"]) == '; did you mean "workers"?'
    assert did_you_mean("HIGH", ["low", "high"]) == '; did you mean "high"?'
    assert did_you_mean("readme.md", ["README.md"]) == '; did you mean "README.md"?'
    assert did_you_mean("zzz", ["workers", "samples"]) == ""
