"""The predecessor's command lines with `hermes-run` in place of `python batch_runner.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from tests.flow.lab import Lab, read_lines
from tests.flow.replies import conversations, turns

if TYPE_CHECKING:
    from tests.servers import ModelServer

pytestmark = pytest.mark.slow

BASIC = ("--dataset_file=data.jsonl", "--batch_size=10", "--run_name=my_run")
DOCUMENTED = (
    ("--model=anthropic/claude-sonnet-4.6", "--num_workers=4"),
    ("--resume",),
    ("--reasoning_disabled", "--max_tokens=128000"),
    ("--prefill_messages_file=configs/prefill_opus.json",),
    ("--model=anthropic/claude-sonnet-4.6", "--num_workers=8", "--max_turns=15"),
    ("--providers_allowed=anthropic,openai", "--provider_sort=price", "--reasoning_effort=high"),
    ("--ephemeral_system_prompt=Be brief.", "--log_prefix_chars=40", "--verbose", "--max_samples=2"),
    ("--api_key=sk-none",),
)


@pytest.mark.parametrize("options", DOCUMENTED, ids=range(len(DOCUMENTED)))
def test_documented_commands_run_as_they_are_and_as_their_converted_spec(
    lab: Lab, server: ModelServer, options: tuple[str, ...]
) -> None:
    lab.write_prompts("a", "b", "c")
    (lab.folder / "configs").mkdir()
    (lab.folder / "configs/prefill_opus.json").write_text('[{"role": "user", "content": "hi"}]')
    server.respond = turns(2)
    words = (*BASIC, *options, f"--base_url={server.url}", "--distribution=terminal_only")
    printed = lab.call("convert", "--", "python", "batch_runner.py", *words)
    assert printed.code == 0, printed.err
    (lab.folder / "converted.yaml").write_text(printed.out)
    configs = [lab.call(*command, "--print-config").out for command in (words, ("converted.yaml",))]
    assert yaml.safe_load(configs[0])["run_name"] == "my_run"
    assert configs[0] == configs[1]

    done = lab.call(*words)
    assert done.code == 0, done.err
    lines = read_lines(lab.folder / "data/my_run/trajectories.jsonl")
    assert len(lines) == len(conversations(server)) == (2 if "--max_samples=2" in options else 3)
    asked = len(server.requests)
    again = lab.call("converted.yaml")
    assert again.code == 0, again.err
    assert len(server.requests) == asked


def test_toolsets_that_are_not_there_yet_are_refused_by_name(lab: Lab, server: ModelServer) -> None:
    lab.write_prompts("a")
    for options in ((), ("--distribution=image_gen",)):
        done = lab.call(*BASIC, *options, f"--base_url={server.url}")
        assert done.code == 2
        assert 'the toolset "image_gen" cannot work here' in done.err
        assert "--without" in done.err
    assert not server.requests


def test_the_list_of_distributions_is_shown(lab: Lab) -> None:
    done = lab.call("--list_distributions")
    assert done.code == 0
    assert "terminal_only" in done.out


def test_a_folder_of_the_predecessors_is_not_written_into_and_the_way_in_is_named(
    lab: Lab, server: ModelServer
) -> None:
    lab.write_prompts("a")
    (lab.folder / "data/my_run").mkdir(parents=True)
    (lab.folder / "data/my_run/batch_0.jsonl").write_text('{"prompt_index": 0}\n')
    done = lab.call(*BASIC, f"--base_url={server.url}", "--distribution=terminal_only", "--resume")
    assert done.code == 2
    assert "hermes-run import data/my_run" in done.err
    assert not server.requests
