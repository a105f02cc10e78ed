"""Resume is arithmetic: pending = plan - done. Never lose, never repeat."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

from tests.flow.lab import Lab
from tests.flow.replies import conversations, turns
from tests.servers import says

if TYPE_CHECKING:
    from tests.servers import Answer, ModelServer, Request


def served(lab: Lab, server: ModelServer, *prompts: str) -> None:
    lab.use_server(server.url)
    lab.write_prompts(*prompts)


def test_the_same_command_again_does_nothing(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(2)
    served(lab, server, "a", "b", "c", "d")
    assert lab.run().code == 0
    before, asked = lab.outputs(), len(server.requests)
    again = lab.run()
    assert again.code == 0, again.err
    assert lab.outputs() == before
    assert len(server.requests) == asked
    lab.assert_sound()


def test_a_row_added_on_top_runs_on_resume(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(2)
    served(lab, server, "a", "b", "c", "d")
    assert lab.run().code == 0
    lab.write_prompts("e", "a", "b", "c", "d")
    assert lab.run().code == 0
    assert conversations(server) == dict.fromkeys("abcde", 1)
    lines = lab.lines()
    assert [line["prompt_index"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["conversations"][0]["value"] for line in lines] == list("eabcd")
    lab.assert_sound()


def test_a_row_that_is_taken_out_stays_in_the_store_and_out_of_the_merge(
    lab: Lab, server: ModelServer
) -> None:
    server.respond = turns(2)
    served(lab, server, "a", "b", "c")
    assert lab.run().code == 0
    lab.write_prompts("c", "a")
    assert lab.run().code == 0
    assert [line["conversations"][0]["value"] for line in lab.lines()] == ["c", "a"]
    assert lab.statistics()["outcomes"]["completed"] == 2
    status = lab.call("status", str(lab.run_dir), "--json").json()
    assert status["outside_plan"] == 1
    assert status["pending"] == 0
    lab.write_prompts("a", "b", "c")
    assert lab.run().code == 0
    assert conversations(server) == {"a": 1, "b": 1, "c": 1}
    lab.assert_sound()


def test_equal_prompts_are_distinct_rollouts_also_after_a_kill(lab: Lab, server: ModelServer) -> None:
    lab.spec["workers"] = 1
    served(lab, server, "[a] name a prime", "[a] name a prime", "[a] name a prime", "[b]", "[a] name a prime")
    server.respond = lambda _: says("7", reasoning="r", delay_s=0 if len(server.requests) < 2 else 60)
    child = lab.start()
    while not (lab.run_dir / "journal.jsonl").exists() or not (lab.run_dir / "journal.jsonl").stat().st_size:
        assert child.poll() is None
    child.kill()
    child.communicate()
    before = len(server.requests)
    server.respond = turns(1)
    assert lab.run().code == 0
    assert len(server.requests) - before == 4
    lines = lab.lines()
    assert len({line["key"] for line in lines}) == len(lines) == 5
    assert {line["key"].split("#")[1] for line in lines} == {"0", "1", "2", "3"}
    lab.assert_sound()


def test_only_dedupe_removes_copies_and_says_how_many(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    lab.spec["dataset"] = {"path": "data.jsonl", "dedupe": True}
    served(lab, server, "[a]", "[a]", "[a]", "[b]", "[a]")
    lab.spec["dataset"] = {"path": "data.jsonl", "dedupe": True}
    result = lab.run()
    assert result.code == 0
    assert len(lab.lines()) == 2
    assert "3 duplicates removed" in result.out + result.err
    assert json.loads((lab.run_dir / "plan.json").read_text())["removed"] == 3
    lab.assert_sound()


def test_a_longer_run_and_more_samples_add_only_what_is_missing(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    served(lab, server, *(f"[{n}]" for n in range(10)))
    for limit, samples, more, total in ((3, 1, 3, 3), (10, 1, 7, 10), (10, 2, 10, 20), (4, 1, 0, 4)):
        lab.spec["dataset"] = {"path": "data.jsonl", "max_samples": limit}
        lab.spec["samples"] = samples
        before = len(server.requests)
        assert lab.run().code == 0
        assert len(server.requests) - before == more
        assert len(lab.lines()) == total
        assert len(lab.lines("manifest.jsonl")) == max(total, len(server.requests))
        lab.assert_sound()


def test_discards_are_never_paid_again_and_come_back_with_the_filter_off(
    lab: Lab, server: ModelServer
) -> None:
    server.script("[c1]", says("x"))
    server.script("[c2]", says("y"))
    server.script("[c3]", says("z", reasoning="r"))
    server.script("[c4]", says("w", reasoning="r", delay_s=60))
    served(lab, server, "[c1]", "[c2]", "[c3]", "[c4]")
    child = lab.start()
    journal = lab.run_dir / "journal.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert child.poll() is None
    child.kill()
    child.communicate()
    server.script("[c4]", says("w", reasoning="r"))
    for _ in range(2):
        assert lab.run().code == 0
    begun = conversations(server)
    assert (begun["[c1]"], begun["[c2]"], begun["[c3]"]) == (1, 1, 1)
    assert lab.statistics()["discarded"] == {"no_reasoning": 2}
    assert len(lab.lines()) == 2
    asked = len(server.requests)
    lab.spec["filters"] = {"require_reasoning": False}
    assert lab.run().code == 0
    assert len(server.requests) == asked
    assert len(lab.lines()) == 4
    assert lab.statuses() == {"completed": 4}
    lab.assert_sound()


def test_failed_is_tried_again_and_never_replaces_a_trajectory(lab: Lab, server: ModelServer) -> None:
    server.script("[f]", says(None))
    server.script("[g]", says("fine", reasoning="r"))
    served(lab, server, "[f]", "[g]")
    first = lab.run()
    assert first.code == 1
    assert lab.entries()[lab.lines("manifest.jsonl")[0]["key"]]["status"] in {"failed", "completed"}
    assert lab.statistics()["failed"] == {"empty_reply": 1}
    assert lab.run("--retry", "none").code == 1
    begun = conversations(server)
    server.script("[f]", says("now", reasoning="r"))
    assert lab.run().code == 0
    assert conversations(server)["[g]"] == begun["[g]"] == 1
    server.respond = lambda _: says(None)
    assert lab.run("--retry", "failed,partial").code == 0
    assert lab.statuses() == {"completed": 2}
    lab.assert_sound()


def test_partial_is_run_again_only_when_asked(lab: Lab, server: ModelServer) -> None:
    lab.spec["agent"] = {"max_turns": 2}
    server.respond = turns(5)
    served(lab, server, "[p]")
    assert lab.run().code == 0
    assert lab.lines()[0]["partial"]
    assert lab.lines()[0]["metadata"]["stop_reason"] == "max_turns"
    assert lab.lines()[0]["conversations"][-1]["from"] == "tool"
    asked = len(server.requests)
    assert lab.run().code == 0
    assert len(server.requests) == asked
    server.respond = turns(1)
    assert lab.run("--retry", "partial").code == 0
    assert lab.statuses() == {"completed": 1}
    assert lab.statistics()["outcomes"]["partial"] == 0
    lab.assert_sound()


def test_statistics_are_the_same_with_and_without_an_interruption(lab: Lab, server: ModelServer) -> None:
    def respond(request: Request) -> Answer:
        wanted = int(request.prompt[2])
        if request.turn < wanted:
            missing = {"command": "ls", "workdir": "/nowhere"} if request.turn % 3 == 2 else {"command": "ls"}
            return says("", calls=[("terminal", missing)], reasoning="r")
        return says("end", reasoning="r", finish_reason="length" if wanted == 2 else None)

    server.respond = respond
    lab.spec["batch_size"], lab.spec["workers"] = 2, 1
    served(lab, server, *(f"[e{n}]" for n in range(1, 7)))
    assert lab.run().code == 0
    straight = lab.outputs()
    broken = Lab(lab.folder.with_name("broken"), dict(lab.spec))
    broken.write_prompts(*(f"[e{n}]" for n in range(1, 7)))
    child = broken.start()
    journal = broken.run_dir / "journal.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert child.poll() is None
    child.kill()
    child.communicate()
    assert broken.run().code == 0
    assert broken.outputs() == straight
    statistics = broken.statistics()
    assert statistics["tool_statistics"]["terminal"]["count"] == 21
    assert statistics["partial"] == {"truncated": 1}
    broken.assert_sound()


def test_first_sigint_drains_and_the_resume_command_is_told(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(2, delay_s=1.0)
    served(lab, server, *(f"[{n}]" for n in range(8)))
    child = lab.start()
    while len(server.requests) < 8:
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "hermes-run" in out + err
    assert "Traceback" not in out + err
    assert lab.statuses() == {"completed": 4}
    assert lab.statistics()["outcomes"]["pending"] == 4
    before = conversations(server)
    assert lab.run().code == 0
    finished = {line["conversations"][0]["value"] for line in lab.lines()}
    assert len(finished) == 8
    assert sum(conversations(server).values()) == 8
    assert all(conversations(server)[name] == 1 for name in before)
    lab.assert_sound()


def test_second_sigint_leaves_at_once(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(2, delay_s=30)
    served(lab, server, *(f"[{n}]" for n in range(8)))
    child = lab.start()
    while len(server.requests) < 4:
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    server.respond = turns(2)
    assert lab.run().code == 0
    assert len(lab.lines()) == 8
    lab.assert_sound()


def test_sigterm_ends_with_143(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(2, delay_s=0.5)
    served(lab, server, *(f"[{n}]" for n in range(8)))
    child = lab.start()
    while len(server.requests) < 4:
        assert child.poll() is None
    child.terminate()
    child.communicate(timeout=30)
    assert child.returncode == 143
    server.respond = turns(2)
    assert lab.run().code == 0
    lab.assert_sound()
