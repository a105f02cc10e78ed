"""Whole runs on docker: an image per prompt, nothing lost, nothing left behind."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import require
from tests.contracts.sandboxes import what_is_missing
from tests.flow.lab import Lab
from tests.flow.replies import conversations, turns
from tests.images import BASH, BUSYBOX, NO_SHELL, OTHER_CPU, build
from tests.roots import small_root
from tests.sandboxes.small_registry import small_registry
from tests.servers import Answer, ModelServer, Request, says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from docker import DockerClient

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerClient]:
    reason = what_is_missing("docker")
    if isinstance(reason, str):
        require("docker", reason)
    build(BUSYBOX, BASH, NO_SHELL, OTHER_CPU)
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        running.respond = turns(3)
        yield running


def lab_at(server: ModelServer, folder: Path, rows: list[dict[str, Any]], **sandbox: Any) -> Lab:
    lab = Lab(folder, {"sandbox": {"backend": "docker", **sandbox}, "run_name": f"docker-{folder.name}"[:60]})
    lab.write_rows(rows)
    lab.use_server(server.url)
    return lab


def labelled(daemon: DockerClient, run: str) -> list[str]:
    """What the daemon still has of a run."""
    mine = {"label": f"hermes-run.run={run}"}
    found = [each["Id"] for each in daemon.api.containers(all=True, filters=mine)]
    found += [each["Id"] for each in daemon.api.networks(filters=mine)]
    return found + [each["Name"] for each in daemon.api.volumes(filters=mine)["Volumes"] or ()]


class EmptyRegistry(BaseHTTPRequestHandler):
    """A registry without any image."""

    def do_GET(self) -> None:
        body = b"{}" if self.path == "/v2/" else b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'
        self.send_response(200 if self.path == "/v2/" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    """Its host and port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyRegistry) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{http.server_port}"
        http.shutdown()


def test_each_prompt_runs_in_its_own_image_and_its_digest_is_kept(
    daemon: DockerClient, server: ModelServer, tmp_path: Path
) -> None:
    def respond(request: Request) -> Answer:
        if request.turn:
            return says("done", reasoning="r")
        return says(
            "", calls=[("terminal", {"command": "cat /etc/os-release; command -v bash; pwd"})], reasoning="r"
        )

    server.respond = respond
    rows = [
        {"prompt": "[a]", "image": BASH},
        {"prompt": "[b]", "docker_image": BUSYBOX, "cwd": "/some/where"},
        {"prompt": "[c]"},
    ]
    lab = lab_at(server, tmp_path, rows, image=BUSYBOX)
    planned = lab.run("--dry-run", "--json").json()
    assert planned["images"] == {BASH: True, BUSYBOX: True}
    assert lab.run().code == 0
    said = {line["conversations"][0]["value"]: line["conversations"][2]["value"] for line in lab.lines()}
    assert ["/bash" in said[name] for name in ("[a]", "[b]", "[c]")] == [True, False, False]
    assert "/some/where" in said["[b]"]
    ids = {image: daemon.images.get(image).id for image in (BASH, BUSYBOX)}
    digests = [line["metadata"]["image_digest"] for line in lab.lines()]
    assert digests == [ids[BASH], ids[BUSYBOX], ids[BUSYBOX]]
    assert {entry["image_digest"] for entry in lab.entries().values()} == set(ids.values())
    lab.assert_sound()
    assert labelled(daemon, str(lab.spec["run_name"])) == []


def test_a_start_that_fails_in_its_image_names_that_image(
    daemon: DockerClient, server: ModelServer, tmp_path: Path
) -> None:
    lab = lab_at(server, tmp_path, [{"prompt": "[a]", "cwd": "/etc/passwd/x"}], image=BUSYBOX)
    assert lab.run().code == 1
    (entry,) = lab.entries().values()
    assert (entry["reason"], entry["image_digest"]) == ("sandbox_start", daemon.images.get(BUSYBOX).id)
    assert server.requests == []


def test_the_wait_for_an_image_is_not_the_prompts_time(
    daemon: DockerClient, server: ModelServer, tmp_path: Path
) -> None:
    with small_registry() as slow:
        slow.put("slow:1", small_root())
        slow.delay_s = 2.0
        name = f"{slow.host}/slow:1"
        lab = lab_at(server, tmp_path, [{"prompt": "[a]"}, {"prompt": "[b]"}], image=name)
        server.respond = turns(4, delay_s=2)
        lab.spec["agent"] = {**lab.spec.get("agent", {}), "prompt_timeout_s": 14}
        try:
            assert lab.run().code == 0
            assert len(slow.asked) * slow.delay_s + 4 * 2 > 14
        finally:
            daemon.images.remove(name, force=True)
    assert {entry["status"] for entry in lab.entries().values()} == {"completed"}


def test_images_that_cannot_be_had_fail_their_prompts_at_no_cost_and_the_others_finish(
    daemon: DockerClient, server: ModelServer, registry: str, tmp_path: Path
) -> None:
    missing = f"{registry}/there/is/none:1"
    rows = [
        {"prompt": "[good 1]", "image": BUSYBOX},
        *({"prompt": f"[missing {number}]", "image": missing} for number in range(3)),
        {"prompt": "[no shell]", "image": NO_SHELL},
        {"prompt": "[other cpu]", "image": OTHER_CPU},
        {"prompt": "[good 2]", "image": BASH},
    ]
    lab = lab_at(server, tmp_path, rows)
    assert lab.run("--dry-run", "--json").json()["images"][missing] is False
    done = lab.run(timeout_s=300)
    assert done.code == 1
    assert set(conversations(server)) == {"[good 1]", "[good 2]"}
    failed = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert Counter(entry["reason"] for entry in failed) == {"image": 4, "sandbox_start": 1}
    assert len({entry["error"] for entry in failed if missing in entry["error"]}) == 1
    assert all(entry["api_calls"] == 0 and entry["error"] for entry in failed)
    lab.assert_sound()
    assert labelled(daemon, str(lab.spec["run_name"])) == []


@pytest.mark.usefixtures("daemon")
def test_a_host_folder_is_no_image(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path, [{"prompt": "x", "image": BUSYBOX}, {"prompt": "y", "image": "/etc"}])
    refused = lab.run()
    assert (refused.code, server.requests) == (2, [])
    assert 'data.jsonl:2: the image "/etc" is a path of this machine' in refused.err


@pytest.mark.usefixtures("daemon")
def test_ids_that_are_no_legal_names_stay_labels(
    daemon: DockerClient, server: ModelServer, tmp_path: Path
) -> None:
    ids = ["a:b", "../c", "x" * 300, "", "ümläut ☃", "Case", "case", 7, "a b\n\tc"]
    server.respond = turns(2, delay_s=0.5)
    lab = lab_at(server, tmp_path, [{"prompt": "same", "id": each} for each in ids], image=BUSYBOX)
    lab.spec["workers"] = len(ids)
    running = lab.start()
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    while running.poll() is None and time.monotonic() < deadline:
        for each in daemon.api.containers(filters={"label": f"hermes-run.run={lab.spec['run_name']}"}):
            seen.add(each["Labels"]["hermes-run.row"])
        time.sleep(0.1)
    running.communicate(timeout=60)
    assert running.returncode == 0
    assert lab.statuses() == {"completed": len(ids)}
    assert {"a:b", "../c", "Case", "case", "x" * 300} <= seen


def test_a_container_that_is_removed_from_outside_fails_its_prompt_alone_and_at_once(
    daemon: DockerClient, server: ModelServer, tmp_path: Path
) -> None:
    run = f"docker-{tmp_path.name}"[:60]

    def respond(request: Request) -> Answer:
        if request.prompt == "[victim]" and request.turn == 1:
            (victim,) = daemon.containers.list(
                filters={"label": [f"hermes-run.run={run}", "hermes-run.row=victim"]}
            )
            victim.remove(force=True)
        return ordinary(request)

    ordinary = turns(4)
    server.respond = respond
    rows = [{"prompt": "[victim]", "id": "victim"}, *({"prompt": f"[{number}]"} for number in range(5))]
    lab = lab_at(server, tmp_path, rows, image=BUSYBOX)
    assert lab.run().code == 1
    (lost,) = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert lost["reason"] == "sandbox_lost"
    assert sum(request.prompt == "[victim]" for request in server.requests) <= 3
    server.respond = turns(4)
    assert lab.run().code == 0
    lab.assert_sound()


@pytest.mark.usefixtures("daemon")
def test_canaries_of_the_host_are_seen_nowhere(server: ModelServer, tmp_path: Path) -> None:
    canary = "canary-7f3a9c51"
    (tmp_path / "secret.txt").write_text(canary)

    def respond(request: Request) -> Answer:
        if request.turn:
            return says("done", reasoning="r")
        look = [
            "env",
            "set",
            "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'",
            "ls -la / /tmp",
            "mount",
        ]
        look += [f"cat {tmp_path}/secret.txt", "find / -xdev -name secret.txt"]
        command = f"{{ {'; '.join(look)}; }} 2>/dev/null"
        return says("", calls=[("terminal", {"command": command})], reasoning="r")

    server.respond = respond
    lab = lab_at(server, tmp_path, [{"prompt": "look", "image": BASH}])
    lab.env["HERMES_CANARY"] = canary
    assert lab.run().code == 0
    assert b"PATH=" in (lab.run_dir / "trajectories.jsonl").read_bytes()
    for path in lab.run_dir.rglob("*"):
        assert not path.is_file() or canary.encode() not in path.read_bytes(), path


@pytest.mark.usefixtures("daemon")
def test_two_prompts_never_see_each_other(server: ModelServer, tmp_path: Path) -> None:
    command = (
        "for file in /tmp/same same ~/.profile; do echo export PROMPT_OF=$PROMPT_OF >>$file; cat $file; done"
    )

    def respond(request: Request) -> Answer:
        if request.turn >= 2:
            return says("done", reasoning="r")
        first = f"export PROMPT_OF='{request.prompt}'; " if not request.turn else ""
        return says("", calls=[("terminal", {"command": first + command})], reasoning="r", delay_s=0.3)

    server.respond = respond
    rows = [{"prompt": f"p{number}", "image": BASH} for number in range(6)]
    lab = lab_at(server, tmp_path, rows)
    lab.spec["workers"] = 6
    assert lab.run().code == 0
    for line in lab.lines():
        mine = line["conversations"][0]["value"]
        heard = " ".join(turn["value"] for turn in line["conversations"] if turn["from"] == "tool")
        assert mine in heard
        assert not [f"p{number}" for number in range(6) if f"p{number}" != mine and f"p{number}" in heard]


@pytest.mark.usefixtures("daemon")
def test_a_set_up_that_leaves_no_room_for_the_next_command_fails_its_start(
    server: ModelServer, tmp_path: Path
) -> None:
    fill = "i=0; while [ $i -lt 20 ]; do sleep 600 & i=$((i+1)); done"
    rows: list[dict[str, Any]] = [
        {"prompt": "[full]", "setup": [fill, f": {'x' * 3_000_000}"]},
        {"prompt": "[works]"},
    ]
    lab = lab_at(server, tmp_path, rows, image=BUSYBOX, pids=20)
    assert lab.run().code == 1
    (failed,) = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert (failed["reason"], failed["api_calls"]) == ("sandbox_start", 0)
    assert "set-up" in failed["error"]


@pytest.mark.slow
def test_200_prompts_killed_ten_times_lose_and_repeat_nothing_and_leave_nothing(
    daemon: DockerClient, tmp_path: Path
) -> None:
    bystander = daemon.containers.run(BUSYBOX, ["sleep", "1000"], detach=True, labels={"mine": "yes"})
    dice = random.Random(7)
    try:
        with ModelServer() as server:
            server.respond = turns(3, delay_s=0.05)
            rows: list[dict[str, Any]] = [
                {"prompt": f"[{number}] work", "id": number} for number in range(200)
            ]
            lab = lab_at(server, tmp_path, rows, image=BUSYBOX)
            lab.spec |= {"workers": 16, "batch_size": 10}
            for _ in range(10):
                lab.kill_after(dice.uniform(1.0, 6.0))
            final = lab.run(timeout_s=500)
            assert final.code == 0, final.err
            assert lab.statuses() == {"completed": 200}
            lab.assert_sound()
            answered = Counter(request.prompt for request in server.requests if request.turn == 2)
            assert set(answered) == {f"[{number}] work" for number in range(200)}
            assert sum(answered.values()) <= 200 + 10 * 16  # what was in flight at a kill runs again
        cleaned = lab.call("clean", "--run", str(lab.run_dir), "--json")
        assert cleaned.code == 0, cleaned.err
        assert labelled(daemon, str(lab.spec["run_name"])) == []
        bystander.reload()
        assert bystander.status == "running"
        assert json.loads(lab.call("clean", "--run", str(lab.run_dir), "--json").out)["removed"] == []
    finally:
        bystander.remove(force=True)
