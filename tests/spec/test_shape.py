# ruff: noqa: E501 - whole messages, as people see them
"""Keys that do not exist, stand in the wrong place, or hold the wrong thing (case C28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spec.writing import REQUIRED, load, mistakes

if TYPE_CHECKING:
    from pathlib import Path

WRONG = [
    # a misspelt key, a key in the wrong place, a key of another program
    ("modle: {name: x}", '4:1: modle: unknown key; did you mean "model"?'),
    ("model: {seed: 3}", "4:9: model.seed: unknown key here; it belongs at seed or model.sampling.seed"),
    ("max_turns: 3", "4:1: max_turns: unknown key; write it as agent.max_turns"),
    (
        "endpoints: {}",
        "4:1: endpoints: unknown key; it describes the machine, not the run, and belongs into hermes.yaml",
    ),
    (
        "prices: {}",
        "4:1: prices: unknown key; it describes the machine, not the run, and belongs into hermes.yaml",
    ),
    ("backend: local", "4:1: backend: unknown key here; it belongs at sandbox.backend"),
    (
        "model: {temperatur: 1}",
        '4:9: model.temperatur: unknown key; did you mean "model.sampling.temperature"?',
    ),
    ("reasoning_effort: hihg", "4:1: reasoning_effort: unknown key; write it as reasoning.effort"),
    ("num_workers: 3", "4:1: num_workers: unknown key; write it as workers"),
    ("resume: yes please", "4:1: resume: unknown key; it is an option of the command line: --resume"),
    (
        "logging: {zzz: 1}",
        "4:11: logging.zzz: unknown key; known here: verbose, log_prefix_chars; your own keys begin with x-",
    ),
    # a wrong word
    (
        "reasoning: {effort: hihg}",
        (
            "4:21: reasoning.effort: must be one of none, minimal, low, medium, high, xhigh, max, ultra, null, not "
            '"hihg"; did you mean "high"?'
        ),
    ),
    (
        'reasoning: {effort: "off"}',
        (
            "4:21: reasoning.effort: must be one of none, minimal, low, medium, high, xhigh, max, ultra, null, not "
            '"off"; write none to switch reasoning off'
        ),
    ),
    (
        "reasoning: {effort: off}",
        (
            "4:21: reasoning.effort: YAML reads off without quotes as false; write none to switch it off, or null to "
            "leave it unset"
        ),
    ),
    (
        "reasoning: {effort: no}",
        (
            "4:21: reasoning.effort: YAML reads no without quotes as false; write none to switch it off, or null to "
            "leave it unset"
        ),
    ),
    (
        "reasoning: {effort: on}",
        (
            "4:21: reasoning.effort: YAML reads on without quotes as true; write one of none, minimal, low, medium, "
            "high, xhigh, max, ultra, null"
        ),
    ),
    (
        "sandbox: {network: Full}",
        '4:20: sandbox.network: must be one of none, full, not "Full"; did you mean "full"?',
    ),
    # a wrong kind
    ('workers: "8"', '4:10: workers: must be a whole number, not the text "8"; take the quotes away'),
    (
        "workers: 8 GB",
        '4:10: workers: must be a whole number, not the text "8 GB"; write a number without a unit',
    ),
    ("workers: 2.5", "4:10: workers: must be a whole number, not 2.5"),
    ("workers: yes", "4:10: workers: must be a whole number, not true"),
    ("workers:", "4:9: workers: must be a whole number, and is empty; write a value or take the key out"),
    ("model: {name: 4.6}", '4:15: model.name: must be text, and 4.6 without quotes is a number; write "4.6"'),
    ("model: {name: no}", '4:15: model.name: YAML reads no without quotes as false; write "no" in quotes'),
    (
        'filters: {require_reasoning: "true"}',
        (
            '4:30: filters.require_reasoning: must be true or false, not the text "true"; write true or false without '
            "quotes"
        ),
    ),
    ("agent: 10", "4:8: agent: must be a map, not 10"),
    ("agent: fast", '4:8: agent: must be a map, not the text "fast"; write keys below it'),
    ("model: []", "4:8: model: must be a map, not a list"),
    ("without: web", '4:10: without: must be a list, not the text "web"; write ["web"]'),
    ("without: [web, 3]", '4:16: without[1]: must be text, and 3 without quotes is a number; write "3"'),
    # out of bounds
    ("agent: {max_turns: 0}", "4:20: agent.max_turns: must be 1 or more, not 0"),
    ("model: {sampling: {temperature: -1}}", "4:33: model.sampling.temperature: must be 0 or more, not -1"),
    ("model: {sampling: {top_p: 1.1}}", "4:27: model.sampling.top_p: must be 1 or less, not 1.1"),
    ("model: {request_timeout_s: 0}", "4:28: model.request_timeout_s: must be more than 0, not 0"),
    ("model: {name: ''}", "4:15: model.name: must not be empty; write a value or take the key out"),
    (
        "toolsets: {own: []}",
        "4:17: toolsets.own: must not be an empty list; write a value or take the key out",
    ),
    ("sandbox: {cwd: work}", '4:16: sandbox.cwd: must be an absolute path inside the sandbox, unlike "work"'),
    ("samples: 99999999999", "4:10: samples: must be 1000000 or less, not 99999999999"),
    ("distribution: {}", "4:15: distribution: must not be an empty map; write a value or take the key out"),
    ("distribution: {terminal: 140}", "4:26: distribution.terminal: must be 100 or less, not 140"),
    ("distribution: {terminal: -1}", "4:26: distribution.terminal: must be 0 or more, not -1"),
    (
        "tools: {mcp: [{command: x}]}",
        "4:15: tools.mcp[0].name: is required and missing; add name: …",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_key_or_value_is_told_with_its_cure(folder: Path, text: str, message: str) -> None:
    assert mistakes(folder, REQUIRED + text + "\n") == [f"spec.yaml:{message}"]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../a", "a/b", ".hidden", "a b", "a\n", "ä", "a" * 129],
)
def test_a_run_name_that_is_no_folder_name_is_refused(folder: Path, name: str) -> None:
    import json

    text = REQUIRED.replace("run_name: a", f"run_name: {json.dumps(name)}")
    (found,) = mistakes(folder, text)
    assert found.startswith("spec.yaml:1:11: run_name: must ")


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "a" * 128, "-x", "_"])
def test_a_run_name_of_the_contract_is_accepted(folder: Path, name: str) -> None:
    assert load(folder, REQUIRED.replace("run_name: a", f"run_name: {name!r}")).run_name == name


def test_a_key_with_line_ends_cannot_break_the_list_of_mistakes(folder: Path) -> None:
    assert mistakes(folder, REQUIRED + '"evil\\n\\e[31m: 1": 1\n') == [
        (
            'spec.yaml:4:1: "evil\\n\\u001b[31m: 1": unknown key; known here: extends, run_name, dataset, batch_size, '
            "workers, samples, seed, distribution, without, model, provider_routing, reasoning, agent, sandbox, "
            "toolsets, tools, filters, checks, limits, engine, reuse, output, logging; your own keys begin with x-"
        )
    ]


def test_one_value_has_one_mistake(folder: Path) -> None:
    assert len(mistakes(folder, REQUIRED + "reasoning: {effort: 3}\nsandbox: {backend: []}\n")) == 2


def test_whole_floats_are_whole_numbers(folder: Path) -> None:
    spec = load(folder, REQUIRED + "workers: 8.0\nmodel: {extra_body: {a: 8.0}}\n")
    assert (spec.workers, type(spec.workers)) == (8, int)
    assert type(spec.model.extra_body["a"]) is float
