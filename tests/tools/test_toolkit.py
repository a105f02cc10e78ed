"""One rollout's tools: every call gets one answer, whatever the model wrote."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_run.core.contracts import SandboxInfo, ToolSession
from hermes_run.core.messages import ToolCall
from hermes_run.core.registry import TOOLS, Row
from hermes_run.core.task import PromptTask
from hermes_run.core.toolsets import TOOLSETS
from hermes_run.errors import SandboxError, UnknownName
from hermes_run.spec.model import Settings
from hermes_run.tools.toolkit import (
    Toolkit,
    describe_tools,
    has_failed,
    offered_tools,
    unavailable,
)
from tests.tools.place import READY, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_run.core.contracts import Sandbox


class LostSandbox:
    """A sandbox that is gone."""

    info = SandboxInfo("lost", "/")

    async def exec(self, command: str, **_: Any) -> None:
        raise SandboxError(f"gone: {command[:0]}", reason="sandbox_lost")


def toolkit(*names: str, sandbox: Any = None) -> Toolkit:
    return Toolkit(names, ToolSession(PromptTask("k#0", 0, "p"), cast("Sandbox", sandbox), names))


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ({}, False),
        ({"error": None, "exit_code": 1}, False),
        ({"exit_code": 124, "error": "timed out after 1 s"}, True),
        ({"error": ""}, True),
        ({"success": False}, True),
        ({"success": True, "error": None}, False),
        ({"success": None}, False),
        ({"output": "error: failed", "exit_code": 2, "error": None}, False),
    ],
)
def test_call_has_failed_when_the_tool_says_so(result: dict[str, Any], failed: bool) -> None:
    assert has_failed(result) is failed


@pytest.mark.parametrize(
    "name", ["no_such_tool", "Terminal", "terminal ", "", "read_file", "\ud835", "x" * 5000]
)
def test_invented_name_is_answered_with_those_that_exist(name: str) -> None:
    answer = asyncio.run(toolkit("terminal", "todo").call(ToolCall("c", name, "{}")))
    assert (answer.failed, answer.valid, answer.known) == (True, False, False)
    assert json.loads(answer.text)["error"].endswith("Tools: terminal, todo")
    answer.text.encode()


@pytest.mark.parametrize(
    "arguments", ['{"command": "ls"', '["ls"]', '{"cmd": "ls"}', "{}", "", '{"command": null}']
)
def test_broken_arguments_are_answered_and_never_run(arguments: str) -> None:
    answer = asyncio.run(
        toolkit("terminal", sandbox=LostSandbox()).call(ToolCall("c", "terminal", arguments))
    )
    assert (answer.failed, answer.valid, answer.known) == (True, False, True)
    assert json.loads(answer.text)["error"].startswith("terminal: ")


def test_refusal_of_a_tool_is_valid_and_failed() -> None:
    answer = asyncio.run(toolkit("terminal").call(ToolCall("c", "terminal", '{"command": " "}')))
    assert (answer.failed, answer.valid, answer.known) == (True, True, True)
    assert json.loads(answer.text) == {"error": "command is empty"}


@pytest.mark.parametrize(
    "name", ["terminal", "read_file", "write_file", "patch", "search_files", "execute_code"]
)
def test_lost_sandbox_ends_the_rollout(name: str) -> None:
    given: dict[str, Any] = {"command": "x", "path": "x", "content": "x", "pattern": "x", "code": "x"}
    given |= {"old_string": "x", "new_string": "y"}
    kit = toolkit(name, sandbox=LostSandbox())
    required = kit.specs[0].parameters["required"] or ["path", "old_string", "new_string"]
    wanted = {key: given[key] for key in required}
    with pytest.raises(SandboxError):
        asyncio.run(kit.call(ToolCall("c", name, json.dumps(wanted))))


def test_specs_are_the_same_bytes_whatever_order_is_asked_for() -> None:
    one, other = (
        toolkit("todo", "terminal", "patch").specs,
        toolkit("patch", "todo", "terminal", "todo").specs,
    )
    assert [spec.name for spec in one] == ["patch", "terminal", "todo"]
    assert json.dumps([spec.parameters for spec in one]) == json.dumps([spec.parameters for spec in other])


def test_tool_that_is_not_available_yet_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOLS, "todo", Row(""))
    with pytest.raises(UnknownName, match="todo"):
        toolkit("todo")
    found = unavailable(["todo"], {}, Settings())
    assert found == {"todo": "todo: not available yet in this version of hermes-run"}


def test_closing_twice_is_fine() -> None:
    kit = toolkit("todo")
    asyncio.run(kit.call(ToolCall("c", "todo", "{}")))
    asyncio.run(kit.aclose())
    asyncio.run(kit.aclose())


def test_offered_tools_are_sorted_and_each_once() -> None:
    assert offered_tools(["terminal", "file"], {}) == (
        "patch",
        "process",
        "read_file",
        "search_files",
        "terminal",
        "write_file",
    )
    assert offered_tools(["mine", "terminal"], {"mine": ("todo", "terminal")}) == (
        "process",
        "terminal",
        "todo",
    )
    assert offered_tools([], {}) == ()
    with pytest.raises(UnknownName):
        offered_tools(["nothing"], {})


def test_toolset_is_unavailable_when_one_of_its_tools_is() -> None:
    own = {"half": ("todo", "image_generate"), "typo": ("terminl",), "loop": ("loop2",), "loop2": ("loop",)}
    found = unavailable(
        ["terminal", "file", "todo", "web", "half", "typo", "loop", "nowhere"], own, Settings()
    )
    assert found["web"].startswith("web_search: there is no search engine; choose one in hermes.yaml")
    assert found["half"].startswith("image_generate: hermes.yaml names no model for it; add images:")
    assert 'there is no tool "terminl"; did you mean "terminal"?' in found["typo"]
    assert "includes itself" in found["loop"]
    assert 'there is no toolset "nowhere"' in found["nowhere"]
    assert set(found) == {"web", "half", "typo", "loop", "nowhere"}


def test_every_tool_is_described() -> None:
    described = describe_tools(Settings())
    assert set(described) == set(TOOLS)
    assert described["terminal"] == {"toolsets": ["debugging", "terminal"], "available": True, "needs": ""}
    assert described["web_search"]["toolsets"] == ["browser", "debugging", "safe", "search", "web"]
    for name, row in described.items():
        needs_a_setting = name in {"web_search", "vision_analyze", "image_generate", "text_to_speech"}
        hangs_on_the_machine = name.startswith("browser_")
        assert hangs_on_the_machine or row["available"] is not needs_a_setting
        assert bool(row["needs"]) is not row["available"]
        assert set(row["toolsets"]) <= set(TOOLSETS)


@pytest.fixture(scope="module")
def live() -> Iterator[Place]:
    with Place() as place:
        yield place


TEXT = st.text(max_size=12) | st.sampled_from(
    ["a.txt", ".", "/", "..", "bg_1", "\udc00", "\U0010dce9", "a/b\n"]
)


@given(st.sampled_from(READY), st.data())
@settings(max_examples=120)
def test_any_arguments_get_one_valid_answer(live: Place, name: str, data: st.DataObject) -> None:
    parameters = next(spec.parameters for spec in live.kit.specs if spec.name == name)
    arguments: dict[str, Any] = {}
    for key, schema in parameters["properties"].items():
        if key in {"timeout", "background", "command", "workdir"}:  # a search of all of / takes minutes
            continue
        if key in parameters["required"] or data.draw(st.booleans()):
            options = st.sampled_from(schema.get("enum", ["list"]))
            values = {"string": options if "enum" in schema else TEXT, "integer": st.integers(-1, 9)}
            arguments[key] = data.draw(values.get(schema["type"], st.booleans() | TEXT))
    if name == "process":
        arguments["action"] = "list"
    if name == "terminal":
        arguments["command"] = data.draw(TEXT.map(lambda text: f"echo '{text}"))
    answer = live.answer(name, json.dumps(arguments))
    result = json.loads(answer.text)
    assert answer.text.encode().decode() == answer.text
    assert "\n" not in answer.text
    assert answer.failed is has_failed(result)
    assert answer.known
