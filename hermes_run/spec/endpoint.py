"""Where the model is asked, with which key, and what is understood there."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_run.core.registry import did_you_mean
from hermes_run.errors import KeyMissing, SpecError
from hermes_run.spec.dialects import TRAITS, level_for
from hermes_run.spec.keys_and_hosts import Address, Secret, may_send, parse_url
from hermes_run.spec.portal import login_file, read_login
from hermes_run.spec.proxy import proxy_for as proxy_for  # noqa: PLC0414 - others find it here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_run.spec.model import Dialect, Settings, Spec

DIALECTS: dict[str, Dialect] = {
    "openrouter.ai": "openrouter",
    "api.openai.com": "openai",
    "inference-api.nousresearch.com": "nous",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "google",
    "ollama.com": "ollama",
}
"""Host -> the dialect spoken there; others are generic unless hermes.yaml says so."""

_OLLAMA_PORT = 11434
"""On loopback nothing else is at home there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint ready to be asked.

    Attributes:
        base_url: without a final slash.
        replicas: further ones.
        api_key: None when no key is sent.
        api_key_env: the variable that it is from, or None.
        dialect: see `DIALECTS`.
        honours: what it understands (`spec.dialects`).
        stream: whether it is to be asked for streams, whatever the spec says.
        proxy: URL of the HTTP proxy on the way there, or "".
    """

    base_url: str
    api_key: Secret | None
    api_key_env: str | None
    dialect: Dialect
    honours: frozenset[str]
    replicas: tuple[str, ...] = ()
    stream: bool = False
    proxy: str = ""

    @property
    def honours_reasoning(self) -> bool:
        """Whether a level of reasoning is understood."""
        return "reasoning" in self.honours

    @property
    def honours_routing(self) -> bool:
        """Whether OpenRouter's provider routing is understood."""
        return "routing" in self.honours


def dialect_of(url: str) -> Dialect:
    """The dialect that a base_url's host speaks."""
    address = parse_url(url)
    if isinstance(address, str):
        return "generic"
    if address.is_loopback and address.port == _OLLAMA_PORT:
        return "ollama"
    return DIALECTS.get(address.host, "generic")


def is_scripted(spec: Spec) -> bool:
    """Whether the model is a tape: there is neither endpoint nor key."""
    return spec.model.script is not None


def describe(spec: Spec, settings: Settings, api_key: Secret | None = None) -> Endpoint:
    """The endpoint of a spec, with the key that is given; reads no variable."""
    named = settings.endpoints.get(spec.model.endpoint or "")
    urls = (named.base_url, *named.replicas) if named else spec.model.base_urls
    base_url, *replicas = (url.rstrip("/") for url in urls)
    dialect = named.dialect if named else dialect_of(base_url)
    return Endpoint(
        base_url=base_url,
        replicas=tuple(replicas),
        api_key=api_key,
        api_key_env=spec.model.api_key_env,
        dialect=dialect,
        honours=TRAITS[dialect].understood(named.honours if named else ()),
        stream=named.stream if named else False,
    )


def resolve(spec: Spec, settings: Settings, api_key: str | None = None) -> Endpoint:
    """The endpoint of a spec with its key.

    Args:
        spec: not a scripted one.
        settings: the machine's.
        api_key: the key of `--api-key`, which wins over the variable.

    Raises:
        KeyMissing: the variable is unset.
        EndpointUnreachable: the proxy on the way there is none.
        SpecError: the key may not be sent to that host.
    """
    endpoint = describe(spec, settings, read_key(spec, settings, api_key))
    return replace(endpoint, proxy=proxy_for(endpoint.base_url))


def read_key(spec: Spec, settings: Settings, api_key: str | None = None) -> Secret | None:
    """The key to send, or None when none is sent. Raises as `resolve`."""
    if is_scripted(spec):
        return None
    variable = spec.model.api_key_env
    if api_key is not None and api_key.strip():
        return _checked(api_key, "--api-key")
    if variable is None:
        named = settings.endpoints.get(spec.model.endpoint or "")
        is_login = named is not None and named.login == "portal"
        return _checked(read_login(), f"the login in {login_file()}") if is_login else None
    endpoint = describe(spec, settings)
    for url in (endpoint.base_url, *endpoint.replicas):
        address = parse_url(url)
        if isinstance(address, str) or not may_send(variable, address, settings):
            raise SpecError(
                f"model.api_key_env: {variable} may not be sent to {address}; "
                "`hermes-run validate` says what to do"
            )
    value = os.environ.get(variable, "").strip()
    if not value:
        raise KeyMissing(
            f"the environment variable {variable} (model.api_key_env) is not set; export {variable}=… before "
            f"the run, or write model.api_key_env: null if {_host(endpoint.base_url)} wants no key"
        )
    return _checked(value, f"the environment variable {variable}")


def _host(url: str) -> str:
    address = parse_url(url)
    return url if isinstance(address, str) else address.host


def _checked(value: str, origin: str) -> Secret:
    value = value.strip()
    if not value.isascii() or not value.isprintable() or " " in value:
        raise KeyMissing(
            f"{origin} holds characters that no API key has; set it again, without quotes or line ends"
        )
    return Secret(value)


def warnings_of(spec: Spec, settings: Settings) -> list[str]:
    """What a person should know before the run: what the endpoint will not honour, what was not read."""
    reasoning = spec.reasoning
    is_off = reasoning.disabled or reasoning.effort == "none"
    warnings = [*settings.warnings]
    if is_off and spec.filters.require_reasoning:
        warnings.append(
            "reasoning is switched off and filters.require_reasoning is true, so every trajectory without "
            "reasoning would be discarded; set filters.require_reasoning: false"
        )
    if is_scripted(spec):
        return warnings
    endpoint = describe(spec, settings)
    warnings += _reasoning_warnings(spec, endpoint)
    routing = spec.provider_routing
    if not endpoint.honours_routing and (routing.allowed or routing.ignored or routing.order or routing.sort):
        warnings.append(f"provider_routing {_not_sent(endpoint, 'routing')}")
    if endpoint.dialect != "openrouter" and spec.model.name not in settings.prices:  # that one tells costs
        near = did_you_mean(spec.model.name, settings.prices, nearness=0.8)
        if near:
            warnings.append(f"hermes.yaml has no price for the model {spec.model.name}{near}")
    for url in (endpoint.base_url, *endpoint.replicas):
        address = parse_url(url)
        is_plain = isinstance(address, Address) and address.scheme == "http" and not address.is_loopback
        if isinstance(address, Address) and is_plain and endpoint.api_key_env:
            warnings.append(
                f"{endpoint.api_key_env} goes to {address.host} over plain http, readable on the way; "
                "use https:// if you can"
            )
    return warnings


def _reasoning_warnings(spec: Spec, endpoint: Endpoint) -> Iterator[str]:
    """What of `reasoning` reaches the model otherwise than written, or not at all."""
    reasoning, traits = spec.reasoning, TRAITS[endpoint.dialect]
    is_off = reasoning.disabled or reasoning.effort == "none"
    if not is_off and reasoning.effort is None:
        return
    key = "reasoning.disabled" if reasoning.disabled else f"reasoning.effort: {reasoning.effort}"
    if is_off and traits.is_off_unasked:
        return
    if not endpoint.honours_reasoning:
        yield f"{key} {_not_sent(endpoint, 'reasoning')}"
    elif is_off and not traits.off:
        yield (
            f"{key} is not sent: {endpoint.base_url} ({endpoint.dialect}) has no way to switch reasoning "
            "off; take it out, or choose a model that does not reason"
        )
    elif not is_off and reasoning.effort is not None:
        level = level_for(endpoint.dialect, reasoning.effort)
        if level != reasoning.effort:
            yield (
                f"{key} is sent as {level}: {endpoint.base_url} ({endpoint.dialect}) has the levels "
                f"{', '.join(traits.levels)}"
            )


def _not_sent(endpoint: Endpoint, what: str) -> str:
    if what not in TRAITS[endpoint.dialect].declared:
        return (
            f"is not sent: {endpoint.base_url} ({endpoint.dialect}) does not honour it; take it out, or send "
            "the endpoint's own fields by model.extra_body"
        )
    return (
        f"is not sent: {endpoint.base_url} ({endpoint.dialect}) is not known to honour it; take it out, or "
        f"name the endpoint in hermes.yaml with honours: [{what}] and use model.endpoint"
    )
