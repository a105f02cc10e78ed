"""C04 where a prompt was run twice: the older line is damaged, or stands beside one that is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.servers import says

if TYPE_CHECKING:
    from pathlib import Path

    from tests.flow.lab import Lab
    from tests.servers import ModelServer


@pytest.fixture
def run_twice(lab: Lab, server: ModelServer) -> Lab:
    """`[p]` was partial in batch 0 beside `[q]`, and then completed in batch 1."""
    lab.use_server(server.url)
    lab.spec["workers"] = 1
    lab.write_prompts("[p]", "[q]")
    server.script("[p]", says("cut", reasoning="r", finish_reason="length"), says("whole", reasoning="r"))
    server.script("[q]", says("fine", reasoning="r"))
    assert lab.run("-q").code == 0
    assert lab.run("-q", "--retry", "partial").code == 0
    assert lab.statuses() == {"completed": 2}
    server.requests.clear()
    return lab


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_a_torn_line_takes_no_older_line_of_its_file_with_it(run_twice: Lab, server: ModelServer) -> None:
    batch = run_twice.run_dir / "batch_0.jsonl"
    older, newer = lines_of(batch)
    batch.write_bytes(older + newer[:300])
    assert run_twice.run("-q").code == 0
    assert [request.prompt for request in server.requests] == ["[q]"]
    assert lines_of(batch) == [older]
    assert newer[:300] in (run_twice.run_dir / "batch_0.jsonl.bad").read_bytes()
    run_twice.assert_sound()


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_an_older_line_that_is_gone_costs_nothing(run_twice: Lab, server: ModelServer, how: str) -> None:
    batch = run_twice.run_dir / "batch_0.jsonl"
    if how == "gone":
        batch.unlink()
    else:
        batch.write_bytes(b"")
    result = run_twice.run("-q")
    assert result.code == 0
    assert "1 older line is missing or torn" in result.err
    assert [request.prompt for request in server.requests] == ["[q]"]
    assert run_twice.statuses() == {"completed": 2}
    run_twice.assert_sound()


def test_repair_of_a_damaged_older_line_keeps_what_replaced_it(run_twice: Lab, server: ModelServer) -> None:
    batch = run_twice.run_dir / "batch_0.jsonl"
    data = bytearray(batch.read_bytes())
    data[100] ^= 1
    batch.write_bytes(bytes(data))
    assert run_twice.call("verify", str(run_twice.run_dir)).code == 1
    assert run_twice.call("repair", str(run_twice.run_dir)).code == 0
    assert run_twice.run("-q").code == 0
    assert not server.requests
    assert run_twice.statuses() == {"completed": 2}
    run_twice.assert_sound()


def test_a_repaired_journal_takes_the_newer_of_two_lines(run_twice: Lab, server: ModelServer) -> None:
    """The older one's journal line is damaged, so its line is adopted; it must not win."""
    journal = run_twice.run_dir / "journal.jsonl"
    first, *rest = lines_of(journal)
    assert json.loads(first)["status"] == "partial"
    journal.write_bytes(b"".join([first.replace(b"partial", b"partiel"), *rest]))
    assert run_twice.call("repair", str(run_twice.run_dir)).code == 0
    assert run_twice.run("-q").code == 0
    assert not server.requests
    assert run_twice.statuses() == {"completed": 2}
    run_twice.assert_sound()


def test_a_rebuilt_journal_remembers_what_the_filters_said(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.write_prompts("[mute]", "[thoughtful]", "[fails]")
    server.script("[mute]", says("x"))
    server.script("[thoughtful]", says("x", reasoning="r"))
    server.script("[fails]", says("x", finish_reason="content_filter"))
    assert lab.run("-q").code == 1
    (lab.run_dir / "journal.jsonl").unlink()
    repaired = lab.call("repair", str(lab.run_dir))
    assert repaired.code == 0
    assert "what had failed cannot be rebuilt" in repaired.out + repaired.err
    assert lab.statuses() == {"completed": 1, "discarded": 1}
    server.script("[fails]", says("x", reasoning="r"))
    assert lab.run("-q").code == 0
    assert lab.statistics()["discarded"] == {"no_reasoning": 1}
    assert len(lab.lines()) == 2
    lab.assert_sound()
