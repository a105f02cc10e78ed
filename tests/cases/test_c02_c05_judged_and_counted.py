"""C02 and C05: verdicts are durable and can be taken back unpaid; sums do not know of interruptions."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.lab import Lab
from tests.servers import says

if TYPE_CHECKING:
    from tests.servers import Answer, ModelServer, Request

OFF = {"require_reasoning": False, "reject_unknown_tools": False}
SCRATCHPAD = "<REASONING_SCRATCHPAD>hm</REASONING_SCRATCHPAD> done"


@pytest.fixture
def judged(lab: Lab, server: ModelServer) -> Lab:
    """One rollout of each kind that the filters look at."""
    invented: list[tuple[str, Any]] = [("no_such_tool", {})]
    server.script("[mute]", says("x"))
    server.script("[blank]", says("x", reasoning=" \n"))
    server.script("[scratchpad]", says(SCRATCHPAD))
    server.script("[think]", says("<think>hm</think>done"))
    server.script("[late]", says("", calls=[("terminal", {"command": "true"})]), says("x", reasoning="r"))
    server.script("[cut mute]", says("x", finish_reason="length"))
    server.script("[cut]", says("x", reasoning="r", finish_reason="length"))
    server.script("[invents]", says("", calls=invented, reasoning="r"), says("x"))
    server.script("[invents mute]", says("", calls=invented), says("x"))
    lab.use_server(server.url)
    names = ["mute", "blank", "scratchpad", "think", "late", "cut mute", "cut", "invents", "invents mute"]
    lab.write_prompts(*(f"[{name}]" for name in names))
    return lab


def verdicts(lab: Lab) -> dict[str, str]:
    """Prompt -> status and reason."""
    prompts = {
        line["key"]: line["conversations"][0]["value"]
        for path in sorted(lab.run_dir.glob("batch_*.jsonl"))
        for line in lab.lines(path.name)
    }
    return {prompts[k]: f"{entry['status']} {entry['reason']}" for k, entry in lab.entries().items()}


FILTERED = {
    "[mute]": "discarded no_reasoning",
    "[blank]": "discarded no_reasoning",
    "[scratchpad]": "completed finished",
    "[think]": "completed finished",
    "[late]": "completed finished",
    "[cut mute]": "discarded no_reasoning",
    "[cut]": "partial truncated",
    "[invents]": "discarded unknown_tool",
    "[invents mute]": "discarded no_reasoning",
}
UNFILTERED = dict.fromkeys(FILTERED, "completed finished") | {
    "[cut mute]": "partial truncated",
    "[cut]": "partial truncated",
}
HALF = UNFILTERED | {"[invents]": "discarded unknown_tool", "[invents mute]": "discarded unknown_tool"}


@pytest.mark.slow
def test_filters_changed_to_and_fro_judge_again_and_never_pay(judged: Lab, server: ModelServer) -> None:
    assert judged.run("-q").code == 0
    assert verdicts(judged) == FILTERED
    first = (judged.run_dir / "manifest.jsonl").read_bytes()
    tools = judged.statistics()["tool_statistics"]
    spent, asked = judged.statistics()["spent"], len(server.requests)
    assert asked == 12
    switches: list[tuple[dict[str, bool], dict[str, str]]] = [
        (OFF, UNFILTERED),
        ({"require_reasoning": False}, HALF),
        ({}, FILTERED),
    ]
    for filters, expected in switches:
        judged.spec["filters"] = filters
        assert judged.run("-q").code == 0
        assert verdicts(judged) == expected
        kept = [prompt for prompt, verdict in expected.items() if not verdict.startswith("discarded")]
        assert [line["conversations"][0]["value"] for line in judged.lines()] == kept
        assert judged.statistics()["spent"] == spent
        assert judged.statistics()["tool_statistics"] == tools
        judged.assert_sound()
    assert len(server.requests) == asked
    assert (judged.run_dir / "manifest.jsonl").read_bytes() == first


def test_discarded_is_paid_again_only_when_asked(judged: Lab, server: ModelServer) -> None:
    assert judged.run("-q").code == 0
    asked = len(server.requests)
    for words in ((), ("--retry", "failed,partial"), ("--retry", "none")):
        server.requests.clear()
        assert judged.run("-q", *words).code == 0
        assert {r.prompt for r in server.requests} <= {"[cut]"}
        assert not words or bool(server.requests) == ("partial" in words[1])
    assert asked == 12
    server.requests.clear()
    server.respond = lambda _: says("now", reasoning="r")
    assert judged.run("-q", "--retry", "discarded").code == 0
    assert len(server.requests) == 5
    assert judged.statistics()["discarded"] == {}
    judged.assert_sound()


def answers(request: Request) -> Answer:
    """`[eN]` makes N calls, every third of which fails; `[e2]` is cut, `[e5]` has no reasoning."""
    number = int(request.prompt[2])
    reasoning: dict[str, Any] = {} if number == 5 else {"reasoning": "r"}
    if request.turn < number:
        bad = {"command": "ls", "workdir": "/nowhere"} if request.turn % 3 == 2 else {"command": "ls"}
        return says("", calls=[("terminal", bad)], delay_s=0.02, **reasoning)
    return says("end", finish_reason="length" if number == 2 else None, delay_s=0.02, **reasoning)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_sums_are_equal_straight_and_stopped_by_every_kind_of_signal(
    lab: Lab, server: ModelServer, batch_size: int
) -> None:
    server.respond = answers
    prompts = [f"[e{n}]" for n in range(1, 7)]
    lab.use_server(server.url)
    lab.spec |= {"batch_size": batch_size, "workers": 2}
    straight = Lab(lab.folder.with_name("straight"), dict(lab.spec))
    for each in (straight, lab):
        each.write_prompts(*prompts)
    assert straight.run("-q").code == 0
    for wanted, signum in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), 1):
        child = lab.start("-q")
        journal = lab.run_dir / "journal.jsonl"
        while child.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < wanted):
            time.sleep(0.005)
        child.send_signal(signum)
        child.communicate(timeout=60)
    assert lab.run("-q").code == 0
    assert lab.outputs() == straight.outputs()
    statistics: dict[str, Any] = lab.statistics()
    terminal = statistics["tool_statistics"]["terminal"]
    assert (terminal["count"], terminal["failure"], terminal["success"]) == (21, 5, 16)
    assert terminal["success_rate"] == pytest.approx(100 * 16 / 21, abs=0.01)
    assert statistics["partial"] == {"truncated": 1}
    assert statistics["discarded"] == {"no_reasoning": 1}
    reasoning = statistics["reasoning_statistics"]
    assert reasoning["total_assistant_turns"] == 27
    assert reasoning["turns_without_reasoning"] == 6
    assert statistics["tokens"]["total_tokens"] == 27 * 15
    lab.assert_sound()
