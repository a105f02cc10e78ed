"""What only some endpoints understand: reasoning and provider routing.

| dialect | reasoning off | a level | routing |
|---|---|---|---|
| openrouter | `reasoning: {"enabled": false}` | `reasoning: {"effort": L}` | `provider: {only, …, sort}` |
| generic | not sent | not sent | not sent |

Reasoning that is unset sends nothing anywhere. What a dialect cannot express is never dropped in
silence: `unhonoured` names it, for a warning before the run starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from hermes_run.models.config import ModelConfig

_ROUTING = {"allowed": "only", "ignored": "ignore", "order": "order", "sort": "sort"}
"""The spec's names -> OpenRouter's (https://openrouter.ai/docs/features/provider-routing)."""


def dialect_of(base_url: str) -> str:
    """The dialect that a host is known to speak: `openrouter`, else `generic`."""
    host = (urlsplit(base_url).hostname or "").lower()
    return "openrouter" if host == "openrouter.ai" or host.endswith(".openrouter.ai") else "generic"


def dialect_fields(config: ModelConfig) -> dict[str, Any]:
    """The fields of the request that reasoning and routing come to, in the endpoint's dialect."""
    if config.dialect != "openrouter":
        return {}
    fields: dict[str, Any] = {}
    if config.reasoning == "off":
        fields["reasoning"] = {"enabled": False}
    elif config.reasoning is not None:
        fields["reasoning"] = {"effort": config.reasoning}
    routing = {wire: config.routing[name] for name, wire in _ROUTING.items() if config.routing.get(name)}
    if routing:
        fields["provider"] = routing
    return fields


def unhonoured(config: ModelConfig) -> list[str]:
    """What the spec asks for and the endpoint's dialect cannot be told, one warning each."""
    if config.dialect == "openrouter":
        return []
    cure = "set it for this endpoint through model.extra_body, or take it out of the spec"
    warnings = []
    if config.reasoning is not None:
        warnings.append(
            f"reasoning ({config.reasoning}) is sent in OpenRouter's form to OpenRouter only, not to"
            f" {config.base_url}: {cure}"
        )
    if any(config.routing.values()):
        warnings.append(
            f"provider_routing is sent to OpenRouter only, not to {config.base_url}: take it out of the spec"
        )
    return warnings
