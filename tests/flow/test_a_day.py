"""docs/a-day.md: its commands are run as they stand there, one after the other, in an empty folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_run.errors import BackendMissing
from hermes_run.sandboxes.bubblewrap import BubblewrapBackend
from hermes_run.spec.model import Settings
from tests.conftest import require
from tests.flow.lab import Lab
from tests.servers import Answer, ModelServer, Request, fails, says

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs/a-day.md"
SERVER = "http://127.0.0.1:8000/v1"
USUAL = 0


def commands() -> Iterator[tuple[str, int]]:
    """(command with its here-document, exit code that the page promises) in the order of the page."""
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for command in re.findall(r"^[^\n]*<<'END'\n.*?^END$|^[^\n]+$", block, re.DOTALL | re.MULTILINE):
            told = re.search(r"  # .*?exit code (\d+)", command)
            yield command, int(told[1]) if told else USUAL


class Day:
    """A folder with the program on its path, and a model that refuses one prompt once and works otherwise."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.folder = folder
        self.server = server
        self.refused = False
        server.respond = self.answer
        program = folder / "bin/hermes-run"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hermes_run "$@"\n')
        program.chmod(0o755)
        self.place = folder / "place"
        self.place.mkdir()
        self.outputs: dict[str, str] = {}

    def answer(self, request: Request) -> Answer:
        if "folders" in request.prompt and not self.refused:
            self.refused = True
            return fails(400, "no")
        if request.turn:
            return says("Done.", reasoning="It worked.")
        return says("", calls=[("terminal", {"command": "ls"})], reasoning="I look around.")

    def asked(self) -> Counter[str]:
        return Counter(request.prompt for request in self.server.requests if request.turn == 0)

    def do(self, command: str) -> tuple[int, str]:
        environment = Lab(self.folder / "lab").environment() | {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        done = subprocess.run(
            ["sh", "-c", command.replace(SERVER, self.server.url)],
            cwd=self.place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.outputs[command.partition("  #")[0].strip()] = done.stdout
        return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_the_commands_of_a_day_do_what_the_page_says(tmp_path: Path, server: ModelServer) -> None:
    if shutil.which("git") is None:
        require("git", "not installed")
    try:
        asyncio.run(BubblewrapBackend("", Settings()).check())
    except BackendMissing as missing:
        require("bubblewrap", str(missing))
    day = Day(tmp_path, server)
    for command, expected in commands():
        code, said = day.do(command)
        assert code == expected, f"{command}\n{said}"

    told = day.outputs
    changed = told["git diff"]
    assert re.search(r"^-\w+#0 +failed/", changed, re.MULTILINE)
    assert re.search(r"^\+\w+#0 +completed/finished", changed, re.MULTILINE)
    assert "failed/" in told["git difftool -y -t hermes-run -- '*manifest.jsonl'"]
    assert re.search(r"outside the plan +1", told["hermes-run status data/coding"])
    differs = told["hermes-run diff data/coding data/short --trajectories"]
    assert "max_turns" in differs
    assert "(it ends before)" in differs
    shards = json.loads((day.place / "difference.json").read_text())
    assert (len(shards["only_a"]), shards["only_b"], shards["changed"], shards["same"]) == (1, [], [], 4)
    tracked = day.do("git ls-files data")[1].split()
    assert tracked == ["data/coding/manifest.jsonl", "data/coding_v2/manifest.jsonl"]
    asked = day.asked()
    # coding, short, again, big: each asks once; the folders once more after the refusal; v2 only the new
    assert asked["Print the current folder."] == 1
    assert asked["Sort the lines of names.txt."] == 1
    assert asked["How many lines has log.txt?"] == 4
    assert asked["Make the folders src, docs and tests."] == 5
