"""Images from a registry: each fetched once, with patience, and refused for one clear reason."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import TYPE_CHECKING

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.errors import SandboxError
from hermes_run.sandboxes import _docker_images, _images
from hermes_run.sandboxes.docker import DockerBackend
from hermes_run.spec.model import Settings
from tests import images
from tests.conftest import require
from tests.contracts.sandboxes import what_is_missing
from tests.registry import busy, push, push_from_store, registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_run.core.contracts import SandboxInfo

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = what_is_missing("docker")
    if isinstance(missing, str):
        require("docker", missing)
    monkeypatch.setattr(_images, "_FIRST_WAIT_S", 0.05)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """A registry."""
    with registry(tmp_path / "registry") as name:
        yield name


def opened(*names: str) -> list[SandboxInfo | SandboxError]:
    """What came of opening a sandbox from each of `names`, all at once, by one backend."""

    async def main() -> list[SandboxInfo | SandboxError]:
        backend = DockerBackend("registry-run", Settings())

        async def one(number: int, image: str) -> SandboxInfo | SandboxError:
            request = SandboxRequest(run="registry-run", key=f"{number}#0", image=image)
            try:
                async with backend.open(request) as box:
                    assert (await box.exec("echo ok", timeout_s=20)).output == b"ok\n"
                    return box.info
            except SandboxError as error:
                return error

        try:
            return list(await asyncio.gather(*(one(number, name) for number, name in enumerate(names))))
        finally:
            await backend.aclose()
            _forget(*names)

    return asyncio.run(main())


def _forget(*names: str) -> None:
    from docker.errors import APIError

    with images.daemon() as client:
        for name in set(names):
            try:
                client.remove_image(name.removeprefix("docker://"), force=True)
            except APIError:
                continue


def refused(name: str) -> str:
    """Why there is no sandbox from an image."""
    (error,) = opened(name)
    assert isinstance(error, SandboxError)
    assert error.reason == "image"
    return str(error)


def test_image_is_fetched_and_known_by_the_registrys_digest(host: str) -> None:
    push(images.BUSYBOX, f"{host}/some/busybox:2")
    (info,) = opened(f"docker://{host}/some/busybox:2")
    assert not isinstance(info, SandboxError)
    assert info.image_digest.startswith("sha256:")
    (again,) = opened(f"{host}/some/busybox@{info.image_digest}")
    assert not isinstance(again, SandboxError)
    assert again.image_digest == info.image_digest


def test_busy_registry_is_asked_again_and_once_for_all_prompts(host: str) -> None:
    push(images.BUSYBOX, f"{host}/busybox:1")
    push(images.WORKDIR, f"{host}/workdir:1")
    with busy(host, times=2) as (name, asked):
        found = opened(*[f"{name}/busybox:1"] * 6, f"{name}/none:1", *[f"{name}/workdir:1"] * 3)
    assert [isinstance(each, SandboxError) for each in found] == [False] * 6 + [True] + [False] * 3
    assert "does not exist" in str(found[6])
    tags = [path for path in asked if path.endswith("/busybox/manifests/1")]
    assert 1 <= len(tags) <= 6  # a HEAD and a GET of each try


def test_registry_that_stays_busy_fails_the_image_with_a_cure(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_images, "_TRIES", 2)
    with busy(host, times=1000) as (name, _):
        assert "too many requests" in refused(f"{name}/busybox:1")


def test_image_that_does_not_exist_is_said_not_to(host: str) -> None:
    text = refused(f"{host}/none:1")
    assert text == (f'the image "{host}/none:1" does not exist in its registry: check its name and tag')
    push(images.BUSYBOX, f"{host}/busybox:1")
    assert "does not exist" in refused(f"{host}/busybox:nine")


def test_image_for_another_cpu_is_refused_from_a_registry_too(host: str) -> None:
    push(images.OTHER_CPU, f"{host}/other:1")
    assert "linux/" in refused(f"{host}/other:1")


def test_registry_that_is_down_is_asked_again_and_then_said_to_be_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_images, "_TRIES", 2)
    assert "cannot be reached" in refused("127.0.0.1:1/busybox:1")


def test_fetch_that_stands_still_is_given_up(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "_TRIES", 1)
    monkeypatch.setattr(_docker_images, "_STALL_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        port = silent.getsockname()[1]
        assert "nothing comes any more" in refused(f"127.0.0.1:{port}/busybox:1")
    with images.daemon() as client:  # of a layer that the daemon does not have any more when it fetches it
        client.import_image_from_data(images.busybox(os.urandom(8).hex()), "still", "1")
        push_from_store("still:1", f"{host}/still:1")
        client.remove_image("still:1")
    with busy(host, stalls=True) as (name, _):
        assert "nothing comes any more" in refused(f"{name}/still:1")


def test_login_of_the_user_is_used_and_its_lack_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    with registry(tmp_path / "registry", has_login=True) as host:
        login = {"username": "user", "password": "secret"}
        push(images.BUSYBOX, f"{host}/private:1", login)
        text = refused(f"{host}/private:1")
        assert "docker login" in text
        auths = {host: {"auth": "dXNlcjpzZWNyZXQ="}}
        (folder / "config.json").write_text(json.dumps({"auths": auths}))
        (info,) = opened(f"{host}/private:1")
        assert not isinstance(info, SandboxError)
        (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": "dXNlcjp3cm9uZw=="}}}))
        assert "wrong" not in refused(f"{host}/private:1")
        assert "docker login" in refused(f"{host}/private:1")


def test_images_are_fetched_ahead_of_the_prompts_that_need_them(host: str) -> None:
    names = [f"{host}/ahead{number}:1" for number in range(2)]
    for name in names:
        push(images.BUSYBOX, name)

    async def main() -> dict[str, bool]:
        backend = DockerBackend("registry-run", Settings())
        try:
            backend.prefetch(names)
            for _ in range(200):
                here = await backend.images_present(names)
                if all(here.values()):
                    break
                await asyncio.sleep(0.05)
            return here
        finally:
            await backend.aclose()

    try:
        assert asyncio.run(main()) == dict.fromkeys(names, True)
    finally:
        _forget(*names)
