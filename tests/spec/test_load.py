# ruff: noqa: E501 - whole messages, as people see them
"""From files and options to a Spec: layers, mistakes all at once, and back to YAML."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_run.errors import SpecError
from hermes_run.spec.load import dump_effective, load_effective, load_spec
from hermes_run.spec.model import DEFAULT_BASE_URL, DEFAULT_MODEL, Spec
from tests.spec.writing import REQUIRED, load, mistakes, mistakes_of_options, write

ROOT = Path(__file__).parent.parent.parent


def test_a_minimal_spec_gets_the_contracts_defaults(folder: Path) -> None:
    spec = load(folder, REQUIRED)
    assert spec.dataset.path == folder / "rows.jsonl"
    assert (spec.workers, spec.samples, spec.seed, spec.agent.max_turns) == (4, 1, 0, 10)
    assert (spec.model.name, spec.model.base_url) == (DEFAULT_MODEL, DEFAULT_BASE_URL)
    assert spec.model.api_key_env == "OPENROUTER_API_KEY"
    assert list(spec.distribution.toolsets) == ["web", "vision", "image_gen", "terminal", "file", "browser"]
    assert spec.reasoning.effort is None
    assert spec.output.dir == Path("data")
    assert spec.sources == (folder / "spec.yaml",)


def test_all_mistakes_of_a_file_are_told_at_once_each_with_place_key_and_cure(folder: Path) -> None:
    text = """\
run_name: a
dataset: {path: nope.jsonl}
batch_size: "8"
modle: {}
agent: {max_turns: 0}
without: web
"""
    assert mistakes(folder, text) == [
        (
            f"spec.yaml:2:17: dataset.path: the dataset {folder}/nope.jsonl does not exist; paths count "
            "from the folder of the file they are in"
        ),
        'spec.yaml:3:13: batch_size: must be a whole number, not the text "8"; take the quotes away',
        'spec.yaml:4:1: modle: unknown key; did you mean "model"?',
        "spec.yaml:5:20: agent.max_turns: must be 1 or more, not 0",
        'spec.yaml:6:10: without: must be a list, not the text "web"; write ["web"]',
    ]


def test_missing_required_keys_are_told_one_by_one(folder: Path) -> None:
    found = mistakes(folder, "dataset: {}\n")
    assert [line.split(";")[0] for line in found] == [
        "spec.yaml:1:1: run_name: is required and missing",
        "spec.yaml:1:1: batch_size: is required and missing",
        "spec.yaml:1:1: dataset.path: is required and missing",
    ]


def test_keys_of_ones_own_are_allowed_at_every_level(folder: Path) -> None:
    text = (
        "x-owner: {a: [1]}\ndistribution: {x-why: because, terminal: 100}\ntoolsets: {x-note: 3}\n"
        "model: {x-a: 1, sampling: {x-b: 2}, extra_body: {x-c: 3}}\n"
    )
    spec = load(folder, REQUIRED.replace("{path", "{x-d: 1, path") + text)
    assert spec.distribution.toolsets == {"terminal": 100}
    assert spec.toolsets == {}
    assert spec.model.extra_body == {"x-c": 3}  # that one goes to the provider as it is


# ------------------------------------------------------------------ extends, --set, options


def test_maps_merge_deeply_through_extends_and_the_file_wins(folder: Path) -> None:
    write(folder, "model: {name: base, sampling: {top_p: 0.5, seed: 1}}\nwithout: [web]\n", "deep/a.yaml")
    write(folder, "extends: deep/a.yaml\nmodel: {max_tokens: 7, sampling: {seed: 2}}\n", "b.yaml")
    spec = load(folder, REQUIRED + "extends: b.yaml\nwithout: [file]\nmodel: {sampling: {seed: 3}}\n")
    assert (spec.model.name, spec.model.max_tokens) == ("base", 7)
    assert (spec.model.sampling.top_p, spec.model.sampling.seed) == (0.5, 3)
    assert spec.without == ("file",)  # a list is not merged
    assert spec.sources == (folder / "spec.yaml", folder / "b.yaml", folder / "deep/a.yaml")


def test_paths_count_from_the_file_they_are_written_in(folder: Path) -> None:
    write(folder, '[{"role": "user", "content": "hi"}]', "common/prefill.json")
    write(folder, "agent: {prefill_messages_file: prefill.json}\n", "common/base.yaml")
    write(folder, '{"prompt": "x"}', "sets/rows.jsonl")
    text = "extends: ../common/base.yaml\nrun_name: a\nbatch_size: 1\ndataset: {path: ../sets/rows.jsonl}\n"
    spec = load_spec(write(folder, text, "runs/a.yaml"))
    assert spec.agent.prefill_messages_file == folder / "common/prefill.json"
    assert spec.dataset.path == folder / "sets/rows.jsonl"
    assert spec.prefill == ({"role": "user", "content": "hi"},)


def test_mistakes_behind_extends_point_into_the_file_that_has_them(folder: Path) -> None:
    write(folder, "agent:\n  max_turn: 3\nmodel: {name: 3}\nworkers: 1\nworkers: 2\n", "base.yaml")
    assert mistakes(folder, REQUIRED + "extends: base.yaml\nsamples: 0\n") == [
        "spec.yaml:5:10: samples: must be 1 or more, not 0",
        'base.yaml:2:3: agent.max_turn: unknown key; did you mean "max_turns"?',
        'base.yaml:3:15: model.name: must be text, and 3 without quotes is a number; write "3"',
        "base.yaml:5:1: workers: is written twice, first in line 4, column 1; keep one",
    ]


def test_a_circle_of_extends_is_refused(folder: Path) -> None:
    write(folder, "extends: spec.yaml\n", "b.yaml")
    assert mistakes(folder, REQUIRED + "extends: b.yaml\n") == [
        "b.yaml:1:10: extends: goes round in a circle (spec.yaml -> b.yaml -> spec.yaml); take one of them out"
    ]
    assert "goes round in a circle" in mistakes(folder, REQUIRED + "extends: spec.yaml\n")[0]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("bsae.yaml", 'there is no file bsae.yaml; did you mean "base.yaml"; name a spec file'),
        (".", "is a folder; name a spec file"),
        ("[a.yaml]", "must be the path of a spec file, not a list"),
        ('""', 'must be the path of a spec file, not ""'),
    ],
)
def test_extends_that_leads_nowhere_is_told_where_it_is_written(folder: Path, value: str, what: str) -> None:
    write(folder, "workers: 1\n", "base.yaml")
    (found,) = mistakes(folder, REQUIRED + f"extends: {value}\n")
    assert found.startswith(f"spec.yaml:4:10: extends: {what}")


def test_the_file_is_overridden_by_options_and_these_by_set(folder: Path) -> None:
    text = REQUIRED + "workers: 1\nsamples: 2\nagent: {max_turns: 3}\n"
    options: dict[str, Any] = {"flags": {"num_workers": "5", "max_turns": "6"}, "sets": ["workers=7"]}
    spec = load(folder, text, **options)
    assert (spec.workers, spec.agent.max_turns, spec.samples) == (7, 6, 2)


def test_a_working_directory_that_is_gone_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    with pytest.raises(SpecError, match="the working directory does not exist any more"):
        load_spec(folder / "spec.yaml")


def test_set_takes_yaml_and_replaces_what_was_there(folder: Path) -> None:
    sets = [
        "distribution={terminal: 100}",
        "model.sampling.stop=[a, 'b']",
        "without=[]",
        "model.max_tokens=",
        "model.extra_body={}",
        "run_name='7'",
        "workers=2",
        "workers=3",
    ]
    text = REQUIRED + "distribution: {web: 50}\nwithout: [web]\nmodel: {max_tokens: 5, extra_body: {a: 1}}\n"
    spec = load(folder, text, sets=sets)
    assert spec.distribution.toolsets == {"terminal": 100}
    assert spec.model.sampling.stop == ("a", "b")
    assert (spec.without, spec.model.max_tokens, spec.model.extra_body) == ((), None, {})
    assert (spec.run_name, spec.workers) == ("7", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers", '--set: --set needs KEY=VALUE, such as model.name=scripted, not "workers"'),
        ("=3", '--set: --set needs KEY=VALUE, such as model.name=scripted, not "=3"'),
        ("a..b=3", '--set: --set needs KEY=VALUE, such as model.name=scripted, not "a..b=3"'),
        ("worker=3", '--set worker: unknown key; did you mean "workers"?'),
        ('workers="3"', '--set workers: must be a whole number, not the text "3"; take the quotes away'),
        ("workers.x=3", "--set workers.x: workers: must be a whole number, not a map"),
        ("workers=[", "--set workers: is no YAML: did not find expected node content"),
        ("agent={max_turn: 3}", '--set agent: agent.max_turn: unknown key; did you mean "max_turns"?'),
        ("agent={max_turns: 1, max_turns: 2}", "--set agent: agent.max_turns: is written twice, first in line 1"),
        (
            "reasoning.effort=off",
            ("--set reasoning.effort: YAML reads off without quotes as false; write none to switch it off, or null to "
            "leave it unset"),
        ),
        ("workers=1\n---\n2", "--set workers: a second YAML document begins here"),
        ("run_name=\udcff", "--set run_name: the character U+DCFF cannot stand in YAML; take it out"),
    ],
)  # fmt: skip
def test_a_mistake_of_set_is_located_at_it(folder: Path, text: str, message: str) -> None:
    found = mistakes(folder, REQUIRED, sets=[text])
    assert found[0].startswith(message)


def test_paths_of_the_command_line_count_from_the_working_directory(folder: Path) -> None:
    write(folder, '{"prompt": "x"}', "mine/rows.jsonl")
    path = write(folder, REQUIRED, "runs/a.yaml")
    assert (
        load_spec(path, flags={"dataset_file": "mine/rows.jsonl"}).dataset.path == folder / "mine/rows.jsonl"
    )
    assert load_spec(path, sets=["dataset.path=mine/rows.jsonl"]).dataset.path == folder / "mine/rows.jsonl"


def test_extends_can_be_set_and_unset_on_the_command_line(folder: Path) -> None:
    write(folder, "workers: 9\n", "base.yaml")
    write(folder, "samples: 9\n", "other.yaml")
    text = REQUIRED + "extends: base.yaml\n"
    assert load(folder, text, sets=["extends=other.yaml"]).samples == 9
    assert load(folder, text, sets=["extends=other.yaml"]).workers == 4
    assert load(folder, text, sets=["extends=null"]).workers == 4


def test_mistakes_of_all_sources_come_together_in_order(folder: Path) -> None:
    found = mistakes(folder, REQUIRED + "workers: 0\n", sets=["samples=0"], flags={"max_turns": "0"})
    assert found == [
        "spec.yaml:4:10: workers: must be 1 or more, not 0",
        "--max-turns: agent.max_turns: must be 1 or more, not 0",
        "--set samples: must be 1 or more, not 0",
    ]


# ------------------------------------------------------------------ options alone


def test_three_options_make_a_spec_without_a_file(folder: Path) -> None:
    flags = {
        "dataset_file": "rows.jsonl",
        "batch_size": "10",
        "run_name": "old_command",
        "providers_allowed": "a, b",
    }
    spec = load_spec(None, flags=flags)
    assert (spec.run_name, spec.batch_size) == ("old_command", 10)
    assert spec.dataset.path == folder / "rows.jsonl"
    assert spec.provider_routing.allowed == ("a", "b")
    assert spec.sources == ()


@pytest.mark.usefixtures("folder")
def test_options_without_a_file_say_which_are_missing() -> None:
    assert mistakes_of_options(flags={"run_name": "a"}) == [
        "command line: no spec file is given; name one, or add --dataset-file, --batch-size"
    ]


# ------------------------------------------------------------------ the effective spec

EVERYTHING = """\
samples: 3
seed: -5
distribution: {terminal: 80.5, file: 20, own: 100, todo: 0}
without: [file]
toolsets: {own: [web_search, terminal]}
model:
  name: m
  base_url: http://127.0.0.1:8000/v1
  max_tokens: 5
  sampling: {temperature: 0, stop: ["1e5", "yes", "007", "a: b", "~"]}
  extra_body: {a: [1, 2.5, null, "1_0"], "yes": {x-y: 08.5}}
provider_routing: {allowed: [a], order: [a], sort: price}
reasoning: {effort: none}
agent:
  system_prompt: "two\\nlines \\n\\n"
  ephemeral_system_prompt: " leading: and 'quotes' # no comment"
sandbox: {backend: bubblewrap, cwd: /w, setup: ["echo ${HOME}", "x\\ny"], cpus: 0.5}
logging: {verbose: yes}
"""


@pytest.mark.parametrize("more", ["", EVERYTHING])
def test_the_effective_spec_is_a_valid_spec_that_means_the_same(folder: Path, more: str) -> None:
    spec = load(folder, REQUIRED + more)
    again = load(folder, dump_effective(spec))
    assert replace(again, sources=()) == replace(spec, sources=())
    assert dump_effective(again) == dump_effective(spec)


def test_the_effective_spec_has_every_key_of_the_contract_in_its_order(folder: Path) -> None:
    whole = load_effective(load(folder, REQUIRED))
    assert list(whole) == [
        "run_name", "dataset", "batch_size", "workers", "samples", "seed", "distribution", "without", "model",
        "provider_routing", "reasoning", "agent", "sandbox", "toolsets", "tools", "filters", "checks", "limits",
        "engine", "reuse", "output", "logging",
    ]  # fmt: skip
    assert whole["limits"] == dict.fromkeys(whole["limits"])
    assert len(whole["limits"]) == 6
    web = {"search": None, "extract": None, "cassette": None, "replay_only": False}
    assert whole["tools"] == {"custom": [], "mcp": [], "allowed_hosts": [], "web": web}
    assert whole["distribution"] == "default"
    assert yaml.safe_load(dump_effective(load(folder, REQUIRED))) == whole


TEXTS = st.text(max_size=40).filter(lambda text: not re.search(r"\$\{|[\0\ud800-\udfff]", text))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS.map(lambda t: f"f{t}"), inside, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(prompt=TEXTS, body=st.dictionaries(TEXTS.map(lambda text: f"f{text}"), JSON, max_size=3))
def test_any_text_and_any_body_survive_the_way_to_yaml_and_back(
    folder: Path, prompt: str, body: dict[str, Any]
) -> None:
    spec = load(folder, REQUIRED)
    agent, model = replace(spec.agent, system_prompt=prompt), replace(spec.model, extra_body=body)
    changed = replace(spec, agent=agent, model=model)
    again = load(folder, dump_effective(changed))
    assert again.agent.system_prompt == prompt
    assert again.model.extra_body == body


# ------------------------------------------------------------------ nothing but SpecError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=8), inside, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["dataset", "workers", "model", "reasoning", "distribution", "without", "toolsets", "tools", "sandbox", "agent",
     "extends", "seed", "limits", "output", "run_name", "engine", "checks", "x-a", "provider_routing", "filters"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_values_at_any_key_are_a_spec_or_a_spec_error(folder: Path, values: dict[str, Any]) -> None:
    path = write(folder, REQUIRED, "base.yaml")
    text = yaml.dump({"extends": str(path), **values}, allow_unicode=True)
    (folder / "spec.yaml").write_text(text, encoding="utf-8", errors="replace")
    try:
        found = load_spec(Path("spec.yaml"))
    except SpecError as error:
        lines = str(error).splitlines()
        assert lines
        assert all(re.match(r"(spec|base)\.yaml(:\d+:\d+)?: ", line) for line in lines), lines
    else:
        assert isinstance(found, Spec)


@pytest.mark.parametrize("name", ["base", "coding_v1", "eval_v1", "quickstart"])
def test_every_spec_of_the_repository_is_valid(name: str) -> None:
    assert load_spec(ROOT / f"runs/{name}.yaml").run_name == name


def test_a_spec_is_loaded_in_a_quarter_of_a_second_of_processor_time(folder: Path) -> None:
    """The budget of `hermes-run validate` is 0.4 s; this is what the spec takes of it, with Python's start."""
    import subprocess
    import sys

    write(folder, REQUIRED)
    program = (
        "from pathlib import Path; from hermes_run.spec.load import load_spec; load_spec(Path('spec.yaml'))"
    )
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True, cwd=folder)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < 0.35
