"""C15: a command that times out is over inside its sandbox, with all that it started, on every backend."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cases.places import NAMES, at, terminal_results
from tests.servers import says

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import Answer, ModelServer, Request

LIMIT_S = 1
MARK = f"600.{os.getpid()}"
"""What all sleeps of these tests have in common, and nobody else's: `local` sees those, too."""
STUBBORN = (
    "sleep {mark}{n}1 & sleep {mark}{n}2",
    "setsid sleep {mark}{n}1 & sleep {mark}{n}2",
    "sh -c 'trap \"\" TERM HUP INT; echo so far; sleep {mark}{n}1; sleep {mark}{n}2; sleep {mark}{n}3'",
    "(trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep {mark}{n}1; sleep {mark}{n}2') & wait",
)
CALLS = 12
COUNT = (
    "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null"
    f" | grep -c '^sleep {MARK.replace('.', '[.]')}'"
)


def stubborn(request: Request) -> Answer:
    turn = request.turn
    if turn < CALLS:
        command = "echo begun; " + STUBBORN[turn % len(STUBBORN)].format(mark=MARK, n=turn)
        return says("", calls=[("terminal", {"command": command, "timeout": LIMIT_S})], reasoning="r")
    if turn == CALLS:
        return says("", calls=[("terminal", {"command": f"echo ok; {COUNT}"})], reasoning="r")
    return says("done", reasoning="r")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_twelve_timeouts_of_a_prompt_end_in_time_and_leave_no_process(
    lab: Lab, server: ModelServer, name: str
) -> None:
    server.respond = stubborn
    lab.write_prompts("[a]", "[b]")
    lab.use_server(server.url)
    at(lab, name, pids=64)
    lab.spec["agent"] = {"max_turns": CALLS + 2}
    assert lab.run().code == 0
    for line in lab.lines():
        *late, last = terminal_results(line)
        assert len(late) == CALLS
        for result in late:
            assert result["exit_code"] == 124
            assert result["error"] == f"timed out after {LIMIT_S} s"
            assert result["output"].startswith("begun\n")
        assert last["output"].split() == ["ok", "0"]
        assert line["tool_stats"]["terminal"] == {"count": CALLS + 1, "success": 1, "failure": CALLS}
    arrived: dict[str, list[float]] = {}
    for request in server.requests:
        arrived.setdefault(request.prompt, []).append(request.arrived_at)
    for times in arrived.values():  # each call is its limit and a grace; the limit here is wide
        assert times[-1] - times[0] < (CALLS + 1) * (LIMIT_S + 4)
