"""A server, and a chat with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from hermes_run.core.messages import System, User
from hermes_run.core.task import PromptTask
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from hermes_run.models.retry import RetryPolicy
from tests.servers import ModelServer
from tests.spec.conftest import folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_run.core.messages import Reply

__all__ = ["folder"]

QUICK = RetryPolicy(base_s=0.001, cap_s=0.01)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


class Ask(Protocol):
    def __call__(self, prompt: str, **config: Any) -> Reply: ...


def ask_once(url: str, prompt: str, policy: RetryPolicy = QUICK, **config: Any) -> Reply:
    """One conversation of one turn with a client of its own."""

    async def talk() -> Reply:
        client = OpenAIClient(ModelConfig(**{"name": "m", "base_url": url, **config}), policy)
        try:
            chat = client.start(PromptTask("k#0", 0, prompt), [System("be brief")], [])
            return await chat.ask([User(prompt)])
        finally:
            await client.aclose()

    return asyncio.run(talk())


@pytest.fixture
def ask(server: ModelServer) -> Ask:
    def call(prompt: str, **config: Any) -> Reply:
        return ask_once(server.url, prompt, **config)

    return call
