"""The fields of a request that reasoning and routing come to, in the endpoint's dialect (`spec.dialects`).

Reasoning that is unset sends nothing anywhere. What an endpoint does not honour is not in the config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.spec.dialects import TRAITS, level_for

if TYPE_CHECKING:
    from hermes_run.models.config import ModelConfig

_ROUTING = {"allowed": "only", "ignored": "ignore", "order": "order", "sort": "sort"}
"""The spec's names -> OpenRouter's (its API reference, provider routing)."""

_OFF: dict[str, dict[str, Any]] = {
    "disabled": {"reasoning": {"enabled": False}},
    "none": {"reasoning_effort": "none"},
    "template": {"chat_template_kwargs": {"enable_thinking": False}},
    "": {},
}


def dialect_fields(config: ModelConfig) -> dict[str, Any]:
    """The fields of the request that reasoning and routing come to."""
    traits = TRAITS[config.dialect]
    fields: dict[str, Any] = {}
    if config.reasoning == "off":
        fields |= _OFF[traits.off]
    elif config.reasoning is not None and traits.reasoning:
        level = level_for(config.dialect, config.reasoning)
        fields |= (
            {"reasoning": {"effort": level}} if traits.reasoning == "object" else {"reasoning_effort": level}
        )
    routing = {wire: config.routing[name] for name, wire in _ROUTING.items() if config.routing.get(name)}
    if routing:
        fields["provider"] = routing
    return fields
