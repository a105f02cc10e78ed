"""One rollout end to end: what is sent, what is kept, how it ends."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.flow.replies import turns
from tests.servers import Answer, Request, fails, says

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import ModelServer


def terminal(command: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "terminal", {"command": command, **arguments}


def test_system_prompt_is_saved_and_ephemeral_prompt_and_prefill_are_only_sent(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    lab.write_prompts("the task")
    prefill = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "indeed"}]
    (lab.folder / "prefill.json").write_text(json.dumps(prefill))
    lab.spec["agent"] = {
        "system_prompt": "be brief",
        "ephemeral_system_prompt": "today is Monday",
        "prefill_messages_file": "prefill.json",
    }
    server.respond = turns(1)
    assert lab.run().code == 0
    sent = server.requests[0].messages
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "user"]
    assert sent[0]["content"] == "be brief\n\ntoday is Monday"
    assert (sent[1]["content"], sent[2]["content"], sent[3]["content"]) == ("before", "indeed", "the task")
    kept = [(turn["from"], turn["value"]) for turn in lab.lines()[0]["conversations"]]
    assert kept[:2] == [("system", "be brief"), ("human", "the task")]
    assert len(kept) == 3
    everything = "".join(path.read_text() for path in lab.run_dir.glob("*.jsonl"))
    assert "Monday" not in everything
    assert "indeed" not in everything


def test_without_a_system_prompt_the_built_in_one_is_sent_and_not_saved(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    lab.write_prompts("the task")
    server.respond = turns(1)
    assert lab.run().code == 0
    assert server.requests[0].messages[0]["role"] == "system"
    assert [turn["from"] for turn in lab.lines()[0]["conversations"]] == ["human", "gpt"]


def test_the_beginning_of_a_request_is_byte_stable_through_a_rollout(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.write_prompts("the task")
    server.respond = turns(4)
    assert lab.run().code == 0
    bodies = [request.body for request in server.requests]
    for earlier, later in pairwise(bodies):
        assert later.startswith(earlier[: -len(b"]}")])


def test_files_setup_and_cwd_of_a_row_are_there_before_the_first_turn(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.spec["sandbox"] = {"backend": "bubblewrap", "setup": ["export FROM_SPEC=1"]}
    row = {
        "prompt": "go",
        "cwd": "/home/me/project",
        "files": {"src/a b'c.txt": "naïve\n", "-x": "dash"},
        "setup": ["echo $FROM_SPEC > made-by-setup"],
        "id": "row-1",
        "difficulty": 3,
    }
    lab.write_rows([row])
    server.script("go", says("", calls=[terminal("pwd; cat src/*; cat -- -x made-by-setup")]), says("done"))
    lab.spec["filters"] = {"require_reasoning": False}
    result = lab.run()
    assert result.code == 0, result.err
    line = lab.lines()[0]
    answer = json.loads(line["conversations"][2]["value"])
    assert answer == {"output": "/home/me/project\nnaïve\ndash1\n", "exit_code": 0, "error": None}
    assert json.loads(line["metadata"]["row"]) == {"id": "row-1", "difficulty": 3}


def test_a_failing_setup_fails_the_prompt_before_any_model_call(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.write_rows([{"prompt": "[bad]", "setup": ["echo no such thing >&2; exit 3"]}, {"prompt": "[good]"}])
    server.respond = turns(1)
    assert lab.run().code == 1
    assert {request.prompt for request in server.requests} == {"[good]"}
    failed = next(entry for entry in lab.lines("manifest.jsonl") if entry["status"] == "failed")
    assert failed["reason"] == "sandbox_start"
    assert "no such thing" in failed["error"]
    assert "exit code 3" in failed["error"]
    lab.assert_sound()


def test_equal_runs_whose_setup_fails_have_equal_manifests_and_the_words_in_the_log(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    said = "echo pid $$ port 127.0.0.1:$RANDOM in $(mktemp -d) at $(date +%N)"
    lab.write_rows([{"prompt": "a", "setup": [f"{said}; exit 3"]}, {"prompt": "b", "setup": ["cd /$RANDOM"]}])
    texts = []
    for name in ("one", "two"):
        lab.spec["run_name"] = name
        assert lab.run().code == 1
        texts.append((lab.run_dir / "manifest.jsonl").read_text())
        assert "port 127.0.0.1:" in (lab.run_dir / "run.log").read_text()
    assert texts[0] == texts[1]
    assert "exit code 3" in texts[0]


def test_a_prompt_that_runs_out_of_time_is_partial_with_every_call_answered(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    lab.spec["agent"] = {"prompt_timeout_s": 2}
    lab.write_prompts("[tool]", "[model]", "[fine]")
    server.script("[tool]", says("", calls=[terminal("sleep 60"), terminal("echo 2")], reasoning="r"))
    server.script("[model]", says("late", reasoning="r", delay_s=60))
    server.script("[fine]", says("done", reasoning="r"))
    began = time.monotonic()
    assert lab.run().code == 0
    assert time.monotonic() - began < 20
    by_prompt = {line["conversations"][0]["value"]: line for line in lab.lines()}
    assert by_prompt["[fine]"]["completed"]
    for name in ("[tool]", "[model]"):
        assert by_prompt[name]["metadata"]["stop_reason"] == "prompt_timeout"
    turns_of_tool = by_prompt["[tool]"]["conversations"]
    assert [turn["from"] for turn in turns_of_tool] == ["human", "gpt", "tool", "tool"]
    assert [call["id"] for call in turns_of_tool[1]["tool_calls"]] == [
        t["tool_call_id"] for t in turns_of_tool[2:]
    ]
    assert [turn["from"] for turn in by_prompt["[model]"]["conversations"]] == ["human"]
    usage = by_prompt["[model]"]["metadata"]["usage"]  # of a call that was given up: unknown, never zero
    assert (usage["calls"], usage["calls_without_usage"], usage["calls_without_cost"]) == (1, 1, 1)
    assert lab.entries()[by_prompt["[model]"]["key"]]["cost"] is None
    lab.assert_sound()


def test_invented_names_and_broken_arguments_each_get_one_answer_and_three_turns_end_it(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    lab.write_prompts("[mixed]", "[never]")
    mixed = [
        ("no_such_tool", {"a": 1}),
        terminal("echo fine"),
        ("terminal", "{broken"),
        ("terminal", {"cmd": 1}),
    ]
    server.script("[mixed]", says("", calls=mixed, reasoning="r"), says("done"))
    server.script("[never]", says("", calls=[("no_such_tool", {})], reasoning="r"))
    assert lab.run().code == 0
    entries = {entry["reason"]: entry for entry in lab.lines("manifest.jsonl")}
    assert entries["unknown_tool"]["status"] == "discarded"
    assert sum(request.prompt == "[never]" for request in server.requests) == 3
    lab.spec["filters"] = {"reject_unknown_tools": False}
    assert lab.run().code == 0
    by_prompt = {line["conversations"][0]["value"]: line for line in lab.lines()}
    assert by_prompt["[never]"]["metadata"]["stop_reason"] == "invalid_tool_calls"
    line = by_prompt["[mixed]"]
    _, asked, *answers, _ = line["conversations"]
    assert [a["tool_call_id"] for a in answers] == [call["id"] for call in asked["tool_calls"]]
    assert [a["name"] for a in answers] == ["no_such_tool", "terminal", "terminal", "terminal"]
    assert json.loads(answers[1]["value"])["output"] == "fine\n"
    assert "terminal" in json.loads(answers[0]["value"])["error"]
    assert line["tool_stats"]["terminal"] == {"count": 3, "success": 1, "failure": 2}
    assert "no_such_tool" not in line["tool_stats"]
    assert json.loads(line["metadata"]["unknown_tools"]) == ["no_such_tool"]
    lab.assert_sound()


def test_a_context_that_is_too_long_ends_partial_and_keeps_what_was_said(
    lab: Lab, server: ModelServer
) -> None:
    def respond(request: Request) -> Answer:
        if request.turn == 1:
            return fails(
                400, "This model's maximum context length is 10 tokens", code="context_length_exceeded"
            )
        return says("", calls=[terminal("echo hi")], reasoning="r")

    lab.use_server(server.url)
    lab.write_prompts("[long]")
    server.respond = respond
    assert lab.run().code == 0
    line = lab.lines()[0]
    assert line["metadata"]["stop_reason"] == "context"
    assert [turn["from"] for turn in line["conversations"]] == ["human", "gpt", "tool"]


def test_the_sandbox_of_each_prompt_is_its_own(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.write_prompts(*(f"[{n}]" for n in range(6)))

    def respond(request: Request) -> Answer:
        if request.turn == 0:
            command = f"echo {request.prompt} >> mine; sleep 0.2; cat mine; ls /tmp | wc -l; hostname"
            return says("", calls=[terminal(command)], reasoning="r")
        return says("done", reasoning="r")

    server.respond = respond
    assert lab.run().code == 0
    for line in lab.lines():
        output = json.loads(line["conversations"][2]["value"])["output"]
        assert output.splitlines()[0] == line["conversations"][0]["value"]
        assert len(output.splitlines()) == 3


def test_a_warning_with_the_cure_comes_when_the_first_ten_have_no_reasoning(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    lab.write_prompts(*(f"[{n}]" for n in range(12)))
    server.respond = lambda _: says("no thought")
    result = lab.run()
    assert result.code == 0
    assert "first ten prompts were all discarded as no_reasoning" in result.err
    assert "filters.require_reasoning=false" in result.err
