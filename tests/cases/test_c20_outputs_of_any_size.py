"""C20: however much a tool prints, and whatever bytes, the runner stays small and the record is text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cases.places import NAMES, at, terminal_results
from tests.servers import says

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import Answer, ModelServer, Request

HEAD, TAIL = "the first words", "the last words"
LINE = f"echo '{HEAD}'; head -c 104857600 /dev/zero | tr '\\0' x; echo; echo '{TAIL}'; exit 7"
PRINTS = {
    "[line 1]": LINE,
    "[line 2]": LINE,
    "[endless]": f"echo '{HEAD}'; yes 'one of five million short lines'",
    "[binary]": "cat $(command -v sh); exit 7",
    "[latin 1]": "printf 'caf\\351 \\377\\376 \\303'; exit 7",
    "[nul]": "printf 'a\\0b\\0\\0c'; exit 7",
    "[colours]": "printf '\\033[31mred\\033[0m\\n'; i=0; while [ $i -lt 500 ]; do printf '\\r%d %%' $i;"
    " i=$((i+1)); done; exit 7",
    "[surrogate]": "printf '\\355\\240\\200 \\342\\200\\250 \\357\\273\\277'; exit 7",
}
MOST_BYTES = 200_000
"""More than the tool's own bound on what the model sees, with room for how JSON writes it."""


def prints(request: Request) -> Answer:
    if request.turn:
        return says("done", reasoning="r")
    command = {"command": PRINTS[request.prompt], "timeout": 5 if request.prompt == "[endless]" else 60}
    return says("", calls=[("terminal", command)], reasoning="r")


def high_water_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_huge_endless_and_odd_outputs_of_eight_prompts_at_once(
    lab: Lab, server: ModelServer, name: str
) -> None:
    server.respond = prints
    lab.write_prompts(*PRINTS)
    lab.use_server(server.url)
    lab.spec["workers"] = len(PRINTS)
    at(lab, name)
    running, most, first = lab.start(), 0, 0
    until = time.monotonic() + 120
    while running.poll() is None and time.monotonic() < until:
        try:
            most = max(most, high_water_mib(running.pid))
        except OSError:
            break
        first = first or (most if server.requests else 0)
        time.sleep(0.1)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert most - first < 64 * len(PRINTS)
    lines = {line["conversations"][0]["value"]: line for line in lab.lines()}
    assert set(lines) == set(PRINTS)
    for prompt, line in lines.items():
        (result,) = terminal_results(line)
        assert len(line["conversations"][2]["value"].encode()) < MOST_BYTES
        if prompt == "[endless]":
            assert (result["exit_code"], result["error"]) == (124, "timed out after 5 s")
            assert result["output"].startswith(HEAD)
            continue
        assert (result["exit_code"], result["error"]) == (7, None)
        if prompt.startswith("[line"):
            assert result["output"].startswith(HEAD)
            assert result["output"].rstrip().endswith(TAIL)
            assert "left out" in result["output"] or "omitted" in result["output"]
    for request in server.requests:
        assert len(request.body) < 4 * MOST_BYTES
    lab.assert_sound()
