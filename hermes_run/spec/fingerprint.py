"""The work fingerprint: the part of a spec that shapes a rollout, by value.

In it: see `IN`. Files enter by content, the distribution as it is resolved after `without` with the
tools of its toolsets, `backend: auto` as what it may choose. Out of it: see `OUT`. A test walks every
field of Spec and wants it on one of the two lists. Keys of later versions enter only where they are
set, so that an old run stays what it was.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hermes_run.core.keys import canonical_json, digest
from hermes_run.core.toolsets import TOOL_TEXTS_VERSION, tools_of
from hermes_run.spec.mcp import work_of_mcp
from hermes_run.spec.media import work_of_media
from hermes_run.spec.model import Settings
from hermes_run.spec.own_tools import work_of_own_tools
from hermes_run.spec.web import work_of_web

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hermes_run.spec.model import Spec

IN = (
    "seed",
    "distribution.toolsets",
    "model.name",
    "model.max_tokens",
    "model.sampling",
    "model.extra_body",
    "model.script",
    "provider_routing",
    "reasoning",
    "agent.max_turns",
    "agent.system_prompt",
    "agent.ephemeral_system_prompt",
    "agent.prompt_timeout_s",
    "prefill",
    "sandbox",
    "toolsets",
    "tools",
)
"""Fields of Spec that shape a rollout. `toolsets` enters as the tools of what can be drawn, `tools` as what
of it is used, with the search engine that hermes.yaml chose where the spec pins none; a cassette that is
replayed only enters by its content."""

IF_SET = ("limits.prompt_cost", "limits.prompt_tokens")
"""Fields that do where they are set: without them an older run's fingerprint stays what it was."""

OUT = (
    "run_name",
    "dataset",
    "batch_size",
    "workers",
    "samples",
    "distribution.name",
    "distribution.source",
    "without",
    "model.base_url",
    "model.endpoint",
    "model.api_key_env",
    "model.request_timeout_s",
    "model.stream",
    "model.idle_timeout_s",
    "agent.prefill_messages_file",
    "filters",
    "limits.total_cost",
    "limits.total_tokens",
    "limits.requests_per_minute",
    "limits.tokens_per_minute",
    "engine",
    "reuse",
    "output",
    "logging",
    "sources",
)
"""Fields that do not: what and how much is run, where, and what becomes of it. `without` counts by
what it leaves of the distribution, the prefill file by its messages."""


def work_fields(spec: Spec, settings: Settings | None = None) -> dict[str, Any]:
    """Dotted name -> JSON value of everything that shapes a rollout.

    Args:
        spec: the run's.
        settings: the machine's, for what `backend: auto` may choose; None for the built-in ones.

    Raises:
        OSError: the script cannot be read any more.
    """
    found: dict[str, Any] = {}
    for name in IN:
        value: Any = spec
        for step in name.split("."):
            value = getattr(value, step)
        found.update(_flat(name, value))
    for name in IF_SET:
        value = attrgetter(name)(spec)
        if value is not None:
            found[name] = value
    container = (settings or Settings()).sandbox.container
    if spec.sandbox.backend == "auto":
        found["sandbox.backend"] = f"auto: {container} with an image, else bubblewrap"
    found["model.script"] = None if spec.model.script is None else _content(spec.model.script)
    found["prefill"] = [dict(message) for message in spec.prefill]
    del found["distribution.toolsets"], found["toolsets"]
    for name in [name for name in found if name.startswith("tools.")]:
        del found[name]
    drawn = spec.distribution.toolsets
    for toolset, percent in drawn.items():
        found[f"distribution.{toolset}"] = percent
        found[f"toolsets.{toolset}"] = list(tools_of(toolset, spec.toolsets))
    offered = {tool for toolset in drawn for tool in tools_of(toolset, spec.toolsets)}
    found |= work_of_own_tools(spec) | work_of_mcp(spec)
    found |= work_of_media(settings or Settings(), offered)
    found |= work_of_web(spec, settings or Settings(), offered)
    if spec.tools.web.replay_only and spec.tools.web.cassette is not None:
        found["tools.web.cassette"] = _content(spec.tools.web.cassette)
    found["drawn_when_none_is"] = max(drawn, key=lambda name: drawn[name])
    found["tool_texts_version"] = TOOL_TEXTS_VERSION
    return found


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        for part in fields(value):
            yield from _flat(f"{name}.{part.name}", getattr(value, part.name))
    else:
        yield name, list(value) if isinstance(value, tuple) else value


def _content(path: Path) -> str:
    return f"xxh3:{digest(path.read_bytes())}"


def fingerprint(found: Mapping[str, Any]) -> str:
    """xxh3_128 (hex) over the canonical JSON of `work_fields`."""
    return digest(canonical_json(dict(found)))


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name -> (old, new) of every field that differs; None where there is none. Sorted by name."""
    return {
        name: (old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if canonical_json(old.get(name)) != canonical_json(new.get(name))
    }
