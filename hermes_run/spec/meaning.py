"""What the schema cannot say: files that must exist, keys that exclude each other, names of toolsets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.core.images import is_local, plain_reference
from hermes_run.core.registry import TOOLS, did_you_mean
from hermes_run.core.toolsets import TOOLSETS, tools_of
from hermes_run.errors import UnknownName
from hermes_run.spec.draft import counted_from
from hermes_run.spec.endpoint import dialect_of
from hermes_run.spec.keys_and_hosts import (
    Address,
    known_variable,
    may_send,
    pair_to_add,
    parse_host,
    parse_url,
)
from hermes_run.spec.locate import shown, shown_path
from hermes_run.spec.model import DEFAULT_BASE_URL, DEFAULT_MODEL

if TYPE_CHECKING:
    from hermes_run.spec.draft import Draft
    from hermes_run.spec.locate import KeyPath

SCRIPTED = "scripted"


def check_files(draft: Draft) -> None:
    """The dataset exists and does not lie where the run writes."""
    dataset = draft.file_at(("dataset", "path"), "the dataset")
    out = Path(os.path.expanduser(draft.value(("output", "dir"), "data")))  # noqa: PTH111 - never raises
    try:
        if out.exists() and not out.is_dir():
            draft.note(("output", "dir"), f"{shown(str(out))} is a file; name a folder")
    except (OSError, ValueError) as error:
        draft.note(("output", "dir"), f"is no path: {error}")
        return
    run_name = draft.value(("run_name",))
    if dataset is None or run_name is None:
        return
    run_dir = (out / run_name).resolve()
    if dataset.resolve().is_relative_to(run_dir):
        draft.note(
            ("dataset", "path"),
            f"the dataset lies in the run directory {run_dir}, where the run writes; "
            "move it elsewhere or choose another run_name",
        )


def check_reuse(draft: Draft) -> None:
    """What is reused are run directories that are there, and not the run's own."""
    written = draft.value(("reuse",), [])
    for at in range(len(written) if isinstance(written, list) else 0):
        run = draft.path_at(("reuse", at))
        if run is None or draft.is_spoiled(("reuse", at)):
            continue
        if not os.path.isfile(run / "journal.jsonl"):  # noqa: PTH113 - no name makes it raise
            draft.note(
                ("reuse", at),
                f"{shown_path(run)} is no run directory (it has no journal.jsonl); "
                f"{counted_from(is_in_file=draft.is_in_file(('reuse', at)))}",
            )


def check_image(draft: Draft) -> None:
    """The default image is named as images are; whether a local one may be used, the machine says."""
    path = ("sandbox", "image")
    image = draft.value(path)
    if not isinstance(image, str) or draft.is_spoiled(path) or is_local(image):
        return
    try:
        plain_reference(image)
    except ValueError as why:
        draft.note(path, f"is {shown(image)}; {why}")


def check_model(draft: Draft) -> None:
    """A script goes with `scripted` and with nothing else; an endpoint excludes base_url."""
    is_scripted = draft.value(("model", "name"), DEFAULT_MODEL) == SCRIPTED
    script, base_url, endpoint = ("model", "script"), ("model", "base_url"), ("model", "endpoint")
    if is_scripted and not draft.is_written(script):
        draft.note(
            ("model", "name"), "scripted needs a tape; add model.script: the path of a YAML file of replies"
        )
    if draft.is_written(script):
        if not is_scripted and not draft.is_spoiled(("model", "name")):
            name = shown(draft.value(("model", "name"), DEFAULT_MODEL))
            draft.note(
                script,
                f"is the tape of model.name: scripted, and the model is {name}; set it to null "
                "(--set model.script=null) or name scripted",
            )
        else:
            draft.file_at(script, "the tape")
    if draft.is_written(endpoint):
        _check_endpoint(draft)
        if draft.is_written(base_url):
            draft.note(
                base_url, "cannot stand beside model.endpoint, which brings its own; take one of them out"
            )
    if not is_scripted:
        _check_address(draft)


def _check_endpoint(draft: Draft) -> None:
    name = draft.value(("model", "endpoint"))
    known = draft.settings.endpoints
    if name not in known:
        hint = did_you_mean(name, known) or f"; known: {', '.join(known) or 'none'};"
        draft.note(
            ("model", "endpoint"),
            f"there is no endpoint {shown(name)}{hint} endpoints are named in {_settings_file(draft)}, as "
            "endpoints: {NAME: {base_url: …}}",
        )


def _settings_file(draft: Draft) -> str:
    """The hermes.yaml to write into, and why another one was not read."""
    name = str(draft.settings.source or "~/.config/hermes-run/hermes.yaml")
    not_read = [text for text in draft.settings.warnings if "is not read" in text]
    return f"{name} ({not_read[0]})" if not_read else name


def _check_address(draft: Draft) -> None:
    urls = base_urls_of(draft)
    if draft.is_spoiled(("model", "base_url")):
        return
    variable = draft.value(("model", "api_key_env")) or key_variable_of(draft)
    told = ("model", "api_key_env") if draft.is_written(("model", "api_key_env")) else ("model", "base_url")
    dialects = set()
    for at, url in enumerate(urls):
        place: KeyPath = ("model", "base_url", at) if len(urls) > 1 else ("model", "base_url")
        address = parse_url(url)
        if isinstance(address, str):
            draft.note(place, address)
            continue
        dialects.add(dialect_of(url))
        if url.rstrip("/") in [other.rstrip("/") for other in urls[:at]]:
            draft.note(place, f"{shown(url)} stands there twice; take one of them out")
        elif variable is not None and not may_send(variable, address, draft.settings):
            draft.note(told, _refusal(variable, url, address, draft))
    if len(dialects) > 1 and not draft.is_written(("model", "endpoint")):
        draft.note(
            ("model", "base_url"),
            "a list is of replicas, which serve one model alike, and these speak "
            f"{', '.join(sorted(dialects))}; write endpoints of one kind",
        )


def check_streaming(draft: Draft) -> None:
    """Silence can be told from work in a stream alone."""
    if draft.is_written(("model", "idle_timeout_s")) and not draft.value(("model", "stream"), False):
        draft.note(
            ("model", "idle_timeout_s"),
            "is about the pauses of a stream; add model.stream: true, or take it out",
        )


def _refusal(variable: str, url: str, address: Address, draft: Draft) -> str:
    if address.scheme == "http" and may_send(variable, Address("https", address.host, 443)):
        return (
            f"{variable} would go to {address.host} over plain http, readable on the way; "
            "write https:// in model.base_url"
        )
    meant = known_variable(url)
    other = f"; the variable for this host is {meant}" if meant else ""
    return (
        f"{variable} is not known to belong to {address.host}, and a key goes only to hosts it is known for"
        f"{other}; if it is meant, add to {_settings_file(draft)}: {pair_to_add(variable, address)}"
    )


def base_urls_of(draft: Draft) -> list[str]:
    """The URLs that will be asked; none when they are not known for a mistake noted elsewhere."""
    endpoint = draft.value(("model", "endpoint"))
    if endpoint is not None:
        known = draft.settings.endpoints.get(endpoint)
        return [known.base_url, *known.replicas] if known else []
    url = draft.value(("model", "base_url"))
    if url is None:
        return [DEFAULT_BASE_URL]
    return [url] if isinstance(url, str) else [each for each in url if isinstance(each, str)]


def base_url_of(draft: Draft) -> str | None:
    """The first of them, or None."""
    return next(iter(base_urls_of(draft)), None)


def key_variable_of(draft: Draft) -> str | None:
    """The variable whose value will be sent: as written, else the endpoint's, else the host's own."""
    if draft.value(("model", "name")) == SCRIPTED:
        return None
    if draft.tree.find(("model", "api_key_env")) is not None:
        variable: str | None = draft.value(("model", "api_key_env"))
        return variable
    endpoint = draft.settings.endpoints.get(draft.value(("model", "endpoint"), ""))
    if endpoint is not None and (endpoint.api_key_env is not None or endpoint.login is not None):
        return endpoint.api_key_env
    return known_variable(base_url_of(draft) or "")


def check_tools(draft: Draft) -> None:
    """Hosts are hosts, engines can be had from here, and a cassette that is only replayed is there."""
    hosts = draft.value(("tools", "allowed_hosts"), [])
    for index, host in enumerate(hosts if isinstance(hosts, list) else ()):
        if not isinstance(host, str) or parse_host(host) is None:
            draft.note(
                ("tools", "allowed_hosts", index),
                "must be a host, such as wiki.example.org, 127.0.0.1:8080 or [::1]:8080, "
                f"not {shown(host)}; there are no patterns, and no URLs",
            )
    cassette, replay_only = ("tools", "web", "cassette"), ("tools", "web", "replay_only")
    if draft.value(replay_only):
        if draft.is_written(cassette):
            draft.file_at(cassette, "the cassette")
        elif not draft.is_spoiled(cassette):
            draft.note(replay_only, "there is nothing to replay; add tools.web.cassette: a file")
    elif draft.is_written(cassette) and not draft.is_spoiled(cassette):
        _check_recording(draft, cassette)


def _check_recording(draft: Draft, path: KeyPath) -> None:
    """A file that is there, or can be made, and written."""
    file = draft.path_at(path)
    is_there = file is not None and os.access(file, os.F_OK)
    if file is None or (is_there and draft.file_at(path, "the cassette") is None):
        return
    place = file if is_there else file.parent
    if not os.access(place, os.F_OK):
        draft.note(path, f"the folder {shown_path(place)} of the cassette does not exist; make it")
    elif not os.access(place, os.W_OK):
        draft.note(path, f"the cassette cannot be written: {shown_path(place)} is read-only for you")


def check_limits(draft: Draft) -> None:
    """A rollout's own limit fits into the run's: it begins only where it fits."""
    for unit in ("cost", "tokens"):
        total, own = (draft.value(("limits", f"{whose}_{unit}")) for whose in ("total", "prompt"))
        if total is not None and own is not None and own > total:
            draft.note(
                ("limits", f"prompt_{unit}"),
                f"is more than limits.total_{unit} ({total}), so that no rollout would fit; lower it or "
                "raise the total",
            )


def check_routing(draft: Draft) -> None:
    """A provider is not wanted and unwanted at the same time."""
    for index, name in enumerate(draft.value(("provider_routing", "ignored"), [])):
        for key in ("allowed", "order"):
            if str(name).lower() in (
                str(each).lower() for each in draft.value(("provider_routing", key), [])
            ):
                draft.note(
                    ("provider_routing", "ignored", index),
                    f"{shown(name)} stands in provider_routing.{key} too; take it out of one of them",
                )


def check_toolsets(draft: Draft) -> None:
    """The spec's own toolsets hold tools and toolsets that exist, and no circles."""
    own = draft.value(("toolsets",), {})
    known = {*TOOLS, *TOOLSETS, *own}
    for name, members in own.items():
        unknown = [(index, member) for index, member in enumerate(members) if member not in known]
        for index, member in unknown:
            hint = (
                did_you_mean(member, sorted(known))
                or f"; tools: {', '.join(TOOLS)}; toolsets: {', '.join(TOOLSETS)}"
            )
            draft.note(("toolsets", name, index), f"there is no tool or toolset {shown(member)}{hint}")
        if not unknown:
            try:
                tools_of(name, own)
            except UnknownName as error:
                if "includes itself" in str(error):
                    draft.note(("toolsets", name), f"{error}; take one of them out")
