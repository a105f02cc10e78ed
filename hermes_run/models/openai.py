"""The client of OpenAI-compatible endpoints: AsyncOpenAI, without its expensive request path.

`AsyncOpenAI.post` sends bytes that are encoded here, once per message, and hands back the raw response:
`chat.completions.create` would transform every message again on every call. Retries are off: `retry.py`
owns them. Neither OPENAI_* nor proxy variables of the environment change what is sent or where it goes
(SSL_CERT_FILE and SSL_CERT_DIR, which name the machine's certificates, hold as everywhere).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from hermes_run import __version__
from hermes_run.errors import KeyMissing, SpecError
from hermes_run.models.limiter import Gate
from hermes_run.models.replies import UNKNOWN_USAGE, read_reply
from hermes_run.models.requests import check_extra_body, encode_message, opening_bytes, request_body
from hermes_run.models.retry import Endpoint, RetryPolicy, with_retries
from hermes_run.models.verdicts import Unusable, Verdict, judge_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2
    from openai import AsyncOpenAI

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


def _where(base_url: str) -> str:
    """The URL for messages: no user, password or query."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def _make_client(config: ModelConfig, key: str) -> AsyncOpenAI:
    import httpx2
    from openai import AsyncOpenAI, Omit

    from hermes_run.models.transport import DirectTransport

    class Client(AsyncOpenAI):
        """Sends our headers only. The SDK's own name the machine, and OPENAI_CUSTOM_HEADERS adds to them."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._platform = "Unknown"  # else the SDK finds it out in a thread for each of the first calls

        @property
        def default_headers(self) -> dict[str, str | Omit]:
            return {
                "Accept": "application/json",
                "Content-Type": "application/json",
                "User-Agent": f"hermes-run/{__version__}",
            }

    transport: httpx2.AsyncBaseTransport
    if config.proxy:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.max_concurrency)
        transport = httpx2.AsyncHTTPTransport(proxy=config.proxy, limits=limits, trust_env=False)
    else:
        transport = DirectTransport(max_idle=config.max_concurrency)
    # "" and not None: for None the SDK looks into the environment
    return Client(
        api_key=key,
        admin_api_key="",
        organization="",
        project="",
        webhook_secret="",
        base_url=config.base_url,
        timeout=None,
        max_retries=0,
        http_client=httpx2.AsyncClient(
            transport=transport, timeout=None, trust_env=False, follow_redirects=False
        ),
    )


class OpenAIClient:
    """A model at an endpoint, for one run.

    Raises SpecError for a `base_url` or `extra_body` that cannot be, KeyMissing for a key that cannot
    be sent.
    """

    def __init__(self, config: ModelConfig, policy: RetryPolicy | None = None) -> None:
        import httpx2
        import openai

        check_base_url(config.base_url)
        check_extra_body(config.extra_body)
        self.config = config
        self._key = checked_key(config)
        self._policy = policy or RetryPolicy()
        where = _where(config.base_url)
        hint = f" in {config.api_key_env}" if config.api_key_env else ""
        self._endpoint = Endpoint(where, Gate(f"{config.name} at {where}"), hint)
        self._client = _make_client(config, self._key)
        self._response = httpx2.Response
        self._status_error = openai.APIStatusError
        self._connection_error = openai.APIConnectionError
        self._unreached = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
        self._undecodable = httpx2.DecodingError
        omitted = openai.Omit()
        headers: dict[str, Any] = {"x-stainless-retry-count": omitted, "x-stainless-read-timeout": omitted}
        if not self._key:
            headers["Authorization"] = omitted
        self._options: Any = {"headers": headers}

    def start(self, task: PromptTask, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> OpenAIChat:
        """See ModelClient. The task itself is not sent: its prompt comes with the first `ask`."""
        del task
        return OpenAIChat(self, opening, tools)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def ask(self, body: bytes, used_ids: set[str], turn: int) -> Reply:
        """Send a request body until there is a reply or an error to raise (see `with_retries`)."""

        async def attempt() -> Reply:
            content = await self._send(body)
            return read_reply(content, used_ids, turn, self._key)

        return await with_retries(attempt, self._endpoint, self._policy)

    async def _send(self, body: bytes) -> bytes:
        """The body of a 200. Raises Unusable."""
        try:
            async with asyncio.timeout(self.config.request_timeout_s):
                response: httpx2.Response = await self._client.post(
                    "/chat/completions", content=body, cast_to=self._response, options=self._options
                )
        except TimeoutError:
            raise Unusable(
                Verdict(
                    "retry", f"no reply within {self.config.request_timeout_s:g} s (model.request_timeout_s)"
                )
            ) from None
        except self._status_error as error:
            self._endpoint.was_reached = True
            answer = error.response
            level = logging.DEBUG if answer.status_code == 429 else logging.INFO  # the gate logs those
            _log.log(level, "HTTP %d: %.2000s", answer.status_code, self._masked(answer.text))
            raise Unusable(
                judge_error(answer.status_code, answer.headers, answer.content, self._key)
            ) from None
        except self._connection_error as error:
            raise self._unusable(error.__cause__) from None
        self._endpoint.was_reached = True
        return response.content

    def _unusable(self, cause: BaseException | None) -> Unusable:
        """What a request without an answer means."""
        text = str(cause) or type(cause).__name__
        _log.info("%s: %s", type(cause).__name__, self._masked(text))
        if isinstance(cause, self._unreached):
            return Unusable(Verdict("retry", text, unreached=True))
        if isinstance(cause, self._undecodable):
            return Unusable(Verdict("retry", "the reply cannot be decompressed"), UNKNOWN_USAGE)
        is_told = text.startswith("connection dropped")
        was_answered = text.endswith("in the middle of the reply")
        verdict = Verdict("retry", text if is_told else f"connection dropped: {text}")
        return Unusable(verdict, UNKNOWN_USAGE if was_answered else None)

    def _masked(self, text: str) -> str:
        return text.replace(self._key, "…") if self._key else text


class OpenAIChat:
    """One rollout's conversation: what was said, encoded once."""

    def __init__(self, client: OpenAIClient, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        self._client = client
        self._opening = opening_bytes(client.config, tools)
        self._said = [encode_message(message) for message in opening]
        self._used_ids: set[str] = set()
        self._turn = 0

    async def ask(self, messages: Sequence[Message]) -> Reply:
        """See Chat."""
        self._said += map(encode_message, messages)
        body = request_body(self._opening, self._said)
        reply = await self._client.ask(body, self._used_ids, self._turn)
        self._said.append(encode_message(reply.message))
        self._turn += 1
        return reply
