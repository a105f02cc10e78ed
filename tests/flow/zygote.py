"""Command lines of hermes-run in forks of one process that has imported everything.

Starting Python and importing the package costs most of a short run. A `Zygote` pays that once: it
forks, and the fork does what `python -m hermes_run WORDS` does, with its own folder, environment and
output. A started `Run` has the parts of `subprocess.Popen` that tests use.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]


class Run:
    """A command line that was started."""

    def __init__(self, zygote: Zygote, words: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._zygote = zygote
        self._out = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by communicate
        self._err = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        request = {"words": list(words), "folder": str(folder), "env": dict(env)}
        self.pid = zygote.fork(request, [self._out.fileno(), self._err.fileno()])
        self.returncode: int | None = None

    def __del__(self) -> None:
        self._out.close()
        self._err.close()

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._zygote.status(self.pid, timeout_s=0)
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def press_ctrl_c(self) -> None:
        """What a terminal does: SIGINT for the whole process group, for whatever the run has started too."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """Wait for its end; its output. Raises TimeoutExpired, after killing it."""
        if self.returncode is None:
            self.returncode = self._zygote.status(self.pid, timeout_s=timeout)
        if self.returncode is None:
            self.kill()
            raise subprocess.TimeoutExpired("hermes-run", timeout, *self._texts())
        return self._texts()

    def _texts(self) -> tuple[str, str]:
        texts = []
        for stream in (self._out, self._err):
            stream.seek(0)
            texts.append(stream.read())
            stream.close()
        return texts[0], texts[1]


class Zygote:
    """The client's end."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            # in the background of a shell, so that it is no child of the tests' process: some count those
            subprocess.run(
                ["/bin/sh", "-c", '"$0" "$@" &', sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                check=True,
            )
        self._text = b""
        self._ended: dict[int, int] = {}

    def fork(self, request: Mapping[str, Any], files: list[int]) -> int:
        socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], files)
        while True:
            message = self._next(None)
            if message is not None and "started" in message:
                pid = int(message["started"])
                self._ended.pop(pid, None)  # an earlier run had the same number
                return pid

    def status(self, pid: int, timeout_s: float) -> int | None:
        deadline = time.monotonic() + timeout_s
        while pid not in self._ended:
            if self._next(max(0.0, deadline - time.monotonic())) is None and time.monotonic() >= deadline:
                return self._ended.get(pid)
        return self._ended[pid]

    def _next(self, timeout_s: float | None) -> dict[str, int] | None:
        while b"\n" not in self._text:
            self._socket.settimeout(timeout_s)
            try:
                data = self._socket.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                return None
            if not data:
                raise RuntimeError("the process that forks command lines is gone")
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        message: dict[str, int] = json.loads(line)
        if "ended" in message:
            self._ended[message["ended"]] = message["status"]
        return message

    def close(self) -> None:
        self._socket.close()


def serve(link: socket.socket) -> None:
    """The zygote's end: fork for every request, tell of every end."""
    selector = selectors.DefaultSelector()
    selector.register(link, selectors.EVENT_READ)
    text, files = b"", array.array("i")
    while True:
        for key, _ in selector.select():
            if key.fileobj is not link:
                pid = int(key.data)
                selector.unregister(key.fileobj)
                os.close(int(key.fd))
                _, status = os.waitpid(pid, 0)
                answer = {"ended": pid, "status": os.waitstatus_to_exitcode(status)}
                link.sendall(json.dumps(answer).encode() + b"\n")
                continue
            data, received, _, _ = socket.recv_fds(link, 1 << 20, 8)
            if not data:
                return
            text += data
            files.extend(received)
            while b"\n" in text:
                line, _, text = text.partition(b"\n")
                out, err = files[0], files[1]
                del files[:2]
                pid = os.fork()
                if pid == 0:
                    run(json.loads(line), link, out, err)
                os.close(out)
                os.close(err)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                link.sendall(json.dumps({"started": pid}).encode() + b"\n")


def run(request: dict[str, Any], link: socket.socket, out: int, err: int) -> None:
    """What `python -m hermes_run` does. Never returns."""
    link.close()
    os.setpgid(0, 0)  # a job of its own, as a shell's are
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["hermes-run", *request["words"]]
    for name, number in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
    code = 70
    try:
        code = main(request["words"])
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:  # noqa: BLE001 - what a test must see
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


_the_one: list[Zygote] = []


def the_zygote() -> Zygote:
    """The one of this process."""
    if not _the_one:
        _the_one.append(Zygote())
        atexit.register(_the_one[0].close)
    return _the_one[0]


if __name__ == "__main__":
    import gc
    import importlib
    import pkgutil

    import httpx2  # noqa: F401
    import openai  # noqa: F401

    import hermes_run
    from hermes_run.cli.main import main

    for module in pkgutil.walk_packages(hermes_run.__path__, "hermes_run."):
        if not module.name.endswith("__main__") and ".inside." not in module.name:  # those run in sandboxes
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:  # what an extra brings that is not installed here
                if (missing.name or "").startswith("hermes_run"):
                    raise
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
