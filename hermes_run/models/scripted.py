"""A model that reads its replies from a tape (`tape.py` describes it): no endpoint, no key, no cost.

A rollout's replies hang on its row alone, so runs are equal at any number of workers.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from hermes_run.core.messages import Assistant, Message, Reply, ToolCall, ToolResult, Usage, User
from hermes_run.errors import (
    ContextExceeded,
    CredentialsRefused,
    EndpointUnreachable,
    OutOfCredit,
    ProviderError,
)
from hermes_run.models.requests import encode_json
from hermes_run.models.tape import Call, Conversation, Turn, read_tape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hermes_run.core.contracts import ToolSpec
    from hermes_run.core.task import PromptTask

_SLOT = re.compile(r"\{\{(prompt|result)\}\}")
_STOPS = {"credentials": CredentialsRefused, "no_credit": OutOfCredit, "unreachable": EndpointUnreachable}


class ScriptedModel:
    """The model that a tape stands for. Raises SpecError with every mistake of the tape."""

    def __init__(self, tape: Path) -> None:
        self._name = tape.name
        conversations = read_tape(tape)
        self._matching = [(c.match, c) for c in conversations if c.match is not None]
        self._in_order = [c for c in conversations if c.match is None]

    def find(self, prompt: str, prompt_index: int) -> Conversation | None:
        """The conversation that a row takes, or None when the tape has none for it."""
        for pattern, conversation in self._matching:
            if pattern.search(prompt):
                return conversation
        return self._in_order[prompt_index % len(self._in_order)] if self._in_order else None

    def start(self, task: PromptTask, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> ScriptedChat:
        """See ModelClient. Raises ProviderError when the tape has nothing for the prompt."""
        del opening, tools
        conversation = self.find(task.prompt, task.prompt_index)
        if conversation is None:
            raise ProviderError(
                f"{self._name} has no conversation for this prompt: add one whose match is a part of it, or"
                " one without match for all the rest"
            )
        return ScriptedChat(conversation, task.prompt)

    async def aclose(self) -> None:
        """Nothing to close."""


class ScriptedChat:
    """One rollout's way through a conversation."""

    def __init__(self, conversation: Conversation, prompt: str) -> None:
        self._conversation = conversation
        self._slots = {"prompt": prompt, "result": ""}
        self._turn = 0
        self.unsettled = Usage()

    async def ask(self, messages: Sequence[Message]) -> Reply:
        """See Chat. The conversation's next turn."""
        for message in messages:
            if isinstance(message, ToolResult):
                self._slots["result"] = message.text
            elif isinstance(message, User):
                self._slots["prompt"] = message.text
        turns = self._conversation.turns
        if self._turn >= len(turns):
            raise ProviderError(
                f"{self._conversation.place}: the conversation has {len(turns)} turns and was asked for"
                " another: add one without calls at its end"
            )
        turn = turns[self._turn]
        if turn.delay_s:
            await asyncio.sleep(turn.delay_s)
        if turn.error:
            self._fail(turn)
        reply = self._reply(turn)
        self._turn += 1
        return reply

    def _fail(self, turn: Turn) -> None:
        text = turn.text or f"{self._conversation.place}: turn {self._turn + 1} of the tape is an error"
        if turn.error == "context":
            raise ContextExceeded(text)
        if turn.error in _STOPS:
            raise _STOPS[turn.error](text)
        raise ProviderError(text, reason=turn.error)

    def _reply(self, turn: Turn) -> Reply:
        calls = () if turn.is_cut else tuple(self._call(call, place) for place, call in enumerate(turn.calls))
        return Reply(
            message=Assistant(self._filled(turn.text), self._filled(turn.reasoning), calls),
            finish_reason="length" if turn.is_cut else "tool_calls" if calls else "stop",
            usage=turn.usage,
            model="scripted",
        )

    def _call(self, call: Call, place: int) -> ToolCall:
        arguments = self._filled_in(call.arguments)
        text = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
        return ToolCall(f"call{self._turn:03d}{place:02d}", call.tool, text)

    def _filled(self, text: str) -> str:
        return _SLOT.sub(lambda match: self._slots[match[1]], text) if "{{" in text else text

    def _filled_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._filled(value)
        if isinstance(value, list):
            return [self._filled_in(item) for item in value]
        if isinstance(value, dict):
            return self._filled_map(value)
        return value

    def _filled_map(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._filled_in(item) for name, item in value.items()}
