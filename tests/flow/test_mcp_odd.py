"""MCP servers that answer oddly: the model is told what is wrong, and the rollout goes on at once.

One server in all three ways (in the sandbox, on the host, over HTTP), over real pipes and sockets.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.outside.ground import processes_of
from tests.outside.web import Site
from tests.servers import ModelServer, says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flow.lab import Lab
    from tests.outside.web import Handler

pytestmark = pytest.mark.slow

ODD = r"""
import json, os, subprocess, sys, time

NAMES = ["go", "get item", "get.item", "get_item", ""]
SCHEMA = {"type": "object", "properties": {"how": {"type": "string"}}}
DEEP = "[" * 5000 + "]" * 5000

def tools():
    return [{"name": name, "description": "d", "inputSchema": SCHEMA} for name in NAMES]

def text(said, **more):
    return {"content": [{"type": "text", "text": said}], **more}

def result(request):
    method = request["method"]
    if method == "initialize":
        info = {"name": "odd", "version": "1"}
        version = request["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": tools()}
    name, how = request["params"]["name"], request["params"]["arguments"].get("how", "")
    if how == "shape":
        return {"content": "no list"}
    if how == "kind":
        return {"content": [{"type": "hologram", "data": "x"}]}
    if how == "half":
        return text("half \ud83d of it")
    if how == "nan":
        return text("t", structuredContent={"a": float("nan")})
    if how == "deep":
        return text("t", structuredContent={"a": "DEEP"})
    if how == "big":
        return text("", structuredContent={"a": "y" * 300_000})
    if how == "own":
        return None
    if how == "silent":
        return text("", isError=True)
    if how == "long":
        return text("x" * 40_000_000)
    if how == "picture":
        return {"content": [{"type": "image", "data": "AAAA" * 600_000, "mimeType": "image/png"}]}
    if how == "sleep":
        open("asleep", "w").close()
        time.sleep(600)
    if how == "child":
        subprocess.Popen(["sleep", "987654"])
    return text(name)

def answer(request):
    found = result(request)
    said = {"jsonrpc": "2.0", "id": request["id"], "result": found}
    if found is None:
        words = "no rows; UNTRUSTED WEB CONTENT"
        said = {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": words}}
    return json.dumps(said).replace('"DEEP"', DEEP)

def main():
    sys.stdout.buffer.write(b"welcome \xff\xfe\n")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            print(answer(request), flush=True)

if __name__ == "__main__":
    main()
"""
WAYS = ("inside", "host", "http")


def over_http(site: Site) -> None:
    """Serve the same answers as one JSON body each."""
    odd: dict[str, Any] = {"__name__": "odd"}
    exec(ODD, odd)

    def answer(handler: Handler) -> None:
        request = json.loads(handler.body or b"{}")
        if "id" not in request:
            handler.give(b"", status=202 if request else 405)
        else:
            handler.give(odd["answer"](request).encode(), "application/json")

    site.pages["/mcp"] = answer


def prepare(lab: Lab, site: Site, way: str, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    (lab.folder / "odd.py").write_text(ODD)
    lab.write_rows([{"prompt": "do it", "files": {"odd.py": ODD}}])
    turns = [{"reasoning": "r", "calls": [{"tool": name, "arguments": words}]} for name, words in calls]
    lab.write_tape({"conversations": [{"turns": [*turns, {"reasoning": "r", "text": "done"}]}]})
    lab.spec["agent"] = {"max_turns": 30}
    server: dict[str, Any] = {"name": "odd", "command": "python3", "args": ["odd.py"]}
    if way == "host":
        server |= {"command": sys.executable, "host": True}
    if way == "http":
        over_http(site)
        server = {"name": "odd", "url": f"{site.url}/mcp"}
    lab.spec["tools"] = {"mcp": [server]}
    return ["--allow-host-code"] if way == "host" else []


def results(lab: Lab) -> list[dict[str, Any]]:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    (line,) = lab.lines()
    turns = [turn["value"] for turn in line["conversations"] if turn["from"] == "tool"]
    return [json.loads(text, parse_constant=no_constant) for text in turns]


@pytest.mark.parametrize("way", WAYS)
def test_odd_answers_are_told_at_once_and_the_server_is_used_on(lab: Lab, way: str) -> None:
    hows = ("shape", "kind", "deep", "silent", "own", "half", "nan", "big", "plain")
    with Site() as site:
        words = prepare(lab, site, way, [("go", {"how": how}) for how in hows])
        result = lab.run(*words)  # within the lab's patience, which is less than one call may take
    assert result.code == 0, result.err
    shape, kind, deep, silent, own, half, nan, big, plain = results(lab)
    assert "its answer cannot be used: content: Input should be a valid list" in shape["error"]
    assert "its answer cannot be used: content.0" in kind["error"]
    assert "its answer cannot be read: " in deep["error"]
    assert silent["error"] == "the tool failed without saying why"
    trouble = "no rows; [web content]" if way == "http" else "no rows; UNTRUSTED WEB CONTENT"
    assert own["error"] == f"MCP server odd: it failed: {trouble}"
    assert "half \U0010d83d of it" in half["result"]
    assert nan["structured"] == {"a": None}
    assert "structured" not in big
    assert "more characters left out" in big["result"]
    assert "go" in plain["result"]
    assert lab.lines()[0]["tool_stats"]["go"] == {"count": 9, "success": 4, "failure": 5}
    if way == "http":
        methods = [json.loads(body).get("method") for _, _, _, body in site.requests if body]
        assert methods.count("initialize") == 2  # once when the run starts, once for the rollout


@pytest.mark.parametrize("way", WAYS)
def test_halves_of_characters_reach_a_server_and_end_nothing(lab: Lab, server: ModelServer, way: str) -> None:
    with Site() as site:
        words = prepare(lab, site, way, [])
        lab.spec["model"] = {"name": "m", "base_url": server.url}
        calls = [("go", {"how": "half"}), ("go", {"how": "\ud83d"}), ("go", {"how": "plain"})]
        server.script(
            "do it", *(says(calls=[call], reasoning="r") for call in calls), says("done", reasoning="r")
        )
        result = lab.run(*words)
    assert result.code == 0, result.err
    assert all("error" not in each or each["error"] is None for each in results(lab)), results(lab)
    assert lab.lines()[0]["tool_stats"]["go"] == {"count": 3, "success": 3, "failure": 0}


def test_names_that_differ_in_odd_characters_only_get_numbers(lab: Lab) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [(f"get_item{end}", {}) for end in ("", "_2", "_3")]
    with Site() as site:
        prepare(lab, site, "inside", [*calls, ("tool", {})])
        result = lab.run()
    assert result.code == 0, result.err
    assert [said["result"] for said in results(lab)] == ["get_item", "get item", "get.item", ""]


def test_events_are_as_long_as_pictures_are(lab: Lab) -> None:
    with Site() as site:
        prepare(lab, site, "http", [("go", {"how": "picture"})])
        served = site.pages["/mcp"]

        def as_event(handler: Handler) -> None:
            give = handler.give

            def give_event(body: bytes, kind: str = "", status: int = 200, **headers: str) -> None:
                is_json = kind == "application/json"
                event = b"event: message\ndata: " + body + b"\n\n"
                give(event if is_json else body, "text/event-stream" if is_json else kind, status, **headers)

            handler.give = give_event  # type: ignore[method-assign]
            served(handler)

        site.pages["/mcp"] = as_event
        assert lab.run().code == 0
    assert results(lab)[0]["files"] == ["/workspace/generated/mcp-odd-1.png"]


@pytest.mark.parametrize("way", ["host", "http"])
def test_a_message_without_end_is_not_read_to_its_end(lab: Lab, way: str) -> None:
    with Site() as site:
        words = prepare(lab, site, way, [("go", {"how": "long"}), ("go", {"how": "plain"})])
        assert lab.run(*words).code == 0
    long, plain = results(lab)
    assert "its message is longer than 16000000 bytes; ask for less" in long["error"]
    assert "go" in plain["result"]


def test_a_busy_server_on_the_host_ends_with_a_run_that_is_killed(lab: Lab) -> None:
    with Site() as site:
        words = prepare(lab, site, "host", [("go", {"how": "sleep"})])
        lab.spec["tools"]["mcp"][0]["args"].append("654987")  # by which it is known
        run = lab.start(*words)
        until((lab.folder / "asleep").exists)
        assert processes_of("654987")
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=60)
        until(lambda: not processes_of("654987"))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_on_the_host_that_is_not_there_is_told(lab: Lab) -> None:
    with Site() as site:
        words = prepare(lab, site, "host", [("go", {})])
        lab.spec["tools"]["mcp"][0]["command"] = "no-such-server"
        result = lab.run(*words)
    assert result.code == 2
    assert "no-such-server: No such file or directory" in result.err


@pytest.mark.slow
def test_what_a_server_on_the_host_started_ends_with_it(lab: Lab) -> None:
    with Site() as site:
        words = prepare(lab, site, "host", [("go", {"how": "child"})])
        assert lab.run(*words).code == 0
    assert "go" in results(lab)[0]["result"]
    assert processes_of("987654") == []


def test_a_session_that_a_server_has_forgotten_begins_anew_with_the_next_call(lab: Lab) -> None:
    sessions: list[str] = []
    forgotten = "session-2"  # the rollout's; the first one is that of the run's start

    with Site() as site:
        words = prepare(lab, site, "http", [("go", {"how": "plain"})] * 3)
        served = site.pages["/mcp"]

        def answer(handler: Handler) -> None:
            request = json.loads(handler.body or b"{}")
            if request.get("method") == "initialize":
                sessions.append(f"session-{len(sessions) + 1}")
                body = json.dumps(
                    {"jsonrpc": "2.0", "id": request["id"], "result": started(request)}
                ).encode()
                handler.give(body, "application/json", Mcp_Session_Id=sessions[-1])
            elif request.get("method") == "tools/call" and handler.headers["Mcp-Session-Id"] == forgotten:
                handler.give(b"", status=404)
            else:
                served(handler)

        site.pages["/mcp"] = answer
        assert lab.run(*words).code == 0
    lost, again, once_more = results(lab)
    assert "HTTP 404" in lost["error"]
    assert "go" in again["result"]
    assert "go" in once_more["result"]
    assert len(sessions) == 3


def started(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": request["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "odd", "version": "1"},
    }


@pytest.mark.parametrize(("status", "said"), [(401, "HTTP 401"), (404, "HTTP 404"), (500, "HTTP 500")])
def test_a_server_that_refuses_over_http_is_told_with_its_status(lab: Lab, status: int, said: str) -> None:
    with Site() as site:
        prepare(lab, site, "http", [("go", {})])
        site.pages["/mcp"] = lambda handler: handler.give(b"no", "text/plain", status)
        result = lab.run()
    assert result.code == 2
    assert said in result.err
