"""One rollout's tools: the calls of the model come in, and each gets exactly one answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes_run.core.answers import Aside, ToolAnswer
from hermes_run.core.messages import Usage
from hermes_run.core.registry import TOOLS, load
from hermes_run.core.text import clean, restore, restore_within
from hermes_run.core.toolsets import TOOLSETS, tools_of
from hermes_run.errors import HermesRunError, ToolError, UnknownName
from hermes_run.tools.arguments import BadArguments, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_run.core.contracts import Tool, ToolKind, ToolSession, ToolSpec
    from hermes_run.core.messages import ToolCall

NOT_AVAILABLE = "not available yet in this version of hermes-run"


def has_failed(result: Mapping[str, Any]) -> bool:
    """Whether a result says that the tool failed. Contract, section 5: never by words in its text.

    A command's exit code is the command's business.
    """
    return result.get("error") is not None or result.get("success") is False


class Toolkit:
    """The tools offered to one rollout, each made when it is first called.

    `extra` are the run's own and MCP tools; `redact` takes secrets out of every result.
    """

    def __init__(
        self,
        names: Sequence[str],
        session: ToolSession,
        extra: Mapping[str, ToolKind] | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        extra = extra or {}
        self._redact = redact
        self._classes: dict[str, Any] = {
            name: extra.get(name) or load("tool", TOOLS, name) for name in sorted(set(names))
        }
        self._made: dict[str, Tool] = {}
        self.specs: tuple[ToolSpec, ...] = tuple(kind.spec for kind in self._classes.values())
        """How they are offered, sorted by name: the same bytes for the same names."""
        self._session = structs.replace(session, specs=self.specs, call_tool=self.call)

    def offers(self, name: str) -> bool:
        """Whether a tool of this name was given to the model."""
        return restore(name) in self._classes

    async def call(self, call: ToolCall) -> ToolAnswer:
        """Answer one call.

        Raises SandboxError when the sandbox is gone; what a tool raises besides ToolError is a bug.
        """
        name = restore(call.name)
        if name not in self._classes:
            offered = ", ".join(self._classes) or "none"
            return _answer(
                {"error": f'there is no tool "{name}". Tools: {offered}'}, valid=False, known=False
            )
        try:
            arguments = parse_arguments(call.arguments, self._classes[name].spec.parameters)
        except BadArguments as error:
            return _answer({"error": f"{name}: {restore(str(error))}"}, valid=False)
        try:
            return self._told(await self._tool(name).call(restore_within(arguments)))
        except ToolError as error:
            return self._told({"error": str(error)})
        except RecursionError:  # JSON of a model or a stranger, walked value by value
            return _answer(
                {"error": f"{name}: that is nested too deeply to be used; ask for something flatter"}
            )

    def _told(self, result: Mapping[str, Any]) -> ToolAnswer:
        return _answer(result if self._redact is str else _through(result, self._redact))

    def take_aside(self) -> Aside:
        """What tools did beside the conversation since this was asked last."""
        aside = self._session.aside
        taken = Aside(aside.calls, aside.usage)
        aside.calls, aside.usage = [], Usage()
        return taken

    def _tool(self, name: str) -> Tool:
        if name not in self._made:
            self._made[name] = self._classes[name](self._session)
        return self._made[name]

    async def aclose(self) -> None:
        """Close the tools that were used."""
        while self._made:
            _, tool = self._made.popitem()
            await tool.aclose()


def _answer(result: Mapping[str, Any], *, valid: bool = True, known: bool = True) -> ToolAnswer:
    text = clean(json.dumps(result, ensure_ascii=False))
    return ToolAnswer(text, has_failed(result), valid, known)


def _through(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_through(item, change) for item in value]
    if isinstance(value, Mapping):
        return {change(name): _through(item, change) for name, item in value.items()}
    return value


def offered_tools(toolsets: Sequence[str], own: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The tools of some toolsets, each once, sorted. `own` are the spec's toolsets."""
    return tuple(sorted({tool for toolset in toolsets for tool in tools_of(toolset, own)}))


def why_unavailable(name: str, settings: Any) -> str:
    """Why a tool cannot work on this machine, and the cure; "" when it can."""
    if name in TOOLS and not TOOLS[name].path:
        return NOT_AVAILABLE
    try:
        kind = load("tool", TOOLS, name)
    except HermesRunError as error:
        return str(error)
    return str(kind.missing(settings))


def unavailable(toolsets: Sequence[str], own: Mapping[str, Sequence[str]], settings: Any) -> dict[str, str]:
    """The toolsets that cannot work on this machine -> why.

    Args:
        toolsets: names, as a distribution has them.
        own: the spec's toolsets.
        settings: the machine's Settings.
    """
    found: dict[str, str] = {}
    for toolset in toolsets:
        try:
            tools = tools_of(toolset, own)
        except UnknownName as error:
            found[toolset] = str(error)
            continue
        reasons: dict[str, list[str]] = {}
        for tool in tools:
            why = why_unavailable(tool, settings)
            if why:
                reasons.setdefault(why, []).append(tool)
        if reasons:
            found[toolset] = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
    return found


def describe_tools(settings: Any) -> dict[str, dict[str, Any]]:
    """Every built-in tool -> `toolsets` (that bring it), `available`, `needs` (why not, or "")."""
    toolsets: dict[str, list[str]] = {name: [] for name in TOOLS}
    for toolset in sorted(TOOLSETS):
        for tool in tools_of(toolset):
            toolsets[tool].append(toolset)
    needs = {name: why_unavailable(name, settings) for name in TOOLS}
    return {
        name: {"toolsets": toolsets[name], "available": not needs[name], "needs": needs[name]}
        for name in TOOLS
    }
