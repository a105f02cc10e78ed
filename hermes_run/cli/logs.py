"""run.log: rotating, in the run directory, and never holding a secret.

Logging is for later reading: nothing of it goes to the terminal but that something is waited for long,
since nothing else tells then that the run goes on. What is logged before the run directory is known waits
in memory.
"""

from __future__ import annotations

import logging
import logging.handlers
import math
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_run import __version__
from hermes_run.core.messages import Assistant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hermes_run.core.trajectory import Outcome
    from hermes_run.spec.model import LoggingSpec, LogSettings

_log = logging.getLogger(__name__)
_rollouts = logging.getLogger("hermes_run.rollouts")
FILE_NAME = "run.log"
_LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
LONG_WAIT_S = 10.0
_HELD = 10_000  # records kept until the run directory is known


class LogFormatter(logging.Formatter):
    """Lines without secrets. A record's `preview` (extra) is added, cut and on one line.

    `log.debug("reply", extra={"preview": text})` writes at most `prefix_chars` of the text.
    """

    def __init__(self, redact: Callable[[str], str], prefix_chars: int) -> None:
        super().__init__(_LINE)
        self._redact = redact
        self._prefix_chars = prefix_chars

    def format(self, record: logging.LogRecord) -> str:
        """One record's text."""
        text = super().format(record)
        preview = getattr(record, "preview", None)
        # secrets go first: a cut through one would leave its beginning
        line = self._redact(text)
        if preview is not None:
            line += f" | {cut(self._redact(str(preview)), self._prefix_chars)}"
        # half a character, which UTF-8 cannot hold, is shown by its number
        return line if line.isascii() else line.encode("utf-8", "backslashreplace").decode()


def log_outcome(outcome: Outcome) -> None:
    """A line for a rollout; with --verbose a line for each of its turns too, cut."""
    _rollouts.info(
        "%s row %d: %s, %s, %.1f s%s",
        outcome.key,
        outcome.prompt_index,
        outcome.status.value,
        outcome.reason,
        outcome.duration_s,
        f": {outcome.error}" if outcome.error else "",
    )
    if outcome.trajectory is None or not _rollouts.isEnabledFor(logging.DEBUG):
        return
    for message in outcome.trajectory.messages:
        role = message.__struct_config__.tag
        _rollouts.debug("%s %s", outcome.key, role, extra={"preview": message.text})
        for call in message.tool_calls if isinstance(message, Assistant) else ():
            _rollouts.debug("%s calls %s", outcome.key, call.name, extra={"preview": call.arguments})


def cut(text: str, chars: int) -> str:
    """The first `chars` characters of `text`, line ends and control characters escaped."""
    shown = text[:chars].encode("unicode_escape").decode() if not text[:chars].isprintable() else text[:chars]
    left_out = len(text) - chars
    return f"{shown} (+{left_out} characters)" if left_out > 0 else shown


class LongWaits(logging.Handler):
    """Shows the records of long waits (`wait_s`, extra), one in so many seconds.

    `_log.warning("it is asked again", extra={"wait_s": 60})` is shown, with a `wait_s` of 5 it is not.
    """

    def __init__(
        self,
        show: Callable[[str], None],
        redact: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._redact = redact
        self._clock = clock
        self._shown_at = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        """Show it, if it is one."""
        now = self._clock()
        if getattr(record, "wait_s", 0.0) >= LONG_WAIT_S <= now - self._shown_at:
            self._shown_at = now
            self._show(self._redact(record.getMessage()))


class Log:
    """The program's log: waits for its folder, then writes there."""

    def __init__(self, settings: LogSettings, redact: Callable[[str], str], prefix_chars: int) -> None:
        self._settings = settings
        self._redact = redact
        self._formatter = LogFormatter(redact, prefix_chars)
        self.waiting = logging.handlers.MemoryHandler(_HELD, flushLevel=logging.CRITICAL + 1)

    def open(self, run_dir: Path) -> None:
        """Write to `run_dir`/run.log from now on, what waited first."""
        from concurrent_log_handler import ConcurrentRotatingFileHandler

        file = ConcurrentRotatingFileHandler(
            run_dir / FILE_NAME,
            maxBytes=self._settings.max_bytes,
            backupCount=self._settings.backups,
            encoding="utf-8",
        )
        file.setFormatter(self._formatter)
        root = logging.getLogger()
        root.addHandler(file)
        root.removeHandler(self.waiting)
        self.waiting.setTarget(file)
        self.waiting.close()
        _log.info("hermes-run %s, process %d", __version__, os.getpid())

    def show_waits(self, show: Callable[[str], None]) -> None:
        """Tell the person in front of the run, too, when it waits long."""
        logging.getLogger().addHandler(LongWaits(show, self._redact))


@contextmanager
def logging_to(
    settings: LogSettings, logging_spec: LoggingSpec, redact: Callable[[str], str]
) -> Iterator[Log]:
    """Collect what the program and its libraries log and warn; `Log.open` says where to."""
    log = Log(settings, redact, logging_spec.log_prefix_chars)
    root, ours = logging.getLogger(), logging.getLogger("hermes_run")
    before = root.handlers[:], root.level, ours.level, logging.raiseExceptions
    root.addHandler(log.waiting)
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.DEBUG if logging_spec.verbose else logging.INFO)
    logging.raiseExceptions = False  # a full disk stops the run where it writes results, not here
    logging.captureWarnings(capture=True)
    try:
        yield log
    finally:
        logging.captureWarnings(capture=False)
        for handler in [handler for handler in root.handlers if handler not in before[0]]:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(before[1])
        ours.setLevel(before[2])
        logging.raiseExceptions = before[3]
