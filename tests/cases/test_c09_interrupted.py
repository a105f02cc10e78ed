"""C09: what was begun is not what is done; whatever the signal, nothing is lost, torn, or left running."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cases.places import NAMES, at, terminal_results
from tests.flow.replies import conversations
from tests.servers import says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flow.lab import Lab
    from tests.flow.zygote import Run
    from tests.servers import Answer, ModelServer, Request

FIRST = ("[old 1]", "[old 2]")
ALL = (*FIRST, *(f"[{n}]" for n in range(8)))
HOW: dict[str, tuple[list[int], int]] = {
    "SIGINT": ([signal.SIGINT], 130),
    "SIGINT twice": ([signal.SIGINT, signal.SIGINT], 130),
    "SIGTERM": ([signal.SIGTERM], 143),
    "SIGTERM then SIGINT": ([signal.SIGTERM, signal.SIGINT], 143),
    "SIGHUP": ([signal.SIGHUP], 129),
    "SIGKILL": ([signal.SIGKILL], -9),
}


def two_tool_turns(mark: str, delay_s: float) -> Callable[[Request], Answer]:
    """Each leaves something running in the background, one of them out of its process group."""
    commands = [f"sleep {mark}1 & echo begun", f"setsid sleep {mark}2 & sleep 0.2; echo again"]

    def respond(request: Request) -> Answer:
        delay = 0.0 if "[old" in request.prompt else delay_s
        if request.turn < 2:
            call = ("terminal", {"command": commands[request.turn]})
            return says("", calls=[call], reasoning="r", delay_s=delay)
        return says("done", reasoning="r", delay_s=delay)

    return respond


def running_with(mark: str) -> list[str]:
    """Command lines of living processes that hold a mark, the sandboxes' own shells among them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in words:
            found.append(words)
    return found


def wait_until(is_so: Callable[[], bool], child: Run | None = None) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it never came to that"
        assert child is None or child.poll() is None, "it ended by itself"
        time.sleep(0.02)


def journal_lines(lab: Lab) -> list[bytes]:
    return (lab.run_dir / "journal.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_an_interrupted_run_continues_with_what_was_in_flight(
    lab: Lab, server: ModelServer, how: str
) -> None:
    signals, code = HOW[how]
    mark = f"98765.{time.monotonic_ns() % 10**9:09d}"
    server.respond = two_tool_turns(mark, 0.4)
    lab.use_server(server.url)
    lab.write_prompts(*FIRST)
    assert lab.run("-q").code == 0
    before = journal_lines(lab)

    lab.write_prompts(*ALL)
    child = lab.start("-q")
    wait_until(lambda: len(server.asked("[0]")) + len(server.asked("[3]")) >= 4, child)
    wait_until(lambda: bool(running_with(mark)), child)
    for number, signum in enumerate(signals):
        time.sleep(0.3 * number)
        child.send_signal(signum)
    sent = time.monotonic()
    out, err = child.communicate(timeout=60)
    assert child.returncode == code, err
    assert "Traceback" not in out + err
    if len(signals) > 1:
        assert time.monotonic() - sent < 5, "the second signal leaves at once"
    elif signals != [signal.SIGKILL]:
        assert re.search(rf"continue +hermes-run {lab.folder}/spec.yaml -q", out)
        assert "stopping" in err
    wait_until(lambda: not running_with(mark))

    lines = journal_lines(lab)
    assert lines[: len(before)] == before, "durations and times of finished rollouts stay"
    assert all(line.endswith(b"}\n") for line in lines)
    done = {json.loads(line)["key"] for line in lines}
    server.requests.clear()
    server.respond = two_tool_turns(mark, 0.0)
    assert lab.run("-q").code == 0
    again = conversations(server)
    assert set(again.values()) == {1}
    assert len(again) == len(ALL) - len(done)
    assert not any("[old" in prompt for prompt in again)
    assert len(server.requests) == 3 * len(again), "in full, from their first turn on"
    assert [line["conversations"][0]["value"] for line in lab.lines()] == list(ALL)
    assert journal_lines(lab)[: len(lines)] == lines
    assert all(json.loads(line)["duration_s"] > 0 for line in journal_lines(lab))
    lab.assert_sound()
    assert not running_with(mark)


def test_a_drain_takes_no_new_work_and_finishes_what_is_in_flight(lab: Lab, server: ModelServer) -> None:
    mark = f"98766.{time.monotonic_ns() % 10**9:09d}"
    server.respond = two_tool_turns(mark, 0.3)
    lab.use_server(server.url)
    lab.write_prompts(*ALL[2:])
    child = lab.start()
    wait_until(lambda: len(conversations(server)) == 4, child)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "may finish within 30 s" in err
    assert len(conversations(server)) == 4
    assert lab.statuses() == {"completed": 4}
    assert lab.statistics()["outcomes"]["pending"] == 4
    lab.assert_sound()


def drain_by_ctrl_c(lab: Lab, server: ModelServer) -> None:
    """A terminal's Ctrl-C, while the model thinks between two tool calls of the same sandbox."""

    def respond(request: Request) -> Answer:
        if request.turn < 2:
            command = ("export word=kept; echo first", "echo $word")[request.turn]
            call = ("terminal", {"command": command})
            return says("", calls=[call], reasoning="r", delay_s=1.0 * request.turn)
        return says("done", reasoning="r")

    server.respond = respond
    lab.use_server(server.url)
    lab.spec["workers"] = 2
    lab.write_prompts("[0]", "[1]", "[2]")
    child = lab.start()
    wait_until(lambda: sum(request.turn == 1 for request in server.requests) == 2, child)
    child.press_ctrl_c()
    _, err = child.communicate(timeout=120)
    assert child.returncode == 130, err
    assert lab.statuses() == {"completed": 2}, err
    for line in lab.lines():
        assert [result["output"] for result in terminal_results(line)] == ["first\n", "kept\n"]
    lab.assert_sound()


def test_ctrl_c_in_a_terminal_reaches_no_sandbox(lab: Lab, server: ModelServer) -> None:
    drain_by_ctrl_c(lab, server)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c_in_a_terminal_reaches_no_sandbox_of_any_kind(
    lab: Lab, server: ModelServer, name: str
) -> None:
    drain_by_ctrl_c(at(lab, name), server)


@pytest.mark.slow
def test_a_drain_abandons_what_does_not_finish_within_the_grace_time(lab: Lab, server: ModelServer) -> None:
    server.respond = lambda request: says("x", reasoning="r", delay_s=0 if "[0]" in request.prompt else 300)
    lab.use_server(server.url)
    lab.write_prompts(*ALL[2:])
    child = lab.start()
    wait_until(lambda: len(server.requests) >= 5, child)
    began = time.monotonic()
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == 143
    assert 29 < time.monotonic() - began < 36
    assert lab.statistics()["outcomes"] | {"completed": 1, "pending": 7} == lab.statistics()["outcomes"]
    server.respond = lambda _: says("x", reasoning="r")
    assert lab.run("-q").code == 0
    lab.assert_sound()
