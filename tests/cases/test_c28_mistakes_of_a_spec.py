"""C28: what is misspelt or misplaced is refused before any call, with its place; from the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.flow.lab import Lab, Result
    from tests.servers import ModelServer

HEAD = """\
run_name: r
dataset: {path: data.jsonl}
batch_size: 2
sandbox: {backend: bubblewrap}
"""
MODEL = "model: {name: bench, base_url: URL, api_key_env: null}\n"
DISTRIBUTION = "distribution: {terminal: 100}\n"

MISTAKES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "misspelt block": (HEAD + DISTRIBUTION + "modle: {name: bench}\n", "6:1", ("modle", '"model"')),
    "misspelt key": (
        HEAD + DISTRIBUTION + "model:\n  name: bench\n  sampling: {temprature: 1}\n",
        "8:14",
        ("model.sampling.temprature", '"temperature"'),
    ),
    "one level too high": (
        HEAD + DISTRIBUTION + MODEL + "temperature: 1\n",
        "7:1",
        ("temperature", "model.sampling.temperature"),
    ),
    "one level too low": (
        HEAD + DISTRIBUTION + "agent:\n  workers: 8\n",
        "7:3",
        ("agent.workers", "workers"),
    ),
    "unknown word": (
        HEAD + DISTRIBUTION + MODEL + "reasoning: {effort: hihg}\n",
        "7:21",
        ("reasoning.effort", '"high"'),
    ),
    "off": (
        HEAD + DISTRIBUTION + MODEL + "reasoning: {effort: off}\n",
        "7:21",
        ("reasoning.effort", "quotes", "none"),
    ),
    "no": (HEAD + DISTRIBUTION + MODEL + "reasoning:\n  effort: no\n", "8:11", ("reasoning.effort", "none")),
    "a number as text": (HEAD + DISTRIBUTION + MODEL + 'workers: "8"\n', "7:10", ("workers", "number")),
    "zero turns": (HEAD + DISTRIBUTION + MODEL + "agent: {max_turns: 0}\n", "7:20", ("agent.max_turns", "1")),
    "a switch as words": (
        HEAD + DISTRIBUTION + MODEL + "filters: {require_reasoning: yes please}\n",
        "7:30",
        ("filters.require_reasoning", "true"),
    ),
    "an option as a key": (HEAD + DISTRIBUTION + MODEL + "resume: yes please\n", "7:1", ("resume",)),
    "twice": (HEAD + DISTRIBUTION + MODEL + "batch_size: 3\n", "7:1", ("batch_size", "twice")),
    "a tab": (HEAD + DISTRIBUTION + MODEL + "agent:\n\tmax_turns: 3\n", "8:1", ("tab",)),
    "a variable": (
        HEAD + DISTRIBUTION + "model: {name: '${UNSET_VAR}', base_url: URL, api_key_env: null}\n",
        "6:15",
        ("model.name", "UNSET_VAR"),
    ),
    "unknown toolset": (
        HEAD + MODEL + "distribution: {termnal: 100}\n",
        "6:16",
        ("distribution.termnal", '"terminal"'),
    ),
    "unknown distribution": (HEAD + MODEL + "distribution: terminal_onyl\n", "6:15", ('"terminal_only"',)),
    "140 percent": (
        HEAD + MODEL + "distribution: {terminal: 140}\n",
        "6:26",
        ("distribution.terminal", "100"),
    ),
    "all at nothing": (HEAD + MODEL + "distribution: {terminal: 0, file: 0}\n", "6:", ("distribution", "0")),
    "two documents": (HEAD + DISTRIBUTION + MODEL + "---\nrun_name: other\n", "7:1", ("document",)),
    "a key itself": (
        HEAD + DISTRIBUTION + "model: {name: b, base_url: URL, api_key_env: sk-or-v1-0123456789abcdef}\n",
        "6:",
        ("model.api_key_env",),
    ),
}


def write(lab: Lab, server: ModelServer, text: str, name: str = "spec.yaml") -> Path:
    lab.write_prompts("a")
    path = lab.folder / name
    path.write_text(text.replace("URL", server.url))
    return path


def assert_refused(result: Result, lab: Lab, server: ModelServer) -> None:
    assert result.code == 2, (result.out, result.err)
    assert "Traceback" not in result.out + result.err
    assert not server.requests
    assert not lab.run_dir.exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_its_place_its_key_and_its_cure(
    lab: Lab, server: ModelServer, mistake: str
) -> None:
    text, place, words = MISTAKES[mistake]
    write(lab, server, text)
    for command in (("validate", "spec.yaml"), ("run", "spec.yaml"), ("spec.yaml", "--dry-run")):
        result = lab.call(*command)
        assert_refused(result, lab, server)
        told = next((line for line in result.err.splitlines() if f"spec.yaml:{place}" in line), result.err)
        assert f"spec.yaml:{place}" in told
        for word in words:
            assert word in told
        assert "sk-or-v1-0123456789abcdef" not in result.err


def test_all_mistakes_of_a_file_are_told_in_one_go_in_the_order_of_the_file(
    lab: Lab, server: ModelServer
) -> None:
    write(
        lab,
        server,
        HEAD.replace("batch_size: 2", 'batch_size: "2"')
        + "distribution: {termnal: 140}\nworkrs: 3\nagent: {max_turns: 0, max_turn: 3}\nseed: x\n",
    )
    result = lab.call("validate", "spec.yaml")
    assert_refused(result, lab, server)
    places = re.findall(r"^spec\.yaml:(\d+):(\d+): ", result.err, re.MULTILINE)
    assert len(places) >= 6
    assert places == sorted(places, key=lambda place: (int(place[0]), int(place[1])))
    mistakes = lab.call("validate", "spec.yaml", "--json").json()
    assert mistakes["valid"] is False
    assert len(mistakes["mistakes"]["spec.yaml"]) == len(places)


def test_a_mistake_behind_extends_is_told_where_it_is_written(lab: Lab, server: ModelServer) -> None:
    write(lab, server, HEAD + DISTRIBUTION + "modle: {}\n", "base.yaml")
    write(lab, server, "extends: base.yaml\n" + MODEL + "agent: {max_turn: 3}\n")
    result = lab.call("validate", "spec.yaml")
    assert_refused(result, lab, server)
    assert "base.yaml:6:1: " in result.err
    assert "spec.yaml:3:9: " in result.err


def test_an_alias_bomb_is_refused_in_no_time(lab: Lab, server: ModelServer) -> None:
    lines = ["x-0: &a0 [" + ",".join(["lol"] * 10) + "]"]
    lines += [f"x-{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 30)]
    padding = f"x-pad: {'x' * 3_000_000}\n"
    write(lab, server, HEAD + DISTRIBUTION + MODEL + padding + "\n".join(lines) + "\n")
    assert_refused(lab.call("validate", "spec.yaml"), lab, server)


def test_keys_of_ones_own_are_allowed_and_change_nothing(lab: Lab, server: ModelServer) -> None:
    write(lab, server, HEAD + DISTRIBUTION + MODEL + "x-owner: me\nagent: {x-why: because}\n")
    assert lab.call("validate", "spec.yaml").code == 0
    shown = lab.call("spec.yaml", "--print-config")
    assert shown.code == 0
    assert "x-owner" not in shown.out


def test_all_files_are_validated_and_none_is_run(lab: Lab, server: ModelServer) -> None:
    write(lab, server, HEAD + DISTRIBUTION + MODEL)
    write(lab, server, HEAD + DISTRIBUTION + "modle: {}\n", "other.yaml")
    result = lab.call("validate", "spec.yaml", "other.yaml", "missing.yaml")
    assert_refused(result, lab, server)
    assert "spec.yaml: no mistakes" in result.out
    assert "other.yaml:6:1" in result.err
    assert "missing.yaml" in result.err
