"""Killed at any instant, a run continues: nothing lost, nothing paid twice, nothing twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.lab import Lab
from tests.flow.replies import turns

if TYPE_CHECKING:
    from tests.servers import ModelServer

TAPE: dict[str, Any] = {
    "conversations": [
        {
            "turns": [
                {"reasoning": "look", "calls": [{"tool": "terminal", "arguments": {"command": "echo hi"}}]},
                {"reasoning": "done", "text": "done"},
            ]
        }
    ]
}


def kill_at_every_point(lab: Lab, step: int) -> dict[str, Any]:
    lab.write_tape(TAPE)
    lab.spec |= {"batch_size": 2, "workers": 2, "distribution": {"terminal": 100}}
    lab.write_prompts("a", "b", "c")
    lab.write_spec()
    script = Path(__file__).with_name("kill_points.py")
    done = subprocess.run(
        [sys.executable, str(script), str(lab.folder), str(step)],
        env=lab.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_a_kill_after_or_in_a_write_rename_or_sync_changes_nothing(lab: Lab) -> None:
    found = kill_at_every_point(lab, step=9)
    assert found["wrong"] == []
    assert found["kills"] >= 8


@pytest.mark.slow
def test_a_kill_after_or_in_every_single_write_rename_and_sync_changes_nothing(lab: Lab) -> None:
    found = kill_at_every_point(lab, step=1)
    assert found["wrong"] == []
    assert found["kills"] >= found["operations"]


def kill_often(lab: Lab, server: ModelServer, kills: int, signals: list[int]) -> None:
    """Kill and resume `kills` times at random instants, then to the end."""
    dice = random.Random(kills)
    done: set[str] = set()
    for number in range(kills):
        asked = len(server.requests)
        lab.kill_after(0.4 + dice.random() * 1.6, signals[number % len(signals)], "--quiet")
        begun = {request.prompt for request in server.requests[asked:]}
        assert not begun & done, "a finished prompt was asked for again"
        journal = lab.run_dir / "journal.jsonl"
        if journal.exists():
            keys = [line for line in journal.read_bytes().split(b"\n") if line.endswith(b"}")]
            done |= {prompts_of(lab)[json.loads(line)["key"]] for line in keys}
    asked = len(server.requests)
    result = lab.run("--quiet", timeout_s=200)
    assert result.code == 0, result.err
    assert not {request.prompt for request in server.requests[asked:]} & done


def prompts_of(lab: Lab) -> dict[str, str]:
    from hermes_run.core.keys import content_key, rollout_key

    rows = [json.loads(line) for line in (lab.folder / "data.jsonl").read_text().splitlines()]
    return {rollout_key(content_key(row["prompt"]), 0): row["prompt"] for row in rows}


def run_broken_and_straight(lab: Lab, server: ModelServer, prompts: int, kills: int, *signals: int) -> None:
    server.respond = turns(3, delay_s=0.05)
    lab.use_server(server.url)
    lab.spec |= {"workers": 16, "batch_size": 20}
    lab.write_prompts(*(f"[{n}] do it" for n in range(prompts)))
    straight = Lab(lab.folder.with_name("straight"), dict(lab.spec))
    straight.write_prompts(*(f"[{n}] do it" for n in range(prompts)))
    assert straight.run("--quiet").code == 0
    server.requests.clear()
    kill_often(lab, server, kills, list(signals))
    assert lab.outputs() == straight.outputs()
    lab.assert_sound()


@pytest.mark.slow
def test_random_kills_and_resumes_equal_a_straight_run(lab: Lab, server: ModelServer) -> None:
    run_broken_and_straight(lab, server, 60, 5, signal.SIGKILL)


@pytest.mark.slow
def test_200_prompts_killed_30_times_equal_a_straight_run(lab: Lab, server: ModelServer) -> None:
    run_broken_and_straight(lab, server, 200, 30, signal.SIGKILL)


@pytest.mark.slow
def test_every_kind_of_signal_in_turn_equals_a_straight_run(lab: Lab, server: ModelServer) -> None:
    run_broken_and_straight(lab, server, 100, 9, signal.SIGTERM, signal.SIGINT, signal.SIGKILL)


@pytest.mark.slow
def test_the_dataset_edited_between_kills_loses_and_repeats_nothing(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(3, delay_s=0.05)
    lab.use_server(server.url)
    lab.spec |= {"workers": 8, "batch_size": 4}
    names = [f"[{n}]" for n in range(24)]
    dice = random.Random(4)
    for edit in (names, names[::-1], names[5:], [*names, "[new]"], [*names, "[new]", "[3]", "[3]"]):
        dice.shuffle(edit)
        lab.write_prompts(*edit)
        lab.kill_after(0.6 + dice.random() * 0.6, signal.SIGKILL, "--quiet")
    result = lab.run("--quiet")
    assert result.code == 0, result.err
    assert [line["conversations"][0]["value"] for line in lab.lines()] == edit
    assert len({line["key"] for line in lab.lines()}) == len(edit)
    lab.assert_sound()
