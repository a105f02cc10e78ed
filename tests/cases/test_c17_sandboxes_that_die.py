"""C17: a sandbox that never becomes ready, or dies half-way, costs its own prompt and nobody else."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import images, modal_place
from tests.cases.places import NAMES, at
from tests.contracts.sandboxes import kind_of
from tests.flow.replies import conversations
from tests.servers import says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flow.lab import Lab
    from tests.flow.zygote import Run
    from tests.servers import Answer, ModelServer, Request

NORMAL = ("[n1]", "[n2]", "[n3]", "[n4]")
MARK = f"600.{os.getpid()}"
"""How long the victim's command in the background sleeps, and nothing else does."""
START_S = 5


def three_tool_turns(before: Callable[[Request], None]) -> Callable[[Request], Answer]:
    """The victim's first one leaves something running, by which its sandbox is found; then `before`."""

    def respond(request: Request) -> Answer:
        before(request)
        if request.turn == 3:
            return says("done", reasoning="r")
        is_first = request.prompt == "[victim]" and not request.turn
        command = f"sleep {MARK} & echo $HOME" if is_first else "echo here"
        return says("", calls=[("terminal", {"command": command})], reasoning="r")

    return respond


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_sandbox_of(runner: int) -> None:
    """Kill the child of the runner that the marked command descends from, or whose session it is in."""
    end = time.monotonic() + 60
    while not any(_kill_above(int(path.name), runner) for path in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < end, "the marked command never ran"
        time.sleep(0.05)


def _kill_above(pid: int, runner: int) -> bool:
    """Whether `pid` was the marked command."""
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes() != f"sleep\0{MARK}\0".encode():
            return False
        session = os.getsid(pid)
        while parent_of(pid) not in (runner, 1):
            pid = parent_of(pid)
        if parent_of(pid) == 1:
            pid = session
        assert parent_of(pid) == runner
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


def remove_victim(name: str, run: str, runner: int) -> None:
    """Take the victim's sandbox away from outside."""
    if kind_of(name) == "docker":
        images.remove_containers(run, row="victim")
    elif name == "modal":
        modal_place.end_sandboxes(run, row="victim")
    else:
        kill_sandbox_of(runner)


def rows(**first: object) -> list[dict[str, object]]:
    plain: list[dict[str, object]] = [{"prompt": prompt, "id": prompt[1:-1]} for prompt in NORMAL]
    return [{"prompt": "[victim]", "id": "victim", **first}, *plain]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_sandbox_that_is_taken_away_half_way_fails_its_prompt_at_once_and_alone(
    lab: Lab, server: ModelServer, name: str
) -> None:
    running: list[Run] = []

    def take_away(request: Request) -> None:
        if request.prompt == "[victim]" and request.turn == 1:
            remove_victim(name, str(lab.spec["run_name"]), running[0].pid)

    server.respond = three_tool_turns(take_away)
    lab.spec |= {"run_name": f"c17-{os.getpid()}-{name}", "workers": 3}
    lab.write_rows(rows())
    lab.use_server(server.url)
    at(lab, name)
    running.append(lab.start())
    _, err = running[0].communicate(timeout=120)
    assert running[0].returncode == 1, err
    (lost,) = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert lost["reason"] == "sandbox_lost"
    assert lost["error"]
    assert sum(request.prompt == "[victim]" for request in server.requests) <= 3
    assert {line["conversations"][0]["value"] for line in lab.lines()} == set(NORMAL)
    server.respond = three_tool_turns(lambda _: None)
    server.requests.clear()
    assert lab.run().code == 0
    assert dict(conversations(server)) == {"[victim]": 1}
    lab.assert_sound()
    assert f"run {lab.spec['run_name']}" not in lab.call("clean", "--dry-run").out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_sandbox_that_never_becomes_ready_fails_in_time_at_no_cost_and_alone(
    lab: Lab, server: ModelServer, name: str
) -> None:
    """Its set-up prints and blocks, in a child that does not care for signals."""
    server.respond = three_tool_turns(lambda _: None)
    blocks = "i=0; while [ $i -lt 3000 ]; do echo line $i of many words that nobody reads; i=$((i+1)); done"
    setup = [f"{blocks}; echo last words; setsid sh -c 'trap \"\" TERM; sleep 600' & sleep 600"]
    lab.spec |= {"run_name": f"c17s-{os.getpid()}-{name}", "workers": 3}
    lab.write_rows(rows(setup=setup))
    lab.use_server(server.url)
    at(lab, name, start_timeout_s=START_S)
    assert lab.run().code == 1
    (failed,) = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert (failed["reason"], failed["api_calls"]) == ("sandbox_start", 0)
    assert "last words" in failed["error"]
    assert set(conversations(server)) == set(NORMAL)
    (duration,) = [line["duration_s"] for line in lab.lines("journal.jsonl") if line["status"] == "failed"]
    assert START_S - 0.5 <= duration < START_S + 5
    assert f"run {lab.spec['run_name']}" not in lab.call("clean", "--dry-run").out


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("name", ["docker"])
def test_an_image_whose_shell_talks_and_never_listens_fails_in_time_with_its_last_words(
    lab: Lab, server: ModelServer, name: str
) -> None:
    server.respond = three_tool_turns(lambda _: None)
    lab.spec |= {"run_name": f"c17i-{os.getpid()}", "workers": 3}
    at(lab, name, start_timeout_s=START_S)
    images.build(images.CHATTY_SHELL)
    lab.write_rows(rows(image=images.CHATTY_SHELL))
    lab.use_server(server.url)
    assert lab.run().code == 1
    (failed,) = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert (failed["reason"], failed["api_calls"]) == ("sandbox_start", 0)
    assert "last words of the chatty shell" in failed["error"]
    assert set(conversations(server)) == set(NORMAL)
    assert lab.run("--dry-run", "--json").json()["pending"] == 1
