# ruff: noqa: E501 - whole messages, as people see them
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.errors import SpecError
from hermes_run.spec.flags import BY_DEST, FLAGS, spec_from_flags
from hermes_run.spec.load import load_spec
from hermes_run.spec.schema import load_schema
from hermes_run.spec.shape import key_paths
from tests.spec.writing import REQUIRED, load, mistakes

if TYPE_CHECKING:
    from pathlib import Path

PREDECESSOR = {
    "dataset_file": "dataset.path", "batch_size": "batch_size", "run_name": "run_name",
    "distribution": "distribution", "model": "model.name", "base_url": "model.base_url",
    "max_turns": "agent.max_turns", "num_workers": "workers", "verbose": "logging.verbose",
    "max_samples": "dataset.max_samples", "max_tokens": "model.max_tokens",
    "providers_allowed": "provider_routing.allowed", "providers_ignored": "provider_routing.ignored",
    "providers_order": "provider_routing.order", "provider_sort": "provider_routing.sort",
    "reasoning_effort": "reasoning.effort", "reasoning_disabled": "reasoning.disabled",
    "ephemeral_system_prompt": "agent.ephemeral_system_prompt", "log_prefix_chars": "logging.log_prefix_chars",
    "prefill_messages_file": "agent.prefill_messages_file",
}  # fmt: skip


def test_every_option_of_the_predecessor_has_its_key() -> None:
    found = {dest: ".".join(flag.key) for dest, flag in BY_DEST.items()}
    assert found.items() >= PREDECESSOR.items()
    assert set(found) - set(PREDECESSOR) == {"without"}


def test_every_option_sets_a_key_that_the_schema_has() -> None:
    known = set(key_paths(load_schema("run-spec")))
    assert {flag.key for flag in FLAGS} <= known


def test_no_name_is_given_twice() -> None:
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))
    assert {"--workers", "-v"} <= set(names)


def test_an_old_command_line_makes_a_spec(folder: Path) -> None:
    flags = {
        "dataset_file": "rows.jsonl", "batch_size": "5", "run_name": "r", "distribution": "terminal_only",
        "model": "m", "base_url": "http://127.0.0.1:1/v1", "max_turns": "7", "num_workers": "2", "verbose": True,
        "max_samples": "3", "max_tokens": "9", "providers_allowed": "a,b", "providers_ignored": ["c"],
        "providers_order": "b", "provider_sort": "price", "reasoning_effort": "high", "reasoning_disabled": "true",
        "ephemeral_system_prompt": "on", "log_prefix_chars": "20", "prefill_messages_file": None,
        "without": "web, file",
    }  # fmt: skip
    spec = load_spec(None, flags={**flags, "without": "web"})
    assert (spec.dataset.path, spec.dataset.max_samples) == (folder / "rows.jsonl", 3)
    assert (spec.batch_size, spec.run_name, spec.workers, spec.distribution.name) == (
        5,
        "r",
        2,
        "terminal_only",
    )
    assert (spec.model.name, spec.model.base_url, spec.model.max_tokens) == ("m", "http://127.0.0.1:1/v1", 9)
    routing = spec.provider_routing
    assert (routing.allowed, routing.ignored, routing.order, routing.sort) == (
        ("a", "b"),
        ("c",),
        ("b",),
        "price",
    )
    assert (spec.reasoning.effort, spec.reasoning.disabled) == ("high", True)
    assert (spec.agent.max_turns, spec.agent.ephemeral_system_prompt) == (7, "on")
    assert (spec.logging.verbose, spec.logging.log_prefix_chars, spec.without) == (True, 20, ("web",))
    assert spec_from_flags(flags)["without"] == ["web", "file"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_turns": "abc"}, '--max-turns: agent.max_turns: must be a whole number, not "abc"'),
    ({"max_turns": "0"}, "--max-turns: agent.max_turns: must be 1 or more, not 0"),
    ({"num_workers": "2.5"}, '--num-workers: workers: must be a whole number, not "2.5"'),
    (
        {"reasoning_disabled": "maybe"},
        '--reasoning-disabled: reasoning.disabled: must be true or false, not "maybe"; the option alone means true',
    ),
    (
        {"reasoning_effort": "off"},
        (
            "--reasoning-effort: reasoning.effort: must be one of none, minimal, low, medium, high, xhigh, max, ultra, "
            'null, not "off"; write none to switch reasoning off'
        ),
    ),
    (
        {"provider_sort": "prise"},
        (
            '--provider-sort: provider_routing.sort: must be one of price, throughput, latency, null, not "prise"; did '
            'you mean "price"?'
        ),
    ),
    ({"model": ""}, "--model: model.name: must not be empty; write a value or take the key out"),
]


@pytest.mark.parametrize(("flags", "message"), WRONG)
def test_a_mistake_is_located_at_the_option(folder: Path, flags: dict[str, Any], message: str) -> None:
    assert mistakes(folder, REQUIRED, flags=flags) == [message]


def test_a_file_of_an_option_is_looked_for_in_the_working_directory(folder: Path) -> None:
    (found,) = mistakes(folder, REQUIRED, flags={"dataset_file": "nope"})
    assert found.startswith(f"--dataset-file: dataset.path: the dataset {folder}/nope does not exist")


def test_values_that_cannot_be_read_are_refused_when_there_is_no_spec_either() -> None:
    with pytest.raises(SpecError, match=r"^--max-turns: "):
        spec_from_flags({"max_turns": "x"})


def test_an_option_wins_over_the_file_and_unset_ones_say_nothing(folder: Path) -> None:
    spec = load(folder, REQUIRED + "workers: 3\n", flags={"num_workers": None, "max_turns": 2})
    assert (spec.workers, spec.agent.max_turns) == (3, 2)
