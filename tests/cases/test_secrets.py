"""The key of a run is sent to its endpoint and stands nowhere else, in no form."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.servers import Answer, fails, says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flow.lab import Lab, Result
    from tests.servers import ModelServer, Request

KEY = "sk-canary/7Zq+Xw9vT3mK5pL2==end"
VARIABLE = "CANARY_KEY"
FORMS = {
    KEY,
    quote(KEY, safe=""),
    quote(KEY),
    base64.b64encode(KEY.encode()).decode().rstrip("=")[:-1],
    base64.urlsafe_b64encode(KEY.encode()).decode().rstrip("=")[:-1],
    KEY.encode().hex(),
    json.dumps(KEY)[1:-1].replace("/", "\\/"),
}
HALVES = "'sk-can''ary'"
"""The key's beginning as a shell text that does not itself hold it."""
LOOK = (
    "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
    f"grep -rlsaF {HALVES} /workspace /tmp /var/tmp /root /home /etc /run /dev/shm /mnt /opt /srv; "
    "ls -la / /workspace /tmp /proc/self/fd; echo looked"
)


def assert_nowhere(lab: Lab, *results: Result) -> None:
    """Not in what was printed, and in no file of the run directory (or beside it, but for the spec)."""
    texts = [result.out + result.err for result in results]
    files = (path for path in lab.folder.rglob("*") if path.is_file())
    texts += [path.read_bytes().decode("utf-8", "replace") for path in files]
    for text in texts:
        for form in FORMS:
            assert form not in text, text[max(0, text.find(form) - 200) :][:400]


def titles() -> dict[int, str]:
    """Process id -> command line and environment of every process but those of the test itself."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        found[int(folder.name)] = text.decode("utf-8", "replace")
    return found


@pytest.fixture(params=["option", "variable"])
def keyed(lab: Lab, server: ModelServer, request: pytest.FixtureRequest) -> Callable[..., Result]:
    """Runs the spec with the key given one way or the other."""
    lab.use_server(server.url)
    lab.write_prompts("[look]", "[b]")
    words = ["--api-key", KEY] if request.param == "option" else []
    if request.param == "variable":
        lab.spec["model"]["api_key_env"] = VARIABLE
        lab.env = {VARIABLE: KEY}
    return lambda *more: lab.run_anew(*words, *more)


def test_the_key_is_sent_and_neither_written_nor_shown_to_the_sandbox(
    lab: Lab, server: ModelServer, keyed: Callable[..., Result]
) -> None:
    seen: dict[int, str] = {}

    def respond(request: Request) -> Answer:
        if request.turn == 0:
            return says("", calls=[("terminal", {"command": LOOK})], reasoning="r")
        if request.turn == 1:
            seen.update(titles())
            return says("", calls=[("terminal", {"command": "cat /proc/1/environ"})], reasoning="r")
        return says("done", reasoning="r")

    server.respond = respond
    result = keyed("--verbose")
    assert result.code == 0, result.err
    assert {r.headers["authorization"] for r in server.requests} == {f"Bearer {KEY}"}
    assert_nowhere(lab, result)
    for turn in lab.lines()[0]["conversations"]:
        if turn["from"] == "tool":
            looked = json.loads(turn["value"])["output"]
            assert "sk-can" not in looked
            assert VARIABLE not in looked
    assert "looked" in lab.lines()[0]["conversations"][2]["value"]
    holders = [pid for pid, text in seen.items() if KEY in text and pid != os.getpid()]
    assert len(holders) <= 1, "only the runner, whose command line or environment the user made himself"
    assert_nowhere(lab, lab.run("-q"), lab.run("--dry-run"), lab.run("--print-config"))


STOPS = {
    "400": fails(400, f"invalid key {KEY}", code="x", param=quote(KEY, safe="")),
    "404": fails(404, f"no model for {KEY}"),
    "401": fails(401, f"Incorrect API key provided: {KEY}"),
    "402": fails(402, f"no credit on {base64.b64encode(KEY.encode()).decode()}"),
    "429": fails(429, f"quota of {KEY}", code="insufficient_quota"),
}
ECHOES = {
    "[500]": fails(500, f"bad key {KEY}"),
    "[an error inside a 200]": Answer(body=json.dumps({"error": {"message": KEY}}).encode()),
    "[no JSON]": Answer(status=502, body=f"<html>Authorization: Bearer {KEY}".encode()),
    "[a header]": fails(500, "no", {"X-Echo": KEY, "Www-Authenticate": f"Bearer {KEY}"}),
    "[url-encoded]": fails(500, f"GET /?key={quote(KEY, safe='')}"),
    "[base64]": fails(500, "Basic " + base64.b64encode(f"user:{KEY}".encode()).decode()),
    "[hex]": fails(500, KEY.encode().hex()),
    "[no HTTP]": Answer(raw=(f"HTTP/1.1 2OO {KEY}\r\nX: {KEY}\r\n\r\n{KEY}".encode(),)),
}


@pytest.fixture
def verbose(lab: Lab, server: ModelServer) -> Lab:
    lab.use_server(server.url)
    lab.spec["model"]["api_key_env"] = VARIABLE
    lab.spec["logging"] = {"verbose": True, "log_prefix_chars": 1000}
    lab.env = {VARIABLE: KEY}
    return lab


@pytest.mark.parametrize("stop", STOPS)
def test_a_key_that_the_server_repeats_while_it_refuses_is_masked(
    verbose: Lab, server: ModelServer, stop: str
) -> None:
    server.respond = lambda _: STOPS[stop]
    verbose.write_prompts("a")
    results = [verbose.run(), verbose.run("--json")]
    assert all(result.code == 4 for result in results)
    assert_nowhere(verbose, *results)


@pytest.mark.slow
def test_a_key_that_the_server_repeats_in_errors_is_masked(verbose: Lab, server: ModelServer) -> None:
    for marker, answer in ECHOES.items():
        server.script(marker, answer)
    verbose.spec["workers"] = len(ECHOES)
    verbose.write_prompts(*ECHOES)
    result = verbose.run()
    assert result.code == 1, result.err
    assert verbose.statistics()["failed"] == {"provider_error": len(ECHOES)}
    looks = [verbose.call(command, str(verbose.run_dir)) for command in ("status", "stats")]
    assert_nowhere(verbose, result, *looks)


def test_a_key_in_a_spec_or_an_override_is_refused_and_not_repeated(lab: Lab, server: ModelServer) -> None:
    secret = "sk-or-v1-0123456789abcdef0123456789"
    lab.use_server(server.url)
    lab.write_prompts("a")
    for words in ((f"--set=model.api_key_env={secret}",), (f"--set=model.extra_body={{api_key: {secret}}}",)):
        result = lab.run(*words)
        assert result.code == 2
        assert secret not in result.out + result.err
    assert not server.requests


@pytest.mark.parametrize(("status", "code"), [(401, 4), (407, 4), (418, 1)])
def test_the_password_of_a_proxy_is_a_secret_too(
    lab: Lab, server: ModelServer, status: int, code: int
) -> None:
    """A proxy that refuses its password stops the run; what it repeats of it is masked."""
    proxy = server.url.removesuffix("/v1").replace("://", f"://user:{quote(KEY, safe='')}@")
    lab.use_server("http://model.example/v1")
    lab.env |= {"HTTP_PROXY": proxy, "http_proxy": proxy, "NO_PROXY": "", "no_proxy": ""}
    lab.write_prompts("a", "b")
    server.respond = lambda _: fails(
        status, f"odd: {KEY} {base64.b64encode(f'user:{KEY}'.encode()).decode()}"
    )
    result = lab.run()
    assert result.code == code, result.err
    assert ("password of the proxy" in result.err) == (status == 407)
    assert_nowhere(lab, result)
    assert server.requests[0].path == "http://model.example/v1/chat/completions"


def test_a_proxy_that_is_none_is_told_before_anything_is_run(lab: Lab) -> None:
    lab.use_server("http://model.example/v1")
    lab.env |= {"HTTP_PROXY": "socks5://p:1", "http_proxy": "socks5://p:1", "NO_PROXY": "", "no_proxy": ""}
    lab.write_prompts("a")
    result = lab.run()
    assert (result.code, "HTTP_PROXY names no HTTP proxy: socks5://p:1" in result.err) == (4, True), (
        result.err
    )
