"""A fifth of all answers is a fault of a passing kind: each rollout has its right outcome all the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.flow.lab import Lab
from tests.flow.replies import turns
from tests.servers import Answer, ModelServer, Request, fails, says

if TYPE_CHECKING:
    from pathlib import Path

TURNS = 4  # model calls of a prompt
PROMPTS = 300
SHARE = 0.2
PASSING = {
    "429 soon": fails(429, headers={"Retry-After": "0.2"}),
    "429": fails(429),
    "500": fails(500),
    "503": fails(503),
    "529": fails(529),
    "drop": Answer(drop="before"),
    "half": replace(says("half"), drop="middle"),
    "no JSON": Answer(body=b'{"choices": [{"mess'),
    "no choices": Answer(body=b'{"choices": []}'),
    "error in a 200": Answer(body=b'{"error": {"message": "overloaded"}}'),
    "hang": Answer(drop="hang"),
}
"""What is asked again."""
ASKED = {
    "bad arguments": says("", calls=[("terminal", '{"command": "ec')], reasoning="hm"),
    "invented tool": says("", calls=[("no_such_tool", {"a": 1})], reasoning="hm"),
}
"""What is a turn like any other: the model reads that it was wrong."""


class Faults:
    """The same faults whenever the same request comes for the n-th time."""

    def __init__(self) -> None:
        self.met: defaultdict[str, list[str]] = defaultdict(list)
        self._plain = turns(TURNS)
        self._tries: Counter[tuple[str, int]] = Counter()

    def __call__(self, request: Request) -> Answer:
        prompt, turn = request.prompt, request.turn
        attempt = self._tries[prompt, turn]
        self._tries[prompt, turn] += 1
        drawn = Random(f"{prompt} {turn} {attempt}")
        kinds = [*PASSING, *(ASKED if turn < TURNS - 1 else ())]
        if attempt == 4 or drawn.random() >= SHARE:  # the last attempt is a good one
            return self._plain(request)
        kind = drawn.choice(kinds)
        self.met[prompt].append(kind)
        return PASSING.get(kind) or ASKED[kind]


def expected(met: list[str]) -> tuple[str, str]:
    return ("discarded", "unknown_tool") if "invented tool" in met else ("completed", "finished")


@pytest.mark.slow
@pytest.mark.parametrize("is_stream", [False, True])
def test_every_rollout_has_its_right_outcome_and_faults_explain_every_request(
    tmp_path: Path, *, is_stream: bool
) -> None:
    faults = Faults()
    with ModelServer() as server:
        server.respond = faults
        lab = Lab(tmp_path, {"sandbox": {"backend": "local"}, "workers": 64, "batch_size": 50})
        lab.write_prompts(*(f"[{number}] do it" for number in range(PROMPTS)))
        lab.use_server(server.url)
        lab.spec["model"] |= {"request_timeout_s": 10, "stream": is_stream}
        result = lab.run("-q", timeout_s=280)
        assert result.code == 0, result.err
        kept = [line for path in lab.run_dir.glob("batch_*.jsonl") for line in lab.lines(path.name)]
        prompts = {line["key"]: line["conversations"][0]["value"] for line in kept}
        found = {prompts[key]: (e["status"], e["reason"]) for key, e in lab.entries().items()}
        assert found == {
            prompt: expected(faults.met[prompt]) for prompt in (f"[{n}] do it" for n in range(PROMPTS))
        }
        again = sum(kind in PASSING for met in faults.met.values() for kind in met)
        assert again > PROMPTS * TURNS * SHARE * 0.5
        assert len(server.requests) == PROMPTS * TURNS + again
        calls = lab.statistics()["tool_statistics"]["terminal"]
        wrong = sum(met.count("bad arguments") for met in faults.met.values())
        invented = sum(met.count("invented tool") for met in faults.met.values())
        assert (calls["count"], calls["failure"]) == (PROMPTS * (TURNS - 1) - invented, wrong)
        lab.assert_sound()
