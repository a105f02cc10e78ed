"""How this machine searches and reads the web: the engine, its address, its key; or why it cannot.

The spec pins (`tools.web`), else hermes.yaml chooses (`web`). Which engine it is, is part of the work
fingerprint either way.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_run.spec.keys_and_hosts import Address, Secret, may_send, pair_to_add, parse_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hermes_run.spec.model import Settings, Spec

ENGINES: dict[str, tuple[str, str]] = {
    "searxng": ("", ""),
    "tavily": ("https://api.tavily.com", "TAVILY_API_KEY"),
    "brave": ("https://api.search.brave.com", "BRAVE_SEARCH_API_KEY"),
    "exa": ("https://api.exa.ai", "EXA_API_KEY"),
    "firecrawl": ("https://api.firecrawl.dev", "FIRECRAWL_API_KEY"),
    "nous": ("https://firecrawl-gateway.nousresearch.com", "TOOL_GATEWAY_USER_TOKEN"),
    "ddgs": ("", ""),
}
"""Search engine -> where it is, and the variable of its key. `nous` is the Nous tool gateway."""

EXTRACTORS = ("trafilatura", "firecrawl", "nous")
"""What turns pages into text: on this machine, or an engine's own service."""

_REPLAYED = "replayed"
_WEB_TOOLS = frozenset({"web_search", "web_extract"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine ready to be asked. `base_url` is without a final slash; `key` is None when it has none."""

    name: str
    base_url: str = ""
    variable: str = ""
    key: Secret | None = None


def with_pins(spec: Spec, settings: Settings) -> Settings:
    """The machine's settings as this spec has them: what `tools.web` pins wins."""
    pins = {
        "search": spec.tools.web.search,
        "extract": spec.tools.web.extract,
        _REPLAYED: spec.tools.web.replay_only,
    }
    return replace(settings, web={**settings.web, **{key: name for key, name in pins.items() if name}})


def is_replayed(settings: Settings) -> bool:
    """Whether all that the web says stands on a cassette, so that nobody is asked and no key is needed."""
    return bool(settings.web.get(_REPLAYED))


def search_name(settings: Settings) -> str:
    """The search engine's name, or "" for none."""
    chosen = settings.web.get("search")
    return str(chosen or ("searxng" if settings.web.get("searxng_url") else ""))


def extract_name(settings: Settings) -> str:
    """What turns pages into text."""
    return str(settings.web.get("extract") or "trafilatura")


def find_engine(name: str, settings: Settings) -> Engine | str:
    """An engine with its key, or why it cannot be asked, with the cure. Reads the key's variable."""
    if name not in ENGINES:
        return f'there is no engine "{name}"; known: {", ".join(ENGINES)}'
    base_url, variable = _address(name, settings), ENGINES[name][1]
    if not base_url:
        needs_one = name == "searxng"
        missing = "web.search is searxng, and web.searxng_url is not set; add its address to hermes.yaml"
        return missing if needs_one else Engine(name=name)
    address = parse_url(base_url)
    if isinstance(address, str):
        return f"the address of {name} in hermes.yaml {address}"
    engine = Engine(name=name, base_url=base_url, variable=variable)
    return _with_key(engine, address, settings) if variable else engine


def _address(name: str, settings: Settings) -> str:
    """Where an engine is: as hermes.yaml says, else its own place."""
    written = settings.web.get("searxng_url") if name == "searxng" else None
    base = str((settings.web.get("urls") or {}).get(name) or written or ENGINES[name][0]).rstrip("/")
    return base.removesuffix("/search") if name == "searxng" else base  # as its pages have it


def _with_key(engine: Engine, address: Address, settings: Settings) -> Engine | str:
    variable = engine.variable
    if not may_send(variable, address, settings):
        return (
            f"{variable} is not known to belong to {address.host}; if it is meant, add to hermes.yaml: "
            f"{pair_to_add(variable, address)}"
        )
    value = os.environ.get(variable, "").strip()
    if not value and engine.base_url == ENGINES[engine.name][0]:
        return f"{engine.name} needs a key: set the variable {variable}"
    if not (value.isascii() and value.isprintable() and " " not in value):
        return f"the key in {variable} holds a space, a line break or a letter that is not ASCII"
    return replace(engine, key=Secret(value) if value else None)


def keys_of_engines(settings: Settings) -> Iterator[str]:
    """The keys that are sent to those who search and read for this run."""
    for name in sorted({search_name(settings), extract_name(settings)} & ENGINES.keys()):
        found = find_engine(name, settings)
        if isinstance(found, Engine) and found.key is not None:
            yield found.key.reveal()


def why_no_search(settings: Settings) -> str:
    """Why the web cannot be searched from here, and the cure; "" when it can."""
    name = search_name(settings)
    if not name:
        return (
            "there is no search engine; choose one in hermes.yaml: web: {search: searxng, searxng_url: URL}, "
            "or search: tavily, brave, exa, firecrawl or nous (each with its key variable), or ddgs"
        )
    found = "" if is_replayed(settings) else find_engine(name, settings)
    return found if isinstance(found, str) else ""


def why_no_extract(settings: Settings) -> str:
    """Why pages cannot be turned into text by an engine; "" when they can, or are on this machine."""
    name = extract_name(settings)
    if name == "trafilatura" or is_replayed(settings):
        return ""
    found = find_engine(name, settings)
    return found if isinstance(found, str) else ""


def work_of_web(spec: Spec, settings: Settings, tools: Iterable[str]) -> dict[str, Any]:
    """The part of the work fingerprint that the web is; empty where nothing of it can be drawn or is set."""
    found: dict[str, Any] = {}
    offered = set(tools)
    machine = with_pins(spec, settings)
    if offered & _WEB_TOOLS:
        found["tools.web.search"] = search_name(machine) or None
    if "web_extract" in offered:
        found["tools.web.extract"] = extract_name(machine)
    if spec.tools.allowed_hosts:
        found["tools.allowed_hosts"] = sorted(spec.tools.allowed_hosts)
    if spec.tools.web.replay_only:
        found["tools.web.replay_only"] = True
    return found
