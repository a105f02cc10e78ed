# ruff: noqa: E501 - whole messages, as people see them
"""What changes the work of a run, and what does not."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from hermes_run.spec.fingerprint import IF_SET, IN, OUT, difference, fingerprint, work_fields
from hermes_run.spec.model import SandboxSettings, Settings, Spec
from tests.spec.writing import REQUIRED, load, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def leaves(kind: Any, name: str = "") -> Iterator[str]:
    for part in fields(kind):
        inside = get_type_hints(kind)[part.name]
        full = f"{name}.{part.name}".lstrip(".")
        if is_dataclass(inside):
            yield from leaves(inside, full)
        else:
            yield full


def test_every_field_of_a_spec_is_on_one_of_the_two_lists() -> None:
    for leaf in leaves(Spec):
        prefixes = [leaf[:end] for end in range(1, len(leaf) + 1) if end == len(leaf) or leaf[end] == "."]
        on = [name for name in (*IN, *IF_SET, *OUT) if name in prefixes]
        assert len(on) == 1, leaf


def test_the_lists_name_nothing_that_is_not_there() -> None:
    known = set(leaves(Spec))
    for name in (*IN, *IF_SET, *OUT):
        assert any(leaf == name or leaf.startswith(f"{name}.") for leaf in known), name


WORK = [
    "seed=1", "distribution=minimal", "distribution={web: 50}", "without=[web]", "model.name=other", "model.max_tokens=3",
    "model.sampling.temperature=0", "model.sampling.top_p=0.5", "model.sampling.stop=[a]", "model.sampling.seed=0",
    "model.extra_body={a: null}", "provider_routing.allowed=[a]", "provider_routing.ignored=[a]",
    "provider_routing.order=[a]", "provider_routing.sort=price", "reasoning.effort=none", "reasoning.disabled=true",
    "agent.max_turns=11", "agent.system_prompt=''", "agent.ephemeral_system_prompt=x",
    "agent.prefill_messages_file=prefill.json", "agent.prompt_timeout_s=5", "sandbox.backend=bubblewrap",
    "sandbox.backend=local", "sandbox.cwd=/x", "sandbox.network=full", "sandbox.cpus=2", "sandbox.memory_mb=100",
    "sandbox.pids=9", "sandbox.setup=[ls]", "sandbox.start_timeout_s=1", "toolsets.web=[web_search]",
    "tools.allowed_hosts=[127.0.0.1]", "tools.web.search=tavily", "tools.web.extract=firecrawl",
    "tools.web={cassette: prefill.json, replay_only: true}",
]  # fmt: skip
NO_WORK = [
    "run_name=b", "dataset.path=other.jsonl", "dataset.prompt_field=q", "dataset.max_samples=1", "dataset.dedupe=true",
    "dataset.on_bad_row=skip", "batch_size=1", "workers=9", "samples=3", "model.base_url=http://127.0.0.1:1",
    "model.api_key_env=null", "model.request_timeout_s=5", "filters.require_reasoning=false",
    "filters.reject_unknown_tools=false", "output.dir=elsewhere", "logging.verbose=true", "logging.log_prefix_chars=1",
    "without=[tts]", "tools.web.cassette=new.jsonl", "toolsets.unused=[todo]", "agent.max_turns=10", "x-mine=1", "model.sampling={}",
    "distribution={web: 100.0, vision: 100, image_gen: 100, terminal: 100, file: 100, browser: 100, todo: 0}",
]  # fmt: skip


@pytest.fixture
def base(folder: Path) -> Spec:
    write(folder, '[{"role": "user", "content": "hi"}]', "prefill.json")
    write(folder, '{"prompt": "x"}\n', "other.jsonl")
    return load(folder, REQUIRED)


@pytest.mark.parametrize("change", WORK)
def test_a_change_of_the_work_changes_the_fingerprint(folder: Path, base: Spec, change: str) -> None:
    changed = work_fields(load(folder, REQUIRED, sets=[change]))
    assert fingerprint(changed) != fingerprint(work_fields(base))
    assert difference(work_fields(base), changed)


@pytest.mark.parametrize("change", NO_WORK)
def test_any_other_change_resumes_quietly(folder: Path, base: Spec, change: str) -> None:
    changed = work_fields(load(folder, REQUIRED, sets=[change]))
    assert difference(work_fields(base), changed) == {}
    assert fingerprint(changed) == fingerprint(work_fields(base))


def test_a_named_endpoint_is_an_address_and_no_work(folder: Path, base: Spec) -> None:
    from hermes_run.spec.model import EndpointSetting

    settings = Settings(endpoints={"e": EndpointSetting(base_url="http://127.0.0.1:1")})
    spec = load(folder, REQUIRED + "model: {endpoint: e}\n", settings=settings)
    assert fingerprint(work_fields(spec, settings)) == fingerprint(work_fields(base, settings))


def test_files_enter_by_content_and_not_by_name(folder: Path) -> None:
    write(folder, "replies: [a]\n", "a.yaml")
    write(folder, "replies: [a]\n", "sub/b.yaml")
    text = REQUIRED + "model: {name: scripted, script: %s}\n"
    first = fingerprint(work_fields(load(folder, text % "a.yaml")))
    assert fingerprint(work_fields(load(folder, text % "sub/b.yaml"))) == first
    write(folder, "replies: [b]\n", "a.yaml")
    assert fingerprint(work_fields(load(folder, text % "a.yaml"))) != first


def test_a_built_in_distribution_is_the_same_as_its_map_and_its_file(folder: Path) -> None:
    write(folder, "toolsets: {file: 100, terminal: 100}\n", "mine.yaml")
    seen = {
        fingerprint(work_fields(load(folder, REQUIRED + f"distribution: {text}\n")))
        for text in ("{file: 100, terminal: 100}", "./mine.yaml")
    }
    assert len(seen) == 1
    spec = load(folder, REQUIRED + "distribution: terminal_only\n")
    named = load(folder, REQUIRED + "distribution: {terminal: 100, file: 100}\n")
    assert fingerprint(work_fields(spec)) == fingerprint(work_fields(named))


def test_an_order_that_decides_a_tie_is_part_of_the_work(folder: Path) -> None:
    one, other = (
        work_fields(load(folder, REQUIRED + f"distribution: {text}\n"))
        for text in ("{web: 50, file: 50, tts: 1}", "{file: 50, web: 50, tts: 1}")
    )
    assert difference(one, other) == {"drawn_when_none_is": ("web", "file")}


def test_auto_counts_as_what_it_may_choose_used_or_not(base: Spec) -> None:
    singularity = Settings(sandbox=SandboxSettings(container="singularity"))
    assert set(difference(work_fields(base), work_fields(base, singularity))) == {"sandbox.backend"}
    fixed = replace(base, sandbox=replace(base.sandbox, backend="bubblewrap"))
    assert difference(work_fields(fixed), work_fields(fixed, singularity)) == {}


def test_a_version_of_our_tool_texts_is_part_of_it(base: Spec) -> None:
    from hermes_run.core.toolsets import TOOL_TEXTS_VERSION

    assert work_fields(base)["tool_texts_version"] == TOOL_TEXTS_VERSION


def test_the_difference_says_what_was_and_what_is() -> None:
    assert difference({"a": 1, "b": 2, "c": 3.0}, {"a": 1, "b": 5, "d": None, "c": 3}) == {"b": (2, 5)}
    assert difference({"a": 1}, {"d": [1]}) == {"a": (1, None), "d": (None, [1])}


def test_the_fingerprint_is_frozen(folder: Path) -> None:
    """It moves only on purpose: every run directory out there remembers it."""
    spec = load(folder, REQUIRED + "distribution: terminal_only\n")
    assert fingerprint({**work_fields(spec), "tool_texts_version": 1}) == "0ec8028f25bfb1f4f6b8b1220ad2d310"
