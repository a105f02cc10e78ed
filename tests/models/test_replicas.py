"""Several endpoints that serve one model: spread, sticky, and left when they fail."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.messages import User
from hermes_run.core.task import PromptTask
from hermes_run.errors import CredentialsRefused, EndpointUnreachable
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from hermes_run.models.retry import RetryPolicy
from tests.models.conftest import QUICK
from tests.servers import ModelServer, fails, says

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def servers() -> Iterator[list[ModelServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ModelServer()) for _ in range(3)]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
    return port


def rollouts(urls: list[str], keys: list[str], turns: int = 3, **config: Any) -> list[str]:
    """So many rollouts at once; the last text of each."""

    async def run() -> list[str]:
        client = OpenAIClient(
            ModelConfig(name="m", base_url=urls[0], replicas=tuple(urls[1:]), **config), QUICK
        )

        async def rollout(key: str) -> str:
            chat = client.start(PromptTask(key, 0, ""), [], [])
            for turn in range(turns):
                reply = await chat.ask([User(f"[{key}] {turn}")])
            return reply.message.text

        try:
            return await asyncio.gather(*[rollout(key) for key in keys])
        finally:
            await client.aclose()

    return asyncio.run(run())


def prompts_of(server: ModelServer) -> Counter[str]:
    return Counter(request.messages[0]["content"].partition("]")[0] for request in server.requests)


def test_rollouts_are_spread_and_each_stays_where_it_is(servers: list[ModelServer]) -> None:
    for server in servers:
        server.respond = lambda _: says(delay_s=0.02)
    rollouts([server.url for server in servers], [f"p{n}#0" for n in range(12)])
    for server in servers:
        assert list(prompts_of(server).values()) == [3] * 4


def test_the_samples_of_a_prompt_go_to_one_endpoint_while_it_is_not_busier(
    servers: list[ModelServer],
) -> None:
    for server in servers:
        server.respond = lambda _: says(delay_s=0.05)
    keys = [f"p{n}#{sample}" for n in range(3) for sample in range(2)]
    rollouts([server.url for server in servers], keys)
    for server in servers:
        found = {prompt.partition("#")[0] for prompt in prompts_of(server)}
        assert len(found) == 1
        assert len(server.requests) == 6
    rollouts([server.url for server in servers], [f"q#{n}" for n in range(30)], turns=1)
    assert all(len(server.requests) >= 6 + 8 for server in servers)


def test_an_endpoint_that_is_not_there_is_left_for_the_others(servers: list[ModelServer]) -> None:
    urls = [f"http://127.0.0.1:{closed_port()}/v1", servers[0].url]
    assert rollouts(urls, [f"p{n}#0" for n in range(8)]) == ["ok"] * 8
    assert len(servers[0].requests) == 24


def test_an_endpoint_that_fails_is_left_for_the_others(servers: list[ModelServer]) -> None:
    servers[0].respond = lambda _: fails(500)
    assert rollouts([s.url for s in servers], [f"p{n}#0" for n in range(9)]) == ["ok"] * 9
    assert len(servers[0].requests) <= 9


def test_nobody_there_stops_the_run() -> None:
    urls = [f"http://127.0.0.1:{closed_port()}/v1" for _ in range(2)]
    with pytest.raises(EndpointUnreachable, match="never reached"):
        rollouts(urls, ["p#0"])


def test_one_that_refuses_the_key_stops_the_run_and_is_named(servers: list[ModelServer]) -> None:
    servers[1].respond = lambda _: fails(401, "no")
    with pytest.raises(CredentialsRefused, match=f"{servers[1].url}: HTTP 401"):
        rollouts([s.url for s in servers], [f"p{n}#0" for n in range(6)])


def test_each_endpoint_cools_down_for_itself(servers: list[ModelServer]) -> None:
    """One of them refuses for a while: the rollouts that begin meanwhile go elsewhere."""
    servers[0].script("", fails(429, "slow", {"Retry-After": "0.3"}), says())

    async def run() -> None:
        urls = [server.url for server in servers[:2]]
        client = OpenAIClient(ModelConfig(name="m", base_url=urls[0], replicas=(urls[1],)), QUICK)
        first = asyncio.create_task(client.start(PromptTask("a#0", 0, ""), [], []).ask([User("a")]))
        await asyncio.sleep(0.1)
        for number in range(5):
            await client.start(PromptTask(f"b{number}#0", 0, ""), [], []).ask([User("b")])
        await first
        await client.aclose()

    asyncio.run(run())
    assert len(servers[0].requests) == 2
    assert len(servers[1].requests) == 5


def test_one_that_does_nothing_but_refuse_is_given_up_for_another(servers: list[ModelServer]) -> None:
    """By those that wait in front of it, too, however long it still asks them to wait."""
    told = iter(["0.05"] * 8)
    servers[0].respond = lambda _: fails(429, "slow", {"Retry-After": next(told, "100")})
    policy = RetryPolicy(move_s=0.05)

    async def run() -> list[str]:
        config = ModelConfig(name="m", base_url=servers[0].url, replicas=(servers[1].url,))
        client = OpenAIClient(config, policy)

        async def rollout(number: int) -> str:
            reply = await client.start(PromptTask(f"{number}#0", 0, ""), [], []).ask([User("a")])
            return reply.message.text

        try:
            return await asyncio.gather(*[rollout(number) for number in range(12)])
        finally:
            await client.aclose()

    started = time.monotonic()
    assert asyncio.run(run()) == ["ok"] * 12
    assert len(servers[1].requests) == 12
    assert time.monotonic() - started < 60  # nobody waited for the hundred seconds
