"""Runs the script of execute_code: gathers its output, passes its calls of tools on, ends it in time.

Whoever started this writes frames (a length, a newline, so many bytes of JSON) to its stdin; it writes
one JSON message at a time to the FIFO `from`, which is opened and closed for each. The script's calls
come by the Unix socket `calls`, as frames. All of these stand in the folder that is its argument.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import IO, Any

LATE_OUTPUT_S = 0.2
"""How long what the script left behind may still add to its output."""
LAST_CALL_S = 5.0
"""How long a call that is under way at the end may still take."""
MOST_REQUEST = 4_000_000


class Output:
    """The head and the tail of what was printed."""

    def __init__(self, most: int) -> None:
        self.most_head = most * 2 // 5
        self.most_tail = most - self.most_head
        self.head = b""
        self.tail = b""
        self.omitted = 0
        self.lock = threading.Lock()

    def take(self, pipe: IO[bytes]) -> None:
        """Read until the last writer is gone."""
        while True:
            data = os.read(pipe.fileno(), 65536)
            if not data:
                return
            with self.lock:
                self.add(data)

    def add(self, data: bytes) -> None:
        """Take a piece."""
        room = self.most_head - len(self.head)
        self.head += data[:room]
        tail = self.tail + data[room:]
        over = max(0, len(tail) - self.most_tail)
        self.omitted += over
        self.tail = tail[over:]


def read_frame(stream: Any) -> bytes:
    """The next frame; empty at the end."""
    line = stream.readline()
    if not line:
        return b""
    return bytes(stream.read(int(line)))


class Channel:
    """The way to whoever started this: one message there, one back."""

    def __init__(self, folder: str) -> None:
        self.fifo = os.path.join(folder, "from")
        if hasattr(os, "O_PATH"):  # it stays reachable when the script removes the folder
            self.fifo = f"/proc/self/fd/{os.open(self.fifo, os.O_PATH)}"
        self.lock = threading.Lock()

    def send(self, message: bytes) -> None:
        """Wait for a reader and give it the message."""
        with open(self.fifo, "wb") as out:
            out.write(message)

    def ask(self, request: bytes) -> bytes:
        """Pass a call on; its result."""
        with self.lock:
            self.send(request)
            return read_frame(sys.stdin.buffer)


def serve(server: socket.socket, channel: Channel) -> None:
    """Answer the calls of the script's processes and threads, one by one."""
    while True:
        connection, _ = server.accept()
        threading.Thread(target=answer, args=(connection, channel), daemon=True).start()


def answer(connection: socket.socket, channel: Channel) -> None:
    """Answer one call."""
    with connection, connection.makefile("rwb") as stream:
        request = read_frame(stream)
        if not request:
            return
        fault = why_not(request)
        result = json.dumps({"error": fault}).encode() if fault else channel.ask(b'{"call": %s}' % request)
        try:
            stream.write(b"%d\n" % len(result) + result)
            stream.flush()
        except OSError:
            return  # it did not wait for the answer


def why_not(request: bytes) -> str:
    """Why a request cannot be passed on, or "": a script may have written it by itself."""
    if len(request) > MOST_REQUEST:
        return f"the arguments are larger than {MOST_REQUEST} bytes; write it in pieces"
    try:
        json.loads(request)
    except (ValueError, RecursionError):
        return "that is no JSON; import the functions of hermes_tools"
    return ""


def main(folder: str) -> None:
    """Run the script that the first frame brings."""
    start = json.loads(read_frame(sys.stdin.buffer))
    for name, text in start["files"].items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", errors="surrogateescape") as out:
            out.write(text)
    channel = Channel(folder)
    output = Output(start["max_output"])
    workplace = os.open(".", os.O_RDONLY)
    os.chdir(folder)  # so that the socket's name is short
    server = socket.socket(socket.AF_UNIX)
    server.bind("calls")
    server.listen(64)
    os.fchdir(workplace)
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-u", os.path.join(folder, "script.py")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    reader = threading.Thread(target=output.take, args=(child.stdout,), daemon=True)
    waiter = threading.Thread(target=child.wait, daemon=True)
    for thread in (reader, waiter, threading.Thread(target=serve, args=(server, channel), daemon=True)):
        thread.start()
    waiter.join(start["limit_s"])
    timed_out = waiter.is_alive()
    if timed_out:
        child.kill()
        waiter.join(1)
    seconds = time.monotonic() - began
    reader.join(LATE_OUTPUT_S)
    channel.lock.acquire(timeout=LAST_CALL_S)
    code = child.returncode or 0
    with output.lock:
        message = {
            "end": True,
            "timed_out": timed_out,
            "exit_code": 124 if timed_out else code if code >= 0 else 128 - code,
            "seconds": seconds,
            "head": output.head.decode("utf-8", "surrogateescape"),
            "tail": output.tail.decode("utf-8", "surrogateescape"),
            "omitted": output.omitted,
        }
    channel.send(json.dumps(message).encode())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
