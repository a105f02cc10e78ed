"""Golden requests: what a real server receives for each dialect, state of reasoning, and routing.

`tests/data/wire/<dialect>.json` maps a case to the fields of its request beside the messages; those of
`claude.json` are whole conversations. HERMES_RUN_WRITE_GOLDEN=1 writes them anew: read the difference.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.messages import System, ToolResult, User
from hermes_run.core.task import PromptTask
from hermes_run.models.openai import OpenAIClient
from hermes_run.runner.resources import model_config
from hermes_run.spec.dialects import TRAITS
from hermes_run.spec.endpoint import resolve, warnings_of
from hermes_run.spec.model import Dialect, EndpointSetting, Settings
from tests.models.conftest import QUICK
from tests.servers import ModelServer, says
from tests.spec.writing import REQUIRED, load

if TYPE_CHECKING:
    from hermes_run.spec.model import Spec

GOLDEN = Path(__file__).parent.parent / "data" / "wire"
REASONING = {
    "unset": "{}",
    "none": "{effort: none}",
    "disabled": "{effort: high, disabled: true}",
    "minimal": "{effort: minimal}",
    "high": "{effort: high}",
    "ultra": "{effort: ultra}",
}
ROUTING = {"any": "{}", "routed": "{allowed: [a, b], ignored: [c], order: [b, a], sort: price}"}
TERMINAL = ToolSpec(
    "terminal", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}}
)


def ask(spec: Spec, settings: Settings) -> None:
    async def run() -> None:
        client = OpenAIClient(model_config(spec, resolve(spec, settings)), QUICK)
        try:
            chat = client.start(PromptTask("k#0", 0, "hello"), [System("be brief")], [TERMINAL])
            await chat.ask([User("hello")])
            for number in range(2):
                await chat.ask([ToolResult(f"c{number}", "terminal", f"result {number}")])
        finally:
            await client.aclose()

    asyncio.run(run())


def check(name: str, found: dict[str, Any]) -> None:
    path = GOLDEN / f"{name}.json"
    if os.environ.get("HERMES_RUN_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(path.read_text())


@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_each_dialect_says_reasoning_and_routing_in_its_own_words(
    folder: Path, server: ModelServer, dialect: Dialect
) -> None:
    found: dict[str, Any] = {}
    declared: tuple[Any, ...] = tuple(TRAITS[dialect].declared)
    for honours in ((), declared) if declared else ((),):
        endpoint = EndpointSetting(base_url=server.url, dialect=dialect, honours=honours)
        settings = Settings(endpoints={"e": endpoint})
        for reasoning, written in REASONING.items():
            for routing, wanted in ROUTING.items():
                server.requests.clear()
                text = f"model: {{endpoint: e, name: some/model}}\nreasoning: {written}\n"
                text += f"provider_routing: {wanted}\nfilters: {{require_reasoning: false}}\n"
                spec = load(folder, REQUIRED + text, settings=settings)
                ask(spec, settings)
                bodies = [request.json for request in server.requests]
                rest = [{k: v for k, v in body.items() if k != "messages"} for body in bodies]
                assert rest[0] == rest[1] == rest[2]
                del rest[0]["tools"]
                case = f"{reasoning} {routing}{' declared' if honours else ''}"
                found[case] = {
                    "sent": rest[0],
                    "said": [each.replace(server.url, "URL") for each in warnings_of(spec, settings)],
                }
    check(dialect, found)


@pytest.mark.parametrize("dialect", ["openrouter", "generic"])
def test_claude_gets_cache_marks_where_they_are_honoured(
    folder: Path, server: ModelServer, dialect: Dialect
) -> None:
    server.respond = lambda request: (
        says(
            "let me see" if request.turn == 0 else None,
            calls=[("terminal", {"command": "ls"})] if request.turn < 2 else [],
        )
        if request.turn < 2
        else says("done")
    )
    settings = Settings(endpoints={"e": EndpointSetting(base_url=server.url, dialect=dialect)})
    text = "model: {endpoint: e, name: anthropic/claude-sonnet-4.6}\n"
    ask(load(folder, REQUIRED + text, settings=settings), settings)
    marked = [request.json for request in server.requests]
    heads = [request.body.partition(b'{"role":"user"')[0] for request in server.requests]
    assert heads[0] == heads[1] == heads[2]  # tools and system, byte for byte
    if dialect == "openrouter":
        check("claude", {"requests": marked})
        assert all(json.dumps(each).count("cache_control") <= 4 for each in marked)
    else:
        assert "cache_control" not in json.dumps(marked)


def test_a_mark_of_the_specs_own_leaves_no_room_for_ours(folder: Path, server: ModelServer) -> None:
    settings = Settings(endpoints={"e": EndpointSetting(base_url=server.url, dialect="openrouter")})
    text = "model: {endpoint: e, name: anthropic/claude-x, extra_body: {cache_control: {type: ephemeral}}}\n"
    ask(load(folder, REQUIRED + text, settings=settings), settings)
    assert server.requests[0].json["cache_control"] == {"type": "ephemeral"}
    assert server.requests[0].messages[0] == {"role": "system", "content": "be brief"}


def test_what_is_sent_is_no_secret_and_the_key_goes_as_a_header(
    folder: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_KEY", "sk-mine-0123456789")
    spec = load(folder, REQUIRED + f"model: {{base_url: {server.url}, api_key_env: VLLM_KEY}}\n")
    ask(spec, Settings())
    request = server.requests[0]
    assert request.headers["authorization"] == "Bearer sk-mine-0123456789"
    assert b"sk-mine" not in request.body
