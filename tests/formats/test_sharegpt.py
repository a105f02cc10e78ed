"""Our own format: every line has the same keys and types, whatever the rollout held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hermes_run.core.messages import Assistant, System, ToolCall, ToolResult, User
from hermes_run.core.registry import TOOLS
from hermes_run.core.trajectory import StopReason, ToolCount
from hermes_run.formats.equality import content_hash
from hermes_run.formats.record import decode_record
from hermes_run.formats.sharegpt import ShareGPT, from_record
from hermes_run.spec.schema import load_schema
from tests.trajectories import example, tool_counts, trajectories

if TYPE_CHECKING:
    from hermes_run.core.trajectory import Trajectory

GOLDEN = Path(__file__).parent.parent / "data" / "trajectory.jsonl"
OWN = ("lookup", "mcp_clock")


def record_of(trajectory: Trajectory, form: ShareGPT | None = None) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((form or ShareGPT()).encode(trajectory))
    return record


def types_of(value: Any, path: str = "") -> set[tuple[str, str]]:
    """Every place in a record, items of a list being one place, with its type; of objects, their keys."""
    if isinstance(value, dict):
        inner = [types_of(item, f"{path}.{name}") for name, item in value.items()]
        return {(path, str(list(value)))}.union(*inner)
    if isinstance(value, list):
        return {(path, "list")}.union(*(types_of(item, f"{path}[]") for item in value))
    return {(path, type(value).__name__)}


# ------------------------------------------------------------------ the line


def test_the_line_never_changes() -> None:
    assert GOLDEN.read_bytes() == ShareGPT().encode(example()) + b"\n"


def test_a_line_of_the_first_version_is_still_read() -> None:
    """It lacks the fields about artifacts."""
    line = (GOLDEN.parent / "trajectory_first_version.jsonl").read_bytes()
    assert ShareGPT().decode(line) == example()
    assert content_hash(decode_record(line)) == hash_of(example())


def test_the_line_is_as_the_contract_has_it() -> None:
    record = record_of(example())
    assert list(record) == [
        "prompt_index",
        "key",
        "conversations",
        "metadata",
        "completed",
        "partial",
        "api_calls",
        "toolsets_used",
        "tool_stats",
        "tool_error_counts",
    ]
    assert [turn["from"] for turn in record["conversations"]] == ["human", "gpt", "tool", "tool", "gpt"]
    assert record["conversations"][0] == {
        "from": "human",
        "value": "count the files",
        "reasoning": "",
        "tool_calls": [],
        "tool_call_id": "",
        "name": "",
    }
    assert record["conversations"][1]["tool_calls"][0] == {
        "id": "a1",
        "name": "terminal",
        "arguments": '{"command": "ls"}',
    }
    assert record["conversations"][3]["tool_call_id"] == "a2"
    assert record["conversations"][3]["name"] == "todo"
    assert record["tool_stats"]["terminal"] == {"count": 1, "success": 1, "failure": 0}
    assert record["tool_error_counts"]["todo"] == 1
    assert record["metadata"]["row"] == '{"difficulty":"hard"}'
    assert json.loads(record["metadata"]["draw"]) == {"terminal": 100, "todo": 33.5}


@given(trajectories(), trajectories())
def test_any_two_lines_have_the_same_keys_and_types(one: Trajectory, other: Trajectory) -> None:
    types = types_of(record_of(one)) | types_of(record_of(other))
    assert len(types) == len({path for path, _ in types})


@given(trajectories())
def test_every_line_names_all_built_in_tools_and_holds_no_null(trajectory: Trajectory) -> None:
    record = record_of(trajectory)
    assert list(record["tool_stats"]) == list(record["tool_error_counts"]) == list(TOOLS)
    assert "NoneType" not in {kind for _, kind in types_of(record)}
    for name, count in record["tool_stats"].items():
        assert record["tool_error_counts"][name] == count["failure"]


@given(trajectories())
def test_a_line_says_completed_or_partial_and_why(trajectory: Trajectory) -> None:
    record = record_of(trajectory)
    assert record["completed"] is (trajectory.stop_reason is StopReason.FINISHED)
    assert record["partial"] is not record["completed"]
    assert record["metadata"]["stop_reason"] == trajectory.stop_reason.value


@given(trajectories())
def test_the_row_stands_last_in_the_metadata_so_that_a_merge_can_exchange_it(trajectory: Trajectory) -> None:
    line = ShareGPT().encode(trajectory)
    assert line.startswith(b'{"prompt_index":%d,"key":' % trajectory.prompt_index)
    assert b',"row":' + json.dumps(trajectory.row).encode() + b'},"completed":' in line


# ------------------------------------------------------------------ own tools


@given(trajectories(tool_counts=tool_counts((*TOOLS, *OWN))))
def test_own_tools_are_columns_too_in_the_same_order_in_every_line(trajectory: Trajectory) -> None:
    form = ShareGPT(OWN)
    record = record_of(trajectory, form)
    assert list(record["tool_stats"]) == [*TOOLS, *OWN]
    assert form.decode(form.encode(trajectory)) == trajectory


def test_an_own_tool_named_like_a_built_in_one_has_one_column() -> None:
    assert list(record_of(example(), ShareGPT(["terminal", "a", "a"]))["tool_stats"]) == [*TOOLS, "a"]


def test_a_count_without_a_column_is_refused_rather_than_lost() -> None:
    with pytest.raises(ValueError, match="without a column: lookup"):
        ShareGPT().encode(example(tool_counts={"lookup": ToolCount(1, 1, 0)}))


# ------------------------------------------------------------------ round trip


def test_what_goes_back_to_the_provider_is_not_saved() -> None:
    secret = Assistant("x", wire={"reasoning_details": [{"data": "sealed"}]})
    line = ShareGPT().encode(example(messages=(User("x"), secret)))
    assert b"sealed" not in line
    assert ShareGPT().decode(line).messages[1] == Assistant("x")


def test_the_same_percentages_make_the_same_line_however_they_are_written() -> None:
    lines = [
        ShareGPT().encode(example(draw=draw))
        for draw in ({"terminal": 100, "todo": 50}, {"todo": 50.0, "terminal": 100.0})
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("speaker", ["", "assistant", "GPT", "function"])
def test_a_turn_from_nobody_known_is_refused(speaker: str) -> None:
    line = ShareGPT().encode(example()).replace(b'"from":"human"', b'"from":"%s"' % speaker.encode())
    with pytest.raises(ValueError, match="a turn cannot be from"):
        ShareGPT().decode(line)


def test_an_unknown_stop_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="bored"):
        ShareGPT().decode(ShareGPT().encode(example()).replace(b'"finished"', b'"bored"'))


# ------------------------------------------------------------------ schema


@given(trajectories(tool_counts=tool_counts((*TOOLS, *OWN))))
def test_every_line_fits_the_schema(trajectory: Trajectory) -> None:
    Draft202012Validator(load_schema("trajectory")).validate(record_of(trajectory, ShareGPT(OWN)))


# ------------------------------------------------------------------ when two are equal


def hash_of(trajectory: Trajectory, form: ShareGPT | None = None) -> str:
    return content_hash((form or ShareGPT()).to_record(trajectory))


def renamed(trajectory: Trajectory, new_id: Any) -> Trajectory:
    """With the ids of calls and results exchanged; `new_id` takes a call's place among all calls."""
    from msgspec.structs import replace

    messages: list[Any] = []
    count, ids = 0, {}
    for message in trajectory.messages:
        if isinstance(message, Assistant):
            calls = []
            for call in message.tool_calls:
                ids[call.id] = new_id(count)
                calls.append(replace(call, id=ids[call.id]))
                count += 1
            messages.append(replace(message, tool_calls=tuple(calls)))
        elif isinstance(message, ToolResult):
            messages.append(replace(message, call_id=ids[message.call_id]))
        else:
            messages.append(message)
    return replace(trajectory, messages=tuple(messages))


def test_the_hash_never_changes() -> None:
    assert hash_of(example()) == GOLDEN_HASH
    assert content_hash(json.loads(GOLDEN.read_bytes())) == GOLDEN_HASH
    assert content_hash(decode_record(GOLDEN.read_bytes())) == GOLDEN_HASH


GOLDEN_HASH = "7c48f8c6ec5773f03c7a98a9a6a426c8"


@given(trajectories())
def test_a_trajectory_has_one_hash_from_its_values_its_record_and_its_line(trajectory: Trajectory) -> None:
    line = ShareGPT().encode(trajectory)
    record = json.loads(line)
    assert content_hash(record) == content_hash(decode_record(line)) == hash_of(trajectory)
    assert record == json.loads(line), "hashing must not change what it is given"
    assert hash_of(from_record(decode_record(line))) == hash_of(trajectory)


@given(trajectories(), trajectories())
def test_what_scheduling_and_the_dataset_decide_changes_no_hash(one: Trajectory, other: Trajectory) -> None:
    from msgspec.structs import replace

    moved = replace(
        one,
        key=other.key,
        prompt_index=other.prompt_index,
        row=other.row,
        work=other.work,
        batch=other.batch,
        timestamp=other.timestamp,
    )
    assert hash_of(moved) == hash_of(one)


@given(trajectories())
def test_columns_of_tools_that_were_not_called_change_no_hash(trajectory: Trajectory) -> None:
    assert hash_of(trajectory, ShareGPT(OWN)) == hash_of(trajectory)


@given(trajectories(), st.sampled_from(["x{}", "{}", "call_{}"]), st.randoms())
def test_tool_call_ids_are_compared_by_their_order(trajectory: Trajectory, form: str, random: Any) -> None:
    numbers = list(range(50))
    random.shuffle(numbers)
    assert hash_of(renamed(trajectory, lambda n: form.format(numbers[n]))) == hash_of(trajectory)


def test_ids_that_a_provider_uses_again_in_every_turn_change_no_hash() -> None:
    calls = [(ToolCall(f"c{n}", "todo", str(n)), ToolCall(f"d{n}", "todo", str(n))) for n in range(3)]
    turns = [
        message
        for a, b in calls
        for message in (
            Assistant("", "", (a, b)),
            ToolResult(a.id, "todo", f"r{a.id}"),
            ToolResult(b.id, "todo", "r"),
        )
    ]
    unique = example(messages=(User("x"), *turns))
    for form in ("call_{}", "same", ""):
        again = renamed(unique, lambda n, form=form: form.format(n % 2))
        assert hash_of(again) == hash_of(unique)


def test_which_call_a_result_answers_is_part_of_the_hash() -> None:
    calls = Assistant("", "", (ToolCall("a", "todo", "1"), ToolCall("b", "todo", "2")))
    straight = (User("x"), calls, ToolResult("a", "todo", "r"), ToolResult("b", "todo", "r"))
    crossed = (User("x"), calls, ToolResult("b", "todo", "r"), ToolResult("a", "todo", "r"))
    foreign = (User("x"), calls, ToolResult("z", "todo", "r"), ToolResult("b", "todo", "r"))
    assert len({hash_of(example(messages=each)) for each in (straight, crossed, foreign)}) == 3


SCHEDULING = {
    "key",
    "prompt_index",
    "row",
    "work",
    "batch",
    "timestamp",
    "artifacts_left_out",
    "served_calls",
}
CHANGES: dict[str, Any] = {
    "messages": (User("count the files!"), *example().messages[1:]),
    "stop_reason": StopReason.MAX_TURNS,
    "api_calls": 3,
    "toolsets": ("terminal",),
    "tool_counts": {"terminal": ToolCount(1, 1, 0), "todo": ToolCount(1, 1, 0)},
    "unknown_tools": ("lookup",),
    "usage": example().usage + example().usage,
    "model": "other/model",
    "served_model": "some/model-2027",
    "provider": "Someone",
    "draw": {"terminal": 100.0, "todo": 33.6},
    "backend": "local",
    "limits_missing": (),
    "image_digest": "sha256:0",
    "artifacts": ("artifacts/0-0.abc/a.txt",),
}


def test_every_field_either_is_scheduling_or_changes_the_hash() -> None:
    assert {*CHANGES} | SCHEDULING == {*example().__struct_fields__}
    assert not {*CHANGES} & SCHEDULING


def test_of_an_artifact_its_path_and_the_digest_count_and_not_the_key() -> None:
    def hashed(*paths: str) -> str:
        return hash_of(example(artifacts=paths))

    assert hashed("artifacts/0-0.abc/a.txt") == hashed("artifacts/f-7.abc/a.txt")
    others = ("artifacts/0-0.abd/a.txt", "artifacts/0-0.abc/b.txt")
    assert len({hashed(path) for path in ("artifacts/0-0.abc/a.txt", *others)}) == 3


@pytest.mark.parametrize("field", CHANGES)
def test_anything_else_changes_the_hash(field: str) -> None:
    assert hash_of(example(**{field: CHANGES[field]})) != hash_of(example())


@given(trajectories(), trajectories())
def test_two_trajectories_have_one_hash_only_when_they_say_the_same(
    one: Trajectory, other: Trajectory
) -> None:
    from msgspec.structs import replace

    aligned = replace(other, **{name: getattr(one, name) for name in SCHEDULING})
    same = renamed(one, str) == renamed(aligned, str)
    assert (hash_of(one) == hash_of(other)) == same


@pytest.mark.parametrize("place", range(5))
def test_every_word_of_every_turn_is_part_of_the_hash(place: int) -> None:
    from msgspec.structs import replace

    hashes = {hash_of(example())}
    messages = list(example().messages)
    message: Any = messages[place]
    changed = [replace(message, text=message.text + " ")]
    if isinstance(message, Assistant):
        changed.append(replace(message, reasoning="other"))
        changed += [
            replace(message, tool_calls=(replace(message.tool_calls[0], **new), *message.tool_calls[1:]))
            for new in ({"name": "x"}, {"arguments": "{}"})
            if message.tool_calls
        ]
    if isinstance(message, ToolResult):
        changed.append(replace(message, name="x"))
    if isinstance(message, User):
        changed.append(System(message.text))
    for each in changed:
        messages[place] = each
        hashes.add(hash_of(example(messages=tuple(messages))))
    assert len(hashes) == len(changed) + 1
