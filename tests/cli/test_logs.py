from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING

import pytest

from hermes_run.cli.logs import LogFormatter, LongWaits, cut, log_outcome, logging_to
from hermes_run.core.messages import Assistant, ToolCall, ToolResult, Usage, User
from hermes_run.core.secrets import make_redactor
from hermes_run.core.trajectory import Outcome, Status, StopReason, Trajectory
from hermes_run.spec.model import LoggingSpec, LogSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write(
    folder: Path,
    act: Callable[[], object],
    *,
    verbose: bool = False,
    settings: LogSettings | None = None,
    secrets: tuple[str, ...] = (),
) -> str:
    spec = LoggingSpec(verbose=verbose, log_prefix_chars=10)
    with logging_to(settings or LogSettings(), spec, make_redactor(secrets)) as log:
        log.open(folder)
        act()
    text = (folder / "run.log").read_text()
    first, _, rest = text.partition("\n")
    return rest if "hermes-run" in first else text


def test_what_is_logged_before_the_run_directory_is_known_is_written_too(tmp_path: Path) -> None:
    with logging_to(LogSettings(), LoggingSpec(), make_redactor(())) as log:
        logging.getLogger("hermes_run.spec").info("early")
        log.open(tmp_path)
        logging.getLogger("hermes_run.runner").info("late")
    first, start, last = (tmp_path / "run.log").read_text().splitlines()
    assert first.endswith("hermes_run.spec: early")
    assert f"process {os.getpid()}" in start
    assert last.endswith("hermes_run.runner: late")


def test_a_secret_never_reaches_the_log_neither_in_tracebacks_nor_in_arguments(tmp_path: Path) -> None:
    def act() -> None:
        log = logging.getLogger("hermes_run.models")
        log.warning("header %s", "Bearer sk-abcdef")
        try:
            int("sk-abcdef")
        except ValueError:
            log.exception("call failed")
        log.warning("cut", extra={"preview": "123456 sk-abcdef"})

    text = write(tmp_path, act, secrets=("sk-abcdef",))
    assert "sk-" not in text
    assert "Bearer [redacted]" in text
    assert "ValueError: invalid literal for int() with base 10: '[redacted]'" in text


def test_previews_are_cut_and_stay_on_their_line(tmp_path: Path) -> None:
    def act() -> None:
        logging.getLogger("hermes_run.runner").debug("reply", extra={"preview": "one\ntwo three four"})

    (line,) = write(tmp_path, act, verbose=True).splitlines()
    assert line.endswith("hermes_run.runner: reply | one\\ntwo th (+8 characters)")


def make_outcome() -> Outcome:
    call = ToolCall("c1", "terminal", '{"command": "echo long enough to be cut"}')
    messages = (User("a prompt"), Assistant("", "", (call,)), ToolResult("c1", "terminal", "one\ntwo"))
    trajectory = Trajectory(
        key="k#0",
        prompt_index=7,
        messages=messages,
        stop_reason=StopReason.FINISHED,
        api_calls=1,
        toolsets=("terminal",),
        tool_counts={},
        unknown_tools=(),
        usage=Usage(),
        model="m",
        served_model="m",
        draw={},
        work="w",
        backend="local",
    )
    return Outcome("k#0", 7, 0, Status.COMPLETED, "finished", 1.25, "", "w", trajectory=trajectory)


def test_every_rollout_has_a_line_and_with_verbose_one_for_each_turn(tmp_path: Path) -> None:
    (line,) = write(tmp_path, lambda: log_outcome(make_outcome())).splitlines()
    assert line.endswith("k#0 row 7: completed, finished, 1.2 s")
    (tmp_path / "run.log").unlink()
    _, user, assistant, call, result = write(
        tmp_path, lambda: log_outcome(make_outcome()), verbose=True
    ).splitlines()
    assert user.endswith("k#0 user | a prompt")
    assert assistant.endswith("k#0 assistant | ")
    assert call.endswith('k#0 calls terminal | {"command" (+31 characters)')
    assert result.endswith("k#0 tool | one\\ntwo")


def test_without_verbose_debug_lines_are_not_written(tmp_path: Path) -> None:
    assert write(tmp_path, lambda: logging.getLogger("hermes_run.x").debug("detail")) == ""


def test_libraries_are_heard_from_warnings_on_and_their_python_warnings_too(tmp_path: Path) -> None:
    def act() -> None:
        logging.getLogger("httpx").info("every request")
        logging.getLogger("asyncio").error("task was lost")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old habit", DeprecationWarning, stacklevel=1)

    text = write(tmp_path, act)
    assert "every request" not in text
    assert "asyncio: task was lost" in text
    assert "old habit" in text


def test_nothing_of_the_log_goes_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, lambda: logging.getLogger("hermes_run.x").critical("loud"))
    assert capfd.readouterr() == ("", "")


def test_the_log_rotates_and_keeps_as_many_old_files_as_the_settings_say(tmp_path: Path) -> None:
    def act() -> None:
        for number in range(200):
            logging.getLogger("hermes_run.x").info("line %d", number)

    last = write(tmp_path, act, settings=LogSettings(max_bytes=1000, backups=2))
    assert last.endswith("line 199\n")
    assert sorted(p.name for p in tmp_path.glob("run.log*")) == ["run.log", "run.log.1", "run.log.2"]
    assert all(p.stat().st_size < 1200 for p in tmp_path.glob("run.log*"))


def test_logging_is_as_it_was_afterwards(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    write(tmp_path, lambda: None)
    assert (root.handlers[:], root.level) == before


def test_half_a_character_is_shown_by_its_number() -> None:
    record = logging.LogRecord("hermes_run.x", logging.INFO, "", 0, "half \ud835", None, None)
    assert LogFormatter(str, 100).format(record).endswith("half \\ud835")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("short", "short"),
        ("0123456789", "0123456789"),
        ("0123456789a", "0123456789 (+1 characters)"),
    ],
)
def test_a_cut_text_says_how_much_is_missing(text: str, shown: str) -> None:
    assert cut(text, 10) == shown


def test_long_waits_are_shown_one_in_ten_seconds_and_without_secrets() -> None:
    shown: list[str] = []
    now = 0.0
    waits = LongWaits(shown.append, make_redactor(("sk-abcdef",)), lambda: now)
    log = logging.getLogger("hermes_run.models")
    for at_s, wait_s in ((0.0, 9.9), (1.0, 60.0), (2.0, 60.0), (10.9, 60.0), (11.0, 11.0)):
        now = at_s
        record = log.makeRecord(log.name, logging.WARNING, "", 0, "%g sk-abcdef", (at_s,), None)
        record.wait_s = wait_s
        waits.handle(record)
    waits.handle(log.makeRecord(log.name, logging.ERROR, "", 0, "no wait", (), None))
    assert [text.split()[0] for text in shown] == ["1", "11"]
    assert not any("sk-" in text for text in shown)
    with logging_to(LogSettings(), LoggingSpec(), make_redactor(())) as held:
        held.show_waits(shown.append)
        log.warning("a minute", extra={"wait_s": 60})
    log.warning("later", extra={"wait_s": 60})
    assert shown[2:] == ["a minute"]
