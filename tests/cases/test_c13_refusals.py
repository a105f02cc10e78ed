"""C13: a reply that is none is a failure with its reason, and never a text that nobody said."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.flow.lab import Lab
from tests.servers import Answer, ModelServer, fails, says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

CUT = '{"command": "touch /workspace/never-run; ec'
ERROR_INSIDE = json.dumps({"error": {"message": "the upstream is overloaded", "code": 502}}).encode()
REPLIES = {
    "[g1]": says("", finish_reason="MALFORMED_FUNCTION_CALL"),
    "[g2]": says(None),
    "[g3]": says("", finish_reason="content_filter"),
    "[g4]": says("I run", calls=[("terminal", CUT)], finish_reason="length", reasoning="r"),
    "[g5]": Answer(body=ERROR_INSIDE),
    "[g6]": says("fine", reasoning="r"),
    "[g7]": says(" \n", reasoning="I thought, and said nothing"),
    "[g8]": says("said before it was filtered", reasoning="r", finish_reason="content_filter"),
    "[g9]": fails(500, "boom"),
}
EXPECTED = {
    "[g1]": ("failed", "malformed_call"),
    "[g2]": ("failed", "empty_reply"),
    "[g3]": ("failed", "filtered"),
    "[g4]": ("partial", "truncated"),
    "[g5]": ("failed", "provider_error"),
    "[g6]": ("completed", "finished"),
    "[g7]": ("failed", "empty_reply"),
    "[g8]": ("failed", "filtered"),
    "[g9]": ("failed", "provider_error"),
}
ATTEMPTS = {"[g1]": 3, "[g2]": 3, "[g3]": 1, "[g4]": 1, "[g5]": 5, "[g6]": 1, "[g7]": 3, "[g8]": 1, "[g9]": 5}
SAID = {"", "I run", "fine"}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, ModelServer]]:
    """A run of all of them, and the server that it asked."""
    lab = Lab(tmp_path_factory.mktemp("refused") / "lab")
    with ModelServer() as server:
        for marker, answer in REPLIES.items():
            server.script(marker, answer)
        lab.use_server(server.url)
        lab.spec["workers"] = len(REPLIES)
        lab.write_prompts(*REPLIES)
        assert lab.run("-q").code == 1
        assert Counter(request.prompt for request in server.requests) == ATTEMPTS
        yield lab, server


@pytest.fixture
def refused(once: tuple[Lab, ModelServer], tmp_path: Path) -> Lab:
    shutil.copytree(once[0].folder, tmp_path / "lab")
    return Lab(tmp_path / "lab", dict(once[0].spec))


def test_every_kind_of_refusal_has_its_reason_and_no_invented_text(refused: Lab) -> None:
    entries = list(refused.entries().values())
    expected = Counter(EXPECTED.values())
    assert Counter((entry["status"], entry["reason"]) for entry in entries) == expected
    statistics = refused.statistics()
    assert statistics["failed"] == {
        "malformed_call": 1,
        "empty_reply": 2,
        "filtered": 2,
        "provider_error": 2,
    }
    assert statistics["partial"] == {"truncated": 1}
    for entry in entries:
        assert bool(entry["error"]) == (entry["status"] == "failed")
        assert bool(entry["hash"]) == (entry["status"] != "failed")
        assert "\n" not in entry["error"]
    by_key = {line["key"]: line["conversations"][0]["value"] for line in refused.lines()}
    assert sorted(by_key.values()) == ["[g4]", "[g6]"]
    for entry in entries:
        if entry["key"] in by_key:
            assert (entry["status"], entry["reason"]) == EXPECTED[by_key[entry["key"]]]
    for name in ("trajectories.jsonl", *(path.name for path in refused.run_dir.glob("batch_*.jsonl"))):
        for line in refused.lines(name):
            assert {turn["value"] for turn in line["conversations"] if turn["from"] == "gpt"} <= SAID
            assert all(turn["tool_calls"] == [] for turn in line["conversations"]), "a cut call is no call"
    everything = b"".join(path.read_bytes() for path in refused.run_dir.iterdir() if path.is_file())
    assert b"(empty)" not in everything
    assert b"said before it was filtered" not in everything
    refused.assert_sound()


def test_thrown_away_replies_are_paid_for_and_counted(refused: Lab) -> None:
    """Each of these answers was billed 15 tokens, but for errors, which say nothing of a price."""
    billed = sum(ATTEMPTS[name] for name in REPLIES if name not in ("[g5]", "[g9]"))
    assert refused.statistics()["tokens"]["total_tokens"] == billed * 15
    assert refused.statistics()["spent"]["total_tokens"] == billed * 15


def test_a_resume_tries_what_failed_and_nothing_else(refused: Lab, once: tuple[Lab, ModelServer]) -> None:
    _, server = once
    kept = {key: entry for key, entry in refused.entries().items() if entry["status"] != "failed"}
    spent = refused.statistics()["spent"]["total_tokens"]
    server.requests.clear()
    server.respond = lambda _: says("at last", reasoning="r")
    assert refused.run("-q").code == 0
    retried = {name for name, (status, _) in EXPECTED.items() if status == "failed"}
    assert Counter(request.prompt for request in server.requests) == dict.fromkeys(retried, 1)
    assert refused.statuses() == {"completed": len(REPLIES) - 1, "partial": 1}
    assert {key: refused.entries()[key] for key in kept} == kept
    assert refused.statistics()["failed"] == {}
    assert refused.statistics()["spent"]["total_tokens"] == spent + 15 * len(retried)
    refused.assert_sound()


def test_a_refusal_in_the_middle_of_a_conversation_is_a_failure_too(lab: Lab, server: ModelServer) -> None:
    call = says("", calls=[("terminal", {"command": "echo hi"})], reasoning="r")
    for marker in ("[g1]", "[g2]", "[g3]"):
        server.script(marker, call, REPLIES[marker])
    server.script("[g4]", call, says("half a sen", finish_reason="length"))
    lab.use_server(server.url)
    lab.write_prompts("[g1]", "[g2]", "[g3]", "[g4]")
    assert lab.run("-q").code == 1
    assert lab.statistics()["failed"] == {"malformed_call": 1, "empty_reply": 1, "filtered": 1}
    (line,) = lab.lines()
    assert [turn["from"] for turn in line["conversations"]] == ["human", "gpt", "tool", "gpt"]
    assert line["conversations"][-1]["value"] == "half a sen"
    assert (line["completed"], line["partial"]) == (False, True)
    assert lab.statistics()["tokens"]["total_tokens"] == 15 * (4 + 3 + 3 + 1 + 1)
    lab.assert_sound()
