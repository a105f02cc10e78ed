"""The newcomer's first minute: what the tape's model says is what the real tools answered."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.errors import BackendMissing
from hermes_run.sandboxes.bubblewrap import BubblewrapBackend
from hermes_run.spec.model import Settings
from hermes_run.spec.schema import validator
from tests.conftest import require

if TYPE_CHECKING:
    from tests.cli.calling import Cli

ROOT = Path(__file__).parent.parent.parent
SPEC = ROOT / "runs/quickstart.yaml"
SEEN = {
    "fix-a-bug": ["FAILED: 100 -> 100, expected 90", "ok: 100 -> 90"],
    "search-a-tree": ["src/app.conf", "src/jobs/report.sh"],
    "patch-a-file": ["stands in 2 places", "7|timeout = 30", "3|timeout = 5"],
    "mend-a-command": ["backwards", "1024 videos\n120 photos\n77 books"],
    "sum-a-table": ["1|north 17\n2|south 15\n3|west 20"],
    "make-a-script": ["Permission denied", "Hello, Ada!\n-rwxr-xr-x"],
    "watch-a-job": ['"running"', "step 3 of 3\nfinished"],
    "keep-a-list": ["site/index.html", "site/style.css", '"status": "completed"'],
    "read-a-log": ["3 /cart"],
    "join-two-files": ["Edsger\nGrace\n"],
    "keep-your-place": ["test in build"],
    "count-words": [
        "7 book/chapter1.txt",
        "12 book/chapter2.txt",
        "5 book/chapter3.txt",
        '"files": ["book/chapter2.txt"]',
    ],
}


def check(cli: Cli, tmp_path: Path, *words: str) -> None:
    done = cli(SPEC, *words)
    assert done.returncode == 0, done.stderr
    assert re.search(r"completed +12 ", done.stdout)
    assert "--model anthropic/claude-sonnet-4.6" in done.stdout
    run = tmp_path / "data/quickstart"
    records = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert {json.loads(record["metadata"]["row"])["id"] for record in records} == set(SEEN)
    for record in records:
        check_record(record)
    assert cli("verify", "data/quickstart").returncode == 0
    for line in (run / "manifest.jsonl").read_text().splitlines():
        validator("manifest-entry").validate(json.loads(line))
    validator("statistics").validate(json.loads((run / "statistics.json").read_text()))


def check_record(record: dict[str, Any]) -> None:
    validator("trajectory").validate(record)
    results = [turn["value"] for turn in record["conversations"] if turn["from"] == "tool"]
    heard = "\n".join(results + [text for result in results for text in texts_in(json.loads(result))])
    for words in SEEN[json.loads(record["metadata"]["row"])["id"]]:
        assert words in heard
    assert all(turn["reasoning"] for turn in record["conversations"] if turn["from"] == "gpt")


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [
            text for item in (value.values() if isinstance(value, dict) else value) for text in texts_in(item)
        ]
    return [str(value)]


@pytest.mark.bubblewrap
def test_the_quickstart_does_what_it_says_and_the_readme_shows_it(cli: Cli, tmp_path: Path) -> None:
    try:
        asyncio.run(BubblewrapBackend("", Settings()).check())
    except BackendMissing as missing:
        require("bubblewrap", str(missing))
    check(cli, tmp_path)
    picture = runpy.run_path(str(ROOT / "docs/picture.py"))
    statistics = json.loads((tmp_path / "data/quickstart/statistics.json").read_text())
    drawn, shown = picture["draw"](statistics), picture["PICTURE"].read_text(encoding="utf-8")
    same = picture["without_duration"]
    assert same(drawn) == same(shown), "make quickstart && make picture draws it anew"


def test_the_quickstart_does_so_without_bubblewrap_too(cli: Cli, tmp_path: Path) -> None:
    check(cli, tmp_path, "--set", "sandbox.backend=local")
