"""`diff`: what changed between two runs, key by key, in sum, per tool, and where trajectories part."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import says

if TYPE_CHECKING:
    from tests.flow.lab import Lab, Result
    from tests.servers import ModelServer

USED = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}


def runs(command: str) -> Any:
    return says("", calls=[("terminal", {"command": command})], reasoning="I look")


@pytest.fixture
def two(lab: Lab, server: ModelServer) -> tuple[Lab, str, str]:
    """Run `a`, and run `b` of the dataset without one row and with another: one changed, one mended."""
    lab.use_server(server.url)
    lab.spec["model"]["name"] = "m"
    lab.write_prompts("[same]", "[other]", "[failing]", "[gone]")
    server.script("[same]", says("as ever", reasoning="r"))
    server.script("[gone]", says("gone", reasoning="r"))
    server.script("[failing]", says(None))
    server.script("[other]", runs("seq 30"), says("thirty", reasoning="r"))
    assert lab.run("-q", "--run-name", "a").code == 1
    lab.write_prompts("[new]", "[same]", "[other]", "[failing]")
    server.script("[new]", says("new", reasoning="r"))
    server.script("[failing]", says("at last", reasoning="r", usage=USED))
    server.script("[other]", runs("seq 30; false; nonsense"), runs("true"), says("thirty", reasoning="r"))
    assert lab.run("-q", "--run-name", "b", "--set", "agent.max_turns=7").code == 0
    return lab, "data/a", "data/b"


def test_what_both_come_to_stands_side_by_side(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    result = lab.call("diff", a, b, "--json")
    found = result.json()
    assert result.code == 1
    assert (found["same"], len(found["changed"]), len(found["only_a"]), len(found["only_b"])) == (1, 2, 1, 1)
    assert found["outcomes"] == {
        "completed": [3, 4],
        "partial": [0, 0],
        "discarded": [0, 0],
        "failed": [1, 0],
    }
    assert found["reasons"] == {"completed": {"finished": [3, 4]}, "failed": {"empty_reply": [1, 0]}}
    assert found["turns"] == [4, 6]
    assert found["tokens"]["total_tokens"][1] == 5 * 15 + 1500
    assert found["cost"] == [None, None]
    assert found["moves"] == [{"from": "failed/empty_reply", "to": "completed/finished", "count": 1}]
    assert (found["fields"]["hash"], found["fields"]["status"]) == (2, 1)
    assert found["tools"]["terminal"]["calls"] == [1, 2]
    assert found["dataset"]["rows"] == [4, 4]
    assert found["dataset"]["hash"][0] != found["dataset"]["hash"][1]
    assert found["spec"] == {"run_name": ["a", "b"], "agent.max_turns": [10, 7]}


def mirrored(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2 and not isinstance(value[0], dict):
        return value[::-1]
    return {name: mirrored(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def test_the_other_way_round_everything_is_mirrored(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    there, back = lab.call("diff", a, b, "--json").json(), lab.call("diff", b, a, "--json").json()
    for name in (
        "outcomes",
        "reasons",
        "turns",
        "tokens",
        "cost",
        "served_models",
        "served_providers",
        "tools",
        "dataset",
        "spec",
    ):
        assert back[name] == mirrored(there[name]), name
    assert (back["only_a"], back["only_b"]) == (there["only_b"], there["only_a"])
    assert [{"from": m["to"], "to": m["from"], "count": m["count"]} for m in back["moves"]] == there["moves"]


def test_manifest_files_alone_say_the_same_of_their_entries(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    whole = lab.call("diff", a, b, "--json").json()
    alone = lab.call("diff", f"{a}/manifest.jsonl", f"{b}/manifest.jsonl", "--json").json()
    assert (alone.pop("tools"), alone.pop("dataset"), alone.pop("spec")) == (None, None, {})
    assert alone.pop("served_providers") is None  # entries do not name them
    assert {name: whole[name] for name in alone} == alone


def test_tools_of_a_run_without_statistics_come_from_its_records(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    before = lab.call("diff", a, b, "--json").json()["tools"]
    for run in (a, b):
        (lab.folder / run / "statistics.json").unlink()
    assert lab.call("diff", a, b, "--json").json()["tools"] == before


def test_trajectories_part_at_the_first_turn_that_differs(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    found = lab.call("diff", a, b, "--trajectories", "--json").json()["trajectories"]
    assert len(found) == 2
    (parted,) = (each for each in found if "missing" not in each)
    (failed,) = (each for each in found if "missing" in each)
    assert failed["missing"] == ["a"]
    assert parted["turn"] == 2
    assert [json.loads(parted[side]["tool_calls"][0]["arguments"])["command"] for side in "ab"] == [
        "seq 30",
        "seq 30; false; nonsense",
    ]
    text = lab.call("diff", a, b, "--trajectories").out
    assert '- calls terminal {"command": "seq 30"}' in text
    assert '+ calls terminal {"command": "seq 30; false; nonsense"}' in text
    assert "no trajectory in data/a" in text


def test_trajectories_want_two_run_directories(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    refused = lab.call("diff", f"{a}/manifest.jsonl", b, "--trajectories")
    assert (refused.code, refused.out) == (2, "")
    assert "--trajectories takes two run directories" in refused.err


def assert_readable(result: Result) -> None:
    assert "\x1b" not in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines()), result.out


def test_it_is_readable_in_eighty_columns_and_without_colours(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    result = lab.call("diff", a, b, "--trajectories")
    assert result.code == 1
    assert_readable(result)
    text = result.out
    assert "1 the same, 2 changed, 1 only in data/a, 1 only in data/b" in text
    assert re.search(r"^  completed +3 +4 +\+1$", text, re.MULTILINE)
    assert re.search(r"^    empty_reply +1 +0 +-1$", text, re.MULTILINE)
    assert "1 x failed/empty_reply -> completed/finished" in text
    assert "  agent.max_turns: 10 -> 7" in text
    assert re.search(r"^  terminal +1 -> 2 +100.0 % -> 100.0 %$", text, re.MULTILINE)


def test_what_a_model_wrote_cannot_reach_the_terminal_as_control_characters(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    lab.write_prompts("p")
    server.script("p", says("\x1b[31mred\x07\r\n" + "x" * 300, reasoning="r"))
    assert lab.run("-q", "--run-name", "a").code == 0
    server.script("p", says("\x1b]0;title\x07\x9b1m" + "x" * 299 + "y", reasoning="r"))
    assert lab.run("-q", "--run-name", "b").code == 0
    result = lab.call("diff", "data/a", "data/b", "--trajectories")
    assert_readable(result)
    assert "\\x1b]0;title\\x07\\x9b1m" in result.out
    assert not {"\x07", "\x9b", "\r"} & set(result.out)


def test_equal_runs_have_nothing_to_tell(two: tuple[Lab, str, str]) -> None:
    lab, a, _ = two
    shutil.copytree(lab.folder / a, lab.folder / "data/copy")
    result = lab.call("diff", a, "data/copy", "--trajectories")
    assert (result.code, result.err) == (0, "")
    assert result.out == "4 the same, 0 changed, 0 only in data/a, 0 only in data/copy\n"
    (lab.folder / "m.jsonl").write_bytes((lab.folder / a / "manifest.jsonl").read_bytes())
    alone = lab.call("diff", "m.jsonl", a)
    assert (alone.code, alone.out) == (0, "4 the same, 0 changed, 0 only in m.jsonl, 0 only in data/a\n")


def test_a_file_that_git_has_not_is_empty(two: tuple[Lab, str, str]) -> None:
    lab, a, _ = two
    found = lab.call("diff", "/dev/null", f"{a}/manifest.jsonl", "--json")
    assert found.code == 1
    assert (len(found.json()["only_b"]), found.json()["only_a"]) == (4, [])


def test_a_manifest_that_comes_through_a_pipe_is_compared_like_a_file(two: tuple[Lab, str, str]) -> None:
    lab, a, b = two
    expected = lab.call("diff", f"{a}/manifest.jsonl", f"{b}/manifest.jsonl", "--json").json()
    pipe = lab.folder / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(
        target=lambda: pipe.write_bytes((lab.folder / a / "manifest.jsonl").read_bytes()), daemon=True
    )
    writer.start()
    found = lab.call("diff", "pipe", f"{b}/manifest.jsonl", "--json")
    writer.join(30)
    assert found.code == 1, found.err
    assert found.json() == expected


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'"turns":1', b'"turns":"x"', "Expected `int`"),
        (b'"status":"completed"', b'"status":"wonderful"', '"wonderful"'),
        (b'"model":"served",', b"", "model"),
    ],
)
def test_a_line_that_is_no_entry_is_told_with_its_file_and_number(
    two: tuple[Lab, str, str], old: bytes, new: bytes, told: str
) -> None:
    lab, a, b = two
    lines = (lab.folder / a / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if b"completed" in line and old in line)
    lines[number] = lines[number].replace(old, new)
    (lab.folder / "bad.jsonl").write_bytes(b"".join(lines))
    for words in (
        ("diff", f"{b}/manifest.jsonl", "bad.jsonl"),
        ("diff", "bad.jsonl", "bad.jsonl"),
        ("merge", "bad.jsonl", f"{b}/manifest.jsonl", "-o", "data/x"),
        ("merge", "bad.jsonl", "-o", "data/x"),
        ("select", "bad.jsonl", "--status", "failed", "-o", "data/x"),
        ("status", "bad.jsonl"),
    ):
        result = lab.call(*words)
        assert result.code == 2, (words, result.out)
        assert f"bad.jsonl:{number + 1}: " in result.err
        assert told in result.err
        assert not (lab.folder / "data/x").exists()
    result = lab.call("verify", "bad.jsonl")
    assert result.code == 1
    assert f"bad.jsonl:{number + 1}: " in result.err
    assert "repair" not in result.err  # which mends run directories


def test_a_run_that_is_going_on_is_compared_as_far_as_it_is_and_that_is_told(
    two: tuple[Lab, str, str],
) -> None:
    lab, a, b = two
    lock = os.open(lab.folder / b / ".lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = lab.call("diff", a, b, "--json")
    finally:
        os.close(lock)
    assert result.code == 1
    assert result.json()["same"] == 1
    assert f"warning: {b}: a run is going on there; compared as far as it is" in result.err


def test_a_long_list_is_cut_unless_all_is_asked_for(two: tuple[Lab, str, str]) -> None:
    lab, a, _ = two
    entry = (lab.folder / a / "manifest.jsonl").read_text().splitlines()[0][43:]
    lines = [f'{{"key":"{n:032x}#0"{entry}\n' for n in range(30)]
    (lab.folder / "many.jsonl").write_text("".join(lines))
    (lab.folder / "none.jsonl").write_text("")
    short = lab.call("diff", "many.jsonl", "none.jsonl").out
    assert short.count("\n- ") == 21
    assert "- and 10 more (--all shows them)" in short
    assert lab.call("diff", "many.jsonl", "none.jsonl", "--all").out.count("\n- ") == 30


def test_a_file_that_a_spec_names_is_compared_by_its_content(lab: Lab) -> None:
    lab.write_tape({"conversations": [{"turns": [{"reasoning": "r", "text": "done"}]}]})
    lab.write_prompts("a")
    assert lab.run("-q", "--run-name", "a").code == 0
    assert lab.run("-q", "--run-name", "b").code == 0
    same = lab.call("diff", "data/a", "data/b", "--json").json()["spec"]
    assert same == {"run_name": ["a", "b"]}
    tape = lab.folder / "tape.yaml"
    tape.write_text(tape.read_text() + "# another word\n")
    assert lab.run("-q", "--run-name", "c").code == 0
    found = lab.call("diff", "data/a", "data/c", "--json").json()["spec"]
    assert found.keys() == {"run_name", "model.script (content)"}
    assert "model.script (content): xxh3:" in lab.call("diff", "data/a", "data/c").out
