from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from hermes_run.cli.report import Trouble, complain, say
from hermes_run.errors import (
    BudgetStop,
    DatasetError,
    DiskFull,
    EnvironmentStop,
    HermesRunError,
    SpecError,
    UsageError,
)

if TYPE_CHECKING:
    from pathlib import Path


def end(error: BaseException, trouble: Trouble | None = None) -> int:
    trouble = trouble or Trouble()
    with trouble:
        raise error
    return trouble.exit_code


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (UsageError("what, where, cure"), 2),
        (EnvironmentStop("what, where, cure"), 4),
        (DiskFull("what, where, cure"), 4),
        (BudgetStop("what, where, cure"), 5),
    ],
)
def test_an_error_raised_on_purpose_is_its_text_and_its_exit_code(
    error: HermesRunError, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(error) == exit_code
    assert capsys.readouterr() == ("", "hermes-run: what, where, cure\n")


def test_mistakes_of_a_spec_stand_at_the_beginning_of_a_line_and_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert end(SpecError("a.yaml:1:2: one\na.yaml:3:4: two")) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == ["a.yaml:1:2: one", "a.yaml:3:4: two", "hermes-run: 2 mistakes; nothing was run"]


def test_bad_rows_of_a_dataset_stand_at_the_beginning_of_a_line_and_the_cure_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert end(DatasetError("rows.jsonl:1: one\nrows.jsonl:3: two\n2 of 3 rows cannot be run")) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == ["rows.jsonl:1: one", "rows.jsonl:3: two", "hermes-run: 2 of 3 rows cannot be run"]
    assert end(DatasetError("rows.jsonl: cannot be read")) == 2
    assert capsys.readouterr().err == "hermes-run: rows.jsonl: cannot be read\n"


def test_ctrl_c_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert end(KeyboardInterrupt()) == 130
    assert "Ctrl-C" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_the_environment_and_names_the_file(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(OSError(number, os.strerror(number), "data/run/journal.jsonl")) == 4
    assert "data/run/journal.jsonl: the disk is full" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EMFILE, errno.EIO, errno.ENOTDIR])
def test_what_the_system_refuses_has_a_cure_and_no_traceback(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(OSError(number, os.strerror(number), "there")) == 4
    said = capsys.readouterr().err
    assert said.startswith(f"hermes-run: there: {os.strerror(number)}: ")
    assert "Traceback" not in said


def test_a_closed_pipe_is_quiet_and_keeps_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert end(BrokenPipeError(), Trouble(exit_code=1)) == 1
    assert capsys.readouterr() == ("", "")


def test_a_group_ends_as_the_error_in_it_that_was_raised_on_purpose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    inner = ExceptionGroup("tasks", [ValueError("odd"), DiskFull("no room")])
    assert end(ExceptionGroup("outer", [inner])) == 4
    assert capsys.readouterr().err == "hermes-run: no room\n"


def test_a_bug_leaves_a_log_with_the_traceback_in_the_run_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end(ZeroDivisionError("by zero"), Trouble(folder=tmp_path)) == 3
    said = capsys.readouterr().err
    (log,) = tmp_path.iterdir()
    assert str(log) in said
    assert "bug in hermes-run" in said
    assert "Traceback" not in said
    assert "Traceback" in log.read_text()
    assert "ZeroDivisionError: by zero" in log.read_text()


def test_a_bug_without_a_run_directory_leaves_its_log_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert end(RuntimeError("odd"), Trouble(folder=tmp_path / "never made")) == 3
    (log,) = tmp_path.iterdir()
    assert str(log) in capsys.readouterr().err


def test_the_log_of_a_bug_holds_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trouble = Trouble(folder=tmp_path, redact=lambda text: text.replace("sk-1234", "[redacted]"))
    end(RuntimeError("header Bearer sk-1234"), trouble)
    (log,) = tmp_path.iterdir()
    assert "sk-1234" not in log.read_text() + capsys.readouterr().err
    assert "Bearer [redacted]" in log.read_text()


def test_leaving_on_purpose_passes_through() -> None:
    with pytest.raises(SystemExit), Trouble():
        raise SystemExit(0)


def test_nothing_is_said_into_a_stream_that_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    say("into the void")
    complain("likewise")


def test_a_reader_that_went_away_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr("sys.stdout", gone)
        say("first")
        say("second")


@pytest.mark.parametrize("words", [["--api-key", "can ary"], ["--api_key", "can ary"], ["--api_key=can ary"]])
def test_the_log_of_a_bug_before_the_options_are_read_holds_no_key(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hermes-run", "spec.yaml", *words, "--json"])
    assert end(ZeroDivisionError("x"), Trouble(folder=tmp_path)) == 3
    assert "bug" in capsys.readouterr().err
    (log,) = tmp_path.iterdir()
    assert "can ary" not in log.read_text()
    assert "spec.yaml" in log.read_text()
    assert "--json" in log.read_text()
