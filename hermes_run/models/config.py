"""What a model client needs to know, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - part of a runtime type
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

UNSENDABLE = {
    "messages": "",
    "stream": "; model.stream: true switches streaming on",
    "n": "; samples in the spec gives several rollouts",
}
"""Fields that `extra_body` cannot set, with what to do instead: the client reads one reply to its own
messages, as a stream or whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model at an endpoint, or at several that are alike.

    Attributes:
        name: as the endpoint calls it.
        base_url: of the API, without `/chat/completions`.
        replicas: further ones; each rollout stays at one of them.
        api_key: sent as a bearer token; None sends no Authorization header. Never in a repr.
        api_key_env: the variable that it came from, for messages only.
        max_tokens: sent only if set.
        sampling: the fields that are set (`temperature`, `top_p`, `stop`, `seed`), sent as they are.
        extra_body: merged into the request last; maps merge deeply, this one wins.
        request_timeout_s: wall clock of one request, from its connection to the last byte.
        stream: whether the reply is asked for as a stream of events.
        idle_timeout_s: longest silence in a stream, or None.
        dialect: see `spec.dialects`.
        reasoning: None (unset: nothing is sent), `off`, or a level. Only what the endpoint honours.
        routing: `allowed`, `ignored`, `order`, `sort`, as far as set and honoured.
        cache_marks: whether Claude's cache marks are sent.
        max_concurrency: calls in flight at once; connections kept open are bounded by it.
        per_minute: requests a minute, each retry included, or None.
        tokens_per_minute: tokens a minute, or None.
        board: a folder in which the processes of a run share what they know of limits; None for one
            process.
        proxy: URL of an HTTP proxy, or "". No environment variable is read here: whoever makes the
            config decides, and loopback should never go through one.
    """

    name: str
    base_url: str
    replicas: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str = ""
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    request_timeout_s: float = 600
    stream: bool = False
    idle_timeout_s: float | None = None
    dialect: str = "generic"
    reasoning: str | None = None
    routing: Mapping[str, Any] = field(default_factory=dict)
    cache_marks: bool = False
    max_concurrency: int = 64
    per_minute: float | None = None
    tokens_per_minute: float | None = None
    board: Path | None = None
    proxy: str = ""
