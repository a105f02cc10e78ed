"""C19: one fetch for each image, however many prompts; a missing backend stops before any prompt."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests import images, modal_place, registry
from tests.cases.places import at
from tests.flow.replies import conversations, turns
from tests.roots import small_root
from tests.sandboxes.small_registry import small_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.flow.lab import Lab
    from tests.servers import ModelServer, Request

IMAGES = [
    pytest.param(name, marks=[getattr(pytest.mark, name), *([] if name == "modal" else [pytest.mark.slow])])
    for name in ("docker", "singularity", "modal")
]
NEEDS = {"docker": "install docker", "singularity": "install apptainer", "modal": "MODAL_TOKEN_ID"}
ROWS = 20
"""Prompts of each image."""


class Shelves:
    """Three images, and how often the two that are there were asked for by their tag."""

    def __init__(self, good: str, busy: str, missing: str, asked: Callable[[], Counter[str]]) -> None:
        self.all = good, busy, missing
        self.asked = asked


@contextmanager
def shelves(name: str, folder: Path) -> Iterator[Shelves]:
    """The first is there, the registry of the second refuses twice, the third does not exist."""
    with ExitStack() as stack:
        if name == "docker":
            host = stack.enter_context(registry.registry(folder / "registry"))
            free, of_free = stack.enter_context(registry.busy(host))
            busy, of_busy = stack.enter_context(registry.busy(host, times=2))
            registry.push(images.BUSYBOX, f"{host}/good:1")
            registry.push(images.WORKDIR, f"{host}/busy:1")
            logs = [of_free, of_busy]
            count = lambda: Counter(path for log in logs for path in log if path.endswith("/1"))  # noqa: E731
            stack.callback(images.remove, f"{free}/good:1", f"{busy}/busy:1")
            yield Shelves(f"{free}/good:1", f"{busy}/busy:1", f"{free}/none:1", count)
        elif name == "singularity":
            one, two = (stack.enter_context(small_registry()) for _ in range(2))
            one.put("good:1", small_root(has_bash=False))
            two.put("busy:1", small_root(has_bash=False), config={"WorkingDir": "/srv"})
            two.refusals = [429, 429]
            paths = [one.asked, two.asked]
            count = lambda: Counter(  # noqa: E731
                line.partition(" ")[2] for log in paths for line in log if line.endswith("/manifests/1")
            )
            yield Shelves(f"{one.host}/good:1", f"{two.host}/busy:1", f"{one.host}/none:1", count)
        else:
            yield Shelves(modal_place.BASH, modal_place.BUSYBOX, "test/none:1", Counter)


@pytest.mark.parametrize("name", IMAGES)
def test_sixty_prompts_of_three_images_fetch_each_once_before_the_model_is_asked(
    lab: Lab, server: ModelServer, name: str, tmp_path: Path
) -> None:
    at(lab, name)
    lab.spec |= {"run_name": f"c19-{os.getpid()}-{name}", "workers": 20, "batch_size": 20}
    ordinary = turns(2)
    with shelves(name, tmp_path) as made:
        good, busy, missing = made.all
        too_early: list[str] = []

        def respond(request: Request) -> object:
            if "[busy" in request.prompt and name != "modal" and made.asked().total() < 3:
                too_early.append(request.prompt)
            return ordinary(request)

        server.respond = respond  # type: ignore[assignment]
        by_word = {"good": good, "busy": busy, "none": missing}
        rows = [{"prompt": f"[{word} {n}]", "image": by_word[word]} for n in range(ROWS) for word in by_word]
        lab.write_rows(rows)
        lab.use_server(server.url)
        if name == "singularity":
            (lab.folder / "hermes.yaml").write_text(f"sandbox: {{image_cache: {tmp_path / 'cache'}}}\n")
        planned = lab.run("--dry-run", "--json").json()
        if name != "modal":
            assert planned["images"] == {good: False, busy: False, missing: False}
        done = lab.run(timeout_s=240)
        asked = made.asked()
    assert done.code == 1, done.err
    assert not too_early
    assert lab.statuses() == {"completed": 2 * ROWS, "failed": ROWS}
    failed = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert {(entry["reason"], entry["api_calls"]) for entry in failed} == {("image", 0)}
    (error,) = {entry["error"] for entry in failed}
    assert missing in error
    assert not [prompt for prompt in conversations(server) if "[none" in prompt]
    digests = {line["metadata"]["image_digest"] for line in lab.lines()}
    assert len(digests) == 2
    assert digests == {e["image_digest"] for e in lab.entries().values() if e["status"] == "completed"}
    if name != "modal":  # each try is a HEAD and a GET at most
        assert all(digest.startswith("sha256:") for digest in digests)
        assert {path.split("/")[2] for path in asked} == {"good", "busy", "none"}
        assert all(times <= (6 if "/busy/" in path else 2) for path, times in asked.items()), asked
    lab.assert_sound()


@pytest.mark.parametrize(
    ("backend", "has_image"),
    [(name, has_image) for name in NEEDS for has_image in (True, False)],
)
def test_a_missing_backend_stops_before_any_prompt_with_the_cure(
    lab: Lab, server: ModelServer, backend: str, has_image: bool, tmp_path: Path
) -> None:
    lab.write_rows([{"prompt": "x", **({"image": "some/image:1"} if has_image else {})}])
    lab.use_server(server.url)
    lab.spec["sandbox"] = {"backend": backend, "image": "some/default:1"}
    lab.env |= {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "PATH": str(tmp_path)}
    lab.env |= {"MODAL_CONFIG_PATH": os.devnull, "MODAL_TOKEN_ID": "", "MODAL_TOKEN_SECRET": ""}
    stopped = lab.run()
    assert (stopped.code, server.requests) == (4, [])
    assert NEEDS[backend] in stopped.err
    assert "Traceback" not in stopped.err
    assert lab.run("--dry-run").code == 0  # the plan needs no backend


def test_auto_with_images_says_which_container_backend_it_would_take(
    lab: Lab, server: ModelServer, tmp_path: Path
) -> None:
    lab.write_rows([{"prompt": "x", "image": "some/image:1"}])
    lab.use_server(server.url)
    lab.spec["sandbox"] = {"backend": "auto"}
    lab.env |= {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "PATH": str(tmp_path)}
    stopped = lab.run()
    assert (stopped.code, "Docker daemon" in stopped.err) == (4, True)
    assert "sandbox.backend=local" not in stopped.err  # where a row has an image that would be refused
    (lab.folder / "hermes.yaml").write_text("sandbox: {container: singularity}\n")
    stopped = lab.run()
    assert (stopped.code, "apptainer" in stopped.err, server.requests) == (4, True, [])


def test_a_row_with_two_different_images_is_refused_with_its_line(lab: Lab, server: ModelServer) -> None:
    lab.write_rows([{"prompt": "a"}, {"prompt": "b", "image": "one:1", "docker_image": "two:1"}])
    lab.use_server(server.url)
    for refused in (lab.run(), lab.call("validate", str(lab.write_spec()))):
        assert (refused.code, server.requests) == (2, [])
        assert "data.jsonl:2" in refused.err + refused.out


@pytest.mark.docker
def test_an_image_for_another_cpu_fails_its_prompt_by_name(lab: Lab, server: ModelServer) -> None:
    at(lab, "docker")
    images.build(images.OTHER_CPU)
    server.respond = turns(2)
    lab.write_rows([{"prompt": "a", "image": images.OTHER_CPU}, {"prompt": "b"}])
    lab.use_server(server.url)
    assert lab.run().code == 1
    (failed,) = [entry for entry in lab.entries().values() if entry["status"] == "failed"]
    assert (failed["reason"], failed["api_calls"]) == ("image", 0)
    assert "linux/s390x" in failed["error"]
    assert list(conversations(server)) == ["b"]


@pytest.fixture
def silent() -> Iterator[str]:
    """A registry that takes connections and says nothing: its host."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=getattr(pytest.mark, each)) for each in ("docker", "singularity")],
)
def test_a_registry_that_says_nothing_holds_up_neither_the_others_nor_the_end(
    lab: Lab, server: ModelServer, name: str, silent: str
) -> None:
    at(lab, name)
    server.respond = turns(2)
    lab.write_rows([{"prompt": "[waits]", "image": f"{silent}/some/image:1"}, {"prompt": "[works]"}])
    lab.use_server(server.url)
    lab.spec["agent"] = {"prompt_timeout_s": 4}
    began = time.monotonic()
    assert lab.run().code == 1
    assert time.monotonic() - began < 30
    assert {entry["status"]: entry["reason"] for entry in lab.entries().values()} == {
        "failed": "image",
        "completed": "finished",
    }
    assert "agent.prompt_timeout_s (4 s)" in next(
        entry["error"] for entry in lab.entries().values() if entry["error"]
    )
    assert list(conversations(server)) == ["[works]"]
    lab.assert_sound()
    lab.spec["agent"] = {}
    running = lab.start("--accept-spec-change")
    time.sleep(3)
    for _ in range(2):  # the second leaves at once
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
    running.communicate(timeout=10)
    assert running.returncode == 130
