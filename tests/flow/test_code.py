"""execute_code in a run: what its calls leave in the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.flow.lab import Lab

CODE = """
from hermes_tools import terminal, read_file
for word in ("a", "b"):
    terminal(f"echo {word} >{word}.txt")
print(read_file("a.txt")["content"], "error" in read_file("none.txt"))
"""


def tape(code: str) -> dict[str, object]:
    call = {"tool": "execute_code", "arguments": {"code": code}}
    return {
        "conversations": [
            {"turns": [{"reasoning": "r", "calls": [call]}, {"reasoning": "r", "text": "{{result}}"}]}
        ]
    }


def test_calls_of_a_script_count_and_no_turn_shows_them(lab: Lab) -> None:
    lab.spec["distribution"] = {"code_execution": 100, "terminal": 100, "file": 100}
    lab.write_prompts("do it")
    lab.write_tape(tape(CODE))
    result = lab.run()
    assert result.code == 0, result.err
    (line,) = lab.lines()
    assert '"output": "1|a True\\n"' in line["conversations"][-1]["value"]
    assert [turn["from"] for turn in line["conversations"]] == ["human", "gpt", "tool", "gpt"]
    used = {name: count for name, count in line["tool_stats"].items() if count["count"]}
    assert used == {
        "execute_code": {"count": 1, "success": 1, "failure": 0},
        "terminal": {"count": 2, "success": 2, "failure": 0},
        "read_file": {"count": 2, "success": 1, "failure": 1},
    }
    assert line["tool_error_counts"]["read_file"] == 1
    assert lab.statistics()["tool_statistics"]["terminal"]["count"] == 2
    lab.assert_sound()


def test_a_name_invented_in_a_script_discards_like_one_in_a_turn(lab: Lab) -> None:
    lab.spec["distribution"] = {"code_execution": 100}
    lab.write_prompts("do it")
    lab.write_tape(tape("import hermes_tools\nprint(hermes_tools.terminal('ls'))"))
    assert lab.run().code == 0
    assert lab.statistics()["discarded"] == {"unknown_tool": 1}
