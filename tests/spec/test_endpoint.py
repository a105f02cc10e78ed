# ruff: noqa: E501 - whole messages, as people see them
"""Where the model is asked, with which key, and what is warned of before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hermes_run.errors import KeyMissing, SpecError
from hermes_run.spec.endpoint import read_key, resolve, warnings_of
from hermes_run.spec.keys_and_hosts import Secret
from hermes_run.spec.model import EndpointSetting, KeyPair, Settings
from tests.spec.writing import REQUIRED, load, mistakes, write

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_run.spec.model import Dialect

LOCAL = EndpointSetting(
    base_url="http://127.0.0.1:8000/v1/", api_key_env="VLLM_KEY", dialect="vllm", honours=("reasoning",)
)
SETTINGS = Settings(endpoints={"local": LOCAL})


def test_openrouter_honours_both_and_gets_its_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", " sk-or-1\n")
    found = resolve(load(folder, REQUIRED), Settings())
    assert found.base_url == "https://openrouter.ai/api/v1"
    assert found.api_key is not None
    assert found.api_key.reveal() == "sk-or-1"
    assert (found.dialect, found.honours_reasoning, found.honours_routing) == ("openrouter", True, True)
    assert "sk-or-1" not in repr(found)


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("https://api.anthropic.com/v1", "anthropic"),
        ("https://openrouter.ai.evil.example/v1", "generic"),
        ("http://127.0.0.1:8000/v1", "generic"),
    ],
)
def test_another_host_honours_nothing_unless_it_is_said(folder: Path, url: str, dialect: str) -> None:
    spec = load(folder, REQUIRED + f"model: {{base_url: {url}, api_key_env: null}}\n")
    found = resolve(spec, Settings())
    assert (found.dialect, found.honours_reasoning, found.honours_routing) == (dialect, False, False)
    assert found.api_key is None


def test_a_named_endpoint_brings_its_address_key_and_dialect(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_KEY", "abc")
    spec = load(folder, REQUIRED + "model: {endpoint: local}\n", settings=SETTINGS)
    assert spec.model.base_url == LOCAL.base_url
    found = resolve(spec, SETTINGS)
    assert (found.base_url, found.api_key_env, found.dialect) == (
        "http://127.0.0.1:8000/v1",
        "VLLM_KEY",
        "vllm",
    )
    assert (found.honours_reasoning, found.honours_routing) == (True, False)


def test_an_unset_variable_stops_with_the_cure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load(folder, REQUIRED)
    expected = (
        "the environment variable OPENROUTER_API_KEY (model.api_key_env) is not set; export OPENROUTER_API_KEY=… before "
        "the run, or write model.api_key_env: null if openrouter.ai wants no key"
    )
    for value in (None, "", " \n"):
        if value is not None:
            monkeypatch.setenv("OPENROUTER_API_KEY", value)
        with pytest.raises(KeyMissing) as caught:
            read_key(spec, Settings())
        assert str(caught.value) == expected
        assert caught.value.exit_code == 4
    with pytest.raises(KeyMissing):
        load(folder, REQUIRED, require_key=True)


def test_the_key_of_the_command_line_wins_and_the_variable_may_be_unset(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load(folder, REQUIRED)
    for value in (None, "other"):
        if value is not None:
            monkeypatch.setenv("OPENROUTER_API_KEY", value)
        key = read_key(spec, Settings(), "mine")
        assert key is not None
        assert key.reveal() == "mine"


def test_a_key_with_line_ends_or_quotes_of_print_is_refused_without_showing_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "“sk-or-1”")
    with pytest.raises(
        KeyMissing, match=r"^the environment variable OPENROUTER_API_KEY holds characters"
    ) as caught:
        read_key(load(folder, REQUIRED), Settings())
    assert "sk-or" not in str(caught.value)
    with pytest.raises(KeyMissing, match=r"^--api-key holds characters"):
        read_key(load(folder, REQUIRED), Settings(), "a\nHost: b")


def test_a_spec_made_by_hand_cannot_send_a_key_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-1")
    spec = load(folder, REQUIRED)
    spec = replace(spec, model=replace(spec.model, base_url="https://evil.example/v1"))
    with pytest.raises(SpecError, match="may not be sent"):
        resolve(spec, Settings())


def test_a_tape_wants_neither_endpoint_nor_key(folder: Path) -> None:
    write(folder, "replies: []\n", "tape.yaml")
    text = (
        REQUIRED
        + "model: {name: scripted, script: tape.yaml, base_url: https://evil.example, api_key_env: X_KEY}\n"
    )
    spec = load(folder, text)
    assert spec.model.api_key_env is None
    assert read_key(spec, Settings()) is None
    assert read_key(spec, Settings(), "mine") is None
    assert warnings_of(spec, Settings()) == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("reasoning: {effort: high}", "reasoning.effort: high is not sent: http://127.0.0.1:8000/v1 (generic) is not known to honour it; take it out, or name the endpoint in hermes.yaml with honours: [reasoning] and use model.endpoint"),
        ("reasoning: {effort: none}\nfilters: {require_reasoning: false}", "reasoning.effort: none is not sent: "),
        ("reasoning: {disabled: true}\nfilters: {require_reasoning: false}", "reasoning.disabled is not sent: "),
        ("provider_routing: {sort: price}", "provider_routing is not sent: http://127.0.0.1:8000/v1 (generic) is not known to honour it; take it out, or name the endpoint in hermes.yaml with honours: [routing] and use model.endpoint"),
    ],
)  # fmt: skip
def test_what_the_endpoint_does_not_honour_is_never_dropped_in_silence(
    folder: Path, text: str, warning: str
) -> None:
    spec = load(folder, REQUIRED + "model: {base_url: http://127.0.0.1:8000/v1}\n" + text + "\n")
    (found,) = warnings_of(spec, Settings())
    assert found.startswith(warning)
    assert warnings_of(load(folder, REQUIRED + text + "\n"), Settings()) == []


def test_a_price_of_a_name_that_is_nearly_the_models_is_pointed_at(folder: Path) -> None:
    spec = load(folder, REQUIRED + "model: {base_url: http://127.0.0.1:8000/v1, name: qwen3-8b}\n")
    prices = {"Qwen3-8b-": {"input": 1.0, "output": 2.0}}
    assert warnings_of(spec, Settings(prices=prices)) == [
        'hermes.yaml has no price for the model qwen3-8b; did you mean "Qwen3-8b-"?'
    ]
    assert warnings_of(spec, Settings(prices=prices | {"qwen3-8b": {"flat": True}})) == []
    assert warnings_of(spec, Settings(prices={"gpt-x": {"flat": True}})) == []


def test_an_endpoint_that_honours_it_is_not_warned_of(folder: Path) -> None:
    text = REQUIRED + "model: {endpoint: local}\nreasoning: {effort: low}\n"
    assert warnings_of(load(folder, text, settings=SETTINGS), SETTINGS) == []


def test_switching_reasoning_off_while_requiring_it_is_warned_of(folder: Path) -> None:
    (found,) = warnings_of(load(folder, REQUIRED + "reasoning: {disabled: true}\n"), Settings())
    assert found.endswith("would be discarded; set filters.require_reasoning: false")


def test_an_endpoint_takes_the_place_of_a_base_url_that_null_takes_back(folder: Path) -> None:
    write(folder, REQUIRED + "model: {base_url: https://llm.example.org/v1}\n", "base.yaml")
    spec = load(folder, "extends: base.yaml\nmodel: {base_url: null, endpoint: local}\n", settings=SETTINGS)
    assert spec.model.base_url == LOCAL.base_url
    spec = load(folder, "extends: base.yaml\nmodel: {base_url: null}\n")
    assert spec.model.base_url == "https://openrouter.ai/api/v1"
    assert spec.model.api_key_env == "OPENROUTER_API_KEY"


def test_a_key_over_plain_http_is_warned_of(folder: Path) -> None:
    settings = Settings(
        endpoints={"lan": EndpointSetting(base_url="http://gpu1:8000/v1", api_key_env="MY_KEY")}
    )
    spec = load(folder, REQUIRED + "model: {endpoint: lan}\n", settings=settings)
    assert warnings_of(spec, settings) == [
        "MY_KEY goes to gpu1 over plain http, readable on the way; use https:// if you can"
    ]


def test_the_warnings_of_the_settings_are_told_too(folder: Path) -> None:
    assert warnings_of(load(folder, REQUIRED), Settings(warnings=("a",))) == ["a"]


def test_an_endpoint_that_is_not_there_says_why_and_where(folder: Path) -> None:
    text = REQUIRED + "model: {endpoint: locl}\n"
    assert mistakes(folder, text, settings=SETTINGS) == [
        (
            'spec.yaml:4:19: model.endpoint: there is no endpoint "locl"; did you mean "local"? endpoints are named in '
            "~/.config/hermes-run/hermes.yaml, as endpoints: {NAME: {base_url: …}}"
        )
    ]
    settings = Settings(warnings=("./hermes.yaml is not read: git tracks it",))
    assert "(./hermes.yaml is not read: git tracks it)" in mistakes(folder, text, settings=settings)[0]


PORTAL = EndpointSetting(base_url="https://inference-api.nousresearch.com/v1", login="portal", dialect="nous")


def leave_login(home: Path, **state: object) -> None:
    home.mkdir(exist_ok=True)
    (home / "auth.json").write_text(json.dumps({"version": 1, "providers": {"nous": state}}))


def test_the_login_of_the_portal_is_read_where_the_settings_say_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(endpoints={"nous": PORTAL})
    spec = load(folder, REQUIRED + "model: {endpoint: nous}\n", settings=settings)
    home = folder / "home"
    monkeypatch.setenv("HERMES_HOME", str(home))
    with pytest.raises(
        KeyMissing, match=r"auth\.json: No such file or directory; log in again: hermes setup --portal"
    ):
        read_key(spec, settings)
    leave_login(home, agent_key=None, access_token="")
    with pytest.raises(KeyMissing, match="holds no key"):
        read_key(spec, settings)
    leave_login(home, access_token="at-1", expires_at="2020-01-01T00:00:00+00:00")
    with pytest.raises(KeyMissing, match="has expired; start hermes once"):
        read_key(spec, settings)
    leave_login(
        home,
        access_token="at-1",
        expires_at="2999-01-01T00:00:00Z",
        agent_key="ak-1",
        agent_key_expires_at="2020-01-01T00:00:00Z",
    )
    before = (home / "auth.json").read_bytes()
    assert read_key(spec, settings) == Secret("at-1")
    assert read_key(spec, settings, "mine") == Secret("mine")
    assert (home / "auth.json").read_bytes() == before


def test_no_login_is_read_for_a_spec_that_names_the_host_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_login(folder / "home", access_token="at-1")
    monkeypatch.setenv("HERMES_HOME", str(folder / "home"))
    monkeypatch.delenv("NOUS_API_KEY", raising=False)
    spec = load(folder, REQUIRED + "model: {base_url: https://inference-api.nousresearch.com/v1}\n")
    with pytest.raises(KeyMissing, match="NOUS_API_KEY"):
        read_key(spec, Settings(endpoints={"nous": PORTAL}))


@pytest.mark.parametrize(
    ("dialect", "reasoning", "warning"),
    [
        ("openrouter", "{effort: ultra}", "reasoning.effort: ultra is sent as max: "),
        ("openai", "{effort: max}", "reasoning.effort: max is sent as xhigh: "),
        ("google", "{effort: minimal}", "reasoning.effort: minimal is sent as low: "),
        ("ollama", "{effort: xhigh}", "reasoning.effort: xhigh is sent as high: "),
        ("nous", "{disabled: true}", "reasoning.disabled is not sent: "),
        ("anthropic", "{effort: low}", "reasoning.effort: low is not sent: "),
        ("vllm", "{effort: low}", "reasoning.effort: low is not sent: "),
        ("anthropic", "{disabled: true}", ""),
        ("nous", "{effort: max}", ""),
        ("openai", "{effort: none}", ""),
        ("openrouter", "{}", ""),
    ],
)
def test_what_becomes_of_a_level_is_said_before_the_run(
    folder: Path, dialect: Dialect, reasoning: str, warning: str
) -> None:
    settings = Settings(endpoints={"e": EndpointSetting(base_url="http://127.0.0.1:1/v1", dialect=dialect)})
    text = (
        REQUIRED + f"model: {{endpoint: e}}\nreasoning: {reasoning}\nfilters: {{require_reasoning: false}}\n"
    )
    found = warnings_of(load(folder, text, settings=settings), settings)
    assert [each[: len(warning)] for each in found] == ([warning] if warning else [])


def test_replicas_are_one_endpoint_with_several_addresses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = REQUIRED + "model: {base_url: ['http://127.0.0.1:1/v1/', 'http://127.0.0.1:2/v1']}\n"
    spec = load(folder, text)
    assert spec.model.base_urls == ("http://127.0.0.1:1/v1/", "http://127.0.0.1:2/v1")
    found = resolve(spec, Settings())
    assert (found.base_url, found.replicas) == ("http://127.0.0.1:1/v1", ("http://127.0.0.1:2/v1",))
    monkeypatch.setenv("MY_KEY", "abc")
    keys = Settings(keys=(KeyPair(variable="MY_KEY", host="a.example"),))
    for urls in ("[https://a.example, https://b.example]", "[https://b.example, https://a.example]"):
        text = REQUIRED + f"model: {{base_url: {urls}, api_key_env: MY_KEY}}\n"
        (found_mistake,) = mistakes(folder, text, settings=keys)
        assert "MY_KEY is not known to belong to b.example" in found_mistake
    assert load(folder, text.replace("b.example", "a.example/2"), settings=keys).model.base_urls[1]
    text = REQUIRED + "model: {base_url: ['https://openrouter.ai/api/v1', 'https://api.openai.com/v1']}\n"
    assert "the variable for this host is OPENAI_API_KEY" in mistakes(folder, text)[0]
