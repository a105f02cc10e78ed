"""Reading one call's output from its named pipe, and feeding its stdin.

No threads and no polling: the event loop watches the descriptors. A pipe is watched only when its
command is still running after a moment, so that a short command costs one wake-up, not three.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_run.sandboxes._output import BoundedOutput

_CHUNK = 1 << 16
_BIG_CHUNK = 1 << 20
_FREE_BYTES = 256 << 20
"""Read as fast as it comes up to here: beyond, a command only wastes the runner's time."""
_PAUSE_S = 0.05
"""One read per pause beyond `_FREE_BYTES`: at most 20 MiB a second."""
_DRAIN_PAUSE_S = 0.1
"""One read per pause of what nobody will see: 10 MiB a second at most."""
_WRITER_RETRY_S = 0.001


class OutputPipe:
    """The reading end of one call's output.

    Args:
        path: the named pipe.
        output: where what is read goes.

    Raises OSError when it is gone, or something else is in its place.
    """

    def __init__(self, path: str, output: BoundedOutput) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = _open_pipe(path, os.O_RDONLY)
        self._output: BoundedOutput | None = output
        self._chunk = _CHUNK
        self._pause: asyncio.TimerHandle | None = None
        self._is_watched = False
        self._on_end: Callable[[], None] | None = None
        self.has_ended = False

    def watch(self) -> None:
        """Read whenever there is something, from now on."""
        if not (self.has_ended or self._is_watched or self._pause):
            self._loop.add_reader(self._fd, self._read)
            self._is_watched = True

    def take(self) -> bool:
        """Read what is there now. True when the stream has ended: every writer has closed it."""
        budget = 16
        while not self.has_ended and budget and self._read():
            budget -= 1
        return self.has_ended

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of the stream."""
        self._on_end = call

    def drain(self) -> None:
        """Discard what still comes, slowly, so that a server in the background neither dies nor blocks."""
        self._output = None
        self._on_end = None
        self._unwatch()
        self._later(_DRAIN_PAUSE_S)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd < 0:
            return
        self._unwatch()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        os.close(self._fd)
        self._fd = -1
        self.has_ended = True

    def _unwatch(self) -> None:
        if self._is_watched:
            self._loop.remove_reader(self._fd)
            self._is_watched = False

    def _later(self, delay_s: float) -> None:
        if not self.has_ended and self._pause is None:
            self._pause = self._loop.call_later(delay_s, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self.watch()

    def _read(self) -> bool:
        """Read once; True when there may be more at once."""
        try:
            data = os.read(self._fd, self._chunk)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            if self._on_end is not None:
                self._on_end()
            return False
        if self._output is None:
            self._unwatch()
            self._later(_DRAIN_PAUSE_S)
            return False
        self._output.add(data)
        if len(data) == _CHUNK == self._chunk:
            self._widen()
        if self._output.total > _FREE_BYTES:
            self._unwatch()
            self._later(_PAUSE_S)
            return False
        return len(data) == self._chunk

    def _widen(self) -> None:
        """A command that fills the pipe gets a bigger one: fewer wake-ups on both sides."""
        self._chunk = _BIG_CHUNK
        with contextlib.suppress(OSError, AttributeError):  # over the user's quota, or not Linux
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _BIG_CHUNK)


def _open_pipe(path: str, mode: int) -> int:
    """Open a named pipe, and nothing that a command may have put in its place."""
    file = os.open(path, mode | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EBADF, "not a named pipe", path)
    return file


class InputPipe:
    """Feeds one call's stdin. Whoever stops reading it early loses nothing but the rest."""

    def __init__(self, path: str, data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self.path = path
        self._data = memoryview(data)
        self._fd = -1
        self._retry: asyncio.TimerHandle | None = None
        self._open()

    def _open(self) -> None:
        """Opening for writing succeeds once the command's subshell has opened it for reading."""
        self._retry = None
        try:
            self._fd = _open_pipe(self.path, os.O_WRONLY)
        except OSError:
            self._retry = self._loop.call_later(_WRITER_RETRY_S, self._open)
            return
        with contextlib.suppress(OSError, AttributeError):
            if len(self._data) > _CHUNK:
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _BIG_CHUNK)
        self._loop.add_writer(self._fd, self._write)

    def _write(self) -> None:
        try:
            written = os.write(self._fd, self._data[:_BIG_CHUNK])
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self.close()
            return
        self._data = self._data[written:]
        if not self._data:
            self.close()

    def close(self) -> None:
        """Give everything back; what was not written is lost."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
