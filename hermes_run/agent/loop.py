"""The turn loop: ask, run the calls, ask again, until the model answers by itself or a limit ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hermes_run.core.messages import Assistant, Message, Reply, System, ToolCall, ToolResult, Usage, User
from hermes_run.core.trajectory import StopReason, ToolCount
from hermes_run.errors import ContextExceeded, ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from hermes_run.core.answers import Aside
    from hermes_run.core.contracts import Chat

INVALID_TURNS_IN_A_ROW = 3
"""Turns in a row with no valid call that end a rollout. Contract, section 5."""


class Answer(Protocol):
    """What came of a tool call: the text for the model, and how it counts."""

    @property
    def text(self) -> str:
        """What the model reads."""

    @property
    def failed(self) -> bool:
        """Whether the tool said that it failed."""

    @property
    def valid(self) -> bool:
        """Whether the name was offered and the arguments fit."""


class Tools(Protocol):
    """One rollout's tools."""

    def offers(self, name: str) -> bool:
        """Whether a tool of this name was given to the model."""

    async def call(self, call: ToolCall) -> Answer:
        """The one answer to a call. Raises SandboxError when the sandbox is gone."""

    def take_aside(self) -> Aside:
        """What tools did beside the conversation since this was asked last."""


def _keep_no_account(usage: Usage) -> None:
    """What a rollout without a budget does with what it uses."""


@dataclass(slots=True)
class Rollout:
    """One rollout while it happens. What is in it at any moment makes a well-formed trajectory.

    Attributes:
        chat: the conversation with the model, its opening already in it.
        tools: the tools offered.
        countable: tool names that have a column in `tool_stats`.
        max_turns: assistant turns at most.
        most_cost: USD, or None. A rollout that has used it up asks no more.
        most_tokens: likewise.
        spend: is told of everything that is billed, as it happens.
        messages: the turns to be saved.
    """

    chat: Chat
    tools: Tools
    countable: Collection[str]
    max_turns: int
    most_cost: float | None = None
    most_tokens: int | None = None
    spend: Callable[[Usage], None] = _keep_no_account
    messages: list[Message] = field(default_factory=list)
    api_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    counts: dict[str, ToolCount] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    served_calls: list[tuple[str, str, int]] = field(default_factory=list)
    invalid_turns: int = 0

    async def run(
        self, prompt: str, system_prompt: str | None = None, images: tuple[str, ...] = ()
    ) -> StopReason:
        """Do the task; the reason why it ended. `images` are sent with the prompt.

        Raises ProviderError and SandboxError (the rollout failed) and EnvironmentStop (the run ends).
        """
        if system_prompt:
            self.messages.append(System(system_prompt))
        said: Sequence[Message] = [User(prompt, images)]
        self.messages.append(User(prompt))
        while True:
            try:
                reply = await self.chat.ask(said)
            except ContextExceeded as full:
                self._use(full.usage)
                return StopReason.CONTEXT
            except ProviderError as error:
                self.spend(error.usage)  # the outcome adds it to the rollout's
                raise
            except BaseException:  # it was cancelled, or the run stops
                self._use(self.chat.unsettled)
                raise
            self._take(reply)
            if reply.finish_reason == "length":
                return StopReason.TRUNCATED
            if not reply.message.tool_calls:
                return StopReason.FINISHED
            said = await self._answer(reply.message.tool_calls)
            if self.invalid_turns >= INVALID_TURNS_IN_A_ROW:
                return StopReason.INVALID_TOOL_CALLS
            if self.api_calls >= self.max_turns:
                return StopReason.MAX_TURNS
            if self.is_used_up():
                return StopReason.PROMPT_BUDGET

    def is_used_up(self) -> bool:
        """Whether what it has used reaches a limit of its own."""
        return (self.most_cost is not None and self.usage.cost >= self.most_cost) or (
            self.most_tokens is not None and self.usage.total_tokens >= self.most_tokens
        )

    def _use(self, usage: Usage) -> None:
        self.usage += usage
        self.spend(usage)

    def _take(self, reply: Reply) -> None:
        self.api_calls += 1
        self._use(reply.usage)
        if reply.model:
            self.served.add(reply.model)
        if reply.provider:
            self.providers.add(reply.provider)
        self._note_who_served(reply)
        message = reply.message
        calls = () if reply.finish_reason == "length" else message.tool_calls  # any of them may be cut
        self.messages.append(Assistant(message.text, message.reasoning, calls))
        for call in calls:
            if not self.tools.offers(call.name):
                self.unknown.setdefault(call.name)

    def _note_who_served(self, reply: Reply) -> None:
        """Model and provider of each call, in order: equal ones in a row are counted."""
        last = self.served_calls[-1] if self.served_calls else ("", "", 0)
        if last[2] and last[:2] == (reply.model, reply.provider):
            self.served_calls[-1] = (*last[:2], last[2] + 1)
        else:
            self.served_calls.append((reply.model, reply.provider, 1))

    async def _answer(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """One result for each call, in the order of the calls; known calls run beside unknown ones."""
        results = []
        any_valid = False
        for call in calls:
            try:
                answer = await self.tools.call(call)
            finally:
                self._take_aside()
            any_valid = any_valid or answer.valid
            self._count(call.name, failed=answer.failed)
            result = ToolResult(call.id, call.name, answer.text)
            self.messages.append(result)
            results.append(result)
        self.invalid_turns = 0 if any_valid else self.invalid_turns + 1
        return results

    def _take_aside(self) -> None:
        """Calls from inside of tools count like those of a turn; what helper models used is used."""
        aside = self.tools.take_aside()
        if aside.usage != Usage():
            self._use(aside.usage)
        for call in aside.calls:
            self._count(call.name, failed=call.failed)
            if not call.known:
                self.unknown.setdefault(call.name)

    def _count(self, name: str, *, failed: bool) -> None:
        if name in self.countable:
            one = ToolCount(1, int(not failed), int(failed))
            self.counts[name] = self.counts.get(name, ToolCount()) + one

    def close(self, reason: str) -> None:
        """After an interruption: give the calls that were not answered a result that says why."""
        last = next((i for i, m in reversed([*enumerate(self.messages)]) if isinstance(m, Assistant)), None)
        if last is None:
            return
        turn, *results = self.messages[last:]
        calls = turn.tool_calls if isinstance(turn, Assistant) else ()
        for call in calls[len(results) :]:  # results come in the order of the calls
            self.messages.append(ToolResult(call.id, call.name, reason))
            self._count(call.name, failed=True)
