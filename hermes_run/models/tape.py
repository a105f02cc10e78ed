"""The tape of a scripted model: what it says, to which prompt.

```yaml
conversations:
  - match: "[fix-1]"            # a part of the prompt; /…/ is a regular expression
    turns:
      - reasoning: The test will tell.
        text: ""                # what it says; default ""
        calls:
          - tool: terminal
            arguments: {command: "python -m pytest -q"}    # a map; or the JSON as text, broken if you like
        delay_s: 0.2            # before it answers; default 0
        usage: {prompt_tokens: 120, completion_tokens: 30}  # also cached_tokens, reasoning_tokens, cost
      - text: "Mended. The test said: {{result}}"
  - turns:                      # without match: for the prompts that nothing matches
      - text: "You asked: {{prompt}}"
```

- A prompt takes the first conversation that matches it. Prompts that nothing matches take those without
  `match` in order: row 0 the first, row 1 the second, and from the start again when they run out (one
  alone serves all). So a rollout's replies hang on its row alone, not on workers, order or resume.
- `{{prompt}}` and `{{result}}` (the latest tool result) are filled into texts, reasoning and the texts
  within arguments.
- `finish_reason: length` cuts the reply (its calls are not run). `error: NAME` makes the turn fail:
  provider_error, malformed_call, empty_reply, filtered, context, credentials, no_credit, unreachable.
- A turn needs a text, a call or an error. A conversation that is asked for more turns than it has fails
  the rollout.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes_run.core.messages import Usage
from hermes_run.core.registry import did_you_mean
from hermes_run.core.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_run.spec.locate import KeyPath, Mistakes, Node

ERRORS = (
    *("provider_error", "malformed_call", "empty_reply", "filtered", "context"),
    *("credentials", "no_credit", "unreachable"),
)

_FILE = ("conversations",)
_CONVERSATION = ("match", "turns")
_TURN = ("text", "reasoning", "calls", "delay_s", "usage", "finish_reason", "error")
_CALL = ("tool", "arguments")
_USAGE = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")


class Call(Struct, frozen=True):
    """A tool call: arguments as a map, or as JSON text."""

    tool: str
    arguments: Any


class Turn(Struct, frozen=True):
    """One reply."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    delay_s: float = 0.0
    usage: Usage = Usage(calls=1)
    is_cut: bool = False
    error: str = ""


class Conversation(Struct, frozen=True):
    """The replies to one kind of prompt. `match` is None for the rest; `place` is `file:line`."""

    match: re.Pattern[str] | None
    turns: tuple[Turn, ...]
    place: str


class _Reader:
    """Turns the tree of a tape into conversations, noting every mistake."""

    def __init__(self, file_name: str, mistakes: Mistakes) -> None:
        self.file_name = file_name
        self.mistakes = mistakes

    def wrong(self, node: Node, path: KeyPath, text: str) -> None:
        self.mistakes.add(node.place, path, text)

    def fields(self, node: Node, path: KeyPath, known: tuple[str, ...]) -> dict[str, Node]:
        """The entries of a map; {} when it is none."""
        if not isinstance(node.value, dict):
            self.wrong(node, path, f"must be a map with {', '.join(known)}")
            return {}
        for name in node.value:
            if name not in known and not name.startswith("x-"):
                hint = did_you_mean(name, known) or f"; known here: {', '.join(known)}"
                self.wrong(node.value[name], (*path, name), f"unknown key{hint}")
        return dict(node.value)

    def items(self, node: Node | None, path: KeyPath) -> list[tuple[KeyPath, Node]]:
        """The items of a list, with their paths; [] when it is none."""
        if node is None:
            return []
        if not isinstance(node.value, list):
            self.wrong(node, path, "must be a list; begin each item with a dash")
            return []
        return [((*path, index), item) for index, item in enumerate(node.value)]

    def text(self, fields: dict[str, Node], name: str, path: KeyPath) -> str:
        node = fields.get(name)
        if node is None or node.value is None:
            return ""
        if not isinstance(node.value, str):
            self.wrong(node, (*path, name), "must be text; put it in quotes")
            return ""
        return clean(node.value)

    def number(self, fields: dict[str, Node], name: str, path: KeyPath) -> float:
        node = fields.get(name)
        if node is None:
            return 0
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            self.wrong(node, (*path, name), "must be a number, 0 or more")
            return 0
        return value

    def word(self, fields: dict[str, Node], name: str, path: KeyPath, choices: tuple[str, ...]) -> str:
        value = self.text(fields, name, path)
        if value and value not in choices:
            hint = did_you_mean(value, choices) or f"; one of {', '.join(choices)}"
            self.wrong(fields[name], (*path, name), f'there is no "{value}"{hint}')
            return ""
        return value

    def call(self, node: Node, path: KeyPath) -> Call:
        fields = self.fields(node, path, _CALL)
        tool = self.text(fields, "tool", path)
        if not tool and isinstance(node.value, dict):
            self.wrong(node, (*path, "tool"), "is missing; name the tool that is called")
        arguments = fields.get("arguments")
        value = {} if arguments is None else arguments.plain()
        if arguments is not None and not isinstance(value, str | dict):
            self.wrong(arguments, (*path, "arguments"), "must be a map, or JSON as text")
        return Call(tool, value)

    def usage(self, fields: dict[str, Node], path: KeyPath) -> Usage:
        if "usage" not in fields:
            return Usage(calls=1)
        path = (*path, "usage")
        usage = self.fields(fields["usage"], path, _USAGE)
        prompt, completion, cached, reasoning = (int(self.number(usage, name, path)) for name in _USAGE[:4])
        cost = float(self.number(usage, "cost", path))
        return Usage(prompt, completion, prompt + completion, cached, reasoning, cost, calls=1)

    def turn(self, node: Node, path: KeyPath) -> Turn:
        fields = self.fields(node, path, _TURN)
        turn = Turn(
            text=self.text(fields, "text", path),
            reasoning=self.text(fields, "reasoning", path),
            calls=tuple(self.call(n, p) for p, n in self.items(fields.get("calls"), (*path, "calls"))),
            delay_s=self.number(fields, "delay_s", path),
            usage=self.usage(fields, path),
            is_cut=self.word(fields, "finish_reason", path, ("stop", "tool_calls", "length")) == "length",
            error=self.word(fields, "error", path, ERRORS),
        )
        text = fields.get("text")
        has_text = text is not None and not (isinstance(text.value, str) and not text.value.strip())
        says_something = has_text or not fields.keys().isdisjoint({"calls", "error"}) or turn.is_cut
        if isinstance(node.value, dict) and not says_something:
            self.wrong(node, path, "says nothing; give it a text, calls or an error")
        return turn

    def matcher(self, fields: dict[str, Node], path: KeyPath) -> re.Pattern[str] | None:
        if "match" not in fields:
            return None
        wanted = self.text(fields, "match", path)
        if not wanted:
            self.wrong(
                fields["match"], (*path, "match"), "is empty; write a part of the prompt, or leave it out"
            )
        elif len(wanted) > 2 and wanted[0] == wanted[-1] == "/":
            try:
                return re.compile(wanted[1:-1], re.DOTALL)
            except re.error as error:
                self.wrong(fields["match"], (*path, "match"), f"is no regular expression: {error}")
        return re.compile(re.escape(wanted))

    def conversation(self, node: Node, path: KeyPath) -> Conversation:
        fields = self.fields(node, path, _CONVERSATION)
        turns = tuple(self.turn(n, p) for p, n in self.items(fields.get("turns"), (*path, "turns")))
        if isinstance(node.value, dict) and not turns:
            where = fields.get("turns", node)
            self.wrong(where, (*path, "turns"), "has no turns; write at least one")
        return Conversation(self.matcher(fields, path), turns, f"{self.file_name}:{node.place.line}")

    def tape(self, node: Node) -> tuple[Conversation, ...]:
        fields = self.fields(node, (), _FILE)
        path = ("conversations",)
        found = tuple(self.conversation(n, p) for p, n in self.items(fields.get("conversations"), path))
        if not found:
            self.wrong(fields.get("conversations", node), path, "is empty or missing; write at least one")
        return found


def read_tape(path: Path) -> tuple[Conversation, ...]:
    """The conversations of a tape file. Raises SpecError with every mistake, as file:line:column."""
    from hermes_run.spec.locate import Mistakes, Source
    from hermes_run.spec.reading import read_file

    mistakes = Mistakes()
    tree = read_file(path, Source(str(path), path.parent), mistakes)
    conversations = () if tree is None else _Reader(path.name, mistakes).tape(tree)
    mistakes.stop_if_any()
    return conversations
