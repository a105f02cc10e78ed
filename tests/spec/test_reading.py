"""Files that cannot be read say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_run.errors import SpecError
from hermes_run.spec.load import load_spec
from hermes_run.spec.reading import MAX_FILE_BYTES
from tests.spec.writing import REQUIRED, load, write


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "spec.yaml: is empty; write at least the required keys"),
        (b"# only a comment\n", "spec.yaml: is empty; write at least the required keys"),
        (b"- a\n- b\n", "spec.yaml:1:1: must be a map of keys and values, not a list; write key: value"),
        (b"hello\n", 'spec.yaml:1:1: must be a map of keys and values, not "hello"; write key: value'),
        (b"run_name: a\nx-b: \xe9\n", "spec.yaml:2:6: is not UTF-8 (byte 0xe9); save it as UTF-8"),
        ("run_name: a\n".encode("utf-16"), "spec.yaml:1:1: is not UTF-8 (byte 0xff); save it as UTF-8"),
        (
            b"#" * (MAX_FILE_BYTES + 1),
            f"spec.yaml: is larger than {MAX_FILE_BYTES} bytes; is this the right file?",
        ),
    ],
)
def test_a_file_that_is_no_spec_says_what_it_is(folder: Path, content: bytes, message: str) -> None:
    (folder / "spec.yaml").write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_spec(Path("spec.yaml"))
    assert str(caught.value) == message


def test_a_folder_and_a_missing_file_are_told_apart(folder: Path) -> None:
    (folder / "runs").mkdir()
    write(folder, REQUIRED)
    with pytest.raises(SpecError, match=r"^runs: is a folder; name a file in it$"):
        load_spec(Path("runs"))
    with pytest.raises(
        SpecError, match=r'^spce.yaml: there is no such file; did you mean "spec.yaml"; check the path$'
    ):
        load_spec(Path("spce.yaml"))
    with pytest.raises(SpecError, match=r"cannot be read: embedded null byte"):
        load_spec(Path("a\0b"))


def test_bom_crlf_and_dates_are_no_trap(folder: Path) -> None:
    text = "﻿" + REQUIRED.replace("run_name: a", "run_name: 2026-11-30").replace("\n", "\r\n")
    assert load(folder, text).run_name == "2026-11-30"
