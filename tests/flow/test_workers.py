"""The same spec gives the same outputs at any number of workers."""

from __future__ import annotations

import pytest

from tests.flow.lab import Lab

TAPE = {
    "conversations": [
        {
            "turns": [
                {
                    "reasoning": "look",
                    "calls": [{"tool": "terminal", "arguments": {"command": "echo {{prompt}} | tee f; pwd"}}],
                },
                {"reasoning": "again", "calls": [{"tool": "read_file", "arguments": {"path": "f"}}]},
                {"reasoning": "done", "text": "done"},
            ]
        }
    ]
}


@pytest.mark.slow
def test_1_8_and_64_workers_give_equal_outputs(lab: Lab) -> None:
    outputs = []
    for workers in (1, 8, 64):
        each = Lab(lab.folder / str(workers), {"workers": workers, "batch_size": 7, "samples": 2})
        each.spec["distribution"] = {"terminal": 60, "file": 60}
        each.spec["seed"] = 3
        each.write_tape(TAPE)
        each.write_rows([{"prompt": f"task {n}", "n": n} for n in range(40)])
        result = each.run("--quiet")
        assert result.code == 0, result.err
        each.assert_sound()
        outputs.append(each.outputs())
    assert outputs[0] == outputs[1] == outputs[2]
