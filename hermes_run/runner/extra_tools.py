"""The run's own tools and those of MCP servers: offered beside what is drawn, columns of every record."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.registry import TOOLS
from hermes_run.errors import MissingExtra, SandboxError, ToolError, UsageError
from hermes_run.runner.backends import backend_name
from hermes_run.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hermes_run.core.contracts import Backend, Sandbox, ToolKind
    from hermes_run.core.task import PromptTask
    from hermes_run.runner.opening import OpenRun
    from hermes_run.runner.options import RunOptions
    from hermes_run.spec.endpoint import Endpoint
    from hermes_run.spec.model import McpServer, Settings, Spec
    from hermes_run.tools.mcp_client import Reach

SHORTEST_SECRET = 8


def check_host_code(spec: Spec, options: RunOptions) -> None:
    """Raises UsageError when code of the spec wants to run outside the sandbox and may not."""
    if options.allow_host_code:
        return
    wants = [f"tools.custom: {each.tool}" for each in spec.tools.custom if each.host]
    wants += [f"tools.mcp: {each.name} ({each.command})" for each in spec.tools.mcp if each.host]
    if wants:
        raise UsageError(
            "\n".join(f"{each} wants to run outside the sandbox, as you on this machine" for each in wants)
            + "\nIf you trust that code, add --allow-host-code; else take host: true out (it runs inside)"
        )


def secrets_of(spec: Spec, settings: Settings, endpoint: Endpoint | None) -> Iterator[str]:
    """What no tool's result may hold: code on the host, and in a server, could show it."""
    from hermes_run.spec.mcp import variables_of
    from hermes_run.spec.media import keys_of
    from hermes_run.spec.web import keys_of_engines, with_pins

    found = [*keys_of(settings), *keys_of_engines(with_pins(spec, settings))]
    if endpoint is not None and endpoint.api_key is not None:
        found.append(endpoint.api_key.reveal())
    for server in spec.tools.mcp:
        found += variables_of(server).values()
    # a placeholder such as EMPTY is a word that any text may hold
    yield from (value for value in found if len(value) >= SHORTEST_SECRET and not value.isalpha())


def own_kinds(spec: Spec) -> dict[str, ToolKind]:
    """The own tools of a spec by name, in its order. Raises UsageError for a file that has changed."""
    if not spec.tools.custom:
        return {}
    from hermes_run.spec.own_tools import Mistaken, own_tools
    from hermes_run.tools.custom import OwnToolKind

    try:
        return {own.spec.name: OwnToolKind(own) for own in own_tools(spec)}
    except Mistaken as why:
        raise UsageError(str(why)) from why


def check_mcp_can_work(spec: Spec, *, is_dry: bool = False) -> None:
    """Raises MissingExtra without the SDK and, unless `is_dry`, KeyMissing for a variable that is unset."""
    from hermes_run.spec.mcp import variables_of

    if spec.tools.mcp and find_spec("mcp") is None:
        raise MissingExtra('tools.mcp needs the MCP SDK: pip install "hermes-run[mcp]"')
    for server in () if is_dry else spec.tools.mcp:
        variables_of(server)


async def mcp_kinds(
    opened: OpenRun, backends: Mapping[str, Backend], first: PromptTask
) -> dict[str, ToolKind]:
    """The tools of the spec's MCP servers, each asked once; inside, in a sandbox as `first` gets it.

    Raises UsageError for a server that cannot be used, SandboxError.
    """
    spec = opened.spec
    if not spec.tools.mcp:
        return {}
    from hermes_run.tools.mcp import list_kinds, named

    reaches = [_reach(spec, server) for server in spec.tools.mcp]
    kinds = []
    async with AsyncExitStack() as stack:
        sandbox = None
        if any(reach.is_inside for reach in reaches):
            sandbox = await _sandbox_of(first, opened, backends, stack)
        for reach in reaches:
            try:
                kinds += await list_kinds(reach, sandbox, f"{first.key} mcp {reach.server.name}")
            except ToolError as why:
                raise UsageError(_cannot(reach.server, str(why))) from why
    return dict(named(kinds, list(own_kinds(spec))))


async def _sandbox_of(
    first: PromptTask, opened: OpenRun, backends: Mapping[str, Backend], stack: AsyncExitStack
) -> Sandbox:
    from hermes_run.runner.session import prepare, sandbox_request

    spec = opened.spec
    backend = backends[backend_name(spec, opened.settings, first.image)]
    try:
        sandbox = await stack.enter_async_context(backend.open(sandbox_request(spec, first)))
        await prepare(sandbox, first, spec.sandbox.setup, spec.sandbox.start_timeout_s)
    except SandboxError as why:
        raise UsageError(f"tools.mcp: there is no sandbox to ask the servers in: {why}") from why
    return sandbox


def _reach(spec: Spec, server: McpServer) -> Reach:
    from hermes_run.spec.mcp import variables_of
    from hermes_run.spec.proxy import proxy_for
    from hermes_run.tools.mcp_client import Reach

    folder = spec.sources[0].parent if spec.sources else Path.cwd()
    proxy = proxy_for(server.url) if server.url is not None else ""
    return Reach(server, variables_of(server), folder, proxy)


def _cannot(server: McpServer, why: str) -> str:
    where = server.url or f"{server.command}, {'outside the sandbox' if server.host else 'in the sandbox'}"
    return f"tools.mcp: the server {server.name} ({where}) cannot be used: {why}"


def remembered(folder: Path) -> dict[str, ToolSpec]:
    """The further tools that tools.json of a run directory names."""
    try:
        tools: Any = json.loads((folder / layout.TOOLS).read_bytes())
    except (OSError, ValueError):
        return {}
    found: dict[str, ToolSpec] = {}
    for tool in tools if isinstance(tools, list) else ():
        about = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(about, dict) and isinstance(about.get("name"), str) and about["name"] not in TOOLS:
            name = about["name"]
            found[name] = ToolSpec(name, str(about.get("description", "")), about.get("parameters") or {})
    return found
