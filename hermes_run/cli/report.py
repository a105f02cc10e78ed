"""What a person and the calling program hear when something goes wrong: one text, one exit code.

::

    HermesRunError       its text, its exit code
    Ctrl-C               130
    a full disk          4     (also a quota)
    a file that the system will not give   4
    a closed pipe        nothing said
    anything else        3, with a log file to send

`Trouble` is a `with` block around a whole command; it is the only place where errors end.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, TextIO, cast

from hermes_run.cli.plain import count_of
from hermes_run.errors import DatasetError, HermesRunError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

ENVIRONMENT = 4
BUG = 3
INTERRUPTED = 130
_LINES_AT_ONCE = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OUTSIDE = {
    errno.EACCES: "give yourself the right to it, or choose another place",
    errno.EPERM: "give yourself the right to it, or choose another place",
    errno.EROFS: "that file system is read-only: choose another place, such as --set output.dir=PATH",
    errno.ENOENT: "it was there before, or its folder never was: has something moved it away?",
    errno.ENOTDIR: "a part of that path is a file, not a folder",
    errno.EISDIR: "that is a folder where a file is needed",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "its symbolic links go in a circle",
    errno.EMFILE: "fewer --workers, or a higher limit of open files (`ulimit -n`)",
    errno.ENFILE: "the whole machine has too many open files",
    errno.ENOMEM: "fewer --workers, or more memory",
    errno.EIO: "the disk or the network file system has a fault",
    errno.ESTALE: "the network file system lost that file: mount it anew",
}
"""What the machine may answer through no fault of ours, and the cure."""


def say(text: str) -> None:
    """Print to stdout. A reader that has gone away is no reason to fail."""
    _write(sys.stdout, text)


def say_all(lines: Iterable[str]) -> None:
    """Print very many lines to stdout, some at a time."""
    rest = iter(lines)
    while some := list(islice(rest, _LINES_AT_ONCE)):
        say("\n".join(some))


def say_bytes(text: bytes) -> None:
    """Print what is UTF-8 already, without a newline, to stdout."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    except OSError as error:
        if not is_nobody_there(error, sys.stdout):
            raise
        hush(sys.stdout)


def complain(text: str) -> None:
    """Print to stderr. That nobody can hear it (a terminal that was closed, a full disk) stops nothing."""
    try:
        _write(sys.stderr, text)
    except OSError:
        hush(sys.stderr)


def _write(stream: object, text: str) -> None:
    if stream is None:  # started with the stream closed
        return
    try:
        print(text, file=stream, flush=True)  # type: ignore[call-overload]
    except OSError as error:
        if not is_nobody_there(error, stream):
            raise
        hush(stream)


def is_nobody_there(error: OSError, stream: object) -> bool:
    """Whether a stream could not be written because its reader, or its terminal, has gone away."""
    if isinstance(error, BrokenPipeError):
        return True
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]


class _Expendable(io.TextIOBase):
    """A stream whose writes may get lost: what is drawn on a terminal while that is still there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As of the stream itself."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """As of the stream itself."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """As of the stream itself."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write, if that can be."""
        try:
            return self._stream.write(text)
        except OSError:
            hush(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flush, if that can be."""
        try:
            self._stream.flush()
        except OSError:
            hush(self._stream)


def expendable(stream: TextIO | None) -> IO[str] | None:
    """The same stream, writes to which may get lost. None (a closed stream) stays None."""
    return None if stream is None else cast("IO[str]", _Expendable(stream))


def hush(stream: object) -> None:
    """Send what is still written to a stream whose reader has gone to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
    os.close(nowhere)


def prepare_streams() -> None:
    """Let every text be printed, whatever the terminal's encoding can hold."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


@dataclass(slots=True)
class Trouble:
    """A `with` block that ends every error in text and an exit code.

    Attributes:
        exit_code: what the process should end with.
        folder: where the log of a bug goes; None for the temporary folder.
        redact: takes secrets out of what is written there.
    """

    exit_code: int = 0
    folder: Path | None = None
    redact: Callable[[str], str] = field(default=str)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, SystemExit):
            return False
        self.exit_code = self._end(_first(error))
        return True

    def _end(self, error: BaseException) -> int:
        if isinstance(error, HermesRunError):
            complain(_placed(error, self.redact(str(error))))
            return error.exit_code
        if isinstance(error, KeyboardInterrupt):
            complain(f"hermes-run: stopped by {str(error) or 'Ctrl-C'}; the same command goes on from here")
            return int(getattr(error, "exit_code", INTERRUPTED))
        if isinstance(error, BrokenPipeError):
            return self.exit_code
        if isinstance(error, OSError) and (text := _outside(error)):
            complain(f"hermes-run: {self.redact(text)}")
            return ENVIRONMENT
        self._leave_log(error)
        return BUG

    def _leave_log(self, error: BaseException) -> None:
        text = self.redact(_account(error))
        what = self.redact(f"{type(error).__name__}: {error}".splitlines()[0][:300])
        complain(f"hermes-run: this is a bug in hermes-run, not a mistake of yours: {what}")
        try:
            complain(f"  please report it with this file: {_keep(text, self.folder)}")
        except OSError:  # no folder takes it: the screen is the last place left
            complain(text)
        complain("  what was finished is safe; the same command goes on from there")


def _placed(error: HermesRunError, text: str) -> str:
    """The text, mistakes with their file:line at the beginning of a line, where editors look for it."""
    if isinstance(error, SpecError):
        return f"{text}\nhermes-run: {count_of(len(text.splitlines()), 'mistake')}; nothing was run"
    if isinstance(error, DatasetError):
        *rows, cure = text.split("\n")
        return "\n".join((*rows, f"hermes-run: {cure}"))
    return f"hermes-run: {text}"


def _first(error: BaseException) -> BaseException:
    """The error that a group is about: one raised on purpose before any other."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first(member) for member in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, HermesRunError | KeyboardInterrupt)), leaves[0])


def _outside(error: OSError) -> str:
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    if error.errno in _FULL:
        return f"{where}the disk is full. What was finished is safe: make room, and the same command goes on"
    cure = _OUTSIDE.get(error.errno or 0)
    return f"{where}{error.strerror}: {cure}" if cure else ""


def _account(error: BaseException) -> str:
    import platform
    import traceback

    from hermes_run import __version__

    return "\n".join(
        (
            f"hermes-run {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: {_command_without_key()}",
            "".join(traceback.format_exception(error)),
        )
    )


def _command_without_key() -> str:
    """The command line; what fails before the options are read knows of no secret yet."""
    words: list[str] = []
    for word in sys.argv:
        option, equals, _ = word.replace("_", "-").partition("=")
        if words and words[-1].replace("_", "-") == "--api-key":
            words.append("[redacted]")
        else:
            words.append("--api-key=[redacted]" if option == "--api-key" and equals else word)
    return " ".join(words)


def _keep(text: str, folder: Path | None) -> Path:
    import tempfile

    place = folder if folder is not None and os.access(folder, os.W_OK) else None
    number, name = tempfile.mkstemp(prefix="hermes-run-bug-", suffix=".log", dir=place)
    with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)
