"""The streams of a process in a container, over the socket that the daemon gives for them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_run.sandboxes._stream_wire import Reader

_HEADER = 8
"""Bytes before each piece: the stream (1 stdout, 2 stderr), three zeros, the length (big endian)."""
_CHUNK = 1 << 18
_MOST_QUEUED = 1 << 18
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError)


def raw_socket(answer: Any) -> tuple[socket.socket, bytes]:
    """The socket under the SDK's answer, and what was read from it too early. Blocks for nothing."""
    link: socket.socket = getattr(answer, "_sock", answer)
    link.setblocking(False)
    early = b""
    response = getattr(answer, "_response", None)
    reader = getattr(getattr(getattr(response, "raw", None), "_fp", None), "fp", None)
    if reader is not None and hasattr(reader, "peek"):
        with contextlib.suppress(OSError, ValueError):
            early = bytes(reader.peek())
    return link, early


def close_streams(answer: Any) -> None:
    """End the SDK's answer, with the socket under it."""
    link: socket.socket = getattr(answer, "_sock", answer)
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    for part in (getattr(answer, "_response", None), answer, link):
        if part is not None:
            with contextlib.suppress(OSError, ValueError):
                part.close()


class DockerWire:
    """See `Wire`.

    Args:
        answer: the SDK's socket object; kept, because its end closes the socket.
    """

    def __init__(self, answer: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer = answer
        self._socket, self._unread = raw_socket(answer)
        self._reader: Reader | None = None
        self._stream = self._left = 0
        self._queue = bytearray()
        self._is_eof_due = self._is_writing = self._is_reading = False
        self._room = asyncio.Event()
        self._room.set()
        self._has_ended = False

    def attach(self, reader: Reader) -> None:
        """See `Wire`."""
        self._reader = reader
        self.resume()
        if self._unread:
            self._loop.call_soon(self._take_apart, b"")

    def resume(self) -> None:
        """See `Wire`."""
        if not (self._has_ended or self._is_reading):
            self._is_reading = True
            self._loop.add_reader(self._socket, self._read)

    def pause(self) -> None:
        """See `Wire`."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def send(self, data: bytes) -> None:
        """See `Wire`."""
        if self._has_ended:
            return
        self._queue += data
        self._write()

    def send_eof(self) -> None:
        """See `Wire`."""
        self._is_eof_due = True
        self._write()

    async def drained(self) -> None:
        """See `Wire`."""
        await self._room.wait()

    def close(self) -> None:
        """See `Wire`."""
        if self._has_ended:
            return
        self._has_ended = True
        self.pause()
        if self._is_writing:
            self._loop.remove_writer(self._socket)
        self._room.set()
        close_streams(self._answer)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
            while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
                data += self._socket.recv(_CHUNK)
        except _NOT_NOW:
            return
        except OSError:
            data = b""
        if data:
            self._take_apart(data)
        else:
            self._end()

    def _end(self) -> None:
        reader = self._reader
        if not self._has_ended:
            self.close()
            if reader is not None:
                reader.on_end()

    def _take_apart(self, data: bytes) -> None:
        """Give each stream its bytes, and keep the piece of a header that has not come whole."""
        data, self._unread = self._unread + data, b""
        begin = 0
        while begin < len(data) and not self._has_ended:
            if not self._left:
                if len(data) - begin < _HEADER:
                    self._unread = data[begin:]
                    return
                self._stream = data[begin]
                self._left = int.from_bytes(data[begin + 4 : begin + _HEADER], "big")
                begin += _HEADER
                continue
            piece = data[begin : begin + self._left]
            begin += len(piece)
            self._left -= len(piece)
            if self._reader is not None:
                deliver = self._reader.on_control if self._stream == 2 else self._reader.on_output
                deliver(piece)

    def _write(self) -> None:
        if self._has_ended:
            return
        try:
            while self._queue:
                del self._queue[: self._socket.send(self._queue[:_CHUNK])]
        except _NOT_NOW:
            pass
        except OSError:
            self._queue.clear()  # the reading side hears of the end, after what is still to be read
        if not self._queue and self._is_eof_due:
            self._is_eof_due = False
            with contextlib.suppress(OSError, ValueError):
                if isinstance(self._socket, ssl.SSLSocket):
                    self._socket.unwrap()  # says so, and raises, as the other side has not said so yet
                else:
                    self._socket.shutdown(socket.SHUT_WR)
        self._watch()

    def _watch(self) -> None:
        if bool(self._queue) != self._is_writing:
            self._is_writing = bool(self._queue)
            if self._is_writing:
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)
        if len(self._queue) > _MOST_QUEUED:
            self._room.clear()
        else:
            self._room.set()
