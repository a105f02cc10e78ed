# ruff: noqa: E501 - whole messages, as people see them
"""A key goes only to hosts it is known for, however the URL is dressed up."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.spec.keys_and_hosts import (
    KNOWN_HOSTS,
    Address,
    Secret,
    holds_key,
    known_variable,
    looks_like_key,
    may_send,
    parse_host,
    parse_url,
)
from hermes_run.spec.model import EndpointSetting, KeyPair, Settings
from tests.spec.writing import REQUIRED, load, mistakes

if TYPE_CHECKING:
    from pathlib import Path

KEY = "OPENROUTER_API_KEY"
FOREIGN = [
    "https://evil.example/v1",
    "https://openrouter.ai.evil.example/api/v1",
    "https://evil-openrouter.ai/api/v1",
    "https://eu.openrouter.ai/api/v1",
    "https://openrouter.ai..evil.example/v1",
    "https://openrouter.a/api/v1",
    "https://xn--penrouter-0yb.ai/api/v1",
    "https://openrouter.ai:8443/api/v1",
    "https://127.0.0.1.evil.example/v1",
    "https://localhost.evil.example/v1",
    "https://10.0.0.1/v1",
    "https://0.0.0.0/v1",
    "https://[2001:db8::1]/v1",
    "https://api.openai.com/v1",
]
NO_URL = [
    "https://openrouter.ai@evil.example/v1",
    "https://openrouter.ai:x@evil.example/v1",
    "https://openrouter.ai\\@evil.example/v1",
    "https://openrouter.ai\\.evil.example/v1",
    "https://evil.example\\@openrouter.ai/v1",
    "https://evil.example#@openrouter.ai/v1",
    "https://evil.example?@openrouter.ai/v1",
    "https://openrouter.ai%2eevil.example/v1",
    "https://openrouter.ai%00.evil.example/v1",
    "https://openrouter.ai /v1",
    "https:///openrouter.ai/v1",
    "https:openrouter.ai/v1",
    "//openrouter.ai/v1",
    "openrouter.ai/api/v1",
    "localhost:8000/v1",
    "ftp://openrouter.ai/v1",
    "https://openrouter.ai:99999/v1",
    "https://openrouter.ai:0/v1",
    "https://openrouter.ai:/v1",
    "https://openrouter.ai/v1?key=x",
    "https://openrouter.ai/v1#x",
    "https://öpenrouter.ai/v1",
    "https://openrouter。ai/v1",
    "https://openrouter.ai/v1\n",
    "https://\nopenrouter.ai/v1",
    "https://[::1/v1",
    "https://",
    "",
]
KNOWN = [
    "https://openrouter.ai/api/v1",
    "https://openrouter.ai",
    "https://OpenRouter.AI/api/v1",
    "HTTPS://openrouter.ai/api/v1",
    "https://openrouter.ai./api/v1",
    "https://openrouter.ai:443/api/v1",
    "http://127.0.0.1:8000/v1",
    "http://127.9.9.9/v1",
    "http://localhost:1234",
    "https://LOCALHOST./v1",
    "http://[::1]:8000/v1",
]


@pytest.mark.parametrize("url", KNOWN)
def test_the_key_goes_to_its_host_and_to_this_machine(folder: Path, url: str) -> None:
    spec = load(folder, REQUIRED + f'model: {{api_key_env: {KEY}, base_url: "{url}"}}\n')
    assert spec.model.api_key_env == KEY


@pytest.mark.parametrize("url", FOREIGN)
def test_the_key_goes_to_no_other_host(folder: Path, url: str) -> None:
    (found,) = mistakes(folder, REQUIRED + f'model: {{api_key_env: {KEY}, base_url: "{url}"}}\n')
    assert found.startswith(f"spec.yaml:4:22: model.api_key_env: {KEY} is not known to belong to ")


@pytest.mark.parametrize("url", NO_URL)
def test_a_url_that_parsers_could_read_differently_is_refused(folder: Path, url: str) -> None:
    assert isinstance(parse_url(url), str)
    assert known_variable(url) is None
    spelled = url.replace("\\", "\\\\").replace("\n", "\\n")
    (found,) = mistakes(folder, REQUIRED + f'model: {{api_key_env: {KEY}, base_url: "{spelled}"}}\n')
    assert found.startswith("spec.yaml:4:52: model.base_url: ")


PARTS = [
    "openrouter.ai",
    "evil.example",
    "A",
    "@",
    ":",
    "443",
    "80",
    "\\",
    "/",
    "#",
    "?",
    ".",
    "[::1]",
    "%2e",
    "-",
    "_",
    "1",
]
URLS = st.builds(
    lambda scheme, parts: scheme + "".join(parts),
    st.sampled_from(["https://", "http://", "HTTPS://"]),
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=6),
)


@given(URLS)
def test_the_host_that_is_judged_is_the_host_that_the_client_connects_to(url: str) -> None:
    import httpx2

    address = parse_url(url)
    if isinstance(address, Address):
        try:
            seen = httpx2.URL(url)
        except httpx2.InvalidURL:
            return
        assert seen.host.strip("[]").removesuffix(".") == address.host.strip("[]")
        assert (seen.port or {"http": 80, "https": 443}[seen.scheme]) == address.port
        assert seen.scheme == address.scheme


def test_the_refusal_has_the_line_to_add(folder: Path) -> None:
    text = REQUIRED + "model: {base_url: https://evil.example/v1, api_key_env: GITHUB_TOKEN}\n"
    assert mistakes(folder, text) == [
        (
            "spec.yaml:4:57: model.api_key_env: GITHUB_TOKEN is not known to belong to evil.example, and a key goes only "
            "to hosts it is known for; if it is meant, add to ~/.config/hermes-run/hermes.yaml: "
            "keys: [{variable: GITHUB_TOKEN, host: evil.example}]"
        )
    ]
    settings = Settings(keys=(KeyPair(variable="GITHUB_TOKEN", host="evil.example"),))
    assert load(folder, text, settings=settings).model.api_key_env == "GITHUB_TOKEN"


def test_the_refusal_names_the_variable_that_is_meant(folder: Path) -> None:
    (found,) = mistakes(
        folder, REQUIRED + "model: {base_url: https://api.openai.com/v1, api_key_env: MY_KEY}\n"
    )
    assert "; the variable for this host is OPENAI_API_KEY; if it is meant" in found


def test_plain_http_to_a_known_host_is_refused_with_its_own_words(folder: Path) -> None:
    text = REQUIRED + f"model: {{base_url: http://openrouter.ai/api/v1, api_key_env: {KEY}}}\n"
    assert mistakes(folder, text) == [
        (
            f"spec.yaml:4:61: model.api_key_env: {KEY} would go to openrouter.ai over plain http, readable on the way; "
            "write https:// in model.base_url"
        )
    ]


def test_without_a_variable_nothing_is_sent_to_an_unknown_host(folder: Path) -> None:
    assert load(folder, REQUIRED + "model: {base_url: https://llm.example/v1}\n").model.api_key_env is None
    assert load(folder, REQUIRED + "model: {base_url: http://openrouter.ai/v1}\n").model.api_key_env is None
    assert load(folder, REQUIRED + "model: {api_key_env: null}\n").model.api_key_env is None


@pytest.mark.parametrize(("host", "variables"), KNOWN_HOSTS.items())
def test_each_known_host_has_its_default_variable(
    folder: Path, host: str, variables: tuple[str, ...]
) -> None:
    assert (
        load(folder, REQUIRED + f"model: {{base_url: https://{host}/v1}}\n").model.api_key_env == variables[0]
    )


@pytest.mark.parametrize(
    ("pair", "url", "goes"),
    [
        ("llm.example", "https://llm.example/v1", True),
        ("LLM.example.", "http://llm.example:8000/v1", True),
        ("llm.example:8000", "http://llm.example:8000/v1", True),
        ("llm.example:8000", "http://llm.example:8001/v1", False),
        ("llm.example", "https://a.llm.example/v1", False),
        ("[2001:db8::1]", "https://[2001:db8::1]/v1", True),
    ],
)
def test_a_pair_of_the_user_holds_for_its_host_and_port(pair: str, url: str, goes: bool) -> None:
    address = parse_url(url)
    assert isinstance(address, Address)
    settings = Settings(keys=(KeyPair(variable="MY_KEY", host=pair),))
    assert may_send("MY_KEY", address, settings) is goes
    assert may_send("OTHER_KEY", address, settings) is False


def test_an_endpoint_of_the_user_is_a_pair_for_its_very_address() -> None:
    endpoints = {"e": EndpointSetting(base_url="https://llm.example:8443/v1", api_key_env="MY_KEY")}
    for url, goes in {"https://llm.example:8443/other": True, "http://llm.example:8443/": False,
                      "https://llm.example/": False}.items():  # fmt: skip
        address = parse_url(url)
        assert isinstance(address, Address)
        assert may_send("MY_KEY", address, Settings(endpoints=endpoints)) is goes


# ------------------------------------------------------------------ keys that are written down

FAKE = "sk-or-v1-0123456789abcdefghij0123456789"  # looks like one, is none
IN_A_SPEC = [
    f"model: {{api_key: {FAKE}}}",
    f"model: {{api_key_env: {FAKE}}}",
    "model: {api_key_env: sk-12345678}",
    f"model: {{api-key: {FAKE}}}",
    f"api_key: {FAKE}",
    f"model: {{extra_body: {{api_key: {FAKE}}}}}",
    "model: {extra_body: {a: [{Authorization: whatever}]}}",
    "model: {extra_body: {headers: {x: Bearer abcdefgh1234}}}",
    f"model: {{extra_body: {{x: {FAKE}}}}}",
    f'sandbox: {{setup: ["export OPENAI_API_KEY={FAKE}"]}}',
    f"agent: {{system_prompt: use {FAKE} please}}",
    f"x-mine: {{key: {FAKE}}}",
    f"model: {{name: {FAKE}}}",
    "model: {api_key_env: 0123456789abcdef0123456789abcdef}",
]


@pytest.mark.parametrize("text", IN_A_SPEC)
def test_a_key_in_a_spec_is_refused_and_not_repeated(folder: Path, text: str) -> None:
    found = mistakes(folder, REQUIRED + text + "\n")
    assert len(found) == 1
    assert "put it into an environment variable and name that variable: api_key_env: MY_KEY" in found[0]
    assert not any(
        secret in found[0] for secret in (FAKE, "12345678", "whatever", "abcdefgh1234", "89abcdef")
    )


def test_names_and_numbers_in_a_request_are_no_keys(folder: Path) -> None:
    body = "{lora: hf_adapter_v1, session: 550e8400-e29b-41d4-a716-446655440000, key: a, max_tokens: 3}"
    assert load(folder, REQUIRED + f"model: {{extra_body: {body}}}\n").model.extra_body["key"] == "a"


def test_a_key_given_by_set_is_refused_and_not_repeated(folder: Path) -> None:
    for text in (
        f"model.api_key={FAKE}",
        f"model.api_key_env={FAKE}",
        f"model.extra_body={{token: {FAKE}}}",
        FAKE,
    ):
        found = mistakes(folder, REQUIRED, sets=[text])
        assert FAKE not in "\n".join(found)


def test_a_variable_name_that_is_none_is_refused(folder: Path) -> None:
    assert mistakes(folder, REQUIRED + "model: {api_key_env: MY-KEY}\n") == [
        (
            "spec.yaml:4:22: model.api_key_env: must be the name of an environment variable (letters, digits and _), such "
            "as MY_KEY"
        )
    ]


@pytest.mark.parametrize(
    "text",
    ["sklearn-test", "anthropic/claude-sonnet-4.6", "the task is sk-ip this", "risk-0123456789abcdefghij0123", "eyJ",
     "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxx"],
)  # fmt: skip
def test_texts_that_are_no_keys_are_not_taken_for_one(text: str) -> None:
    assert not holds_key(text)


def test_long_random_names_look_like_keys_and_variables_do_not() -> None:
    assert looks_like_key("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
    assert not looks_like_key("MY_VERY_LONG_OPENROUTER_API_KEY_FOR_TEAM_7_OF_9")


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret("sk-abc")
    assert secret.reveal() == "sk-abc"
    assert "abc" not in f"{secret} {secret!r} {secret!s} {[secret]} {secret:>20}"
    assert secret == Secret("sk-abc")
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    "text", ["a.example:0", "a.example:65536", "a.example:99999", "::1", "*.a.example", "a b"]
)
def test_what_names_no_place_is_no_host(text: str) -> None:
    assert parse_host(text) is None


def test_a_host_may_have_a_port() -> None:
    assert parse_host("a.example:65535") == ("a.example", 65535)
    assert parse_host("[::1]") == ("[::1]", None)


def test_a_key_of_an_mcp_server_goes_where_its_variables_are_named(folder: Path) -> None:
    servers = f"tools: {{mcp: [{{name: m, command: m, args: [--key, {FAKE}]}}]}}\n"
    (found,) = mistakes(folder, REQUIRED + servers)
    assert found.endswith("name that variable: env: [MY_KEY]")
    assert FAKE not in found
