"""Each of the 17 distributions from end to end: real Chromium, a search engine, helper models, MCP servers.

All over real connections on loopback; only the agent's own model is a tape, which calls every tool there is.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from hermes_run.core.registry import TOOLS
from hermes_run.core.toolsets import tools_of
from hermes_run.spec.browser import why_no_browser
from hermes_run.spec.distributions import FOLDER
from hermes_run.spec.model import Settings
from tests.conftest import require
from tests.servers import Answer, Request, says

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import ModelServer

SERVER = (Path(__file__).parents[2] / "examples/mcp_server.py").read_text()
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PAGE = b"<html><title>Trees</title><body><h1>Trees</h1><p>An oak is a tree of many years and much shade.</p>"
PAGE += b"<a href='/page'>again</a><img src='/pixel.png' alt='dot'></body></html>"
EXTRA = ["add", "mine_terminal", "variable", "picture", "fail"]


def respond(request: Request) -> Answer:
    """The whole world of these runs."""
    path = request.path.partition("?")[0]
    if path == "/search":
        hit = {"title": "Trees", "url": "https://example.org/", "content": "about trees"}
        return Answer(body=json.dumps({"results": [hit]}).encode())
    if path == "/page":
        return Answer(body=PAGE, headers={"Content-Type": "text/html; charset=utf-8"})
    if path == "/pixel.png":
        return Answer(body=PIXEL, headers={"Content-Type": "image/png"})
    if path == "/v1/chat/completions":
        return says("a tree")
    if path == "/v1/images/generations":
        return Answer(body=json.dumps({"data": [{"b64_json": base64.b64encode(PIXEL).decode()}]}).encode())
    return Answer(status=404)


def tape(place: str) -> dict[str, Any]:
    calls = [
        ("terminal", {"command": "echo 1 >one.txt"}),
        ("process", {"action": "list"}),
        ("write_file", {"path": "two.txt", "content": "2\n"}),
        ("read_file", {"path": "two.txt"}),
        ("patch", {"path": "two.txt", "old_string": "2", "new_string": "3"}),
        ("search_files", {"pattern": "3"}),
        ("web_search", {"query": "trees"}),
        ("web_extract", {"urls": [f"{place}/page"]}),
        ("vision_analyze", {"image_url": f"{place}/pixel.png", "question": "what?"}),
        ("image_generate", {"prompt": "a tree"}),
        ("browser_navigate", {"url": f"{place}/page"}),
        ("browser_snapshot", {}),
        ("browser_get_images", {}),
        ("browser_console", {"expression": "document.title"}),
        ("browser_vision", {"question": "what?"}),
        ("add", {"a": 1, "b": 2}),
    ]
    made = [{"tool": name, "arguments": arguments} for name, arguments in calls]
    return {
        "conversations": [{"turns": [{"reasoning": "r", "calls": made}, {"reasoning": "r", "text": "done"}]}]
    }


@pytest.fixture(scope="module")
def _chromium() -> None:
    why = why_no_browser(Settings())
    if why:
        require("chromium", why)


@pytest.mark.slow
@pytest.mark.chromium
@pytest.mark.usefixtures("_chromium")
@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.yaml"))])
def test_distribution_runs_from_end_to_end(lab: Lab, server: ModelServer, name: str) -> None:
    server.respond = respond
    place = f"http://127.0.0.1:{server.port}"
    machine = {
        "endpoints": {"local": {"base_url": server.url, "api_key_env": None}},
        "web": {"search": "searxng", "searxng_url": place},
        "vision": {"endpoint": "local", "model": "eye"},
        "images": {"endpoint": "local", "model": "brush"},
    }
    (lab.folder / "hermes.yaml").write_text(yaml.safe_dump(machine))
    lab.write_rows([{"prompt": f"task {n}", "files": {"server.py": SERVER}} for n in range(4)])
    lab.write_tape(tape(place))
    lab.spec |= {
        "distribution": name,
        "workers": 2,
        "filters": {"reject_unknown_tools": False},
        "tools": {
            "allowed_hosts": [f"127.0.0.1:{server.port}"],
            "mcp": [{"name": "mine", "command": "python3", "args": ["server.py"]}],
        },
    }
    result = lab.run(timeout_s=200)
    assert result.code == 0, result.err
    lines = lab.lines()
    assert len(lines) == 4
    for line in lines:
        offered = {tool for toolset in line["toolsets_used"] for tool in tools_of(toolset)} | {"add"}
        results = {t["name"]: t["value"] for t in line["conversations"] if t["from"] == "tool"}
        for tool, text in results.items():
            counts = line["tool_stats"][tool]
            assert counts == {
                "count": 1,
                "success": int(tool in offered),
                "failure": int(tool not in offered),
            }, text
        assert [*line["tool_stats"]] == [*TOOLS, *EXTRA]
    lab.assert_sound()
