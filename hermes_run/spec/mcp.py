"""MCP servers as a spec names them: what is wrong with one, and which variables it may be given."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from hermes_run.errors import KeyMissing
from hermes_run.spec.keys_and_hosts import KNOWN_HOSTS, is_variable_name, looks_like_key, parse_url
from hermes_run.spec.locate import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_run.spec.draft import Draft
    from hermes_run.spec.locate import KeyPath
    from hermes_run.spec.model import McpServer, Settings, Spec

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_OTHER_KEYS = frozenset({"GITHUB_TOKEN", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "TOOL_GATEWAY_USER_TOKEN"})


def check_mcp(draft: Draft) -> None:
    """Each server has a name of its own, and either a command or an address."""
    seen: set[str] = set()
    written = draft.value(("tools", "mcp"), [])
    for at, server in enumerate(written if isinstance(written, list) else ()):
        path: KeyPath = ("tools", "mcp", at)
        for key, text in _faults(server, draft.settings):
            draft.note((*path, *key), text)
        if server["name"] in seen:
            draft.note(
                (*path, "name"), f"there is a server {shown(server['name'])} already; rename one of them"
            )
        seen.add(server["name"])


def _faults(server: dict[str, Any], settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    if not _NAME.fullmatch(server["name"]):
        yield ("name",), "must be 1 to 32 letters, digits, _ or -, and begin with a letter"
    if (server.get("command") is None) == (server.get("url") is None):
        yield (), "needs either command (with args) or url; write one of them"
    if server.get("url") is not None:
        address = parse_url(server["url"])
        if isinstance(address, str):
            yield ("url",), address
        for key in ("args", "env", "host"):
            if server.get(key):
                yield (key,), "goes with command, and this server has a url; take one of them out"
    for at, variable in enumerate(server.get("env", ())):
        if looks_like_key(variable) or not is_variable_name(variable):
            yield (
                ("env", at),
                "must be the NAME of a variable, such as MY_TOKEN; its value is never written down",
            )
        elif not _may_have(server["name"], variable, settings):
            pair = f"{{variable: {variable}, host: {server['name']}.mcp}}"
            text = f"{variable} is a key that belongs elsewhere, and a key goes only where it is known for"
            yield ("env", at), f"{text}; if it is meant, add to hermes.yaml: keys: [{pair}]"


def _may_have(server: str, variable: str, settings: Settings) -> bool:
    """Whether a server may be given a variable: a known provider's key only by the user's own word."""
    bound = {name for names in KNOWN_HOSTS.values() for name in names} | _OTHER_KEYS
    bound |= {pair.variable for pair in settings.keys}
    bound |= {each.api_key_env for each in settings.endpoints.values() if each.api_key_env}
    meant = {(pair.variable, pair.host.lower()) for pair in settings.keys}
    return variable not in bound or (variable, f"{server}.mcp".lower()) in meant


def variables_of(server: McpServer) -> dict[str, str]:
    """The variables that a server is given, with their values. Raises KeyMissing for one that is unset."""
    missing = [name for name in server.env if name not in os.environ]
    if missing:
        raise KeyMissing(
            f"the environment variable {missing[0]} (tools.mcp, {server.name}) is not set; export "
            f"{missing[0]}=… before the run, or take it out of env"
        )
    for name in server.env:
        if "\n" in os.environ[name]:
            raise KeyMissing(
                f"the environment variable {name} (tools.mcp, {server.name}) holds a line break, which no "
                "server can be given; put the value into one line"
            )
    return {name: os.environ[name] for name in server.env}


def work_of_mcp(spec: Spec) -> dict[str, Any]:
    """The part of the work fingerprint that MCP servers are; empty where there are none."""
    return {
        f"tools.mcp.{server.name}": {
            "command": server.command,
            "args": list(server.args),
            "env": list(server.env),
            "host": server.host,
            "url": server.url,
        }
        for server in spec.tools.mcp
    }
