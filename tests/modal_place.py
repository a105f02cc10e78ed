"""Where the tests' own Modal is: started when first asked for, one for each process of tests."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from threading import Thread

BASH, BUSYBOX = "test/bash:1", "test/busybox:1"
"""The images that it has."""
TOKEN = ("ak-of-tests", "as-of-tests")
_PATIENCE_S = 30.0


@cache
def modal_folder() -> Path:
    """The folder of a running server (see `modal_server.py`), which this process's SDK now talks to.

    The server is no child of this process, as Modal is none. It ends when its folder is removed.
    """
    folder = Path(tempfile.mkdtemp(prefix="modal-of-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = ["setsid", "--fork", sys.executable, "-m", "tests.modal_server", str(folder), str(os.getpid())]
    with (folder / "log").open("wb") as log:
        subprocess.run(
            command,
            check=True,
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    until = time.monotonic() + _PATIENCE_S
    while not (folder / "port").exists():
        if time.monotonic() > until:
            raise RuntimeError(f"the tests' Modal does not start: {(folder / 'log').read_text()}")
        time.sleep(0.02)
    os.environ.update(environment(folder))
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The variables by which Modal's SDK finds a server."""
    return {
        "MODAL_SERVER_URL": f"http://127.0.0.1:{(folder / 'port').read_text()}",
        "MODAL_TOKEN_ID": TOKEN[0],
        "MODAL_TOKEN_SECRET": TOKEN[1],
        "MODAL_CONFIG_PATH": os.devnull,
    }


def end_sandboxes(run: str, row: str | None = None) -> None:
    """End the sandboxes of a run, or of one of its rows, as somebody else would."""
    import modal

    def end() -> None:
        app = modal.App.lookup("hermes-run", create_if_missing=True)
        tags = {"hermes-run.run": run, **({} if row is None else {"hermes-run.row": row})}
        for box in modal.Sandbox.list(app_id=app.app_id, tags=tags):
            box.terminate()

    ending = Thread(target=end)  # the SDK's blocking calls are not for an event loop's thread
    ending.start()
    ending.join()
