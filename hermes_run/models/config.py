"""What a model client needs to know, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

UNSENDABLE = ("messages", "stream", "n")
"""Fields that `extra_body` cannot set: the client reads one reply, whole, to its own messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model at an endpoint.

    Attributes:
        name: as the endpoint calls it.
        base_url: of the API, without `/chat/completions`.
        api_key: sent as a bearer token; None sends no Authorization header. Never in a repr.
        api_key_env: the variable that it came from, for messages only.
        max_tokens: sent only if set.
        sampling: the fields that are set (`temperature`, `top_p`, `stop`, `seed`), sent as they are.
        extra_body: merged into the request last; maps merge deeply, this one wins.
        request_timeout_s: wall clock of one request, from its connection to the last byte.
        dialect: `openrouter` or `generic`, see `dialects.py`.
        reasoning: None (unset: nothing is sent), `off`, or a level.
        routing: `allowed`, `ignored`, `order`, `sort`, as far as set.
        max_concurrency: calls in flight at once; connections kept open are bounded by it.
        proxy: URL of an HTTP proxy, or "". No environment variable is read here: whoever makes the
            config decides, and loopback should never go through one.
    """

    name: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str = ""
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    request_timeout_s: float = 600
    dialect: str = "generic"
    reasoning: str | None = None
    routing: Mapping[str, Any] = field(default_factory=dict)
    max_concurrency: int = 64
    proxy: str = ""
