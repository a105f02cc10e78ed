"""The client of OpenAI-compatible endpoints: a conversation's bytes are sent, the answer becomes a reply.

Messages are encoded once each (`conversation.py`), their bytes go through the SDK (`sending.py`),
`retry.py` owns all retries, and `limiter.py` what is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from hermes_run.core.keys import digest
from hermes_run.core.messages import Usage
from hermes_run.core.secrets import redactor_of
from hermes_run.errors import KeyMissing, SpecError
from hermes_run.models import limiter
from hermes_run.models.board import Board, SharedBoard
from hermes_run.models.conversation import Conversation
from hermes_run.models.endpoints import Endpoint, Replicas, Seat
from hermes_run.models.hints import has_hints, read_hints
from hermes_run.models.replies import read_reply
from hermes_run.models.requests import Opening, Variant, check_extra_body
from hermes_run.models.retry import Call, RetryPolicy
from hermes_run.models.verdicts import UNKNOWN_USAGE, Unusable, Verdict, judge_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.core.contracts import ToolSpec
    from hermes_run.core.messages import Message, Reply
    from hermes_run.core.task import PromptTask
    from hermes_run.models.config import ModelConfig

_log = logging.getLogger("hermes_run.models")


def checked_key(config: ModelConfig) -> str:
    """The key without outer white space, or "" for none.

    Raises KeyMissing for one that no HTTP header can hold. The key itself is in no message.
    """
    key = (config.api_key or "").strip()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        where = f" in {config.api_key_env}" if config.api_key_env else ""
        raise KeyMissing(
            f"the API key{where} holds a space, a line break or a letter that is not ASCII:"
            " set it to the key alone"
        )
    return key


def check_base_url(base_url: str) -> None:
    """Raises SpecError for what is no http(s) URL."""
    try:
        parts = urlsplit(base_url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise SpecError(
            f"model.base_url: {base_url!r} is no http or https URL, such as http://127.0.0.1:8000/v1"
        )


def _make_board(config: ModelConfig, name: str) -> Board:
    """What the processes of a run share about an endpoint; this process's own where they cannot."""
    if config.board is not None:
        try:
            return SharedBoard(limiter.SIZE, config.board / digest(name.encode()))
        except OSError as error:
            _log.warning("%s: limits are not shared with other processes: %s", config.board, error.strerror)
    return Board(limiter.SIZE)


def _where(base_url: str) -> str:
    """The URL for messages: no user, password or query."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


class OpenAIClient:
    """A model at an endpoint, or at several that are alike, for one run.

    Raises SpecError for a `base_url` or `extra_body` that cannot be, KeyMissing for a key that cannot
    be sent.
    """

    def __init__(self, config: ModelConfig, policy: RetryPolicy | None = None) -> None:
        import httpx2

        from hermes_run.models.sending import Sender

        urls = (config.base_url, *config.replicas)
        for url in urls:
            check_base_url(url)
        check_extra_body(config.extra_body)
        self.config = config
        self._key = checked_key(config)
        self._policy = policy or RetryPolicy()
        self._boards: list[Board] = []
        self._sender = Sender(config, self._key)
        self.replicas = Replicas([self._make_endpoint(url) for url in urls])
        _log.info("requests hold, beside messages and tools: %s", Opening(config, []).fields)
        self._failures = httpx2.RequestError
        self._unreached = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
        self._undecodable = httpx2.DecodingError
        self._silent = httpx2.ReadTimeout

    def _make_endpoint(self, url: str) -> Endpoint:
        config = self.config
        where = _where(url)
        name = f"{config.name} at {where}"
        board = _make_board(config, name)
        self._boards.append(board)
        gate = limiter.Gate(
            name, board=board, per_minute=config.per_minute, tokens_per_minute=config.tokens_per_minute
        )
        hint = f" in {config.api_key_env}" if config.api_key_env else ""
        address = f"{url.rstrip('/')}/chat/completions"
        return Endpoint(where, address, gate, hint, Variant(is_stream=config.stream))

    def start(self, task: PromptTask, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> OpenAIChat:
        """See ModelClient. The task itself is not sent: its prompt comes with the first `ask`."""
        conversation = Conversation(self.config, opening, tools)
        return OpenAIChat(self, conversation, Seat(self.replicas, task.key.partition("#")[0]))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sender.aclose()
        for board in self._boards:
            board.close()

    def call(self, conversation: Conversation, seat: Seat, used_ids: set[str], turn: int) -> Call:
        """The call for the next turn (see `retry.py`)."""
        body = conversation.body(seat.endpoint.variant)
        sent_as = seat.endpoint.variant

        async def attempt(endpoint: Endpoint) -> Reply:
            nonlocal body, sent_as
            if endpoint.variant != sent_as:
                sent_as = endpoint.variant
                body = conversation.body(sent_as)
            content = await self._send(endpoint, body, is_stream=sent_as.is_stream)
            return read_reply(content, used_ids, turn, self._key)

        return Call(attempt, seat, self._policy, len(body))

    async def _send(self, endpoint: Endpoint, body: bytes, *, is_stream: bool) -> bytes:
        """The body of a 200. Raises Unusable."""
        try:
            async with asyncio.timeout(self.config.request_timeout_s):
                answer = await self._sender.post(endpoint.address, body, is_stream=is_stream)
        except TimeoutError:
            limit_s = self.config.request_timeout_s
            raise Unusable(  # what was being written may be billed
                Verdict("retry", f"no reply within {limit_s:g} s (model.request_timeout_s)"), UNKNOWN_USAGE
            ) from None
        except self._failures as error:
            raise self._unusable(error) from None
        endpoint.answered()
        if has_hints(answer.raw_headers):
            for hint in read_hints(answer.headers):
                endpoint.gate.hinted(hint, endpoint.tokens_per_call)
        if 200 <= answer.status < 300:
            return answer.body
        level = logging.DEBUG if answer.status == 429 else logging.INFO  # the gate logs those
        text = answer.body.decode("utf-8", "replace")
        _log.log(level, "HTTP %d: %.2000s", answer.status, self._masked(text))
        raise Unusable(judge_error(answer.status, answer.headers, answer.body, self._key))

    def _unusable(self, cause: Exception) -> Unusable:
        """What a request without an answer means."""
        text = str(cause) or type(cause).__name__
        _log.info("%s: %s", type(cause).__name__, self._masked(text))
        if isinstance(cause, self._unreached):
            via = f" through the proxy {_where(self.config.proxy)}" if self.config.proxy else ""
            return Unusable(Verdict("retry", f"{text}{via}", unreached=True))
        if isinstance(cause, self._undecodable):
            return Unusable(Verdict("retry", "the reply cannot be decompressed"), UNKNOWN_USAGE)
        if isinstance(cause, self._silent):
            limit_s = self.config.idle_timeout_s or 0.0
            return Unusable(
                Verdict("retry", f"the stream was silent for {limit_s:g} s (model.idle_timeout_s)"),
                UNKNOWN_USAGE,
            )
        is_told = text.startswith("connection dropped")
        was_answered = text.endswith("in the middle of the reply")
        verdict = Verdict("retry", text if is_told else f"connection dropped: {text}")
        return Unusable(verdict, UNKNOWN_USAGE if was_answered else None)

    def _masked(self, text: str) -> str:
        return redactor_of(self._key, "…")(text.replace(self._key, "…")) if self._key else text


class OpenAIChat:
    """One rollout's conversation: what was said, and who serves it."""

    def __init__(self, client: OpenAIClient, conversation: Conversation, seat: Seat) -> None:
        self._client = client
        self._conversation = conversation
        self._seat = seat
        self._used_ids: set[str] = set()
        self._turn = 0
        self._call: Call | None = None

    @property
    def unsettled(self) -> Usage:
        """See Chat."""
        return self._call.unsettled if self._call is not None else Usage()

    async def ask(self, messages: Sequence[Message]) -> Reply:
        """See Chat."""
        self._conversation.add(messages)
        self._call = self._client.call(self._conversation, self._seat, self._used_ids, self._turn)
        reply = await self._call.reply()
        self._conversation.add([reply.message])
        self._turn += 1
        return reply
