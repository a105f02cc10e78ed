"""CPU per model call: our client beside bare asyncio HTTP and the SDK's own path, in the same run.

    python benchmarks/client.py [--calls 2000]

A loopback server in a process of its own answers at once, so what is counted is this process: user and
system time per call, for conversations of 2 and of 100 messages (2 KB each) and for 1, 64 and 256 calls
in flight. Compare the columns, not the milliseconds: machines differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from hermes_run.core.messages import User
from hermes_run.models.config import ModelConfig
from hermes_run.models.conversation import Conversation
from hermes_run.models.endpoints import Seat
from hermes_run.models.openai import OpenAIClient
from hermes_run.models.requests import encode_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection


MESSAGE = User("0123456789abcdef" * 128)
REPLY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "done " * 40, "reasoning": "thought " * 40},
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 80, "total_tokens": 90},
    }
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(REPLY),
    REPLY,
)


class _Answering(asyncio.Protocol):
    """Answers every request with the same bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            length = int(self.buffer[:end].lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.buffer) < end + 4 + length:
                return
            del self.buffer[: end + 4 + length]
            self.transport.write(ANSWER)


def serve(pipe: Connection) -> None:
    """The server's process: tells its port."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def measure(call: Callable[[], Awaitable[Any]], calls: int, in_flight: int) -> float:
    """CPU milliseconds of this process per call."""
    await asyncio.gather(*[call() for _ in range(in_flight)])
    left = iter(range(calls))

    async def work() -> None:
        for _ in left:
            await call()

    before = time.process_time()
    await asyncio.gather(*[work() for _ in range(in_flight)])
    return (time.process_time() - before) / calls * 1000


async def bare(port: int, messages: int, calls: int, in_flight: int) -> float:
    """Hand-written HTTP on asyncio streams, JSON encoded anew each time."""
    body = {"model": "m", "messages": [{"role": "user", "content": MESSAGE.text}] * messages}
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def call() -> Any:
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        data = json.dumps(body).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        reply = json.loads(await reader.readexactly(length))
        idle.append((reader, writer))
        return reply

    try:
        return await measure(call, calls, in_flight)
    finally:
        for _, writer in idle:
            writer.close()


async def ours(port: int, messages: int, calls: int, in_flight: int) -> float:
    """What one turn costs a conversation that holds all messages but one already."""
    config = ModelConfig(name="m", base_url=f"http://127.0.0.1:{port}/v1", max_concurrency=in_flight)
    client = OpenAIClient(config)
    conversation = Conversation(config, [MESSAGE] * messages, [])

    async def call() -> Any:
        encode_message(MESSAGE)  # what adding the last one costs
        reply = await client.call(conversation, Seat(client.replicas), set(), 0).reply()
        return encode_message(reply.message)

    try:
        return await measure(call, calls, in_flight)
    finally:
        await client.aclose()


async def sdk(port: int, messages: int, calls: int, in_flight: int) -> float:
    """`chat.completions.create` of the openai package, as its README has it."""
    from openai import AsyncOpenAI

    said: Any = [{"role": "user", "content": MESSAGE.text}] * messages
    async with AsyncOpenAI(api_key="x", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0) as client:
        return await measure(
            lambda: client.chat.completions.create(model="m", messages=said), calls, in_flight
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=2000, help="calls per figure (default 2000)")
    calls = parser.parse_args().calls
    ours_end, its_end = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(its_end,), daemon=True)
    server.start()
    port = ours_end.recv()
    print("CPU ms per call           bare   ours    sdk")
    try:
        for messages in (2, 100):
            for in_flight in (1, 64, 256):
                row = [asyncio.run(kind(port, messages, calls, in_flight)) for kind in (bare, ours)]
                if in_flight < 256:  # beyond, its five seconds for a connection do not suffice
                    row.append(asyncio.run(sdk(port, messages, max(calls // 5, 100), in_flight)))
                figures = "".join(f"{figure:7.2f}" for figure in row)
                print(f"{messages:4} messages, C={in_flight:<4} {figures}")
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
