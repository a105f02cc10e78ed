"""The Protocols: read this page first.

Whatever can be one of several kinds (a sandbox backend, a model client, a tool, a file format, a
filter, an engine) is described here and nowhere else. Which kinds there are stands in
`core/registry.py`, one line each. Nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct, field

from hermes_run.core.answers import Aside, Hit, Made, Page, Seen, ToolAnswer
from hermes_run.core.messages import ToolCall
from hermes_run.core.task import PromptTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.messages import Message, Reply, Usage
    from hermes_run.core.trajectory import Outcome, Trajectory

# --------------------------------------------------------------------------- sandboxes


class SandboxRequest(Struct, frozen=True):
    """What one rollout needs of its sandbox.

    Attributes:
        run: run name, for labels.
        key: rollout key, for labels and names (hashed, never as it is).
        row_id: the row's own id, for labels only.
        image: image reference, or "" for a backend without images.
        cwd: where commands start, or "" for the backend's default; created if missing.
        network: `none` or `full`.
        cpus, memory_mb, pids: limits, as far as the backend can set them.
        start_timeout_s: after this a start has failed.
    """

    run: str
    key: str
    row_id: str = ""
    image: str = ""
    cwd: str = ""
    network: str = "none"
    cpus: float = 1
    memory_mb: int = 4096
    pids: int = 256
    start_timeout_s: float = 120


class ExecResult(Struct, frozen=True):
    """What a command did.

    Attributes:
        output: stdout and stderr in the order they were written; when longer than asked for, its
            head and tail with nothing between them.
        exit_code: as the shell has it; 124 after a timeout.
        timed_out: whether the time limit ended it (and all that it had started).
        omitted: bytes left out between head and tail.
        head: how many bytes of `output` are the head (all of them when nothing was omitted).
        full_path: where in the sandbox the whole output is kept, or "" when nothing was omitted.
    """

    output: bytes
    exit_code: int
    timed_out: bool = False
    omitted: int = 0
    head: int = 0
    full_path: str = ""


class Sandbox(Protocol):
    """One rollout's place. One command at a time: calls queue.

    The kept shell: each call is a forked subshell of it. With `keep_state` the working directory and
    the exported variables that the command leaves behind are there for the next call; functions,
    aliases and shell options never are. stdin is `stdin`, then end of file. A command that is not
    done after `timeout_s` is killed with everything it started; what earlier calls left in the
    background lives on.

    Raises SandboxError(reason="sandbox_lost") from any call when the sandbox is gone.
    """

    @property
    def info(self) -> SandboxInfo:
        """What it is; fixed from its start."""

    async def exec(
        self,
        command: str,
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        keep_state: bool = False,
        max_output: int = 1_000_000,
    ) -> ExecResult:
        """Run `command` (shell text) and wait for it.

        A `workdir` that is relative counts from the kept working directory, and is for this call
        only unless `keep_state`. `max_output` is in bytes: 40 % head, 60 % tail.
        """


class SandboxInfo(Struct, frozen=True):
    """What a sandbox is.

    `missing` names what it cannot isolate or limit (`memory`, `pids`, `cpus`, `disk`: how much it
    writes, `network`, `vsock`: sockets to the machine's hypervisor, `files`, `processes`), sorted.
    `shell` is `bash` or `sh`.
    """

    backend: str
    cwd: str
    shell: str = "bash"
    image: str = ""
    image_digest: str = ""
    missing: tuple[str, ...] = ()


class Leftover(Struct, frozen=True):
    """Something that a dead run left outside its process. `what` is for people."""

    run: str
    what: str
    handle: str


class Backend(Protocol):
    """One kind of sandbox, for one run. Made with the machine's settings, closed at the end.

    Attributes:
        name: as in `sandbox.backend`.
        uses_images: whether a sandbox of this kind is made from an image.
    """

    name: ClassVar[str]
    uses_images: ClassVar[bool]

    async def check(self) -> tuple[str, ...]:
        """Prove that it works here, and return what it cannot promise (see SandboxInfo.missing).

        Raises BackendMissing with the reason and the cure.
        """

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """A started sandbox, removed on leaving the block whatever happened in it.

        Raises SandboxError (sandbox_start, image) from entering.
        """

    async def fetch(self, image: str) -> str:
        """Wait until an image is here, however long that takes. Returns its resolved digest, or "".

        `open` does the same; this is for whoever wants to know the digest, or does not want the wait to
        count as the prompt's time. Raises SandboxError (image).
        """

    def prefetch(self, images: Iterable[str]) -> None:
        """Begin to fetch images, in the order in which prompts will need them, a few ahead of need.

        Returns at once. What cannot be had is told to the prompt that opens a sandbox from it.
        """

    async def images_present(self, images: Iterable[str]) -> dict[str, bool]:
        """Which images are here already; fetches nothing. Raises BackendMissing when nobody can say."""

    def leftovers(self) -> Sequence[Leftover]:
        """What dead runs left here, by its labels; nothing of living ones. Raises BackendMissing."""

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them."""

    async def aclose(self) -> None:
        """Give back what the run's sandboxes shared."""


# --------------------------------------------------------------------------- models


class ToolSpec(Struct, frozen=True):
    """How a tool is offered: its name, its description, and the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class Chat(Protocol):
    """One rollout's conversation with a model. Keeps what was said, encoded once."""

    async def ask(self, messages: Sequence[Message]) -> Reply:
        """Add `messages`, ask, add the reply, return it.

        Raises ProviderError (this rollout fails), ContextExceeded (it ends partial), EnvironmentStop
        (the run stops).
        """

    @property
    def unsettled(self) -> Usage:
        """What an `ask` that was cancelled, or stopped the run, may have been billed."""


class ModelClient(Protocol):
    """A model at an endpoint, for one run; shared by all rollouts."""

    def start(self, task: PromptTask, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> Chat:
        """A conversation that begins with `opening` (system turn and prefill) and may use `tools`."""

    async def aclose(self) -> None:
        """Close its connections."""


# --------------------------------------------------------------------------- tools


async def _no_tools(call: ToolCall) -> ToolAnswer:
    return ToolAnswer(f'{{"error": "there is no tool {call.name}"}}', failed=True, valid=False, known=False)


def _keep_nothing(path: str, data: bytes) -> None:
    """A session without artifacts."""


class ToolSession(Struct, frozen=True):
    """What a tool may use during one rollout."""

    task: PromptTask
    sandbox: Sandbox
    offered: tuple[str, ...] = ()
    """Names of all tools offered to this rollout."""
    specs: tuple[ToolSpec, ...] = ()
    """How they are offered."""
    call_tool: Callable[[ToolCall], Awaitable[ToolAnswer]] = _no_tools
    """Calls one of them, as the turn loop does; what is called this way goes to `aside`."""
    aside: Aside = field(default_factory=Aside)
    shared: dict[str, Any] = {}
    """What tools of this rollout share with each other (background sessions, one browser context)."""
    outside: Outside | None = None
    """What the tools of all rollouts share beyond their sandboxes."""
    keep: Callable[[str, bytes], None] = _keep_nothing
    """Keeps a file (its path, relative, and its bytes) among the rollout's artifacts, within bounds."""


class ToolKind(Protocol):
    """What makes the tool of each rollout: a class of ours, or a user's own or an MCP server's tool."""

    @property
    def spec(self) -> ToolSpec:
        """How it is offered."""

    def __call__(self, session: ToolSession, /) -> Any:
        """The tool for one rollout."""


class Tool(Protocol):
    """A tool, made anew for each rollout by calling its class with the rollout's ToolSession.

    Attributes:
        spec: how it is offered; the same for every rollout.
    """

    spec: ClassVar[ToolSpec]

    @staticmethod
    def missing(machine: Any) -> str:
        """Why it cannot work here and the cure, or "" when it can. `machine` is the Settings."""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do it. `arguments` fit the schema already.

        The result is a JSON object; the call has failed when its `error` is not null or its
        `success` is false.

        Raises ToolError, which becomes `{"error": ...}`.
        """

    async def aclose(self) -> None:
        """Give back what this rollout's instance holds."""


# --------------------------------------------------------------------------- the web


class Download(Protocol):
    """Bytes from the web."""

    @property
    def body(self) -> bytes:
        """Unpacked."""

    @property
    def content_type(self) -> str:
        """The header, as it was sent."""

    @property
    def is_cut(self) -> bool:
        """Whether there was more than was asked for."""


class SearchEngine(Protocol):
    """A search engine, made with its `spec.web.Engine` (address and key); shared by all rollouts."""

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """At most `limit` results, the best first. Raises ToolError."""

    async def aclose(self) -> None:
        """Close its connections."""


class Outside(Protocol):
    """What tools may reach beyond the sandbox, for one run; everything is made when first used.

    Whatever address a model gives, it is reached through the run's filtering proxy only, which refuses
    what is not public unless the spec's `tools.allowed_hosts` names it. Every ToolError is for the model.
    """

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Ask the search engine; the same question is asked once in a run. Raises ToolError."""

    async def read_page(self, url: str) -> Page:
        """A page as text; each is fetched once in a run. Raises ToolError."""

    async def download(self, url: str, *, max_bytes: int) -> Download:
        """The bytes of an address, at most `max_bytes` of them. Raises ToolError."""

    async def check_browser(self) -> str:
        """Start the run's browser: why it does not work here, or ""."""

    async def open_browser(self) -> Any:
        """A new context (playwright's `BrowserContext`) of the run's one browser, for one rollout.

        Raises BrowserError when there is no browser to be had.
        """

    async def see(self, image: bytes, media_type: str, question: str) -> Seen:
        """Have a picture looked at, by the model of hermes.yaml's `vision`. Raises ToolError."""

    async def draw(self, prompt: str, aspect_ratio: str) -> Made:
        """Have a picture made: landscape, square or portrait. Raises ToolError."""

    async def speak(self, text: str, kind: str) -> Made:
        """Have a text spoken, as mp3, wav or opus if that can be chosen. Raises ToolError."""

    async def check_address(self, host: str, port: int) -> None:
        """Raises ToolError when the proxy would refuse to connect to a host."""

    def refusal(self, host: str, port: int) -> str:
        """Why the proxy refused the last connection to a host, or ""."""

    async def aclose(self) -> None:
        """Give everything back."""


# --------------------------------------------------------------------------- formats, filters, engines


class Format(Protocol):
    """A file format of trajectories: pure functions between a Trajectory and one line of it."""

    lossless: ClassVar[bool]

    def encode(self, trajectory: Trajectory) -> bytes:
        """One record, without the newline."""

    def decode(self, line: bytes) -> Trajectory:
        """The trajectory. Raises ValueError when the line is none, or says too little to make one."""


class Filter(Protocol):
    """Judges a trajectory that was kept; needs nothing but the record."""

    reason: ClassVar[str]

    def discards(self, trajectory: Trajectory) -> bool:
        """Whether it should not be merged."""


if TYPE_CHECKING:
    RunPrompt = Callable[[PromptTask], Awaitable[Outcome]]
    Deliver = Callable[[Outcome], Awaitable[None]]


class Engine(Protocol):
    """Runs rollouts, wherever that is, and pushes each outcome to the driver, which alone writes."""

    async def run(self, tasks: Iterable[PromptTask], deliver: Deliver) -> None:
        """Take tasks in order while there is room, deliver every outcome, return when all are done.

        An EnvironmentStop or BudgetStop of a rollout ends the run: what is in flight is cancelled.
        """

    def drain(self) -> None:
        """Take no more tasks; what is in flight goes on."""
