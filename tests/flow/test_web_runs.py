"""Whole runs with the web and the browser: a scripted model, a search endpoint, a site, real Chromium."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.outside.ground import BrowserLeftovers, processes_of
from hermes_run.spec.browser import why_no_browser
from hermes_run.spec.model import Settings
from tests.conftest import require
from tests.flow.lab import Lab
from tests.outside.web import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.outside.web import Handler

pytestmark = pytest.mark.slow

PAGE = (
    "<title>Herons</title><h1>Herons</h1><p>"
    + "They stand in the water and wait. " * 20
    + "</p><button>More</button>"
)
BROWSER = ["browser_navigate", "browser_snapshot", "browser_click", "browser_console", "browser_back"]


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        rows = [{"title": "Herons", "url": f"{site.url}/herons", "content": "About herons"}]
        site.page("/search", json.dumps({"results": rows}), kind="application/json")
        site.page("/herons", PAGE)
        yield site


def turns(site: Site) -> list[dict[str, Any]]:
    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        return {"reasoning": "so", "calls": [{"tool": tool, "arguments": arguments}]}

    return [
        call("web_search", query="herons"),
        call("web_extract", urls=[f"{site.url}/herons"]),
        call("web_extract", urls=["http://127.0.0.1:1/admin"]),
    ]


def browsing(site: Site) -> list[dict[str, Any]]:
    navigate = {"tool": "browser_navigate", "arguments": {"url": f"{site.url}/herons"}}
    return [
        {"reasoning": "so", "calls": [navigate]},
        {"calls": [{"tool": "browser_click", "arguments": {"ref": "@e999"}}]},
        {"calls": [{"tool": "browser_console", "arguments": {"expression": "1 + 1"}}]},
    ]


def lab_of(folder: Path, site: Site, steps: list[dict[str, Any]], **spec: Any) -> Lab:
    lab = Lab(folder, {"distribution": {"web": 100}, **spec})
    lab.spec["tools"] = {"allowed_hosts": [f"127.0.0.1:{site.port}"], **spec.get("tools", {})}
    lab.write_prompts("one", "two", "three")
    lab.write_tape({"conversations": [{"turns": [*steps, {"text": "done", "reasoning": "so"}]}]})
    lab.spec["samples"] = 2
    (folder / "hermes.yaml").write_text(f"web: {{search: searxng, searxng_url: '{site.url}'}}\n")
    return lab


def test_web_tools_are_used_and_counted_in_a_run(site: Site, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, site, turns(site))
    result = lab.run()
    assert result.code == 0, result.err
    lab.assert_sound()
    for line in lab.lines():
        assert line["tool_stats"]["web_search"] == {"count": 1, "success": 1, "failure": 0}
        assert line["tool_stats"]["web_extract"] == {"count": 2, "success": 1, "failure": 1}
        assert line["toolsets_used"] == ["web"]
        assert "They stand in the water" in str(line["conversations"])
        assert "may not be reached from here" in str(line["conversations"])
    asked = [path.partition("?")[0] for _, path, _, _ in site.requests]
    assert sorted(asked) == ["/herons", "/search"]


def test_engine_is_part_of_the_work(site: Site, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, site, turns(site))
    assert lab.run().code == 0
    (tmp_path / "hermes.yaml").write_text(
        f"web: {{search: firecrawl, searxng_url: '{site.url}', urls: {{firecrawl: '{site.url}'}}}}\n"
    )
    refused = lab.run()
    assert refused.code == 2
    assert "tools.web.search" in refused.err
    lab.spec["tools"]["web"] = {"search": "searxng"}
    assert lab.run().code == 0


def test_run_without_an_engine_stops_before_anything_is_run(site: Site, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, site, turns(site))
    (tmp_path / "hermes.yaml").unlink()
    refused = lab.run()
    assert refused.code == 2
    assert "there is no search engine; choose one in hermes.yaml" in refused.err
    assert not (lab.run_dir / "journal.jsonl").exists()
    dry = lab.run("--dry-run")
    assert dry.code == 2
    for words, cure in (
        (("--distribution", "minimal"), 'with --without web nothing of the distribution "minimal" is left'),
        (("--distribution", "terminal_web"), "leave it out: --without web"),
    ):
        assert cure in lab.run(*words).err


def test_cassette_makes_a_run_repeatable_without_the_web(site: Site, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, site, turns(site)[:2], tools={"web": {"cassette": "web.jsonl"}})
    assert lab.run().code == 0
    first = lab.lines()
    asked = len(site.requests)
    lab.spec["tools"]["web"]["replay_only"] = True
    assert lab.run("--fresh").code == 0
    assert len(site.requests) == asked
    again = lab.lines()
    assert [line["conversations"] for line in again] == [line["conversations"] for line in first]


def test_cassette_is_replayed_where_no_engine_works(site: Site, tmp_path: Path) -> None:
    web = {"search": "tavily", "cassette": "web.jsonl"}
    lab = lab_of(tmp_path, site, turns(site)[:2], tools={"web": web})
    answer = json.dumps({"results": [{"title": "Herons", "url": f"{site.url}/herons", "content": "x"}]})
    site.page("/tavily/search", answer, kind="application/json")
    pair = f"{{variable: TAVILY_API_KEY, host: 127.0.0.1:{site.port}}}"
    machine = f"web: {{urls: {{tavily: '{site.url}/tavily'}}}}\nkeys: [{pair}]\n"
    (tmp_path / "hermes.yaml").write_text(machine)
    lab.env["TAVILY_API_KEY"] = "tvly-1234567890"
    assert lab.run().code == 0
    first = [line["conversations"] for line in lab.lines()]
    asked = len(site.requests)
    (tmp_path / "hermes.yaml").write_text("")  # somebody else's machine, without the key
    lab.env["TAVILY_API_KEY"] = ""
    assert lab.run("--fresh").code == 2
    web["replay_only"] = True  # type: ignore[assignment]
    for words in (("--fresh", "--dry-run"), ("--fresh",)):
        result = lab.run(*words)
        assert result.code == 0, result.err
    assert [line["conversations"] for line in lab.lines()] == first
    assert len(site.requests) == asked


def slowly(handler: Handler) -> None:
    time.sleep(0.3)
    handler.give(PAGE.encode())


def needs_chromium() -> None:
    why = why_no_browser(Settings())
    if why:
        require("chromium", why)


@pytest.mark.chromium
def test_browser_is_used_and_counted_in_a_run_and_gone_afterwards(site: Site, tmp_path: Path) -> None:
    needs_chromium()
    spec = {"distribution": {"mine": 100}, "toolsets": {"mine": BROWSER}}
    lab = lab_of(tmp_path, site, browsing(site), **spec)
    before = {leftover.handle for leftover in BrowserLeftovers().leftovers()}
    result = lab.run(timeout_s=180)
    assert result.code == 0, result.err
    lab.assert_sound()
    for line in lab.lines():
        assert line["tool_stats"]["browser_navigate"] == {"count": 1, "success": 1, "failure": 0}
        assert line["tool_stats"]["browser_click"] == {"count": 1, "success": 0, "failure": 1}
        assert line["tool_stats"]["browser_console"]["success"] == 1
        assert "[ref=e" in str(line["conversations"])
    assert {leftover.handle for leftover in BrowserLeftovers().leftovers()} == before


@pytest.mark.chromium
@pytest.mark.slow
def test_browser_that_does_not_start_stops_the_run_before_anything_is_spent(
    site: Site, tmp_path: Path
) -> None:
    needs_chromium()
    lab = lab_of(tmp_path, site, browsing(site), distribution={"mine": 100}, toolsets={"mine": BROWSER})
    text = (tmp_path / "hermes.yaml").read_text()
    (tmp_path / "hermes.yaml").write_text(f"{text}browser: {{executable_path: /usr/bin/true}}\n")
    refused = lab.run()
    assert refused.code == 2, refused.err
    assert 'the toolset "mine" cannot work here: the browser' in refused.err
    assert "--without mine" in refused.err
    assert lab.lines("journal.jsonl") == []
    doctor = lab.call("doctor", "--json")
    chromium = next(check for check in json.loads(doctor.out)["checks"] if check["name"] == "chromium")
    assert chromium["works"] is False
    (tmp_path / "hermes.yaml").write_text(text)
    assert lab.run(timeout_s=120).code == 0


@pytest.mark.chromium
@pytest.mark.slow
def test_killed_run_leaves_a_browser_folder_that_clean_removes(site: Site, tmp_path: Path) -> None:
    needs_chromium()
    site.pages["/herons"] = slowly
    spec = {"distribution": {"mine": 100}, "toolsets": {"mine": BROWSER}, "run_name": "killed_browsing"}
    lab = lab_of(tmp_path, site, browsing(site) * 3, **spec)
    child = lab.start()
    end = time.monotonic() + 60
    while not site.requests and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    left = [one for one in BrowserLeftovers().leftovers() if one.run == "killed_browsing"]
    assert len(left) == 1
    cleaned = lab.call("clean", "--run", "killed_browsing", "--json")
    assert cleaned.code == 0, cleaned.err
    assert "chromium" in [entry["backend"] for entry in json.loads(cleaned.out)["removed"]]
    assert not Path(left[0].handle).exists()
    assert processes_of(left[0].handle) == []
    assert lab.run(timeout_s=180).code == 0


@pytest.mark.chromium
@pytest.mark.slow
def test_interrupt_from_a_terminal_leaves_the_browser_to_those_who_finish(site: Site, tmp_path: Path) -> None:
    needs_chromium()
    site.pages["/herons"] = slowly
    spec = {"distribution": {"mine": 100}, "toolsets": {"mine": BROWSER}, "workers": 1}
    lab = lab_of(tmp_path, site, browsing(site) * 3, **spec)
    path = lab.write_spec()
    child = subprocess.Popen(
        lab.command("run", str(path)),
        cwd=tmp_path,
        env=lab.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    end = time.monotonic() + 60
    while not any(path == "/herons" for _, path, _, _ in site.requests) and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGINT)  # as Ctrl-C does: to everything of the terminal's group
    _, told = child.communicate(timeout=90)
    assert child.returncode == 130, told
    assert dict(lab.statuses()) == {"completed": 1}
