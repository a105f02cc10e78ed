"""todo: the list is replaced or merged, and an item that is wrong changes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from hermes_run.core.contracts import ToolSession
from hermes_run.core.messages import ToolCall
from hermes_run.core.task import PromptTask
from hermes_run.tools.toolkit import Toolkit

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox


@pytest.fixture
def kit() -> Toolkit:
    """A toolkit without any sandbox: this tool never needs one."""
    return Toolkit(["todo"], ToolSession(PromptTask("k#0", 0, "p"), cast("Sandbox", None)))


def call(kit: Toolkit, **arguments: Any) -> dict[str, Any]:
    text = asyncio.run(kit.call(ToolCall("c", "todo", json.dumps(arguments)))).text
    result: dict[str, Any] = json.loads(text)
    return result


def item(name: str, content: str = "do it", status: str = "pending") -> dict[str, str]:
    return {"id": name, "content": content, "status": status}


def test_list_is_empty_then_replaced(kit: Toolkit) -> None:
    empty = {"total": 0, "pending": 0, "in_progress": 0, "completed": 0, "cancelled": 0}
    assert call(kit) == {"todos": [], "summary": empty}
    todos = [item("b"), item("a", status="in_progress"), item("c", status="completed")]
    result = call(kit, todos=todos)
    assert result["todos"] == todos
    assert result["summary"] == {**empty, "total": 3, "pending": 1, "in_progress": 1, "completed": 1}
    assert call(kit) == result
    assert call(kit, todos=[item("z")], merge=False)["todos"] == [item("z")]
    assert call(kit, todos=[])["todos"] == []


def test_merge_updates_what_is_there_and_adds_what_is_new(kit: Toolkit) -> None:
    call(kit, todos=[item("a"), item("b")])
    result = call(kit, todos=[{"id": "b", "status": "cancelled"}, item("c")], merge="true")
    assert result["todos"] == [item("a"), item("b", status="cancelled"), item("c")]
    assert call(kit, todos=[{"id": "a", "content": "other"}], merge=True)["todos"][0] == item("a", "other")


def test_what_is_meant_is_understood(kit: Toolkit) -> None:
    assert call(kit, todos={"id": 1, "content": "x"})["todos"] == [item("1", "x")]
    assert call(kit, todos=json.dumps([item("2")]))["todos"] == [item("2")]


@pytest.mark.parametrize(
    ("todos", "said"),
    [
        ([item("a"), item("a")], 'two todos have the id "a"'),
        ([{"id": "n"}], 'todo "n" has no content'),
        ([item("n", " ")], 'todo "n" has no content'),
        ([{"content": "x"}], 'missing parameter "todos[0].id"'),
        ([item("n", status="done")], 'parameter "todos[0].status" must be one of "pending", "in_progress"'),
        ([{**item("n"), "prio": 1}], 'unknown parameter "todos[0].prio"'),
        (["text"], 'parameter "todos[0]" must be an object, not text: "text"'),
    ],
)
def test_wrong_item_is_named_and_changes_nothing(kit: Toolkit, todos: list[Any], said: str) -> None:
    call(kit, todos=[item("old")])
    assert said in call(kit, todos=todos)["error"]
    assert said in call(kit, todos=todos, merge=True)["error"]
    assert call(kit)["todos"] == [item("old")]


def test_each_rollout_has_its_own_list() -> None:
    one, other = (
        Toolkit(["todo"], ToolSession(PromptTask("k#0", 0, "p"), cast("Sandbox", None))) for _ in range(2)
    )
    call(one, todos=[item("a")])
    assert call(other)["todos"] == []
