# ruff: noqa: E501 - whole messages, as people see them
"""What a schema cannot say: files, keys that exclude each other, features that are not there yet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.registry import BACKENDS, ENGINES
from hermes_run.spec.later import NOT_YET
from tests.spec.writing import REQUIRED, load, mistakes, write

if TYPE_CHECKING:
    from pathlib import Path

YET = "not available yet in this version of hermes-run"


def test_a_dataset_that_is_no_file_is_told(folder: Path) -> None:
    (folder / "dir").mkdir()
    os.mkfifo(folder / "pipe")
    for name, what in {
        "rosw.jsonl": f'{folder}/rosw.jsonl does not exist; did you mean "rows.jsonl"; paths count from the folder of '
        "the file they are in",
        "dir": f"{folder}/dir is a folder; name a file in it",
        "pipe": f"{folder}/pipe is no regular file; name one",
        "a" * 300: f"{folder}/{'a' * 300} cannot be found: File name too long; check the path",
    }.items():
        assert mistakes(folder, REQUIRED.replace("rows.jsonl", name)) == [
            f"spec.yaml:2:17: dataset.path: the dataset {what}"
        ]


def test_a_dataset_in_the_run_directory_is_refused(folder: Path) -> None:
    write(folder, '{"prompt": "x"}\n', "data/a/rows.jsonl")
    write(folder, '{"prompt": "x"}\n', "data/rows.jsonl")
    (found,) = mistakes(folder, REQUIRED.replace("rows.jsonl", "data/a/rows.jsonl"))
    assert found == (
        f"spec.yaml:2:17: dataset.path: the dataset lies in the run directory {folder.resolve()}/data/a, where the run "
        "writes; move it elsewhere or choose another run_name"
    )
    assert load(folder, REQUIRED.replace("rows.jsonl", "data/rows.jsonl")).run_name == "a"


def test_an_output_folder_that_is_a_file_is_refused(folder: Path) -> None:
    assert mistakes(folder, REQUIRED + "output: {dir: rows.jsonl}\n") == [
        'spec.yaml:4:15: output.dir: "rows.jsonl" is a file; name a folder'
    ]


def test_the_home_folder_may_be_written_with_a_tilde(folder: Path) -> None:
    write(folder, '{"prompt": "x"}\n', "home/rows.jsonl")
    spec = load(folder, REQUIRED.replace("rows.jsonl", "~/rows.jsonl") + "output: {dir: ~/out}\n")
    assert spec.dataset.path == folder / "home/rows.jsonl"
    assert spec.output.dir == folder / "home/out"


def test_a_path_on_the_command_line_counts_from_the_working_directory(folder: Path) -> None:
    (found,) = mistakes(folder, REQUIRED, sets=["dataset.path=nope.jsonl"])
    assert found.startswith("--set dataset.path: ")
    assert found.endswith("does not exist; paths count from the working directory here")


@pytest.mark.parametrize(
    "key",
    [
        "dataset.path=nope.jsonl",
        "distribution=nope.yaml",
        "agent.prefill_messages_file=nope.json",
        "reuse=[nope]",
        'tools.custom=["nope.py:f"]',
        'tools.custom=[{tool: "nope.py:f"}]',
    ],
)
def test_a_missing_file_is_told_with_where_its_path_counts_from(folder: Path, key: str) -> None:
    (told,) = mistakes(folder, REQUIRED, sets=[key])
    assert "paths count from the working directory here" in told
    name, _, value = key.partition("=")
    for part in reversed(name.split(".")):
        value = f"{{{part}: {value}}}"
    layer = write(folder, value[1:-1], "layer.yaml")
    written = REQUIRED.replace("dataset: {path: rows.jsonl}\n", "") if "dataset" in key else REQUIRED
    (told,) = mistakes(folder, f"extends: {layer.name}\n{written}")
    assert told.startswith("layer.yaml:1:")
    assert "paths count from the folder of the file they are in" in told


# ------------------------------------------------------------------ the model

MODEL = [
    (
        "model: {name: scripted}",
        "4:15: model.name: scripted needs a tape; add model.script: the path of a YAML file of replies",
    ),
    (
        "model: {script: tape.yaml}",
        (
            '4:17: model.script: is the tape of model.name: scripted, and the model is "anthropic/claude-sonnet-4.6"; set '
            "it to null (--set model.script=null) or name scripted"
        ),
    ),
    (
        "model: {name: scripted, script: taep.yaml}",
        (
            '4:33: model.script: the tape {folder}/taep.yaml does not exist; did you mean "tape.yaml"; paths count from '
            "the folder of the file they are in"
        ),
    ),
    (
        "model: {endpoint: local, base_url: http://127.0.0.1:1}",
        "4:36: model.base_url: cannot stand beside model.endpoint, which brings its own; take one of them out",
    ),
    (
        "model: {base_url: [http://a, https://api.openai.com/v1], api_key_env: null}",
        (
            "4:19: model.base_url: a list is of replicas, which serve one model alike, and these speak generic, "
            "openai; write endpoints of one kind"
        ),
    ),
    (
        "model: {base_url: [http://a, http://a]}",
        '4:30: model.base_url[1]: "http://a" stands there twice; take one of them out',
    ),
    (
        "model: {base_url: [http://a/v1, http://a/v1/]}",
        '4:33: model.base_url[1]: "http://a/v1/" stands there twice; take one of them out',
    ),
    (
        "model: {base_url: [http://a, b]}",
        (
            "4:30: model.base_url[1]: must begin with https:// (or http:// for this machine), such as "
            "http://127.0.0.1:8000/v1"
        ),
    ),
    (
        "model: {idle_timeout_s: 5}",
        "4:25: model.idle_timeout_s: is about the pauses of a stream; add model.stream: true, or take it out",
    ),
    (
        "provider_routing: {allowed: [a, b], ignored: [c, b]}",
        '4:50: provider_routing.ignored[1]: "b" stands in provider_routing.allowed too; take it out of one of them',
    ),
    (
        "provider_routing: {allowed: [A], ignored: [a]}",
        '4:44: provider_routing.ignored[0]: "a" stands in provider_routing.allowed too; take it out of one of them',
    ),
    (
        "provider_routing: {order: [b], ignored: [b]}",
        '4:42: provider_routing.ignored[0]: "b" stands in provider_routing.order too; take it out of one of them',
    ),
    (
        "limits: {total_cost: 2, prompt_cost: 2.5}",
        (
            "4:38: limits.prompt_cost: is more than limits.total_cost (2), so that no rollout would fit; lower it or raise "
            "the total"
        ),
    ),
    (
        "limits: {prompt_tokens: 2000000, total_tokens: 1234567}",
        (
            "4:25: limits.prompt_tokens: is more than limits.total_tokens (1234567), so that no rollout would fit; lower it "
            "or raise the total"
        ),
    ),
]


@pytest.mark.parametrize(("text", "message"), MODEL)
def test_keys_that_do_not_go_together_are_told(folder: Path, text: str, message: str) -> None:
    from hermes_run.spec.model import EndpointSetting, Settings

    write(folder, "replies: []\n", "tape.yaml")
    settings = Settings(endpoints={"local": EndpointSetting(base_url="http://127.0.0.1:1")})
    found = mistakes(folder, REQUIRED + text + "\n", settings=settings)
    assert found == [f"spec.yaml:{message}".replace("{folder}", str(folder))]


def test_a_wrong_model_name_does_not_make_a_second_mistake_of_its_tape(folder: Path) -> None:
    write(folder, "replies: []\n", "tape.yaml")
    assert len(mistakes(folder, REQUIRED + "model: {name: 4, script: tape.yaml}\n")) == 1


# ------------------------------------------------------------------ own toolsets

TOOLSETS = [
    (
        "own: [terminl]",
        '4:18: toolsets.own[0]: there is no tool or toolset "terminl"; did you mean "terminal"?',
    ),
    (
        "a: [b], b: [a]",
        '4:15: toolsets.a: toolset "a" includes itself: a -> b -> a; take one of them out',
    ),
]


def test_own_toolsets_may_hold_tools_toolsets_and_each_other(folder: Path) -> None:
    text = "toolsets: {own: [read_file, todo, other], other: [terminal]}\ndistribution: {own: 100}\n"
    spec = load(folder, REQUIRED + text)
    assert spec.toolsets == {"own": ("read_file", "todo", "other"), "other": ("terminal",)}


@pytest.mark.parametrize(("text", "message"), TOOLSETS)
def test_a_toolset_of_nothing_known_is_refused(folder: Path, text: str, message: str) -> None:
    assert mistakes(folder, REQUIRED + f"toolsets: {{{text}}}\n")[0] == f"spec.yaml:{message}"


def test_an_unknown_tool_lists_what_there_is(folder: Path) -> None:
    (found,) = mistakes(folder, REQUIRED + "toolsets: {own: [qqqq]}\n")
    assert "; tools: terminal, process, read_file" in found


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("none/web.jsonl", "the folder {folder}/none of the cassette does not exist; make it"),
        (".", "the cassette {folder} is a folder; name a file in it"),
    ],
)
def test_a_cassette_that_cannot_be_recorded_is_told_before_the_run(
    folder: Path, path: str, said: str
) -> None:
    (found,) = mistakes(folder, REQUIRED + f"tools: {{web: {{cassette: {path}}}}}\n")
    assert found == f"spec.yaml:4:25: tools.web.cassette: {said.format(folder=folder)}"
    assert load(folder, REQUIRED + "tools: {web: {cassette: web.jsonl}}\n").tools.web.cassette is not None


# ------------------------------------------------------------------ features that are not there yet

USED: dict[tuple[str, ...], Any] = {
    ("sandbox", "image"): "debian",
    ("sandbox", "artifacts"): '["*.txt"]',
    ("sandbox", "diff"): "true",
    ("tools", "custom"): '["a.py:f"]',
    ("tools", "mcp"): "[{name: a, command: b}]",
    ("tools", "allowed_hosts"): "[a.example]",
    ("checks",): "[{a: 1}]",
    ("limits", "total_cost"): "1.5",
    ("limits", "total_tokens"): "1",
    ("limits", "prompt_cost"): "1",
    ("limits", "prompt_tokens"): "1",
    ("limits", "requests_per_minute"): "1",
    ("limits", "tokens_per_minute"): "1",
    ("engine", "processes"): "2",
}


@pytest.mark.parametrize("path", NOT_YET, ids=".".join)
def test_a_key_without_its_feature_is_refused_and_never_ignored(folder: Path, path: tuple[str, ...]) -> None:
    key = ".".join(path)
    (found,) = mistakes(folder, REQUIRED, sets=[f"{key}={USED[path]}"])
    assert found == f"--set {key}: is {YET}; take it out"


def test_their_defaults_are_accepted(folder: Path) -> None:
    text = (
        "checks: []\nreuse: []\nlimits: {total_cost: null}\nengine: {name: local, processes: 1}\n"
        "tools: {custom: []}\nsandbox: {image: null, diff: false, artifacts: []}\n"
    )
    assert load(folder, REQUIRED + text).engine.processes == 1


@pytest.mark.parametrize(("key", "table"), [("sandbox.backend", BACKENDS), ("engine.name", ENGINES)])
def test_a_backend_or_engine_of_a_later_version_is_refused(
    folder: Path, key: str, table: dict[str, Any]
) -> None:
    there = ", ".join(name for name, row in table.items() if row.path)
    for name in [name for name, row in table.items() if not row.path]:
        assert mistakes(folder, REQUIRED, sets=[f"{key}={name}"]) == [
            f"--set {key}: {name} is {YET}; available: {there}"
        ]


# ------------------------------------------------------------------ no interpolation

VARIABLES = [
    ("output: {dir: '${OUT}/x'}", ("4:15: output.dir: ${OUT} would not be replaced, there is no variable interpolation; "
     "write the value itself, or give it on the command line: --set output.dir=VALUE")),
    ("output: {dir: $HOME/x}", "4:15: output.dir: $HOME would not"),
    ("workers: ${UNSET_VAR}", "4:10: workers: ${UNSET_VAR} would not"),
    ("model: {name: '${M:-gpt}'}", "4:15: model.name: ${M:-gpt} would not"),
    ("without: ['${A}']", "4:11: without[0]: ${A} would not"),
    ("model: {extra_body: {a: '${A}'}}", "4:25: model.extra_body.a: ${A} would not"),
    ("model: {api_key_env: $OPENROUTER_API_KEY}", ("4:22: model.api_key_env: $OPENROUTER_API_KEY would not be replaced, "
     "there is no variable interpolation; this key wants the variable's name: write OPENROUTER_API_KEY")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), VARIABLES)
def test_a_variable_that_waits_for_a_value_is_told(folder: Path, text: str, message: str) -> None:
    (found,) = mistakes(folder, REQUIRED + text + "\n")
    assert found.startswith(f"spec.yaml:{message}")


def test_texts_for_a_shell_or_a_model_keep_their_dollars(folder: Path) -> None:
    text = (
        "sandbox: {setup: ['export A=${HOME}']}\nagent: {system_prompt: '$X and ${Y}'}\n"
        "model: {extra_body: {a: 'costs ${A} or so'}}\nx-mine: ${Z}\n"
    )
    assert load(folder, REQUIRED + text).sandbox.setup == ("export A=${HOME}",)
