"""Connections: kept, given up, counted."""

from __future__ import annotations

import asyncio
import gc
import gzip
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from hermes_run.core.messages import User
from hermes_run.core.task import PromptTask
from hermes_run.errors import EndpointUnreachable, ProviderError, SpecError
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from hermes_run.models.transport import DirectTransport, _Connection
from tests.models.conftest import QUICK, ask_once
from tests.servers import Answer, says

if TYPE_CHECKING:
    from hermes_run.core.messages import Reply
    from tests.models.conftest import Ask
    from tests.servers import ModelServer

TASK = PromptTask("k#0", 0, "")


async def say(client: OpenAIClient, text: str) -> Reply:
    return await client.start(TASK, [], []).ask([User(text)])


def make(server: ModelServer, calls: int = 64) -> OpenAIClient:
    return OpenAIClient(ModelConfig(name="m", base_url=server.url, max_concurrency=calls), QUICK)


def wait_for_connections(server: ModelServer, count: int) -> None:
    deadline = time.monotonic() + 5
    while server.open_connections != count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.open_connections == count


@pytest.mark.slow
def test_three_hundred_calls_are_in_flight_at_once(server: ModelServer) -> None:
    server.respond = lambda _: says(delay_s=1.0)

    async def run() -> None:
        client = make(server, 300)
        await asyncio.gather(*[say(client, f"[{number}]") for number in range(300)])
        await client.aclose()

    asyncio.run(run())
    assert server.peak_in_flight >= 285
    wait_for_connections(server, 0)


def test_a_connection_is_used_again(server: ModelServer) -> None:
    async def run() -> None:
        client = make(server)
        for number in range(5):
            await say(client, f"[{number}]")
        await client.aclose()

    asyncio.run(run())
    assert {request.connection for request in server.requests} == {1}


def test_a_connection_that_the_server_closed_meanwhile_costs_no_retry(server: ModelServer) -> None:
    server.script("[0]", Answer(body=says().body, closes=True))

    async def run() -> None:
        client = make(server)
        for number in (0, 1, 2):
            await say(client, f"[{number}]")
            await asyncio.sleep(0.05)
        await client.aclose()

    asyncio.run(run())
    assert [request.connection for request in server.requests] == [1, 2, 2]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=says("fine").body, is_chunked=True),
        Answer(body=says("fine").body, is_chunked=True, closes=True),
        Answer(body=says("fine").body, closes=True),
    ],
)
def test_every_framing_is_read(server: ModelServer, ask: Ask, answer: Answer) -> None:
    server.script("[a]", answer)
    assert ask("[a]").message.text == "fine"


def test_a_body_without_a_length_ends_with_the_connection(server: ModelServer, ask: Ask) -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
    server.script("[a]", Answer(raw=(head, says("fine").body)))
    assert ask("[a]").message.text == "fine"


def test_an_answer_may_come_in_crumbs_after_a_provisional_one(server: ModelServer, ask: Ask) -> None:
    body = says("fine").body
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole = head + body
    server.script("[a]", Answer(raw=tuple(whole[at : at + 3] for at in range(0, len(whole), 3))))
    assert ask("[a]").message.text == "fine"


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 300_000,
    ],
)
def test_what_is_no_http_is_a_dropped_connection(server: ModelServer, ask: Ask, raw: bytes) -> None:
    server.script("[a]", Answer(raw=(raw,)))
    with pytest.raises(ProviderError, match=r"connection dropped: .* \(5 attempts\)"):
        ask("[a]")


@pytest.mark.parametrize("greeting", [b"SSH-2.0-x\r\n", b"\x00\x00\x12\x04", b"HTTX"])
def test_who_greets_otherwise_and_waits_is_not_waited_for(
    server: ModelServer, ask: Ask, greeting: bytes
) -> None:
    server.script("[a]", Answer(raw=(greeting,), drop="hang"))
    with pytest.raises(ProviderError, match=r"connection dropped: no HTTP/1.1 answer \(5 attempts\)"):
        ask("[a]")


def test_a_cancelled_call_gives_its_connection_up_and_spoils_no_other(server: ModelServer) -> None:
    server.script("[slow]", says("slow", delay_s=0.5))

    async def run() -> list[str]:
        client = make(server)
        await say(client, "[first]")
        slow = asyncio.create_task(say(client, "[slow]"))
        await asyncio.sleep(0.1)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        texts = [(await say(client, "[next]")).message.text for _ in range(3)]
        await asyncio.sleep(0.6)
        texts.append((await say(client, "[last]")).message.text)
        await client.aclose()
        return texts

    assert asyncio.run(run()) == ["ok"] * 4
    wait_for_connections(server, 0)


@pytest.mark.slow
def test_rounds_leave_no_connection_and_no_object_behind(server: ModelServer) -> None:
    async def run() -> None:
        client = make(server, 10)
        for _ in range(5):
            await asyncio.gather(*[say(client, "[a]") for _ in range(40)])
            await asyncio.sleep(0.05)
            assert server.open_connections <= 10
        await client.aclose()

    asyncio.run(run())
    wait_for_connections(server, 0)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, _Connection)]


def test_tls_to_a_plain_port_names_the_trouble(server: ModelServer) -> None:
    with pytest.raises(EndpointUnreachable, match=r"no TLS there|no connection"):
        ask_once(server.url.replace("http:", "https:"), "hi")


CERTIFICATE = Path(__file__).parent.parent / "data" / "loopback-tls.pem"


async def over_tls(calls: int, trusted: ssl.SSLContext | None) -> tuple[list[int], int]:
    """Statuses and number of connections of some requests to a TLS server, one after the other."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    transport = DirectTransport(max_idle=4, ssl_context=trusted)
    try:
        port = server.sockets[0].getsockname()[1]
        answers = [
            await transport.handle_async_request(httpx2.Request("GET", f"https://localhost:{port}/"))
            for _ in range(calls)
        ]
        return [answer.status_code for answer in answers], connections
    finally:
        await transport.aclose()
        server.close()
        await asyncio.sleep(0.05)


def test_a_tls_connection_is_checked_and_kept() -> None:
    trusted = ssl.create_default_context(cafile=CERTIFICATE)
    assert asyncio.run(over_tls(3, trusted)) == ([200] * 3, 1)


def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    with pytest.raises(httpx2.ConnectError, match=r"certificate refused: self.signed certificate"):
        asyncio.run(over_tls(1, None))


def test_certificates_that_cannot_be_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd").write_text("no certificate")
    for name in ("nowhere", "odd"):
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
        with pytest.raises(httpx2.ConnectError, match="SSL_CERT_FILE or SSL_CERT_DIR"):
            asyncio.run(over_tls(1, None))


def test_a_compressed_reply_is_read(server: ModelServer, ask: Ask) -> None:
    body = gzip.compress(says("fine").body)
    server.script("[a]", Answer(body=body, headers={"Content-Encoding": "gzip"}))
    assert ask("[a]").message.text == "fine"


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://x/v1", "http:///v1", "", "http://x:99999/v1"])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(SpecError, match=r"model\.base_url"):
        ask_once(url, "hi")
