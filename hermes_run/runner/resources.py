"""What the rollouts of a run share, and what makes one rollout's session of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.agent.prompts import opening_text
from hermes_run.core.messages import Assistant, Message, System, User
from hermes_run.core.registry import FILTERS, TOOLS, load
from hermes_run.core.toolsets import draw
from hermes_run.models.config import ModelConfig
from hermes_run.models.prices import Price, PricedClient, Prices
from hermes_run.runner.backends import backend_name
from hermes_run.tools.toolkit import offered_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hermes_run.core.contracts import Backend, Filter, ModelClient, Outside, ToolKind
    from hermes_run.core.task import PromptTask
    from hermes_run.runner.budget import Budget
    from hermes_run.spec.endpoint import Endpoint
    from hermes_run.spec.model import Settings, Spec


_SHARD = re.compile(r"\.\d+-of-\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Shared by all rollouts of a run.

    Attributes:
        work: the spec's work fingerprint.
        backends: by name, checked.
        limits_missing: backend name -> what it cannot promise.
        opening: the messages before the prompt: system and prefill; sent, never saved.
        filters: in the order in which they judge.
        budget: admits rollouts while they fit.
        outside: the way to the web, for the tools.
        extra: the run's own tools and those of MCP servers, by name.
        redact: takes the run's keys, and what MCP servers are given, out of a text.
    """

    spec: Spec
    settings: Settings
    work: str
    model: ModelClient
    backends: Mapping[str, Backend]
    limits_missing: Mapping[str, tuple[str, ...]]
    filters: tuple[Filter, ...]
    budget: Budget
    outside: Outside | None = None
    extra: Mapping[str, ToolKind] = field(default_factory=dict)
    redact: Callable[[str], str] = str
    opening: tuple[Message, ...] = ()

    @property
    def countable(self) -> frozenset[str]:
        """The names that have a column in `tool_stats`."""
        return frozenset((*TOOLS, *self.extra))

    def toolsets_of(self, key: str) -> tuple[str, ...]:
        """The toolsets drawn for a rollout key."""
        return draw(self.spec.distribution.toolsets, self.spec.seed, key)

    def prefetch(self, task: PromptTask) -> None:
        """Have the image of a prompt that is coming up fetched, if its backend uses images."""
        backend = self.backends[backend_name(self.spec, self.settings, task.image)]
        image = task.image or self.spec.sandbox.image
        if backend.uses_images and image:
            backend.prefetch([image])

    def tools_of(self, toolsets: tuple[str, ...]) -> tuple[str, ...]:
        """The tools that those toolsets offer, and the further ones."""
        return tuple(sorted({*offered_tools(toolsets, self.spec.toolsets), *self.extra}))


def make_filters(spec: Spec) -> tuple[Filter, ...]:
    """The filters that a spec asks for."""
    wanted = {
        "no_reasoning": spec.filters.require_reasoning,
        "unknown_tool": spec.filters.reject_unknown_tools,
    }
    return tuple(load("filter", FILTERS, name)() for name, is_on in wanted.items() if is_on)


def make_opening(spec: Spec) -> tuple[Message, ...]:
    """The system message and the prefill."""
    system = opening_text(spec.agent.system_prompt, spec.agent.ephemeral_system_prompt)
    return (System(system), *(_prefilled(each["role"], each["content"]) for each in spec.prefill))


def _prefilled(role: str, text: str) -> Message:
    match role:
        case "system":
            return System(text)
        case "assistant":
            return Assistant(text)
        case _:
            return User(text)


def make_outside(spec: Spec, settings: Settings) -> Outside:
    """The way to the web, as the spec allows and pins it. Costs nothing until a tool uses it."""
    from hermes_run.outside.outside import Outside as WayOut

    return WayOut(spec, settings)


def make_model(spec: Spec, settings: Settings, endpoint: Endpoint | None) -> ModelClient:
    """The model of a spec, whose replies say what they cost; `endpoint` is None for the scripted one."""
    return PricedClient(_bare_model(spec, endpoint), Prices(price_table(settings)), spec.model.name)


def price_table(settings: Settings) -> dict[str, Price]:
    """`prices` of hermes.yaml, by model."""
    return msgspec.convert(settings.prices, dict[str, Price])


def _bare_model(spec: Spec, endpoint: Endpoint | None) -> ModelClient:
    if endpoint is None:
        from hermes_run.models.scripted import ScriptedModel

        if spec.model.script is None:
            raise AssertionError("the loader lets no scripted model pass without a script")
        return ScriptedModel(spec.model.script)
    from hermes_run.models.openai import OpenAIClient

    return OpenAIClient(model_config(spec, endpoint))


def has_cache_marks(model: str, extra_body: Mapping[str, Any]) -> bool:
    """Whether a model wants marks to cache by: Claude does, unless the spec sends a mark of its own."""
    return "claude" in model.lower() and "cache_control" not in extra_body


def shared_board(spec: Spec) -> Path | None:
    """Where the processes of a run (its shards too) share what they learn of limits; None for one process."""
    whole = _SHARD.sub("", spec.run_name)
    if whole == spec.run_name and spec.engine.processes == 1:
        return None
    return spec.output.dir / f".{whole}.limits"


def model_config(spec: Spec, endpoint: Endpoint) -> ModelConfig:
    """What the model client needs to know, from spec and endpoint."""
    model, routing = spec.model, spec.provider_routing
    sampling = {
        name: list(value) if isinstance(value, tuple) else value
        for name in ("temperature", "top_p", "stop", "seed")
        if (value := getattr(model.sampling, name)) is not None
    }
    effort = spec.reasoning.effort
    is_off = spec.reasoning.disabled or effort == "none"
    fields = {
        "allowed": list(routing.allowed),
        "ignored": list(routing.ignored),
        "order": list(routing.order),
        "sort": routing.sort,
    }
    return ModelConfig(
        name=model.name,
        base_url=endpoint.base_url,
        replicas=endpoint.replicas,
        api_key=endpoint.api_key.reveal() if endpoint.api_key is not None else None,
        api_key_env=endpoint.api_key_env or "",
        max_tokens=model.max_tokens,
        sampling=sampling,
        extra_body=model.extra_body,
        request_timeout_s=model.request_timeout_s,
        stream=model.stream or endpoint.stream,
        idle_timeout_s=model.idle_timeout_s,
        dialect=endpoint.dialect,
        reasoning=None if not endpoint.honours_reasoning else "off" if is_off else effort,
        routing={name: value for name, value in fields.items() if value and endpoint.honours_routing},
        cache_marks="cache_marks" in endpoint.honours and has_cache_marks(model.name, model.extra_body),
        max_concurrency=spec.workers,
        per_minute=spec.limits.requests_per_minute,
        tokens_per_minute=spec.limits.tokens_per_minute,
        board=shared_board(spec),
        proxy=endpoint.proxy,
    )
