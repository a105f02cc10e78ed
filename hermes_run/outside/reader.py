"""Documents read in processes of their own: what a page does to a parser, it does not do to the run.

`Readers` is the run's side; run as a program this module is the other one. It reads, for each document, a
line with JSON and the bytes, and answers a line with JSON. Too slow a one is ended, with its memory bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from hermes_run.outside.gate import Refused

if TYPE_CHECKING:
    from hermes_run.outside.downloads import Document

TIMEOUT_S = 30.0
_AT_ONCE = 2
_MOST_MEMORY = 2 * 2**30
_MOST_ANSWER = 16 * 2**20


class Readers:
    """Up to two processes that turn documents into text, started when needed."""

    def __init__(self) -> None:
        self._free: list[asyncio.subprocess.Process] = []
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def read(self, document: Document) -> tuple[str, str]:
        """Title and markdown of a document. Raises Refused."""
        async with self._places:
            process = self._free.pop() if self._free else await _start()
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await _ask(process, document)
            except (TimeoutError, OSError, EOFError, ValueError):
                await _end(process)
                raise Refused("the page is too large or too odd to be read; try another one") from None
            except BaseException:  # a cancelled one leaves an answer under way: never reuse it
                await _end(process)
                raise
            self._free.append(process)
        if answer.get("error"):
            raise Refused(str(answer["error"]))
        return str(answer.get("title", "")), str(answer.get("content", ""))

    async def aclose(self) -> None:
        """End the processes."""
        while self._free:
            await _end(self._free.pop())


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hermes_run.outside.reader",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},  # and no keys
        limit=_MOST_ANSWER,
        start_new_session=True,
    )


async def _ask(process: asyncio.subprocess.Process, document: Document) -> dict[str, Any]:
    if process.stdin is None or process.stdout is None:
        raise EOFError
    head = {
        "size": len(document.body),
        "type": document.content_type,
        "url": document.url,
        "is_cut": document.is_cut,
    }
    process.stdin.write(json.dumps(head).encode() + b"\n" + document.body)
    await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        raise EOFError
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def main() -> None:
    """Answer until stdin ends."""
    import resource

    from hermes_run.outside.documents import NoText, read

    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    given, told = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    while line := given.readline():
        head = json.loads(line)
        signal.alarm(int(2 * TIMEOUT_S))  # a run that was killed ends nobody
        try:
            title, content = read(given.read(head["size"]), head["type"], head["url"], is_cut=head["is_cut"])
            answer = {"title": title, "content": content}
        except NoText as why:
            answer = {"error": str(why)}
        told.write(json.dumps(answer).encode() + b"\n")
        told.flush()
        signal.alarm(0)


if __name__ == "__main__":
    main()
