"""A run directory of the predecessor taken over: every line and row accounted for, nothing run again."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.keys import content_key
from hermes_run.core.registry import TOOLS
from tests import predecessor
from tests.flow.lab import Lab, read_lines
from tests.flow.replies import conversations, turns
from tests.predecessor import INVENTED, THEIRS, Old, conversation, line, prompts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import ModelServer


@pytest.fixture
def old(lab: Lab) -> Old:
    return Old(lab.folder)


def imported(lab: Lab, old: Old, *words: str) -> dict[str, Any]:
    """Import into the lab's run directory; the account."""
    done = lab.call("import", str(old.run_dir), "-o", str(lab.run_dir), "--json", *words)
    assert done.code == 0, done.err
    account: dict[str, Any] = done.json()
    sound = lab.call("verify", str(lab.run_dir))
    assert sound.code == 0, sound.err
    return account


def with_dataset(lab: Lab, old: Old) -> dict[str, Any]:
    return imported(lab, old, "--dataset", str(old.dataset))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def by_prompt(lab: Lab) -> dict[str, dict[str, Any]]:
    """Prompt -> trajectory, of all that is kept in the batch files."""
    found = {}
    for path in lab.run_dir.glob("batch_*.jsonl"):
        for kept in read_lines(path):
            found[next(t["value"] for t in kept["conversations"] if t["from"] == "human")] = kept
    return found


def test_three_hundred_rows_with_every_known_fault(lab: Lab, old: Old, server: ModelServer) -> None:
    rows = prompts(300)
    old.write(rows)
    before = bytes_of(old.run_dir)
    account = with_dataset(lab, old)
    assert bytes_of(old.run_dir) == before

    expected = Counter(old.expected.values())
    assert account["rows"] == sum(expected.values()) == 300
    assert account["pending"] == expected["pending"]
    assert account["outcomes"] == {
        "completed": expected["completed"],
        "partial": expected["partial"],
        "discarded": expected["discarded"],
        "failed": 0,
        "invalid": 0,
    }
    assert account["adopted"] == account["in_plan"] == 300 - expected["pending"]
    assert account["records"] == account["adopted"] + account["duplicates"]
    assert account["set_aside_why"] == {
        "torn: no whole JSON object": 6,
        "no assistant turn: it came to nothing there": 3,
    }
    assert account["unknown_tools"] == {INVENTED: 3}
    assert account["other_tools"] == {THEIRS: {"count": 3, "success": 3, "failure": 0}}
    entries = lab.entries()
    status_of = {f"{content_key(row)}#0": old.expected[row] for row in rows if old.expected[row] != "pending"}
    assert {key: entry["status"] for key, entry in entries.items()} == status_of

    server.respond = turns(2)
    lab.use_server(server.url)
    lab.spec |= {"dataset": {"path": str(old.dataset)}, "workers": 16, "batch_size": 20}
    done = lab.run()
    assert done.code == 0, done.err
    told = [line for line in done.err.splitlines() if "warning" in line]
    assert [line for line in told if "dead runs" not in line] == []  # those are not this test's
    pending = [row for row in rows if old.expected[row] == "pending"]
    assert conversations(server) == dict.fromkeys(pending, 1)
    lab.assert_sound()
    works = lab.statistics()["works"]
    assert works.pop("imported") == 300 - len(pending)
    assert list(works.values()) == [len(pending)]
    merged = lab.lines()
    assert [kept["prompt_index"] for kept in merged] == [
        place for place, row in enumerate(rows) if old.expected[row] != "discarded"
    ]
    assert len({str(types_of(kept)) for kept in merged}) == 1
    again = lab.run()
    assert again.code == 0
    assert len(conversations(server)) == len(pending)


def types_of(value: Any) -> Any:
    """Keys and kinds of a line; what is in lists is left out."""
    if isinstance(value, dict):
        return {name: types_of(item) for name, item in value.items()}
    return type(value).__name__


def test_the_bytes_that_no_record_could_be_made_of_are_kept(lab: Lab, old: Old) -> None:
    old.write(prompts(100))
    with_dataset(lab, old)
    source = (old.run_dir / "batch_0.jsonl").read_bytes()
    (torn,) = (lab.run_dir / "imported-batch_0.jsonl.bad").read_bytes().splitlines()
    assert torn in source
    assert torn.startswith(b'{"prompt_index": 7,')
    pieces = json.loads((lab.run_dir / "imported.json").read_text())["set_aside_pieces"]
    assert {(each["file"], each["line"]) for each in pieces} == {
        ("batch_0.jsonl", 8),
        ("batch_1.jsonl", 10),
        ("batch_6.jsonl", 1),
    }


def test_a_record_becomes_one_of_ours(lab: Lab, old: Old) -> None:
    old.write_dataset([{"prompt": "p", "level": 3}])
    old.write_files({"batch_4.jsonl": line(0, "p", 4, ("terminal", THEIRS, INVENTED)) + "\n"})
    account = with_dataset(lab, old)
    assert (account["unknown_tools"], account["outcomes"]["discarded"]) == ({INVENTED: 1}, 1)
    kept = by_prompt(lab)["p"]
    assert [turn["from"] for turn in kept["conversations"]] == ["human", "gpt", "tool", "tool", "tool", "gpt"]
    first = kept["conversations"][1]
    assert (first["value"], first["reasoning"]) == ("On it.", "I look.")
    assert [call["name"] for call in first["tool_calls"]] == ["terminal", THEIRS, INVENTED]
    results = [(t["tool_call_id"], t["name"]) for t in kept["conversations"] if t["from"] == "tool"]
    assert results == [(call["id"], call["name"]) for call in first["tool_calls"]]
    about = kept["metadata"]
    assert (about["model"], about["work"], about["row"]) == ("old/model", "imported", '{"level":3}')
    assert about["timestamp"].startswith("2026-01-15T10:30")
    assert json.loads(about["unknown_tools"]) == [INVENTED]
    assert list(kept["tool_stats"]) == list(TOOLS)
    assert kept["tool_stats"]["terminal"] == {"count": 1, "success": 1, "failure": 0}
    (entry,) = lab.entries().values()
    assert entry["cost"] is None
    assert entry["usage"]["calls_without_usage"] == entry["usage"]["calls"] == 2
    assert lab.statistics()["tokens"]["calls_without_usage"] == 2
    assert lab.statistics()["cost"] is None
    details = json.loads((lab.run_dir / "imported.json").read_text())
    assert details["system_turns"] == [{"records": 1, "value": predecessor.system_turn()}]
    tools = json.loads((lab.run_dir / "tools.json").read_text())
    assert [tool["function"]["name"] for tool in tools] == ["terminal"]


def test_equal_prompts_get_their_ordinals_in_order_whatever_the_indices_say(lab: Lab, old: Old) -> None:
    old.write_dataset(["same", "other", "same", "same"])
    texts = [line(2, "same", 0, reasoning="first"), line(99, "same", 0, reasoning="second")]
    old.write_files({"batch_0.jsonl": "\n".join([*texts, line(0, "other", 0)]) + "\n"})
    account = with_dataset(lab, old)
    assert (account["in_plan"], account["pending"]) == (3, 1)
    said = {kept["key"]: kept["conversations"][1]["reasoning"] for kept in lab.lines()}
    key = content_key("same")
    assert [said[f"{key}#0"], said[f"{key}#1"]] == ["first", "second"]
    assert f"{key}#2" not in lab.entries()


def test_rows_of_one_prompt_with_other_work_take_the_records_whose_index_points_there(
    lab: Lab, old: Old
) -> None:
    rows = [{"prompt": "same", "cwd": "/a"}, {"prompt": "same", "cwd": "/b"}, {"prompt": "same", "cwd": "/a"}]
    old.write_dataset(rows)
    texts = [
        line(77, "same", 0, reasoning="lost"),
        line(1, "same", 0, reasoning="b"),
        line(0, "same", 0, reasoning="a"),
    ]
    old.write_files({"batch_0.jsonl": "\n".join(texts) + "\n"})
    assert with_dataset(lab, old)["pending"] == 0
    kept = {each["key"]: each["conversations"][1]["reasoning"] for each in lab.lines()}
    a, b = content_key("same", cwd="/a"), content_key("same", cwd="/b")
    assert kept == {f"{a}#0": "lost", f"{a}#1": "a", f"{b}#0": "b"}


def test_of_more_records_than_rows_the_best_is_planned_and_the_others_are_kept(lab: Lab, old: Old) -> None:
    old.write_dataset(["p"])
    texts = [
        line(0, "p", 0, reasoning="", completed=True),
        line(0, "p", 0, completed=False),
        line(0, "p", 0, reasoning="best"),
        line(1, "elsewhere", 0),
    ]
    old.write_files({"batch_0.jsonl": "\n".join(texts)})
    account = with_dataset(lab, old)
    assert (account["adopted"], account["in_plan"]) == (4, 1)
    assert account["outside_plan"] == {"not in the dataset": 1, "surplus": 2}
    assert [kept["conversations"][1]["reasoning"] for kept in lab.lines()] == ["best"]
    key = content_key("p")
    statuses = {key: entry["status"] for key, entry in lab.entries().items()}
    assert [statuses[f"{key}#{n}"] for n in range(3)] == ["completed", "discarded", "partial"]
    status = lab.call("status", str(lab.run_dir), "--json").json()
    assert (status["outside_plan"], status["outcomes"]["completed"]) == (3, 1)


def test_white_space_around_a_prompt_does_not_matter(lab: Lab, old: Old) -> None:
    old.write_dataset(["p\n", "q"])
    old.write_files({"batch_0.jsonl": line(0, "p", 0) + "\n" + line(1, " q", 0) + "\n"})
    assert with_dataset(lab, old)["pending"] == 0


def test_without_a_dataset_every_record_is_a_row(lab: Lab, old: Old, server: ModelServer) -> None:
    old.write_dataset(["new", "b", "a"])
    old.write_files({"trajectories.jsonl": line(5, "a", 0) + "\n" + line(6, "b", 0) + "\n" + line(7, "a", 1)})
    account = imported(lab, old)
    assert (account["rows"], account["pending"], account["outcomes"]["completed"]) == (3, 0, 3)
    assert set(lab.entries()) == {f"{content_key('a')}#0", f"{content_key('a')}#1", f"{content_key('b')}#0"}
    server.respond = turns(1)
    lab.use_server(server.url)
    lab.spec["dataset"] = {"path": str(old.dataset)}
    assert lab.run().code == 0
    assert conversations(server) == {"new": 1}
    assert lab.call("status", str(lab.run_dir), "--json").json()["outside_plan"] == 1


def test_rows_that_cannot_be_run_count_as_invalid(lab: Lab, old: Old) -> None:
    old.write_dataset(["p", {"prompt": ""}, "q"])
    old.write_files({"batch_0.jsonl": line(0, "p", 0)})
    account = with_dataset(lab, old)
    assert (account["rows"], account["outcomes"]["invalid"], account["pending"]) == (3, 1, 1)


def test_a_dataset_of_another_run_is_told(lab: Lab, old: Old) -> None:
    old.write_files({"batch_0.jsonl": line(0, "p", 0)})
    lab.write_rows([{"prompt": "another"}, {"prompt": ""}], "another.jsonl")
    done = lab.call("import", str(old.run_dir), "--dataset", "another.jsonl")
    assert done.code == 0, done.err
    assert "another.jsonl has the prompt of no record" in done.out
    assert "1 row of another.jsonl cannot be run" in done.out


def test_a_second_spec_is_refused_once_the_first_has_run(lab: Lab, old: Old, server: ModelServer) -> None:
    old.write_dataset(["p", "q"])
    old.write_files({"batch_0.jsonl": line(0, "p", 0)})
    with_dataset(lab, old)
    server.respond = turns(1)
    lab.use_server(server.url)
    lab.spec["dataset"] = {"path": str(old.dataset)}
    assert lab.run("--set", "agent.max_turns=5").code == 0
    assert lab.run("--set", "agent.max_turns=6").code == 2
    assert conversations(server) == {"q": 1}


def test_filters_of_the_spec_judge_what_was_taken_over(lab: Lab, old: Old, server: ModelServer) -> None:
    old.write_dataset(["p"])
    old.write_files({"batch_0.jsonl": line(0, "p", 0, reasoning="")})
    assert with_dataset(lab, old)["reasons"] == {"no_reasoning": 1}
    lab.use_server(server.url)
    lab.spec |= {"dataset": {"path": str(old.dataset)}, "filters": {"require_reasoning": False}}
    assert lab.run().code == 0
    assert lab.statistics()["outcomes"]["completed"] == 1
    assert not server.requests


def test_two_imports_of_one_directory_are_the_same(lab: Lab, old: Old) -> None:
    old.write(prompts(100))
    with_dataset(lab, old)
    second = lab.folder / "data" / "second"
    lab.call("import", str(old.run_dir), "--dataset", str(old.dataset), "-o", str(second))
    assert lab.call("diff", str(lab.run_dir), str(second)).code == 0


def test_the_place_that_is_chosen_is_free(lab: Lab, old: Old) -> None:
    old.write_files({"batch_0.jsonl": line(0, "p", 0)})
    for name in ("my_run", "my_run_imported"):
        done = lab.call("import", str(old.run_dir))
        assert done.code == 0, done.err
        assert f"data/{name}: 1 record" in done.out
    done = lab.call("import", str(old.run_dir))
    assert (done.code, "exists already" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "no folder; DIR is a run directory of hermes-agent"),
        (("empty",), "holds neither batch_N.jsonl nor trajectories.jsonl"),
        (("ours",), "is a run directory of hermes-run already"),
        (("old/my_run", "-o", "old/my_run"), "which import never changes"),
        (("old/my_run", "-o", "old/my_run/new"), "which import never changes"),
        (("old/my_run", "-o", "empty"), "exists already"),
        (("old/my_run", "-o", "new/.name"), "is no run name"),
        (("old/my_run", "-o", "new/name", "--dataset", "none.jsonl"), "none.jsonl"),
        (("old/my_run/batch_0.jsonl",), "no folder; DIR is a run directory of hermes-agent"),
        (
            ("old/my_run", "-o", "new/name", "--dataset", "other.jsonl"),
            "other.jsonl: no row of it can be run (line 1",
        ),
        ((), "dir"),
    ],
)
def test_what_cannot_be_imported_is_refused(lab: Lab, old: Old, words: tuple[str, ...], message: str) -> None:
    old.write_files({"batch_0.jsonl": line(0, "p", 0)})
    for name in ("empty", "ours"):
        (lab.folder / name).mkdir()
    (lab.folder / "ours" / "journal.jsonl").touch()
    (lab.folder / "other.jsonl").write_text('{"text": "p"}\n')
    before = bytes_of(old.run_dir)
    done = lab.call("import", *words)
    assert done.code == 2, done.err
    assert message in done.err.lower() if message == "dir" else message in done.err
    assert bytes_of(old.run_dir) == before
    assert not (lab.folder / "new").exists() or not any((lab.folder / "new").iterdir())


def test_a_file_cut_at_any_byte_gives_the_records_before(lab: Lab, old: Old) -> None:
    whole = (line(0, "p ø", 0) + "\n" + line(1, "q", 0) + "\n").encode()
    for number, cut in enumerate(range(1, len(whole), len(whole) // 12)):
        old.write_files({"batch_0.jsonl": whole[:cut]})
        out = lab.folder / "cut" / f"run{number}"
        done = lab.call("import", str(old.run_dir), "-o", str(out), "--json")
        assert done.code == 0, done.err
        assert done.json()["records"] == whole[:cut].count(b"\n") + 0
        assert done.json()["lines"] == done.json()["records"] + done.json()["set_aside"]


@pytest.mark.parametrize("others", ["ours", "theirs"])
def test_what_was_taken_over_merges_with_a_run_and_the_sum_is_resumed(
    lab: Lab, old: Old, server: ModelServer, others: str
) -> None:
    old.write_dataset(["p", "q", "r"])
    old.write_files({"batch_0.jsonl": line(0, "p", 0)})
    taken = lab.folder / "data" / "taken"
    assert lab.call("import", str(old.run_dir), "-o", str(taken), "--dataset", str(old.dataset)).code == 0
    server.respond = turns(1)
    lab.use_server(server.url)
    lab.spec["dataset"] = {"path": str(old.dataset)}
    second = lab.folder / "data" / "second"
    if others == "ours":
        assert lab.run("--run-name", "second", "--max-samples", "2").code == 0
    else:
        old.write_files({"batch_0.jsonl": line(1, "q", 0)})
        assert (
            lab.call("import", str(old.run_dir), "-o", str(second), "--dataset", str(old.dataset)).code == 0
        )
    merged = lab.call("merge", str(taken), str(second), "-o", str(lab.run_dir))
    assert merged.code == 0, merged.err
    before = Counter(conversations(server))
    done = lab.run()
    assert done.code == 0, done.err
    assert Counter(conversations(server)) - before == {"r": 1}
    lab.assert_sound()


def test_a_part_of_what_was_taken_over_can_be_chosen(lab: Lab, old: Old) -> None:
    old.write(prompts(100))
    with_dataset(lab, old)
    done = lab.call("select", str(lab.run_dir), "--status", "discarded", "-o", str(lab.folder / "data/part"))
    assert done.code == 0, done.err
    assert len(read_lines(lab.folder / "data/part/manifest.jsonl")) == 2
    assert lab.call("verify", str(lab.folder / "data/part")).code == 0


def test_the_column_that_holds_the_prompt_can_be_named(lab: Lab, old: Old) -> None:
    old.write(prompts(6))
    rows = [json.loads(text) for text in old.dataset.read_text().splitlines()]
    rows = [{"question": row.pop("prompt"), **row} for row in rows]
    old.dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    account = imported(lab, old, "--dataset", str(old.dataset), "--prompt-field", "question")
    assert account["rows"] == 6
    assert account["in_plan"] == account["adopted"] > 0
    alone = lab.call("import", str(old.run_dir), "-o", "data/other", "--prompt-field", "question")
    assert alone.code == 2
    assert "--dataset FILE" in alone.err


def test_what_a_model_made_up_cannot_reach_the_terminal(lab: Lab, old: Old) -> None:
    old.write_dataset(["a", "b", "c"])
    invented = ("\x1b[31mred", "x" * 5000, *(f"name_{n}" for n in range(20)))
    odd = [{"from": "human", "value": "b"}, {"from": "\x1b[2J", "value": "y" * 5000}]
    lines = [line(0, "a", 0, ("terminal", *invented)), line(1, "b", 0, conversations=odd)]
    old.write_files({"batch_0.jsonl": "".join(f"{text}\n" for text in lines)})
    done = lab.call("import", str(old.run_dir), "--dataset", str(old.dataset))
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "and 12 more" in done.out
    assert max(map(len, done.out.splitlines())) < 1500
    account = json.loads((lab.folder / "data/my_run/imported.json").read_text())
    assert set(account["unknown_tools"]) == set(invented)


def test_a_checkpoint_alone_is_a_run_that_came_to_nothing(lab: Lab, old: Old) -> None:
    """There, all was discarded and called completed."""
    old.write_dataset(["a", "b", "c"])
    checkpoint = {"run_name": "my_run", "completed_prompts": [0, 1], "batch_stats": {}, "last_updated": "x"}
    old.write_files({"checkpoint.json": json.dumps(checkpoint)})
    done = lab.call("import", str(old.run_dir), "--dataset", str(old.dataset))
    assert done.code == 0, done.err
    assert "has no record of 2 of them" in done.out
    told = lab.call("status", "data/my_run", "--json").json()
    assert (told["pending"], sum(told["outcomes"].values())) == (3, 0)
    assert lab.call("verify", "data/my_run").code == 0


def test_half_characters_are_taken_over_wherever_they_stand(lab: Lab, old: Old) -> None:
    """A text that was cut in the middle of a pair: in a tool's description, a name, a model, a path."""
    half = "\ud83d"
    tools = [
        {"name": "terminal", "description": f"cut {half}", "parameters": {half: 1}},
        {"name": f"x{half}"},
    ]
    turns_of_it = conversation(f"a {half}", ("terminal", f"y{half}"))
    turns_of_it[0]["value"] = f"{half}<tools>\n{json.dumps(tools)}\n</tools>"
    record = json.loads(line(0, "a", 0)) | {"conversations": turns_of_it, "toolsets_used": [f"t{half}"]}
    record["metadata"] |= {"model": f"m{half}", "timestamp": f"now{half}"}
    record["tool_stats"][f"z{half}"] = {"count": 1, "success": 1, "failure": 0}
    odd = {"from": half, "value": half}
    lines = [record, record | {"conversations": [odd]}]
    old.write_files(
        {
            "batch_0.jsonl": "".join(json.dumps(each) + "\n" for each in lines),
            "statistics.json": json.dumps({"model": f"m{half}", "distribution": f"d{half}"}),
        }
    )
    odd_place = lab.folder / os.fsdecode(b"caf\xe9")
    shutil.copytree(old.run_dir, odd_place)
    lab.write_rows([json.dumps({"prompt": f"a {half}"})])
    for number, place in enumerate((old.run_dir, odd_place)):
        out = f"data/new{number}"
        done = lab.call("import", str(place), "--dataset", "data.jsonl", "-o", out)
        assert done.code == 0, done.err
        assert lab.call("verify", out).code == 0
        assert sum(lab.call("status", out, "--json").json()["outcomes"].values()) == 1
        for words in (("merge", out, "-o", f"{out}m"), ("status", "--lines", out), ("stats", out)):
            assert lab.call(*words).code == 0


def test_tokens_that_were_never_told_are_unknown_wherever_they_are_shown(lab: Lab, old: Old) -> None:
    old.write_dataset(["p", "q"])
    old.write_files({"batch_0.jsonl": line(0, "p", 0) + "\n"})
    with_dataset(lab, old)
    assert "  unknown tokens  " in lab.call("status", "--lines", str(lab.run_dir)).out
    told = lab.call("diff", str(lab.run_dir), "/dev/null").out
    (row,) = (text.split() for text in told.splitlines() if text.startswith("  tokens"))
    assert row == ["tokens", "unknown", "0"]


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("verify",),
        ("stats",),
        ("repair",),
        ("diff", "/dev/null"),
        ("merge", "-o", "data/x"),
        ("select", "--status", "failed", "--rows", "rows.jsonl"),
    ],
)
def test_what_is_no_run_of_ours_is_told_with_the_command_that_makes_one_of_it(
    lab: Lab, old: Old, words: tuple[str, ...]
) -> None:
    old.write(prompts(100)[:9])
    before = bytes_of(old.run_dir)
    refused = lab.call(words[0], str(old.run_dir), *words[1:])
    assert (refused.code, refused.out) == (2, "")
    assert f"hermes-run import {old.run_dir}" in refused.err
    assert "repair" not in refused.err
    assert bytes_of(old.run_dir) == before
