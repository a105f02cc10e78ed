"""API keys: which variable may be sent to which host, and what looks like a key.

The rule (contract section 2): a key variable goes only to a host it is known for. Known are the
providers below, loopback, and what the user's own hermes.yaml says; never what a spec says, since a
spec may come with a clone.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_run.spec.model import Settings

KNOWN_HOSTS: dict[str, tuple[str, ...]] = {
    "openrouter.ai": ("OPENROUTER_API_KEY",),
    "api.openai.com": ("OPENAI_API_KEY",),
    "inference-api.nousresearch.com": ("NOUS_API_KEY",),
    "api.anthropic.com": ("ANTHROPIC_API_KEY",),
    "generativelanguage.googleapis.com": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "api.x.ai": ("XAI_API_KEY",),
    "api.mistral.ai": ("MISTRAL_API_KEY",),
    "api.deepseek.com": ("DEEPSEEK_API_KEY",),
    "api.groq.com": ("GROQ_API_KEY",),
    "api.together.xyz": ("TOGETHER_API_KEY",),
    "api.fireworks.ai": ("FIREWORKS_API_KEY",),
    "api.cerebras.ai": ("CEREBRAS_API_KEY",),
    "router.huggingface.co": ("HF_TOKEN",),
    "ollama.com": ("OLLAMA_API_KEY",),
    "api.tavily.com": ("TAVILY_API_KEY",),
    "api.search.brave.com": ("BRAVE_SEARCH_API_KEY",),
    "api.exa.ai": ("EXA_API_KEY",),
    "api.firecrawl.dev": ("FIRECRAWL_API_KEY",),
    "firecrawl-gateway.nousresearch.com": ("TOOL_GATEWAY_USER_TOKEN",),
}
"""Host -> the key variables it is known for, the default first. https on port 443 only."""

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?(?P<path>/[!-~]*)?",
    re.IGNORECASE,
)
_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_PREFIXES = (
    r"sk-|sk_|pk-|rk_|ghp_|gho_|ghu_|ghs_|github_pat_|glpat-|hf_|AIza|xai-|gsk_|nvapi-|r8_|tgp_|csk-|fw_|pplx-|AKIA"
    r"|xox[abp]-|eyJ"
)
_KEY = re.compile(rf"(?:Bearer\s+)?(?:{_PREFIXES})[A-Za-z0-9._-]{{6,}}|Bearer\s+\S{{8,}}")
_KEY_IN_TEXT = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_PREFIXES})[A-Za-z0-9_-]{{20,}}(?![A-Za-z0-9_-])")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a base_url that decide who hears a key. `host` is in lower case, without a final dot."""

    scheme: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether what is sent there stays on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


class Secret:
    """A key. Shows itself to nobody; `reveal()` is for the one place that sends it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The key itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> str:
        raise TypeError("a key is never written anywhere")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def parse_url(url: str) -> Address | str:
    """The address behind a base_url, or what is wrong with it and the cure.

    Only spellings that every URL parser reads alike are accepted, so that the host judged here is
    the host that is connected to.
    """
    match = _URL.fullmatch(url)
    if match is None or "\n" in url:
        return _what_is_wrong(url)
    port = int(match["port"] or (443 if match["scheme"].lower() == "https" else 80))
    if not 0 < port < 65536:
        return f"{port} is no port; write one from 1 to 65535"
    if "\\" in (match["path"] or "") or re.search(r"[?#]", match["path"] or ""):
        return "must end with its path; take out what begins with ?, # or a backslash"
    return Address(match["scheme"].lower(), normal_host(match["host"]), port)


def _what_is_wrong(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    authority = re.split(r"[/?#\\]", rest)[0]
    if not mark or scheme.lower() not in {"http", "https"}:
        return "must begin with https:// (or http:// for this machine), such as http://127.0.0.1:8000/v1"
    if "@" in authority:
        return "must not hold a user name or password (the part before @); write the host alone"
    if not authority.isascii():
        return "holds a host in letters outside ASCII; write its xn-- form"
    if re.search(r"[?#]", rest):
        return "must end with its path; take out what begins with ? or #"
    return "is no URL; write it as https://HOST/PATH, or https://HOST:PORT/PATH"


def normal_host(host: str) -> str:
    """Lower case, without the dot that may end a full name."""
    return host.lower().removesuffix(".")


def parse_host(text: str) -> tuple[str, int | None] | None:
    """A host of hermes.yaml, with its port if one is written; None when it is no host."""
    match = _HOST.fullmatch(text)
    port = int(match["port"]) if match is not None and match["port"] else None
    if match is None or "\n" in text or (port is not None and not 0 < port < 65536):
        return None
    return normal_host(match["host"]), port


def known_variable(url: str) -> str | None:
    """The key variable that a base_url's host is known for, or None."""
    address = parse_url(url)
    if isinstance(address, str):
        return None
    known = KNOWN_HOSTS.get(address.host)
    return known[0] if known and may_send(known[0], address) else None


def may_send(variable: str, address: Address, settings: Settings | None = None) -> bool:
    """Whether the value of `variable` may be sent to `address`."""
    if address.is_loopback:
        return True
    if variable in KNOWN_HOSTS.get(address.host, ()) and address.scheme == "https" and address.port == 443:
        return True
    return settings is not None and _is_the_users_pair(variable, address, settings)


def _is_the_users_pair(variable: str, address: Address, settings: Settings) -> bool:
    for pair in settings.keys:
        host = parse_host(pair.host)
        if (
            pair.variable == variable
            and host is not None
            and host[0] == address.host
            and host[1] in {None, address.port}
        ):
            return True
    return any(
        endpoint.api_key_env == variable and parse_url(url) == address
        for endpoint in settings.endpoints.values()
        for url in (endpoint.base_url, *endpoint.replicas)
    )


def is_variable_name(text: str) -> bool:
    """Whether `text` can be the name of an environment variable."""
    return _VARIABLE.fullmatch(text) is not None


def looks_like_key(text: str) -> bool:
    """Whether a text that should be a name looks like an API key: a known prefix, or long and random."""
    text = text.strip()
    if _KEY.fullmatch(text):
        return True
    is_random = re.fullmatch(r"[A-Za-z0-9-]{32,}", text) is not None and len(set(text)) >= 12
    return is_random and any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def is_surely_key(text: str) -> bool:
    """Whether a value of a request looks like an API key, and not like the name of something."""
    return re.match(r"sk-\S{6,}|Bearer\s+\S{8,}", text.strip()) is not None or holds_key(text)


def holds_key(text: str) -> bool:
    """Whether a longer text (a prompt, a shell command) holds what looks like a real key."""
    return any(_looks_real(match[0]) for match in _KEY_IN_TEXT.finditer(text))


def without_keys(text: str) -> str:
    """A text with what looks like a real key taken out."""
    return _KEY_IN_TEXT.sub(lambda match: "[redacted]" if _looks_real(match[0]) else match[0], text)


def _looks_real(text: str) -> bool:
    return len(set(text)) >= 14 and any(c.isdigit() for c in text)


def pair_to_add(variable: str, address: Address) -> str:
    """The line for hermes.yaml that lets `variable` go to `address`."""
    default = 443 if address.scheme == "https" else 80
    port = "" if address.port == default else f":{address.port}"
    host = f"{address.host}{port}"
    if ":" in host:
        host = f'"{host}"'
    return f"keys: [{{variable: {variable}, host: {host}}}]"
