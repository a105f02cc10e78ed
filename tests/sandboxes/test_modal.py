"""What only modal has to show: tokens, servers that refuse or are silent, labels, leftovers, lifetimes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes import _images
from hermes_run.spec.model import SandboxSettings, Settings
from tests.conftest import require
from tests.contracts.sandboxes import what_is_missing
from tests.modal_place import BASH, BUSYBOX, modal_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from hermes_run.sandboxes.modal import ModalBackend

pytestmark = [pytest.mark.modal, pytest.mark.slow]


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the tests' Modal, without faults."""
    missing = what_is_missing("modal")
    if isinstance(missing, str):
        require("modal", missing)
    monkeypatch.setattr(_images, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(_images, "_TRIES", 2)
    yield modal_folder()
    for fault in ("hang", "create", "build", "token"):
        (modal_folder() / fault).unlink(missing_ok=True)


def with_backend(work: Callable[[ModalBackend], Awaitable[Any]], run: str = "r") -> Any:
    from hermes_run.sandboxes.modal import ModalBackend

    async def main() -> Any:
        backend = ModalBackend(run, Settings(sandbox=SandboxSettings()))
        try:
            return await work(backend)
        finally:
            await backend.aclose()

    return asyncio.run(main())


async def said(backend: ModalBackend, command: str = "echo up", **request: Any) -> str:
    wanted = {"run": "r", "key": "k", "image": BASH, "start_timeout_s": 20, **request}
    async with backend.open(SandboxRequest(**wanted)) as box:
        return (await box.exec(command, timeout_s=10)).output.decode()


def failure(**request: Any) -> tuple[str, str]:
    with pytest.raises(SandboxError) as raised:
        with_backend(lambda backend: said(backend, **request))
    return raised.value.reason, str(raised.value)


def living(tags: dict[str, str]) -> list[dict[str, str]]:
    """The tags of the sandboxes that the account has."""
    from hermes_run.sandboxes._modal_account import Account

    return [found for _, found in asyncio.run(Account().sandboxes(tags))]


# ---------------------------------------------------------------- what it is made of


def test_a_sandbox_has_its_labels_limits_and_lifetime_before_it_runs_anything(place: Path) -> None:
    async def work(backend: ModalBackend) -> None:
        request = SandboxRequest(
            run="modal-labels", key="k#0", row_id="row ü:1", image=BUSYBOX, memory_mb=300, cpus=0.5
        )
        async with backend.open(request) as box:
            assert (box.info.shell, box.info.missing, box.info.image) == ("sh", ("disk", "pids"), BUSYBOX)
            assert box.info.image_digest.startswith("im-")
            (tags,) = await asyncio.to_thread(living, {"hermes-run.run": "modal-labels"})
            assert tags["hermes-run.row"] == "row ü:1"
            assert {"hermes-run.mark", "hermes-run.owner", "hermes-run.key"} <= set(tags)
            definition = json.loads((place / "last").read_text())
            limits = {"memoryMb": 300, "memoryMbMax": 300, "milliCpu": 500, "milliCpuMax": 500}
            assert limits.items() <= definition["resources"].items()
            assert definition["timeoutSecs"] == 24 * 3600
            assert definition["networkAccess"] == {"networkAccessType": "BLOCKED"}

    with_backend(work, "modal-labels")
    assert living({"hermes-run.run": "modal-labels"}) == []


def test_entry_points_of_images_are_switched_off(place: Path) -> None:
    with_backend(said)
    assert "ENTRYPOINT []" in (place / "last-image").read_text()


def test_network_is_let_in_only_when_asked(place: Path) -> None:
    with_backend(lambda backend: said(backend, network="full"))
    assert json.loads((place / "last").read_text())["networkAccess"]["networkAccessType"] == "OPEN"


# ---------------------------------------------------------------- what is refused


def test_an_image_that_cannot_be_built_fails_with_one_clear_reason() -> None:
    reason, message = failure(image="no/such:1")
    assert (reason, "no/such:1" in message, "not found" in message) == ("image", True, True)
    assert failure(image="")[0] == "image"
    assert "im-" not in message


def test_a_full_workspace_fails_a_start_with_its_words(place: Path) -> None:
    (place / "create").touch()
    reason, message = failure()
    assert (reason, "limit of sandboxes" in message) == ("sandbox_start", True)


@pytest.mark.slow
def test_a_start_that_hangs_fails_within_its_timeout(place: Path) -> None:
    async def work(backend: ModalBackend) -> None:
        await said(backend)
        (place / "hang").touch()
        began = time.monotonic()
        with pytest.raises(SandboxError, match="within 1 s") as raised:
            await said(backend, start_timeout_s=1)
        assert raised.value.reason == "sandbox_start"
        assert time.monotonic() - began < 8
        (place / "hang").unlink()
        assert await said(backend) == "up\n"
        for _ in range(200):  # what was asked for in vain came late, and is ended
            if not await asyncio.to_thread(living, {"hermes-run.run": "r"}):
                break
            await asyncio.sleep(0.1)

    with_backend(work)
    assert living({"hermes-run.run": "r"}) == []


def test_a_cwd_that_cannot_be_made_fails_its_own_start() -> None:
    reason, message = failure(cwd="/proc/x")
    assert (reason, "/proc/x" in message) == ("sandbox_start", True)


_CHECK = """
import asyncio, os
from hermes_run.errors import BackendMissing
from hermes_run.sandboxes import _modal_account
from hermes_run.sandboxes.modal import ModalBackend
from hermes_run.spec.model import Settings

_modal_account._UNREACHABLE_S = 2.0
try:
    print(asyncio.run(ModalBackend("r", Settings()).check()))
except BackendMissing as error:
    print("WHY", error.why, "CURE", error.cure)
"""


def checked(**variables: str) -> str:
    """What `check` says in a process with other variables."""
    environment = {**os.environ, **variables}
    environment = {name: value for name, value in environment.items() if value}
    ran = subprocess.run(
        [sys.executable, "-c", _CHECK],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    return ran.stdout + ran.stderr


@pytest.mark.slow
def test_check_tells_a_missing_token_a_refused_one_and_a_silent_server_each_with_its_cure() -> None:
    with ThreadPoolExecutor(4) as pool:
        good = pool.submit(checked)
        none = pool.submit(checked, MODAL_TOKEN_ID="", MODAL_TOKEN_SECRET="")
        wrong = pool.submit(checked, MODAL_TOKEN_ID="ak-other")
        silent = pool.submit(checked, MODAL_SERVER_URL="http://127.0.0.1:9")
    assert good.result() == "('disk', 'pids')\n"
    assert "there is no token for Modal CURE run `modal setup`" in none.result()
    assert "Modal refuses the token of this machine CURE" in wrong.result()
    assert "WHY Modal" in silent.result()
    assert "CURE check the network" in silent.result()
    assert "secret" not in silent.result().lower()


# ---------------------------------------------------------------- what is left


_DYING = """
import asyncio, sys
from hermes_run.core.contracts import SandboxRequest
from hermes_run.sandboxes.modal import ModalBackend
from hermes_run.spec.model import Settings

async def main():
    request = SandboxRequest(run="modal-dead", key="k", image=sys.argv[1])
    async with ModalBackend("modal-dead", Settings()).open(request):
        print("on", flush=True)
        await asyncio.sleep(100)

asyncio.run(main())
"""


@pytest.mark.slow
def test_sandboxes_of_a_dead_run_are_found_without_its_folder_and_those_of_other_machines_left_alone() -> (
    None
):
    from hermes_run.sandboxes._ground import remove_ground

    dying = subprocess.Popen([sys.executable, "-c", _DYING, BASH], stdout=subprocess.PIPE)
    assert dying.stdout is not None
    assert dying.stdout.readline() == b"on\n"

    async def work(backend: ModalBackend) -> None:
        def left() -> list[str]:
            return [each.what for each in backend.leftovers() if each.run == "modal-dead"]

        assert await asyncio.to_thread(left) == []
        dying.kill()
        dying.wait()
        dying.stdout.close()  # type: ignore[union-attr]
        (folder,) = [each for each in backend.leftovers() if each.run == "modal-dead"]
        remove_ground(folder.handle)  # as a reboot does with what is in memory
        assert await asyncio.to_thread(left) == ["modal sandboxes"]
        (found,) = [each for each in backend.leftovers() if each.run == "modal-dead"]
        backend.remove(found)
        backend.remove(found)
        assert await asyncio.to_thread(left) == []

    with_backend(work)
    assert living({"hermes-run.run": "modal-dead"}) == []


_AWAY = """
import asyncio, os, signal, subprocess
from hermes_run.core.contracts import SandboxRequest
from hermes_run.errors import BackendMissing
from hermes_run.sandboxes import _modal_account
from hermes_run.sandboxes.modal import ModalBackend
from hermes_run.spec.model import Settings
from tests import modal_place

_modal_account._PATIENCE_S = 1
folder = modal_place.modal_folder()

async def main():
    backend = ModalBackend("modal-away", Settings())
    request = SandboxRequest(run="modal-away", key="k", image=modal_place.BASH)
    async with backend.open(request) as box:
        await box.exec("true", timeout_s=20)
    await asyncio.to_thread(end_of_modal)
    try:
        async with backend.open(request):
            pass
    except BackendMissing as error:
        print(error)
    await backend.aclose()

def end_of_modal():
    found = subprocess.run(["pgrep", "-f", f"tests.modal_server {folder}"], capture_output=True, text=True)
    for pid in found.stdout.split():
        os.kill(int(pid), signal.SIGKILL)

asyncio.run(main())
"""


def test_modal_that_goes_away_and_stays_away_stops_the_run() -> None:
    """Every further start would fail: what is left has to stay pending."""
    done = subprocess.run(
        [sys.executable, "-c", _AWAY], capture_output=True, text=True, check=False, timeout=120
    )
    assert "Modal cannot be used" in done.stdout, done.stdout + done.stderr
    assert not re.search("[0-9]{4,}", done.stdout)


def test_leftovers_cannot_be_told_without_a_token_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_run.sandboxes import modal

    async def refuse(_account: object) -> None:
        raise BackendMissing("there is no token for Modal", cure="run `modal setup`")

    monkeypatch.setattr("hermes_run.sandboxes._modal_account.Account.app", refuse)
    with pytest.raises(BackendMissing, match="no token"):
        modal.ModalBackend("r", Settings()).leftovers()
