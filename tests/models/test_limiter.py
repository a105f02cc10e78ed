"""One cool-down for all."""

from __future__ import annotations

import asyncio
import logging

import pytest

from hermes_run.core.messages import User
from hermes_run.core.task import PromptTask
from hermes_run.models.config import ModelConfig
from hermes_run.models.limiter import Gate, Pass
from hermes_run.models.openai import OpenAIClient
from tests.models.conftest import QUICK
from tests.servers import Answer, ModelServer, Request, fails, says


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_wave_closes_the_gate_once_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    gate = Gate("m", clock)
    passed = Pass(clock.now)
    clock.now += 1
    with caplog.at_level(logging.INFO, "hermes_run.models"):
        for _ in range(15):
            gate.cool_down(passed, None, "HTTP 429")
    assert gate.closed_for_s() == 1.0
    assert len(caplog.records) == 1


def test_a_longer_retry_after_of_the_same_wave_prolongs_it() -> None:
    clock = Clock()
    gate = Gate("m", clock)
    gate.cool_down(Pass(99), None, "")
    gate.cool_down(Pass(99), 3.0, "")
    gate.cool_down(Pass(99), 2.0, "")
    assert gate.closed_for_s() == 3.0


def test_cool_downs_grow_until_something_succeeds() -> None:
    clock = Clock()
    gate = Gate("m", clock)
    lengths = []
    for _ in range(9):
        gate.cool_down(Pass(clock.now), None, "")
        lengths.append(gate.closed_for_s())
        clock.now += 100
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    gate.succeeded(Pass(clock.now))
    gate.cool_down(Pass(clock.now), None, "")
    assert gate.closed_for_s() == 1


def test_refusals_are_timed_until_anything_else_comes() -> None:
    clock = Clock()
    gate = Gate("m", clock)
    gate.cool_down(Pass(clock.now), 1, "")
    clock.now += 50
    gate.cool_down(Pass(clock.now), 1, "")
    assert gate.refused_for_s() == 50
    gate.answered()
    assert gate.refused_for_s() == 0


@pytest.mark.slow
def test_a_wave_of_rate_limits_loses_no_rollout(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    """15 calls per half second, every other refusal with Retry-After, some real errors between."""
    taken: list[float] = []
    count = refused = 0

    def respond(request: Request) -> Answer:
        nonlocal count, refused
        count += 1
        if count % 20 == 7:
            return fails(529, "overloaded")
        if count % 20 == 13:
            return Answer(drop="before")
        recent = [at for at in taken if at > request.arrived_at - 0.5]
        if len(recent) >= 15:
            refused += 1
            return fails(429, "slow down", {"Retry-After": "1"} if count % 2 else {})
        taken.append(request.arrived_at)
        return says()

    server.respond = respond

    async def run() -> list[str]:
        client = OpenAIClient(ModelConfig(name="m", base_url=server.url), QUICK)
        task = PromptTask("k#0", 0, "")

        async def rollout() -> str:
            chat = client.start(task, [], [])
            for _ in range(2):
                reply = await chat.ask([User("[a]")])
            return reply.message.text

        try:
            return await asyncio.gather(*[rollout() for _ in range(20)])
        finally:
            await client.aclose()

    with caplog.at_level(logging.WARNING, "hermes_run.models"):
        assert asyncio.run(run()) == ["ok"] * 20
    assert 1 <= len(caplog.records) <= refused / 2
