"""CPU of whole runs beside a bare loop on the same work; the start-up times.

    python benchmarks/runs.py [-n 300] [-c 64] [--latency 0.2] [--backend bubblewrap] [--rounds 3]

The work: N prompts, each four terminal calls and an answer, against a loopback server that takes
`latency` seconds for a reply. The floor is the least that can do it: one asyncio process, hand-written
HTTP on kept connections, one `bash -c` per tool call, one line per prompt; no sandbox, no resume, no
checks. Both are whole processes, children counted; compare the ratio, not the milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

CALLS = 4
SPEC = """
run_name: bench
dataset: {{path: rows.jsonl}}
batch_size: 50
workers: {workers}
distribution: {{terminal: 100}}
model: {{name: bench, base_url: "http://127.0.0.1:{port}/v1", api_key_env: null}}
sandbox: {{backend: {backend}, memory_mb: 512}}
filters: {{require_reasoning: false}}
"""


class Cost(NamedTuple):
    """CPU and wall in seconds, the largest process in MiB, and when the first call came."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    first_call_s: float


def reply(body: bytes) -> bytes:
    """A tool call, or after four results the answer."""
    done = body.count(b'"role":"tool"')
    message: dict[str, Any] = {"role": "assistant", "content": "done"}
    if done < CALLS:
        function = {"name": "terminal", "arguments": json.dumps({"command": f"echo hello-{done}"})}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{done}", "type": "function", "function": function}],
        }
    choice = {"index": 0, "finish_reason": "tool_calls" if done < CALLS else "stop", "message": message}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def serve(pipe: Connection, latency_s: float) -> None:
    """A model server; tells its port, then the time of the first request after each question."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first.append(time.monotonic())
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            body = await reader.readexactly(size)
            await asyncio.sleep(latency_s)
            answer = reply(body)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(answer) + answer)

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(quietly, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        while await asyncio.to_thread(pipe.recv):
            pipe.send(first[0] if first else 0.0)
            first.clear()

    first: list[float] = []
    asyncio.run(main())


async def floor(port: int, prompts: int, at_once: int, out: Path) -> None:
    """The bare loop."""
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    room = asyncio.Semaphore(at_once)

    async def post(messages: list[dict[str, Any]]) -> dict[str, Any]:
        body = json.dumps({"model": "bench", "messages": messages}, separators=(",", ":")).encode()
        reader, writer = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.partition(b"Content-Length:")[2].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(size))
        free.append((reader, writer))
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message

    async def work(number: int) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"prompt {number}"}]
        async with room:
            while calls := (await _said(messages, post)).get("tool_calls"):
                command = json.loads(calls[0]["function"]["arguments"])["command"]
                shell = await asyncio.create_subprocess_exec(
                    "bash", "-c", command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
                )
                output, _ = await shell.communicate()
                messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": output.decode()})
        return json.dumps(messages)

    with out.open("w") as file:
        for line in asyncio.as_completed([work(number) for number in range(prompts)]):
            file.write(await line + "\n")


async def _said(messages: list[dict[str, Any]], post: Any) -> dict[str, Any]:
    message: dict[str, Any] = await post(messages)
    messages.append(message)
    return message


def timed(command: list[str], folder: Path, pipe: Connection | None = None) -> Cost:
    """What a process and its children cost. Ends the benchmark when it fails."""
    start = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - start
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    first = 0.0
    if pipe is not None:
        pipe.send(1)
        first = pipe.recv() - start
    return Cost(used.ru_utime + used.ru_stime, wall_s, used.ru_maxrss / 1024, first)


def show(name: str, costs: list[Cost], prompts: int, ideal_s: float) -> float:
    """A line for one contestant; the median CPU in milliseconds per trajectory."""
    cpu_ms = 1000 * statistics.median(cost.cpu_s for cost in costs) / prompts
    wall = statistics.median(cost.wall_s for cost in costs) / ideal_s
    peak = max(cost.peak_mib for cost in costs)
    first = statistics.median(cost.first_call_s for cost in costs)
    print(
        f"{name:<12} {cpu_ms:6.2f} ms of CPU  {wall:5.2f} x ideal  {peak:4.0f} MiB  first call {first:.2f} s"
    )
    return cpu_ms


def main(arguments: argparse.Namespace) -> None:
    """Both contestants in turn, then the start-up of `validate`."""
    pipe, far = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(far, arguments.latency), daemon=True
    )
    server.start()
    port = pipe.recv()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = (json.dumps({"prompt": f"prompt {number}"}) + "\n" for number in range(arguments.n))
        (folder / "rows.jsonl").write_text("".join(rows))
        text = SPEC.format(workers=arguments.c, port=port, backend=arguments.backend)
        (folder / "spec.yaml").write_text(text)
        bare = [
            sys.executable,
            __file__,
            "--floor",
            str(port),
            "-n",
            str(arguments.n),
            "-c",
            str(arguments.c),
        ]
        run = [sys.executable, "-m", "hermes_run", "spec.yaml", "-q", "--json", "--run-name"]
        for number in range(arguments.rounds):
            theirs.append(timed([*bare, "--out", "floor.jsonl"], folder, pipe))
            ours.append(timed([*run, f"bench{number}"], folder, pipe))
            lines = (folder / f"data/bench{number}/trajectories.jsonl").read_text().splitlines()
            if len(lines) != arguments.n:
                sys.exit(f"{len(lines)} trajectories of {arguments.n}")
        validate = [sys.executable, "-m", "hermes_run", "validate", "spec.yaml"]
        cpu_s = min(timed(validate, folder).cpu_s for _ in range(5))
    pipe.send(0)
    server.join()
    ideal_s = math.ceil(arguments.n / arguments.c) * (CALLS + 1) * arguments.latency
    print(f"{arguments.n} prompts x {CALLS + 1} model calls, {arguments.c} at once, {arguments.backend}")
    least = show("bare loop", theirs, arguments.n, ideal_s)
    print(f"ratio of CPU {show('hermes-run', ours, arguments.n, ideal_s) / least:.2f}")
    print(f"hermes-run validate: {cpu_s:.2f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=300, help="prompts")
    parser.add_argument("-c", type=int, default=64, help="at once")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds a reply takes")
    parser.add_argument("--backend", default="bubblewrap")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--floor", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.floor:
        asyncio.run(floor(given.floor, given.n, given.c, given.out))
    else:
        main(given)
