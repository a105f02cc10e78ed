"""C11: a wave of 429s uses up nobody's retries. C14: no ceiling on calls in flight but the workers."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.messages import User
from hermes_run.core.task import PromptTask
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from tests.servers import Answer, ModelServer, events, fails, says

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import Request

LOOK = says("", calls=[("terminal", {"command": "echo hi"})], reasoning="r")
DONE = says("done", reasoning="r")


class FivePerSecond:
    """Admits five requests in any second; every other refusal has a Retry-After of three seconds."""

    def __init__(self, retry_after: str, *, is_faulty: bool = False) -> None:
        self.retry_after = retry_after
        self.is_faulty = is_faulty
        self.taken: deque[float] = deque()
        self.seen: list[tuple[float, bool]] = []

    def __call__(self, request: Request) -> Answer:
        at, count = request.arrived_at, len(self.seen)
        while self.taken and self.taken[0] <= at - 1:
            self.taken.popleft()
        is_admitted = len(self.taken) < 5
        self.seen.append((at, is_admitted))
        if not is_admitted:
            has_hint = self.retry_after and (not self.is_faulty or count % 2)
            return fails(429, "slow down", {"Retry-After": self.retry_after} if has_hint else {})
        self.taken.append(at)
        if self.is_faulty and count % 20 == 7:
            return fails(529, "overloaded")
        if self.is_faulty and count % 20 == 13:
            return Answer(drop="before")
        return LOOK if request.turn < 4 else DONE

    def refused(self, after_s: float) -> float:
        late = [ok for at, ok in self.seen if at >= self.seen[0][0] + after_s]
        return late.count(False) / len(late)

    def per_second(self) -> float:
        times = [at for at, ok in self.seen if ok]
        return len(times) / (times[-1] - times[0])


@pytest.mark.slow
def test_a_wave_of_rate_limits_loses_no_prompt(lab: Lab, server: ModelServer) -> None:
    limit = FivePerSecond("3", is_faulty=True)
    server.respond = limit
    lab.use_server(server.url)
    lab.spec |= {"workers": 15, "batch_size": 30}
    lab.write_prompts(*[f"[{number}]" for number in range(30)])
    result = lab.run("-q")
    assert result.code == 0, result.err
    assert lab.statuses() == {"completed": 30}
    assert limit.refused(after_s=10) < 0.2
    log = (lab.run_dir / "run.log").read_text()
    refusals = sum(not ok for _, ok in limit.seen)
    assert 0 < log.count("all calls wait") <= refusals
    assert "429" not in "".join(entry["error"] for entry in lab.entries().values())


@pytest.mark.slow
def test_four_hundred_calls_at_five_a_second(server: ModelServer) -> None:
    """The rate is found within seconds; then nearly nothing is refused, and little is left unused."""
    limit = FivePerSecond("1")
    server.respond = limit
    texts = asyncio.run(_rollouts(server, [f"{n}#0" for n in range(80)], turns=5, at_once=32))
    assert len(texts) == 80
    assert sum(ok for _, ok in limit.seen) == 400
    assert limit.refused(after_s=10) < 0.2
    assert limit.per_second() > 0.85 * 5


async def _rollouts(
    server: ModelServer, keys: list[str], turns: int, at_once: int, **config: Any
) -> list[str]:
    client = OpenAIClient(ModelConfig(name="m", base_url=server.url, max_concurrency=at_once, **config))
    waiting = deque(keys)
    texts: list[str] = []

    async def worker() -> None:
        while waiting:
            chat = client.start(PromptTask(waiting.popleft(), 0, ""), [], [])
            for _ in range(turns):
                reply = await chat.ask([User("go on")])
            texts.append(reply.message.text)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(worker())
    finally:
        await client.aclose()
    return texts


@pytest.mark.slow
def test_calls_in_flight_reach_the_number_of_workers() -> None:
    """600 calls of 300 workers; the answer is held back so that all can be under way together."""
    with ModelServer() as server:
        server.respond = lambda _: says(delay_s=2.0)
        texts = asyncio.run(_rollouts(server, [f"{n}#0" for n in range(600)], turns=1, at_once=300))
        assert len(texts) == 600
        assert server.peak_in_flight >= 285


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone


def _resident_kib() -> int:
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    return int(line.split()[1])


@pytest.mark.slow
def test_sockets_and_memory_stay_flat_over_twenty_rounds_with_abandoned_streams() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "x" * 500}}]}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    with ModelServer() as server:
        server.respond = lambda _: events(chunk, chunk, last, pause_s=0.01)

        async def run() -> tuple[list[int], list[int]]:
            client = OpenAIClient(ModelConfig(name="m", base_url=server.url, stream=True, max_concurrency=50))
            sockets, memory = [], []

            async def call(number: int) -> None:
                chat = client.start(PromptTask(f"{number}#0", 0, ""), [], [])
                try:
                    async with asyncio.timeout(0.015 if number % 10 == 0 else 60):
                        await chat.ask([User("go")])
                except TimeoutError:
                    pass

            for _ in range(20):
                await asyncio.gather(*[call(number) for number in range(50)])
                await asyncio.sleep(0.05)
                server.requests.clear()
                sockets.append(_open_files())
                memory.append(_resident_kib())
            await client.aclose()
            return sockets, memory

        sockets, memory = asyncio.run(run())
    assert max(sockets[4:]) - min(sockets[4:]) <= 2 * 10 + 5  # the test's server is in this process too
    assert sockets[-1] <= sockets[4] + 10
    assert memory[-1] < memory[4] * 1.1


@pytest.mark.slow
def test_mixed_faults_end_as_they_should(lab: Lab, server: ModelServer) -> None:
    """A fifth of all requests meets a fault; every prompt ends completed, and no request is unexplained."""
    faults = {
        "429": lambda: fails(429, "slow", {"Retry-After": "0.1"}),
        "429 without": lambda: fails(429, "slow"),
        "500": lambda: fails(500),
        "503": lambda: fails(503, "overloaded"),
        "drop": lambda: Answer(drop="before"),
        "half": lambda: Answer(drop="middle", body=DONE.body),
        "bad JSON": lambda: Answer(body=DONE.body[:30]),
        "empty": lambda: Answer(body=b'{"choices": []}'),
        "hang": lambda: Answer(drop="hang"),
        "no text": lambda: says(None),
        "page": lambda: Answer(body=b"<html>busy</html>"),
    }
    met: Counter[str] = Counter()
    tried: Counter[tuple[str, int]] = Counter()

    def respond(request: Request) -> Answer:
        place = (request.prompt, request.turn)
        tried[place] += 1
        choice = random.Random(f"{place}{tried[place]}")
        if choice.random() < 0.2 and tried[place] <= 2:
            name = choice.choice(sorted(faults))
            met[name] += 1
            return faults[name]()
        if request.turn == 0 and choice.random() < 0.1:
            return says("", calls=[("terminal", '{"command": "ech')], reasoning="r")
        return LOOK if request.turn < 2 else DONE

    server.respond = respond
    lab.use_server(server.url)
    lab.spec["model"]["request_timeout_s"] = 2
    lab.spec |= {"workers": 24, "batch_size": 50}
    lab.write_prompts(*[f"[{number}]" for number in range(100)])
    result = lab.run("-q")
    assert result.code == 0, result.err
    assert lab.statuses() == {"completed": 100}
    calls = sum(entry["api_calls"] for entry in lab.entries().values())
    assert len(server.requests) == calls + sum(met.values())
    assert len(met) == len(faults)


def test_a_key_that_is_refused_costs_a_request_a_worker_and_nothing_else(
    lab: Lab, server: ModelServer
) -> None:
    server.respond = lambda request: (
        DONE if request.headers.get("authorization") == "Bearer right" else fails(401, "no such key")
    )
    lab.use_server(server.url)
    lab.spec["model"]["api_key_env"] = "THE_KEY"
    lab.spec["workers"] = 4
    lab.write_prompts(*[f"[{number}]" for number in range(20)])
    lab.env = {"THE_KEY": "wrong"}
    result = lab.run("-q")
    assert result.code == 4
    assert "THE_KEY" in result.err
    assert len(server.requests) <= 4
    assert lab.entries() == {}
    lab.env = {"THE_KEY": "right"}
    assert lab.run("-q").code == 0
    assert lab.statuses() == {"completed": 20}
