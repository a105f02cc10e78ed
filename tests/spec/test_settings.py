# ruff: noqa: E501 - whole messages, as people see them
"""hermes.yaml: which one is read, and what is said about a wrong one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hermes_run.errors import SpecError
from hermes_run.spec.model import Settings
from hermes_run.spec.settings import load_settings, read_settings
from tests.spec.writing import write

ROOT = Path(__file__).parent.parent.parent
MARK = "log: {backups: %d}\n"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def wrong(folder: Path, text: str) -> list[str]:
    write(folder, text, "hermes.yaml")
    with pytest.raises(SpecError) as caught:
        load_settings(None)
    return str(caught.value).splitlines()


@pytest.mark.usefixtures("folder")
def test_without_any_file_the_settings_are_the_defaults() -> None:
    settings = load_settings(None)
    assert settings.source is None
    assert settings.sandbox.starts_in_flight == 8


def test_the_named_file_wins_over_the_one_here_and_this_over_the_users(folder: Path) -> None:
    write(folder, MARK % 1, "config/hermes-run/hermes.yaml")
    assert load_settings(None).log.backups == 1
    write(folder, MARK % 2, "hermes.yaml")
    assert load_settings(None).log.backups == 2
    named = write(folder, MARK % 3, "named.yaml")
    assert load_settings(named).log.backups == 3


def test_the_users_folder_is_dot_config_without_xdg(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    write(folder, MARK % 7, "home/.config/hermes-run/hermes.yaml")
    assert load_settings(None).log.backups == 7
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # must be absolute, says the XDG rule
    assert load_settings(None).log.backups == 7


def test_a_file_that_git_tracks_is_not_read_and_the_warning_has_the_cure(folder: Path) -> None:
    git(folder, "init")
    write(folder, MARK % 2, "hermes.yaml")
    assert load_settings(None).log.backups == 2  # untracked: the user's own
    git(folder, "add", "hermes.yaml")
    write(folder, MARK % 1, "config/hermes-run/hermes.yaml")
    settings = load_settings(None)
    assert settings.log.backups == 1
    own = folder / "config/hermes-run/hermes.yaml"
    assert settings.warnings == (
        (
            "./hermes.yaml is not read: git tracks it, so it may be a stranger's; "
            f"move it to {own}, or name it: --config hermes.yaml, or untrack it: git rm --cached hermes.yaml"
        ),
    )
    assert load_settings(Path("hermes.yaml")).log.backups == 2


def test_a_tracked_file_in_a_folder_below_the_repository_is_found_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(folder, "init")
    write(folder, MARK % 2, "sub/hermes.yaml")
    git(folder, "add", "sub")
    monkeypatch.chdir(folder / "sub")
    assert load_settings(None).source is None


def test_variables_of_git_do_not_hide_that_it_is_tracked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(folder, "init")
    write(folder, MARK % 2, "hermes.yaml")
    git(folder, "add", "hermes.yaml")
    monkeypatch.setenv("GIT_INDEX_FILE", str(folder / "no-index"))
    assert load_settings(None).source is None


def test_a_repository_cannot_have_git_run_its_program(folder: Path) -> None:
    git(folder, "init")
    program = folder / "program"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    git(folder, "config", "core.fsmonitor", str(program))
    write(folder, MARK % 2, "hermes.yaml")
    load_settings(None)
    assert not (folder / "ran").exists()


def test_when_git_cannot_say_the_file_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".git").write_text("gitdir: /nowhere\n")
    write(folder, MARK % 2, "hermes.yaml")
    (warning,) = load_settings(None).warnings
    assert "git cannot say whether it tracks it" in warning
    monkeypatch.setenv("PATH", str(folder))
    (warning,) = load_settings(None).warnings
    assert "git cannot say whether it tracks it (FileNotFoundError)" in warning


def test_git_is_not_asked_where_there_is_no_repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    write(folder, MARK % 2, "hermes.yaml")
    settings = load_settings(None)
    assert (settings.log.backups, settings.warnings) == (2, ())


WRONG = [
    ("endpints: {}", '1:1: endpints: unknown key; did you mean "endpoints"?'),
    ("endpoint: {}", '1:1: endpoint: unknown key; did you mean "endpoints"?'),
    ("endpoints: {e: {}}", "1:13: endpoints.e.base_url: is required and missing; add base_url: … (Such as http://127.0.0.1:8000/v1)"),
    (
        "endpoints: {e: {base_url: localhost:8000}}",
        ("1:27: endpoints.e.base_url: must begin with https:// (or http:// for this machine), such as "
        "http://127.0.0.1:8000/v1"),
    ),
    (
        "endpoints: {e: {base_url: http://x, api_key: abc}}",
        ("1:37: endpoints.e.api_key: a key itself is never written down here; put it into an environment variable and "
        "name that variable: api_key_env: MY_KEY"),
    ),
    (
        "endpoints: {e: {base_url: http://x, dialect: vlm}}",
        ("1:46: endpoints.e.dialect: must be one of openrouter, nous, openai, anthropic, google, vllm, "
        "sglang, ollama, generic, null, "
        'not "vlm"; did you mean "vllm"?'),
    ),
    (
        "keys: [{variable: sk-0123456789, host: x}]",
        ("1:19: keys[0].variable: looks like an API key; a key itself is never written down here; put it into an "
        "environment variable and name that variable: api_key_env: MY_KEY"),
    ),
    (
        "endpoints: {e: {base_url: http://x, replicas: [http://y, z]}}",
        ("1:58: endpoints.e.replicas[1]: must begin with https:// (or http:// for this machine), such as "
        "http://127.0.0.1:8000/v1"),
    ),
    (
        "endpoints: {e: {base_url: 'https://api.anthropic.com/v1', honours: [routing]}}",
        ('1:69: endpoints.e.honours[0]: endpoints of the dialect anthropic do not take "routing"; take it out, or '
        "write the dialect that it speaks"),
    ),
    (
        "endpoints: {e: {base_url: 'https://llm.example.org/v1', login: portal}}",
        ("1:64: endpoints.e.login: the login goes to inference-api.nousresearch.com alone; write base_url: "
        "https://inference-api.nousresearch.com/v1, or name a variable with api_key_env"),
    ),
    ("keys: [{variable: A}]", "1:8: keys[0].host: is required and missing; add host: … (A host name, or host:port)"),
    (
        "keys: [{variable: A, host: https://x/v1}]",
        '1:28: keys[0].host: must be a host, such as llm.example.org or llm.example.org:8443, not "https://x/v1"',
    ),
    (
        "keys: [{variable: A, host: '*.x.org'}]",
        '1:28: keys[0].host: must be a host, such as llm.example.org or llm.example.org:8443, not "*.x.org"',
    ),
    ("log: {max_bytes: 10 MB}", '1:18: log.max_bytes: must be a whole number, not the text "10 MB"; write a number without a unit'),
    ("vision: {endpoint: nowhere}", '1:20: vision.endpoint: there is no endpoint "nowhere" in this file; known: none'),
    ("prices: {m: {inptu: 1, output: 2}}", '1:14: prices.m.inptu: unknown key; did you mean "input"?'),
    (
        "prices: {m: {cached_input: 1}}",
        ("1:13: prices.m: says no price; add input: … and output: … (USD per million tokens), or flat: true for a "
        "subscription"),
    ),
    (
        "prices: {m: {input: 1}}",
        ("1:13: prices.m: says no price of the output; add output: … (USD per million tokens, 0 if it costs nothing), or "
        "flat: true for a subscription"),
    ),
    ("- a", "1:1: must be a map of keys and values, not a list; write key: value"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_mistake_is_told_as_in_a_spec(folder: Path, text: str, message: str) -> None:
    (found,) = wrong(folder, text + "\n")
    assert found == f"hermes.yaml:{message}"


def test_all_mistakes_are_told_at_once(folder: Path) -> None:
    assert len(wrong(folder, "lgo: 1\nlog: {backups: -1}\nkeys: {}\n")) == 3


def test_a_missing_named_file_is_told() -> None:
    with pytest.raises(SpecError, match=r"^nowhere/x\.yaml: there is no such file; check the path$"):
        load_settings(Path("nowhere/x.yaml"))


def test_an_empty_file_says_nothing_and_is_fine(folder: Path) -> None:
    write(folder, "# nothing yet\n", "hermes.yaml")
    assert load_settings(None).source == Path("hermes.yaml")


def test_an_endpoint_gets_dialect_and_variable_of_its_host(folder: Path) -> None:
    text = (
        "endpoints:\n"
        "  a: {base_url: https://openrouter.ai/api/v1}\n"
        "  b: {base_url: http://127.0.0.1:8000/v1, dialect: vllm, api_key_env: VLLM_KEY, honours: [reasoning]}\n"
        "  c: {base_url: https://openrouter.ai/api/v1, api_key_env: null, x-note: mine}\n"
    )
    write(folder, text, "hermes.yaml")
    found = load_settings(None).endpoints
    assert (found["a"].dialect, found["a"].api_key_env) == ("openrouter", "OPENROUTER_API_KEY")
    assert (found["b"].dialect, found["b"].api_key_env, found["b"].honours) == (
        "vllm",
        "VLLM_KEY",
        ("reasoning",),
    )
    assert found["c"].api_key_env is None


def test_the_settings_of_the_contract_are_all_known(folder: Path) -> None:
    text = """\
endpoints: {local: {base_url: "http://127.0.0.1:8000/v1", api_key_env: VLLM_KEY, dialect: vllm, honours: [reasoning]}}
keys: [{variable: MY_KEY, host: llm.example.org}]
prices: {some/model: {input: 0.5, output: 1.5, cached_input: 0.05}}
sandbox: {container: docker, docker_socket: null, singularity_binary: null, image_cache: null, allow_local_images: false, starts_in_flight: 8}
web: {search: searxng, searxng_url: "http://127.0.0.1:8888", extract: trafilatura}
browser: {executable_path: null, cdp_url: null}
vision: {endpoint: local, model: some/vlm}
images: {endpoint: local, model: some/image}
speech: {endpoint: local, model: some/tts, voice: null}
log: {max_bytes: 10000000, backups: 5}
"""
    write(folder, text, "hermes.yaml")
    settings = load_settings(None)
    assert settings.prices == {"some/model": {"input": 0.5, "output": 1.5, "cached_input": 0.05}}
    assert settings.speech["model"] == "some/tts"


def test_the_example_is_valid_and_says_the_defaults() -> None:
    settings = read_settings(ROOT / "hermes.yaml.example")
    assert (settings.warnings, settings.keys, settings.endpoints) == ((), (), {})
    assert settings.sandbox == Settings().sandbox
    assert settings.log == Settings().log


def test_the_examples_commented_lines_are_valid_too(folder: Path) -> None:
    lines = (ROOT / "hermes.yaml.example").read_text().splitlines()
    start = lines.index("# endpoints:")
    commented = [
        line.removeprefix("# ")
        for line in lines[start:]
        if line.startswith(("#  ", "# endpoints:", "# keys:", "# prices:", "# web:", "# browser:"))
    ]
    write(folder, "\n".join(commented), "hermes.yaml")
    settings = load_settings(None)
    assert settings.endpoints["local"].dialect == "vllm"
    assert settings.keys[0].host == "llm.example.org"
    assert settings.prices["some/model"]["input"] == 0.5
    assert settings.web["search"] == "searxng"
    assert settings.browser["executable_path"] == "/usr/bin/chromium"
