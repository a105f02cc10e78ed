"""todo: the model's own list of what is left to do, kept for one rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_run.core.contracts import ToolSession

STATES = ("pending", "in_progress", "completed", "cancelled")


class Todo:
    """Keeps a list of tasks. Never touches the sandbox."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "todo",
        "Keep a task list for work of several steps. Give `todos` to write it; without `todos` the list is "
        "returned as it is. The answer is always the whole list, in order of importance, and a summary.",
        {
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "description": "The tasks, the most important first.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string", "description": "Its name, each once."},
                            "content": {"type": "string", "description": "What is to be done."},
                            "status": {"type": "string", "enum": list(STATES), "default": "pending"},
                        },
                        "required": ["id"],
                        "additionalProperties": False,
                    },
                },
                "merge": {
                    "type": "boolean",
                    "default": False,
                    "description": "false: todos replaces the list, each with id and content. true: tasks of "
                    "the same id are updated with the fields given, new ones are added at the end.",
                },
            },
            "required": [],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        del session  # the list needs nothing of it
        self._todos: dict[str, dict[str, str]] = {}

    @staticmethod
    def missing(machine: Any) -> str:
        """Nothing: it works everywhere."""
        del machine
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write or read the list. Result: `todos` (id, content, status) and `summary` (counts)."""
        if "todos" in arguments:
            self._write(arguments["todos"], merge=arguments.get("merge", False))
        todos = [dict(todo) for todo in self._todos.values()]
        counts = {state: sum(todo["status"] == state for todo in todos) for state in STATES}
        return {"todos": todos, "summary": {"total": len(todos), **counts}}

    def _write(self, items: Sequence[Mapping[str, str]], *, merge: bool) -> None:
        """Replace or merge the list; an item that is wrong changes nothing."""
        todos = {name: dict(todo) for name, todo in self._todos.items()} if merge else {}
        seen: set[str] = set()
        for item in items:
            name = item["id"]
            if name in seen:
                raise ToolError(f'two todos have the id "{name}"; give each its own')
            seen.add(name)
            old = todos.get(name, {"status": "pending"})
            todo = {"id": name, **old, **item}
            if not todo.get("content", "").strip():
                raise ToolError(f'todo "{name}" has no content; say what is to be done')
            todos[name] = {field: todo[field] for field in ("id", "content", "status")}
        self._todos = todos

    async def aclose(self) -> None:
        """Nothing to give back."""
