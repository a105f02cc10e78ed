"""C24, first part: several calls in one turn; each call id has one result, in the order of the calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Answer, says

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import ModelServer

Call = tuple[Any, str, Any]
"""(id, name, arguments); an id of `...` is left out."""


def calling(*calls: Call) -> Answer:
    """A reply with calls whose ids are as a provider might have them."""
    tool_calls = []
    for given, name, arguments in calls:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = {"id": given, "type": "function", "function": {"name": name, "arguments": text}}
        if given is ...:
            del call["id"]
        tool_calls.append(call)
    message = {"role": "assistant", "content": "some", "reasoning": "r", "tool_calls": tool_calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return Answer(body=json.dumps({"model": "served", "choices": [choice]}).encode())


def run(lab: Lab, server: ModelServer, *replies: Answer) -> list[dict[str, Any]]:
    """The conversation in which the model gives these replies and then ends."""
    server.script("[p]", *replies, says("end", reasoning="r"))
    lab.use_server(server.url)
    lab.spec["filters"] = {"reject_unknown_tools": False}
    lab.spec["distribution"] = {"terminal": 100, "file": 100}
    lab.write_prompts("[p]")
    assert lab.run("-q").code == 0
    (line,) = lab.lines()
    turns: list[dict[str, Any]] = line["conversations"]
    check_pairs(turns)
    if turns[-1]["from"] == "gpt":
        check_pairs_sent(server)
    lab.assert_sound()
    return turns


def check_pairs(turns: list[dict[str, Any]]) -> None:
    """After each turn with calls come exactly its results, in order, each under its id and name."""
    seen: list[str] = []
    place = 0
    while place < len(turns):
        calls = turns[place]["tool_calls"]
        results = turns[place + 1 : place + 1 + len(calls)]
        assert [(r["from"], r["tool_call_id"], r["name"]) for r in results] == [
            ("tool", call["id"], call["name"]) for call in calls
        ]
        seen += [call["id"] for call in calls]
        place += 1 + len(calls)
    assert all(isinstance(given, str) and given for given in seen)
    assert len(set(seen)) == len(seen), "an id stands for two calls"


def check_pairs_sent(server: ModelServer) -> None:
    """The same of what the model was sent: the last request holds it all."""
    waiting: list[tuple[str, str]] = []
    for message in server.requests[-1].messages:
        if message["role"] == "tool":
            assert waiting.pop(0)[0] == message["tool_call_id"]
        else:
            assert not waiting, "a call without its result"
            waiting = [(c["id"], c["function"]["name"]) for c in message.get("tool_calls") or ()]
    assert not waiting


def results_of(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(turn["value"]) for turn in turns if turn["from"] == "tool"]


def test_results_stand_in_the_order_of_the_calls_whatever_each_takes(lab: Lab, server: ModelServer) -> None:
    turns = run(
        lab,
        server,
        calling(
            ("a", "terminal", {"command": "sleep 0.3; echo one"}),
            ("b", "terminal", {"command": "echo two"}),
            ("c", "terminal", {"command": "sleep 0.1; exit 3"}),
        ),
    )
    assert [(r["output"].strip(), r["exit_code"]) for r in results_of(turns)] == [
        ("one", 0),
        ("two", 0),
        ("", 3),
    ]
    assert [call["id"] for call in turns[1]["tool_calls"]] == ["a", "b", "c"]
    assert lab.lines()[0]["tool_stats"]["terminal"] == {"count": 3, "success": 3, "failure": 0}


def test_known_calls_run_beside_invented_ones_and_broken_ones(lab: Lab, server: ModelServer) -> None:
    turns = run(
        lab,
        server,
        calling(
            ("a", "no_such_tool", {}),
            ("b", "terminal", {"command": "echo ran"}),
            ("c", "terminal", '{"command": "echo no'),
            ("d", "read_file", {"path": "/nowhere/at/all"}),
            ("e", "terminal", {}),
            ("f", "terminal", "[1]"),
            ("g", "Terminal", {"command": "echo no"}),
        ),
    )
    invented, ran, broken, missing, lacking, listed, other_case = results_of(turns)
    assert "read_file" in invented["error"]
    assert "terminal" in invented["error"]
    assert (ran["output"].strip(), ran["error"]) == ("ran", None)
    assert all("error" in each for each in (broken, missing, lacking, listed, other_case))
    (line,) = lab.lines()
    assert line["tool_stats"]["terminal"] == {"count": 4, "success": 1, "failure": 3}
    assert line["tool_stats"]["read_file"] == {"count": 1, "success": 0, "failure": 1}
    assert "no_such_tool" not in line["tool_stats"]
    assert json.loads(line["metadata"]["unknown_tools"]) == ["no_such_tool", "Terminal"]


IDS: dict[str, list[list[Any]]] = {
    "the same in one turn": [["x", "x", "x"]],
    "the same in every turn": [["x"], ["x"], ["x"]],
    "left out": [[..., ...], [...]],
    "null, empty and a number": [[None, "", 7], [7, "", None]],
    "like ours": [["call00000", ..., "call00001"], [..., "call00100"]],
    "half a character": [["\ud835", "\ud835"], ["\ud835"]],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_that_repeat_or_are_missing_are_made_unique(lab: Lab, server: ModelServer, kind: str) -> None:
    replies = [
        calling(*((given, "terminal", {"command": f"echo {n}"}) for n, given in enumerate(ids)))
        for ids in IDS[kind]
    ]
    turns = run(lab, server, *replies)
    outputs = [result["output"].strip() for result in results_of(turns)]
    assert outputs == [str(n) for ids in IDS[kind] for n in range(len(ids))]


def test_equal_runs_with_other_ids_are_equal(lab: Lab, server: ModelServer, tmp_path: Any) -> None:
    other = type(lab)(tmp_path / "other")
    hashes = []
    for each, ids in ((lab, ("a", "b")), (other, ("zz", ...))):
        server.requests.clear()
        run(each, server, calling(*((given, "terminal", {"command": "echo hi"}) for given in ids)))
        hashes.append([entry["hash"] for entry in each.lines("manifest.jsonl")])
    assert hashes[0] == hashes[1]
    assert lab.call("diff", str(lab.run_dir), str(other.run_dir), "--json").json()["changed"] == []


def test_three_turns_in_a_row_with_nothing_valid_end_partial(lab: Lab, server: ModelServer) -> None:
    bad = calling(("a", "no_such_tool", {}), ("b", "terminal", "{"))
    mixed = calling(("a", "no_such_tool", {}), ("b", "terminal", {"command": "true"}))
    turns = run(lab, server, bad, bad, mixed, bad, bad, bad, bad)
    assert sum(turn["from"] == "gpt" for turn in turns) == 6
    assert turns[-1]["from"] == "tool"
    (line,) = lab.lines()
    assert (line["metadata"]["stop_reason"], line["partial"]) == ("invalid_tool_calls", True)


def test_calls_of_the_last_turn_allowed_are_answered_too(lab: Lab, server: ModelServer) -> None:
    lab.spec["agent"] = {"max_turns": 1}
    command = {"command": "echo hi"}
    turns = run(lab, server, calling(("a", "terminal", command), ("b", "terminal", command)))
    assert [turn["from"] for turn in turns] == ["human", "gpt", "tool", "tool"]
    assert lab.lines()[0]["metadata"]["stop_reason"] == "max_turns"
    assert len(server.requests) == 1
