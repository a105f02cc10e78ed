"""Reading a run directory of the predecessor: every byte is a record's or set aside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.errors import UsageError
from hermes_run.store.adoption import adopt
from hermes_run.store.predecessor import Predecessor, files_of, pieces_of
from hermes_run.store.verify import verify
from tests.predecessor import INVENTED, OTHER_TOOLS, THEIRS, Old, line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hermes_run.store.predecessor import Piece

WHOLE = tuple(line(number, f"[{number}] «ø»", 0, ()).encode() for number in range(3))


@st.composite
def lines(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A line of whole records, fragments and junk, glued anyhow; and the records that are whole."""
    parts, records = [], []
    for _ in range(draw(st.integers(0, 5))):
        whole = draw(st.sampled_from(WHOLE))
        kind = draw(st.sampled_from(["whole", "torn", "junk", "space"]))
        if kind == "whole":
            records.append(whole)
            parts.append(whole)
        elif kind == "torn":
            parts.append(whole[: draw(st.integers(1, len(whole) - 1))])
        else:
            parts.append(
                draw(
                    st.sampled_from([b" ", b"\t"] if kind == "space" else [b"\xff\x00", b"{}", b"nul", b'"'])
                )
            )
    return b"".join(parts), records


def check_cover(text: bytes, pieces: Sequence[Piece]) -> None:
    """The pieces stand where they say, in order, with nothing but white space between them."""
    end = 0
    for piece in pieces:
        assert not text[end : piece.offset].strip()
        assert text[piece.offset : piece.offset + len(piece.data)] == piece.data
        end = piece.offset + len(piece.data)
    assert not text[end:].strip()


@given(made=lines())
def test_every_byte_of_a_line_is_a_records_or_set_aside(made: tuple[bytes, list[bytes]]) -> None:
    text, records = made
    pieces = list(pieces_of(text + b"\n"))
    assert [piece.data for piece in pieces if not piece.why] == records
    check_cover(text, pieces)


@given(data=st.binary(max_size=200))
def test_no_bytes_are_too_odd_to_be_read(data: bytes) -> None:
    text = data.replace(b"\n", b"")
    check_cover(text, list(pieces_of(text)))


def read(old: Old, *texts: str | bytes) -> Predecessor:
    parts = [text.encode() if isinstance(text, str) else text for text in texts]
    old.write_files({"batch_0.jsonl": b"".join(part + b"\n" for part in parts)})
    with Predecessor(old.run_dir) as found:
        return found


@pytest.fixture
def old(tmp_path: Path) -> Old:
    return Old(tmp_path)


def test_a_record_is_one_however_often_and_however_spelled_it_stands(old: Old) -> None:
    whole = line(0, "p", 0)
    respelled = json.dumps(dict(reversed(json.loads(whole).items())), indent=None, ensure_ascii=True)
    found = read(old, whole, respelled, whole)
    assert (len(found.sightings), found.accounts["batch_0.jsonl"].duplicates) == (1, 2)


def test_what_is_a_tool_of_theirs_and_what_was_invented(old: Old) -> None:
    found = read(old, line(0, "p", 0, ("terminal", THEIRS, THEIRS)), line(1, "q", 0, (INVENTED,)))
    assert found.invented == {INVENTED: 1}
    assert found.other_tools[THEIRS].count == 2
    assert set(found.other_tools) == {THEIRS, *OTHER_TOOLS}
    bare = json.loads(line(2, "r", 0, ("skills_list",)))
    del bare["tool_stats"]
    assert read(old, json.dumps(bare)).invented == {"skills_list": 1}


def test_files_are_taken_by_their_number_and_the_merged_one_last(old: Old) -> None:
    names = ["batch_10.jsonl", "batch_9.jsonl", "batch_007.jsonl", "trajectories.jsonl"]
    old.write_files(dict.fromkeys([*names, "batch_x.jsonl", "batch_1.jsonl.bak", "other.jsonl"], b""))
    (old.run_dir / "batch_3.jsonl").mkdir()
    found = [path.name for path in files_of(old.run_dir)]
    assert found == ["batch_007.jsonl", "batch_9.jsonl", "batch_10.jsonl", "trajectories.jsonl"]


@pytest.mark.parametrize("with_dataset", [True, False])
def test_a_directory_without_a_record_is_imported_all_pending(old: Old, *, with_dataset: bool) -> None:
    old.write_dataset(["p", "q"])
    old.write_files(
        {"batch_0.jsonl": b"", "checkpoint.json": b"[", "statistics.json": b'{"batch_size": true}'}
    )
    account = adopt(old.run_dir, old.folder / "new", old.dataset if with_dataset else None)
    rows = 2 if with_dataset else 0
    assert (account["rows"], account["pending"], account["records"]) == (rows, rows, 0)
    assert verify(old.folder / "new") == []


def nested(depth: int) -> str:
    return json.dumps(json.loads(line(0, "p", 0)) | {"x": 0}).replace(
        '"x": 0', '"x": ' + "[" * depth + "]" * depth
    )


@pytest.mark.parametrize("depth", [10, 500, 900, 950, 100_000])
def test_a_line_nested_to_any_depth_is_a_record_or_set_aside(old: Old, depth: int) -> None:
    found = read(old, nested(depth), line(1, "q", 0))
    assert len(found.sightings) + len(found.aside) == 2
    assert found.sightings[-1].prompt_index == 1


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([{"from": "human", "value": "p"}], "no assistant turn"),
        ([{"from": "gpt", "value": "a"}], "no human turn"),
        ([{"from": "alien", "value": "a"}], "somebody known"),
        ([{"from": "human", "value": 7}], "somebody known"),
        ([], "no human turn"),
    ],
)
def test_a_record_that_makes_no_trajectory_is_set_aside_with_the_reason(
    old: Old, turns: Sequence[object], why: str
) -> None:
    found = read(old, line(0, "p", 0, conversations=turns))
    assert not found.sightings
    assert why in found.aside[0].why
    assert bytes(found.bad["batch_0.jsonl"]).endswith(b"}\n")


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"), Predecessor(tmp_path / "file"):
        pass
