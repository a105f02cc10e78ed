"""`hermes-run clean` after a killed run beside a living one: takes the dead one's, touches nothing else."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import images
from tests.cases.places import NAMES, at
from tests.contracts.sandboxes import kind_of
from tests.flow.lab import Lab
from tests.servers import Answer, ModelServer, Request, says

if TYPE_CHECKING:
    from collections.abc import Callable

DEAD, ALIVE = f"600.{os.getpid()}1", f"600.{os.getpid()}2"
"""How long the commands of each run sleep."""


def sleeps(request: Request, until: threading.Event) -> Answer:
    """Something in the background of its own session, and then a thought until the clean-up is done."""
    mark = ALIVE if "alive" in request.prompt else DEAD
    if not request.turn:
        return says("", calls=[("terminal", {"command": f"setsid sleep {mark} & echo up"})], reasoning="r")
    if request.turn == 1:
        looks = f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q '[s]leep {mark}' && echo still there"
        last = ("terminal", {"command": looks})
        return says("", calls=[last], reasoning="r", until=until)
    return says("done", reasoning="r")


def sleeping(mark: str) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() == f"sleep\0{mark}\0".encode()
        except OSError:
            continue
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_a_killed_run_left_is_removed_beside_a_living_one(
    server: ModelServer, tmp_path: Path, name: str
) -> None:
    is_clean = threading.Event()
    server.respond = lambda request: sleeps(request, is_clean)
    labs = []
    for word in ("alive", "dead"):
        lab = at(Lab(tmp_path / word, {"run_name": f"{word}-{os.getpid()}-{name}"}), name, network="full")
        lab.write_prompts(*(f"{word} {number}" for number in range(2)))
        lab.use_server(server.url)
        labs.append(lab)
    alive, dead = labs
    foreign = ""
    if kind_of(name) == "docker":
        with images.daemon() as client:
            labels = {"hermes-run.row": "mine", "com.example": "1"}
            foreign = client.create_container(images.BUSYBOX, ["sleep", "600"], labels=labels)["Id"]
            client.start(foreign)
    try:
        living, killed = alive.start(), dead.start()
        wait_until(lambda: sleeping(ALIVE) == 2 and sleeping(DEAD) == 2)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=30)
        told = dead.call("clean", "--dry-run", "--json").json()["would_remove"]
        assert {entry["run"] for entry in told if str(os.getpid()) in entry["run"]} == {dead.spec["run_name"]}
        assert dead.call("clean", "--run", str(alive.spec["run_name"]), "--json").json()["removed"] == []
        removed = dead.call("clean", "--run", str(dead.run_dir), "--json").json()["removed"]
        assert {(entry["backend"], entry["run"]) for entry in removed} == {
            (kind_of(name), str(dead.spec["run_name"]))
        }
        wait_until(lambda: sleeping(DEAD) == 0)
        assert dead.call("clean", "--run", str(dead.run_dir), "--json").json()["removed"] == []
        is_clean.set()
        _, err = living.communicate(timeout=60)
        assert (living.returncode, alive.statuses()) == (0, {"completed": 2}), err
        assert all("still there" in line["conversations"][4]["value"] for line in alive.lines())
        if foreign:
            with images.daemon() as client:
                assert client.inspect_container(foreign)["State"]["Running"]
                mine = {"label": f"hermes-run.run={dead.spec['run_name']}"}
                assert client.containers(all=True, filters=mine) == client.networks(filters=mine) == []
    finally:
        is_clean.set()
        if foreign:
            with images.daemon() as client:
                client.remove_container(foreign, force=True)
