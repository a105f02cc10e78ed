"""The proxy of the environment: used as others use it, never on loopback, and told when it is none."""

from __future__ import annotations

import pytest

from hermes_run.errors import EndpointUnreachable
from hermes_run.spec.proxy import proxy_for, proxy_passwords

FAR = "https://a.example/v1"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        (FAR, {}, ""),
        (FAR, {"HTTPS_PROXY": ""}, ""),
        (FAR, {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        (FAR, {"https_proxy": "p:1"}, "http://p:1"),
        (FAR, {"HTTPS_PROXY": "user:word@p:1"}, "http://user:word@p:1"),
        (FAR, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, ""),
        (FAR, {"HTTP_PROXY": "http://p:1"}, ""),
        ("http://127.0.0.1:8000/v1", {"HTTP_PROXY": "http://p:1"}, ""),
        ("http://[::1]:8000/v1", {"http_proxy": "http://p:1"}, ""),
    ],
)
def test_a_proxy_of_the_environment_is_used_but_never_on_loopback(
    monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str], proxy: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


@pytest.mark.parametrize(
    "proxy",
    ["socks5://p:1", "http://", "http://[::1", "ftp://p:1", "http://a b:1", "http://p:0", "http://p:x"],
)
def test_what_is_no_http_proxy_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.replace("://", "://user:pass-word@"))
    with pytest.raises(EndpointUnreachable) as told:
        proxy_for(FAR)
    assert f"HTTPS_PROXY names no HTTP proxy: {proxy}." in str(told.value)
    assert "NO_PROXY=a.example" in str(told.value)


def test_passwords_of_proxies_are_secrets_in_both_spellings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:pass%40word@p:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://[::1")
    assert set(proxy_passwords()) == {"pass%40word", "pass@word"}
