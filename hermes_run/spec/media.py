"""Who sees, draws and speaks for the tools on this machine (`vision`, `images`, `speech` of hermes.yaml).

Which model it is, is part of the work fingerprint, though the machine decides it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.errors import KeyMissing
from hermes_run.spec.keys_and_hosts import Address, Secret, may_send, pair_to_add, parse_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hermes_run.spec.model import Settings

GATEWAYS = {
    "images": "https://fal-queue-gateway.nousresearch.com",
    "speech": "https://openai-audio-gateway.nousresearch.com/v1",
}
"""Where the Nous tool gateway is for each of them."""
GATEWAY_VARIABLE = "TOOL_GATEWAY_USER_TOKEN"
_GATEWAY_MODELS = {"images": "fal-ai/flux-2/klein/9b", "speech": "gpt-4o-mini-tts"}
TOOLS_OF = {
    "vision": frozenset({"vision_analyze", "browser_vision"}),
    "images": frozenset({"image_generate"}),
    "speech": frozenset({"text_to_speech"}),
}
_EXAMPLES = {
    "vision": "vision: {endpoint: NAME, model: MODEL}",
    "images": "images: {endpoint: NAME, model: MODEL}, or images: {gateway: nous}",
    "speech": "speech: {endpoint: NAME, model: MODEL, voice: VOICE}, speech: {gateway: nous}, or offline: "
    "speech: {offline: espeak-ng} or piper",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSource:
    """One that is ready to be asked.

    Attributes:
        name: of the endpoint, `nous` for the tool gateway, or the program.
        base_url: without a final slash; "" for a program.
        model: at the endpoint; for piper, the file of its voice.
        key: None when none is sent.
        price: of the model in hermes.yaml, or {}.
    """

    name: str
    base_url: str = ""
    model: str = ""
    voice: str = ""
    key: Secret | None = None
    is_gateway: bool = False
    price: dict[str, Any] | None = None

    @property
    def is_program(self) -> bool:
        """Whether it is a program of this machine."""
        return not self.base_url


def find_source(section: str, settings: Settings) -> MediaSource | str:
    """Who does `vision`, `images` or `speech`, with its key; or why nobody does, with the cure."""
    written: dict[str, Any] = getattr(settings, section)
    if written.get("offline"):
        return _program(written)
    if written.get("gateway"):
        url = str(written.get("gateway_url") or GATEWAYS[section]).rstrip("/")
        model = str(written.get("model") or _GATEWAY_MODELS[section])
        return _with_key(section, "nous", url, GATEWAY_VARIABLE, settings, written | {"model": model})
    name = written.get("endpoint")
    if not name or not written.get("model"):
        return f"hermes.yaml names no model for it; add {_EXAMPLES[section]}"
    endpoint = settings.endpoints.get(name)
    if endpoint is None:
        return f"{section}.endpoint names {name}, which is none of the endpoints in hermes.yaml"
    return _with_key(section, name, endpoint.base_url.rstrip("/"), endpoint.api_key_env, settings, written)


def _with_key(
    section: str, name: str, url: str, variable: str | None, settings: Settings, written: dict[str, Any]
) -> MediaSource | str:
    address = parse_url(url)
    if isinstance(address, str):
        return f"the address of {section} in hermes.yaml {address}"
    try:
        key = _key(name, variable, address, settings)
    except KeyMissing as why:
        return str(why)
    return MediaSource(
        name=name,
        base_url=url,
        model=str(written["model"]),
        voice=str(written.get("voice") or ""),
        key=key,
        is_gateway=name == "nous" and bool(written.get("gateway")),
        price=settings.prices.get(str(written["model"])),
    )


def _key(name: str, variable: str | None, address: Address, settings: Settings) -> Secret | None:
    endpoint = settings.endpoints.get(name)
    if variable is None:
        if endpoint is None or endpoint.login != "portal":
            return None
        from hermes_run.spec.portal import read_login

        return Secret(read_login())
    is_ours = variable == GATEWAY_VARIABLE and address.host.endswith("-gateway.nousresearch.com")
    if not (may_send(variable, address, settings) or (is_ours and address.scheme == "https")):
        raise KeyMissing(
            f"{variable} is not known to belong to {address.host}; if it is meant, add to hermes.yaml: "
            f"{pair_to_add(variable, address)}"
        )
    value = os.environ.get(variable, "").strip()
    if not value:
        raise KeyMissing(f"the environment variable {variable} is not set; export {variable}=…")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise KeyMissing(f"{variable} holds characters that no API key has; set it again")
    return Secret(value)


def _program(written: dict[str, Any]) -> MediaSource | str:
    import shutil

    name = str(written["offline"])
    if shutil.which(name) is None:
        package = "apt-get install espeak-ng" if name == "espeak-ng" else "pip install piper-tts"
        return (
            f"speech.offline is {name}, and there is no program {name} on this machine; install it: {package}"
        )
    model = str(written.get("model") or "")
    if name == "piper" and not Path(model).is_file():
        return "speech.offline is piper, which needs a voice: speech: {offline: piper, model: VOICE.onnx}"
    return MediaSource(name=name, model=model, voice=str(written.get("voice") or ""))


def why_not(section: str, settings: Settings) -> str:
    """Why nobody does `vision`, `images` or `speech` here, and the cure; "" when somebody does."""
    found = find_source(section, settings)
    return found if isinstance(found, str) else ""


def keys_of(settings: Settings) -> Iterator[str]:
    """The keys that are sent to those who see, draw and speak."""
    for section in TOOLS_OF:
        found = find_source(section, settings)
        if isinstance(found, MediaSource) and found.key is not None:
            yield found.key.reveal()


def work_of_media(settings: Settings, tools: Iterable[str]) -> dict[str, Any]:
    """The part of the work fingerprint that they are; empty where none of their tools can be drawn."""
    offered, found = set(tools), {}
    for section, names in TOOLS_OF.items():
        written = getattr(settings, section)
        if offered & names and written:
            who = written.get("offline") or ("gateway" if written.get("gateway") else "")
            model = written.get("model") or (
                "" if written.get("offline") else _GATEWAY_MODELS.get(section, "")
            )
            found[f"tools.{section}"] = " ".join(part for part in (who, model, written.get("voice")) if part)
    return found
