"""`--where`: comparisons over the fields of an entry, joined by `and`; and what is wrong with others."""

from __future__ import annotations

import msgspec
import pytest

from hermes_run.core.messages import Usage
from hermes_run.errors import UsageError
from hermes_run.store.entry import Entry
from hermes_run.store.where import FIELDS, parse_where

ENTRY = Entry(
    key="0" * 32 + "#3",
    status="completed",
    reason="finished",
    hash="a" * 32,
    work="b" * 32,
    toolsets=("file", "terminal"),
    turns=4,
    api_calls=5,
    usage=Usage(prompt_tokens=1200, total_tokens=1300, cost=0.25),
    cost=0.25,
    model="some/model and more",
    image_digest="",
    error="",
)


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("turns>3", True),
        ("turns > 4", False),
        ("turns>=4 and turns<=4 and turns=4 and turns!=5", True),
        ("cost<0.5 AND turns>3", True),
        ("cost<2.5e-1", False),
        ("cost=.25", True),
        ("cost=null", False),
        ("cost!=null", True),
        ("usage.total_tokens>=1300", True),
        ("usage.cost<0.2", False),
        ("status=completed and reason!=max_turns", True),
        ('model="some/model and more"', True),
        ("model='some/model'", False),
        ("error=''", True),
        ("toolsets=file and toolsets!=browser", True),
        ("toolsets!=terminal", False),
        (f"key={'0' * 32}#3", True),
        ("turns>-1", True),
        ("turns==4", True),
        ("status == failed", False),
        ("error=null and image_digest=null", True),
        ("hash!=null", True),
        ("model='null'", False),
    ],
)
def test_a_comparison_says_whether_it_is_so(text: str, is_so: bool) -> None:
    assert parse_where(text)(ENTRY) == is_so


@pytest.mark.parametrize("text", ["cost<1", "cost>1", "cost=1", "cost!=1", "cost>=0"])
def test_an_unknown_cost_is_neither_less_nor_more_than_any_number(text: str) -> None:
    unknown = msgspec.structs.replace(ENTRY, cost=None)
    assert not parse_where(text)(unknown)
    assert parse_where("cost=null")(unknown)
    assert not parse_where("cost!=null")(unknown)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "nothing is no comparison"),
        ("turns", '"turns" is no comparison'),
        ("turns>", '"turns >" is no comparison'),
        (">3", "FIELD OPERATOR VALUE"),
        ("turns 3", "FIELD OPERATOR VALUE"),
        ("turns>3 and", "nothing is no comparison"),
        ("turns>3 or cost<1", '"or" stands where "and" should'),
        ("turns>3 cost<1", '"cost" stands where "and" should'),
        ("turn>3", 'did you mean "turns"'),
        ("usage>3", "usage has parts"),
        ("usage.tokens>3", 'did you mean "usage'),
        ("status=completd", 'status is never "completd"; did you mean "completed"?'),
        ("reason!=fnished", 'did you mean "finished"?'),
        ("status=pending", 'status is never "pending"'),
        ("status=null", 'status is never "null"'),
        ("turns>many", 'turns is a number, and "many" is none'),
        ('turns>"3"', "turns is a number"),
        ("turns>null", "turns is a number"),
        ("cost>null", "cost is a number"),
        ("status>failed", "takes = and !=, not >"),
        ("toolsets<file", "a list of names"),
        ("model='unclosed", "cannot be read from character 7"),
        ("(turns>3)", 'has no "(turns"'),
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_where(text)
    assert told in str(error.value)
    assert "--where" in str(error.value)


def test_every_field_of_an_entry_can_be_compared() -> None:
    assert {name.partition(".")[0] for name in FIELDS} == set(Entry.__struct_fields__)
    values = {"status": "failed", "reason": "internal"}
    for name in FIELDS:
        parse_where(f"{name}={values.get(name, 1)}")(ENTRY)
