"""The command line called in this process: what would cost half a second a call costs a few ms."""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING

from hermes_run.cli.main import main
from tests.flow.lab import Lab, Result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()  # noqa: PTH109 - given back as it was
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class LabHere(Lab):
    """A Lab whose commands run in this process."""

    def run(self, *words: str, timeout_s: float = 120) -> Result:
        return self.call("run", str(self.write_spec()), *words, timeout_s=timeout_s)

    def call(self, *words: str, timeout_s: float = 60) -> Result:  # noqa: ARG002 - as a process has it
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with working_in(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(words))
        return Result(code, text_of(out), text_of(err))


def text_of(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
