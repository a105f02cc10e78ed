"""What every format of trajectories holds to: pure, one line a record, lossless when it says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given

from hermes_run.core import registry
from hermes_run.core.messages import User
from tests.trajectories import example, trajectories

if TYPE_CHECKING:
    from hermes_run.core.contracts import Format
    from hermes_run.core.trajectory import Trajectory

NAMES = [name for name, row in registry.FORMATS.items() if row.path]
LOSSLESS = [name for name in NAMES if registry.load("format", registry.FORMATS, name).lossless]
each = pytest.mark.parametrize("name", NAMES)
each_lossless = pytest.mark.parametrize("name", LOSSLESS)


def make(name: str) -> Format:
    made: Format = registry.load("format", registry.FORMATS, name)()
    return made


def test_our_own_format_is_lossless() -> None:
    assert "sharegpt" in LOSSLESS


@each
@given(trajectory=trajectories())
def test_a_record_is_one_line_of_json_in_utf8(name: str, trajectory: Trajectory) -> None:
    line = make(name).encode(trajectory)
    assert b"\n" not in line
    assert isinstance(json.loads(line), dict)
    assert msgspec.json.decode(line) == json.loads(line)


@each
@given(trajectory=trajectories())
def test_encoding_is_pure(name: str, trajectory: Trajectory) -> None:
    before = repr(trajectory)
    assert make(name).encode(trajectory) == make(name).encode(trajectory)
    assert repr(trajectory) == before


@each_lossless
@given(trajectory=trajectories())
def test_a_lossless_record_gives_the_trajectory_back(name: str, trajectory: Trajectory) -> None:
    form = make(name)
    line = form.encode(trajectory)
    assert form.decode(line) == trajectory
    assert form.encode(form.decode(line)) == line


@each
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"conversations": []}',
        b"\xff",
        b"not json",
        b'{"prompt_index":' + b"[" * 100_000,
        b'{"odd":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=range(9),
)
def test_what_is_no_record_is_a_value_error(name: str, line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        make(name).decode(line)


@each
def test_a_torn_line_is_a_value_error_wherever_it_is_torn(name: str) -> None:
    form = make(name)
    line = form.encode(example())
    for cut in range(len(line)):
        with pytest.raises(ValueError, match=r"."):
            form.decode(line[:cut])


@each_lossless
def test_a_value_of_another_type_is_a_value_error(name: str) -> None:
    form = make(name)
    record: dict[str, Any] = json.loads(form.encode(example()))
    others: tuple[Any, ...] = (None, [[]], "odd", -0.5)
    for field, value in record.items():
        for odd in others:
            if type(odd) is not type(value):
                with pytest.raises(ValueError, match=r"."):
                    form.decode(json.dumps(record | {field: odd}).encode())


@each
def test_what_a_format_reads_of_its_own_line_has_the_prompt_and_is_written_the_same(name: str) -> None:
    form = make(name)
    line = form.encode(example())
    try:
        read = form.decode(line)
    except ValueError:
        assert name not in LOSSLESS
        return
    assert [m for m in read.messages if isinstance(m, User)] == [User("count the files")]
    assert form.encode(read) == line
