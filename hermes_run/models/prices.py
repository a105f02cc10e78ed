"""What calls cost: as the endpoint says, else by the price table of hermes.yaml, else unknown.

A price is in USD per million tokens. Where a reply says nothing of its tokens and there is a price, they
are estimated from the length of the texts (four characters a token, OpenAI's rule of thumb for English),
and the call is counted as estimated. Without a price nothing is made up: the cost stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hermes_run.core.messages import Assistant, ToolResult
from hermes_run.errors import ContextExceeded, ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_run.core.contracts import Chat, ModelClient, ToolSpec
    from hermes_run.core.messages import Message, Reply, Usage
    from hermes_run.core.task import PromptTask

_CHARS_PER_TOKEN = 4
_MILLION = 1_000_000


class Price(Struct, frozen=True):
    """Of a model, in USD per million tokens. `flat`: a subscription, calls cost nothing more."""

    input: float = 0.0
    output: float = 0.0
    cached_input: float | None = None
    flat: bool = False

    def of(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """USD; `cached_tokens` are among the prompt's."""
        if self.flat:
            return 0.0
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = max(0, prompt_tokens - cached_tokens)
        total = fresh * self.input + cached_tokens * cached + completion_tokens * self.output
        return round(total / _MILLION, 10)


class Prices:
    """A price table: model name -> price.

    Args:
        table: `prices` of hermes.yaml.
    """

    def __init__(self, table: Mapping[str, Price]) -> None:
        self._table = dict(table)

    def of(self, *names: str) -> Price | None:
        """The price of the first of these names that has one."""
        return next((self._table[name] for name in names if name in self._table), None)

    def priced(self, usage: Usage, asked: str, served: str, chars: tuple[int, int]) -> Usage:
        """The same usage with its cost, where that was not reported and there is a price.

        Args:
            usage: of one reply, or of calls that were billed and gave none.
            asked: name of the model that was asked for.
            served: the one that answered, or ""; it is looked up first.
            chars: length of what was sent and of what came back, for calls without usage.
        """
        price = self.of(*(name for name in (served, asked) if name))
        if price is None or not usage.calls_without_cost:
            return usage
        silent = usage.calls_without_usage  # those have no cost either
        telling = usage.calls - silent
        # some count what was thought in the total alone; it is billed like what was written
        written = max(usage.completion_tokens, usage.total_tokens - usage.prompt_tokens)
        cost = price.of(usage.prompt_tokens, written, usage.cached_tokens)
        cost *= max(0, usage.calls_without_cost - silent) / max(1, telling)  # of the others it was reported
        if silent and not price.flat:
            sent, came = (silent * length // _CHARS_PER_TOKEN for length in chars)
            cost += price.of(sent, came)
        return replace(
            usage,
            cost=round(usage.cost + cost, 10),
            calls_without_cost=0,
            calls_estimated=usage.calls_estimated + (0 if price.flat else silent),
        )


class PricedClient:
    """A ModelClient whose replies say what they cost, as far as that is known."""

    def __init__(self, client: ModelClient, prices: Prices, model: str) -> None:
        self._client = client
        self._prices = prices
        self._model = model

    def start(self, task: PromptTask, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> Chat:
        """See ModelClient."""
        chat = self._client.start(task, opening, tools)
        sent = sum(map(_length, opening)) + sum(len(tool.description) + 100 for tool in tools)
        return PricedChat(chat, self._prices, self._model, sent)

    async def aclose(self) -> None:
        """See ModelClient."""
        await self._client.aclose()


class PricedChat:
    """A Chat whose replies, and errors, say what they cost."""

    def __init__(self, chat: Chat, prices: Prices, model: str, sent: int) -> None:
        self._chat = chat
        self._prices = prices
        self._model = model
        self._sent = sent

    @property
    def unsettled(self) -> Usage:
        """See Chat."""
        return self._prices.priced(self._chat.unsettled, self._model, "", (self._sent, 0))

    async def ask(self, messages: Sequence[Message]) -> Reply:
        """See Chat."""
        self._sent += sum(map(_length, messages))
        try:
            reply = await self._chat.ask(messages)
        except (ProviderError, ContextExceeded) as error:
            error.usage = self._prices.priced(error.usage, self._model, "", (self._sent, 0))
            raise
        came = _length(reply.message)
        usage = self._prices.priced(reply.usage, self._model, reply.model, (self._sent, came))
        self._sent += came
        return reply if usage is reply.usage else replace(reply, usage=usage)


def _length(message: Message) -> int:
    """Characters of a message."""
    if isinstance(message, Assistant):
        calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        return len(message.text) + len(message.reasoning) + calls
    return len(message.text) + (len(message.name) if isinstance(message, ToolResult) else 0)
