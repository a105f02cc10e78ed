"""C22: half a character, or a byte that is none, stops nothing, is kept, and can be taken back."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.text import restore, restore_bytes
from tests.servers import Answer, says

if TYPE_CHECKING:
    from pathlib import Path

    from tests.flow.lab import Lab
    from tests.servers import ModelServer, Request

HALF, ODD = "\ud835", "\u2028 \u2029 \x85 \x00 \ufeff \x1c end"
SAID = {
    "[i1]": (f"half {HALF} and \udfff end", f"I think {HALF}"),
    "[i4]": ("smile \ud83d\ude00 end", "r"),
    "[i5]": (ODD, ODD),
}
MAKE = "printf content > \"$(printf 'caf\\351')\"; ls"


def reply_of(request: Request) -> Answer:
    """`[i1]` to `[i5]` as in the case; others say "fine"."""
    name, turn = request.prompt[:4], request.turn
    if name == "[i2]" and turn == 0:
        written = json.dumps({"command": "echo \udc00x"})  # escaped in the arguments' own JSON
        as_it_is = json.dumps({"command": "echo \udc00y"}, ensure_ascii=False)
        return says("", calls=[("terminal", written), ("terminal", as_it_is)], reasoning="r")
    if name == "[i3]" and turn == 0:
        return says("", calls=[("terminal", {"command": MAKE})], reasoning="r")
    if name == "[i3]" and turn == 1:
        shown = json.loads(request.messages[-1]["content"])["output"].strip()
        return says("", calls=[("read_file", {"path": shown})], reasoning="r")
    text, reasoning = SAID.get(name, ("fine", "r"))
    return says(text, reasoning=reasoning)


@pytest.fixture
def run(lab: Lab, server: ModelServer) -> Lab:
    server.respond = reply_of
    lab.use_server(server.url)
    lab.spec["distribution"] = {"terminal": 100, "file": 100}
    lab.write_rows(
        [
            *({"prompt": f"[i{number}]"} for number in range(1, 6)),
            {"prompt": "[plain]"},
            '{"prompt": "[row] \\ud835 half", "note": "\\udc00", "files": {"n\\udc80": "t\\ud835"}}',
            {"prompt": f"[odd] {ODD.replace(chr(0), '')}", "note": ODD},
        ]
    )
    result = lab.run("-q")
    assert result.code == 0, result.err
    return lab


def by_marker(lab: Lab) -> dict[str, list[dict[str, Any]]]:
    return {
        line["conversations"][0]["value"].partition("]")[0] + "]": line["conversations"]
        for line in lab.lines()
    }


def result_of(turn: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(turn["value"])
    return result


def written_files(lab: Lab) -> list[Path]:
    return sorted(path for path in lab.run_dir.glob("*.json*") if path.is_file())


def test_all_rows_are_written_and_nothing_is_lost_in_them(run: Lab) -> None:
    assert run.statuses() == {"completed": 8}
    assert len(run.lines()) == 8
    said = by_marker(run)
    assert restore(said["[i1]"][-1]["value"]) == f"half {HALF} and \udfff end"
    assert restore(said["[i1]"][-1]["reasoning"]) == f"I think {HALF}"
    assert said["[i4]"][-1]["value"] == "smile \U0001f600 end"
    assert said["[i5]"][-1]["value"] == said["[i5]"][-1]["reasoning"] == ODD
    assert restore(said["[row]"][0]["value"]) == f"[row] {HALF} half"
    calls = [restore(call["arguments"]) for call in said["[i2]"][1]["tool_calls"]]
    assert [json.loads(arguments)["command"] for arguments in calls] == ["echo \udc00x", "echo \udc00y"]
    for turn in said["[i2]"][2:4]:
        assert result_of(turn)["exit_code"] == 0, "a half is a text like any other"
    run.assert_sound()


def test_a_name_of_any_bytes_is_read_back_by_the_name_that_was_printed(run: Lab) -> None:
    _, _, listed, read, content, _ = by_marker(run)["[i3]"]
    name = result_of(listed)["output"].strip()
    assert restore_bytes(name) == b"caf\xe9"
    assert json.loads(read["tool_calls"][0]["arguments"])["path"] == name
    assert result_of(content)["content"] == "1|content"


def test_every_line_is_utf8_ends_at_a_newline_alone_and_loads_everywhere(run: Lab) -> None:
    for path in written_files(run):
        text = path.read_bytes().decode("utf-8")
        if path.suffix == ".jsonl":
            for line in text.removesuffix("\n").split("\n"):
                assert isinstance(json.loads(line), dict)
    jq = shutil.which("jq")
    if jq is not None:
        for path in written_files(run):
            done = subprocess.run([jq, "-c", "."], input=path.read_bytes(), capture_output=True, check=True)
            if path.suffix == ".jsonl":
                assert done.stdout.count(b"\n") == path.read_bytes().count(b"\n")


@pytest.mark.datasets
def test_the_rows_come_back_from_datasets_as_they_were(run: Lab, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(str(run.run_dir), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == 8
    for line, row in zip(run.lines(), loaded, strict=True):
        assert row["conversations"] == line["conversations"]
        assert row["metadata"]["row"] == line["metadata"]["row"]


def test_the_halves_survive_a_repair_and_a_resume(run: Lab, server: ModelServer) -> None:
    before = run.outputs()
    (run.run_dir / "journal.jsonl").unlink()
    assert run.call("repair", str(run.run_dir)).code == 0
    asked = len(server.requests)
    assert run.run("-q").code == 0
    assert len(server.requests) == asked
    after = run.outputs()
    for each in (before, after):
        each["statistics"].pop("spent", None)
    assert after == before
    run.assert_sound()


def test_what_is_sent_back_is_valid_utf8_and_the_same_every_time(run: Lab, server: ModelServer) -> None:
    del run
    for request in server.requests:
        request.body.decode("utf-8")
        if request.turn:
            former = next(
                r for r in server.requests if r.prompt == request.prompt and r.turn == request.turn - 1
            )
            assert request.messages[: len(former.messages)] == former.messages
