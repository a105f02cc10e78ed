"""Sending a request's bytes and getting the answer: `AsyncOpenAI.post`, over a transport of ours.

The SDK's retries are off (`retry.py` owns them), and its own headers, which name the machine, are not sent.
Neither OPENAI_* nor proxy variables of the environment change what is sent or where it goes (SSL_CERT_FILE
and SSL_CERT_DIR, which name the machine's certificates, hold as everywhere).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import httpx2
from msgspec import Struct

from hermes_run import __version__
from hermes_run.models.transport import DirectTransport

if TYPE_CHECKING:
    from hermes_run.models.config import ModelConfig

_ACCEPT = {False: "application/json", True: "text/event-stream"}


class Answered(Struct, frozen=True):
    """What came back: status, headers as they came, and the body, unpacked."""

    status: int
    raw_headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """With lower-case names."""
        return {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in self.raw_headers}


def _headers(key: str, *, is_stream: bool) -> dict[str, str]:
    headers = {
        "Accept": _ACCEPT[is_stream],
        "Accept-Encoding": "gzip, deflate",
        "Connection": "keep-alive",
        "Content-Type": "application/json",
        "User-Agent": f"hermes-run/{__version__}",
    }
    return headers | {"Authorization": f"Bearer {key}"} if key else headers


class Sender:
    """The way to an endpoint, straight or through an HTTP proxy."""

    def __init__(self, config: ModelConfig, key: str) -> None:
        import openai

        class Client(openai.AsyncOpenAI):
            """Sends our headers only: OPENAI_CUSTOM_HEADERS would add to them."""

            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                self._platform = (
                    "Unknown"  # else the SDK finds it out in a thread for each of the first calls
                )

            @property
            def default_headers(self) -> dict[str, str | openai.Omit]:
                return dict(_headers("", is_stream=False))

        transport: httpx2.AsyncBaseTransport
        if config.proxy:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.max_concurrency)
            transport = httpx2.AsyncHTTPTransport(proxy=config.proxy, limits=limits, trust_env=False)
        else:
            transport = DirectTransport(max_idle=config.max_concurrency)
        # "" and not None: for None the SDK looks into the environment
        self._client = Client(
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
        self._status_error = openai.APIStatusError
        self._connection_error = openai.APIConnectionError
        omitted = openai.Omit()
        own: dict[str, Any] = {"x-stainless-retry-count": omitted, "x-stainless-read-timeout": omitted}
        if not key:
            own["Authorization"] = omitted
        self._options: dict[bool, Any] = {
            False: {"headers": own},
            True: {
                "headers": own | {"Accept": _ACCEPT[True]},
                "timeout": httpx2.Timeout(None, read=config.idle_timeout_s),
            },
        }

    async def post(self, url: str, body: bytes, *, is_stream: bool) -> Answered:
        """The answer, whatever its status. Raises httpx2.RequestError."""
        try:
            response: httpx2.Response = await self._client.post(
                url, content=body, cast_to=httpx2.Response, options=self._options[is_stream]
            )
        except self._status_error as error:
            response = error.response
        except self._connection_error as error:
            raise (error.__cause__ or httpx2.ReadError(str(error))) from None
        return Answered(response.status_code, response.headers.raw, response.content)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()
