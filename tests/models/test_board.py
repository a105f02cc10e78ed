"""What processes of a run share of an endpoint's limits: real processes, a real file."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hermes_run.models.board import SharedBoard
from tests.servers import Answer, ModelServer, Request, fails, says

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PROCESS = """
import asyncio, sys
from pathlib import Path
from hermes_run.core.messages import User
from hermes_run.core.task import PromptTask
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient

async def main(url, board, calls, per_minute):
    client = OpenAIClient(ModelConfig(
        name="m", base_url=url, board=Path(board), per_minute=float(per_minute) or None))
    ask = lambda n: client.start(PromptTask(f"{n}#0", 0, ""), [], []).ask([User("[a]")])
    await asyncio.gather(*[ask(n) for n in range(int(calls))])
    await client.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def run_processes(several: Sequence[Sequence[str]]) -> None:
    running = [subprocess.Popen([sys.executable, "-c", PROCESS, *words]) for words in several]
    assert [each.wait(60) for each in running] == [0] * len(running)


@pytest.mark.slow
def test_processes_keep_the_specs_rate_together(tmp_path: Path) -> None:
    board = tmp_path / "board"
    with ModelServer() as server:
        run_processes([(server.url, str(board), "12", "600")] * 2)
        times = sorted(request.arrived_at for request in server.requests)
    assert len(times) == 24
    assert times[-1] - times[0] > 23 * 0.1 - 0.3
    assert not board.exists()


@pytest.mark.slow
def test_one_process_that_is_refused_makes_the_other_wait(tmp_path: Path) -> None:
    """For two seconds from the first request on, all but one are refused, with a Retry-After of two."""
    first: list[float] = []

    def respond(request: Request) -> Answer:
        first.append(request.arrived_at)
        is_early = request.arrived_at < first[0] + 2 and len(first) > 1
        return fails(429, "slow down", {"Retry-After": "2"}) if is_early else says()

    with ModelServer() as server:
        server.respond = respond
        run_processes([(server.url, str(tmp_path), "8", "0")] * 2)
        times = sorted(request.arrived_at - first[0] for request in server.requests)
    assert not [at for at in times if 0.9 < at < 1.9]
    assert len(times) < 16 + 16


def test_a_board_that_a_killed_process_left_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "b"
    board = SharedBoard(4, path)
    board.cells[0] = 7.0
    other = SharedBoard(4, path)
    assert other.cells[0] == 7.0
    for each in (board, other):  # as a kill would: locks gone, files left
        each.abandon()
    assert path.exists()
    fresh = SharedBoard(4, path)
    assert list(fresh.cells) == [0.0] * 4
    fresh.close()
    assert not tmp_path.exists()
