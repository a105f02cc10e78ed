"""The run spec and the machine settings as frozen types. Fields are the YAML keys of the contract.

Paths are absolute once loaded. A test walks these types against the JSON Schemas, so that the two
cannot drift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

OnBadRow = Literal["fail", "skip"]
BackendName = Literal["auto", "local", "bubblewrap", "docker", "singularity", "modal"]
Network = Literal["none", "full"]
Sort = Literal["price", "throughput", "latency"]
Dialect = Literal[
    "openrouter", "nous", "openai", "anthropic", "google", "vllm", "sglang", "ollama", "generic"
]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]

DEFAULT_MODEL = "anthropic/claude-sonnet-4.6"
DEFAULT_BASE_URL = "https://openrouter.ai/api/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    path: Path
    prompt_field: str = "prompt"
    max_samples: int | None = None
    on_bad_row: OnBadRow = "fail"
    dedupe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSpec:
    """Sent only where set."""

    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """`api_key_env` is the name of a variable, or None when no key is sent.

    With `endpoint` (an entry of hermes.yaml), `base_url` is that entry's. Several are replicas: endpoints
    that are alike.
    `script` is the tape of `name: scripted`, for which there is neither endpoint nor key.
    """

    name: str = DEFAULT_MODEL
    base_url: str | tuple[str, ...] = DEFAULT_BASE_URL
    endpoint: str | None = None
    api_key_env: str | None = None
    max_tokens: int | None = None
    sampling: SamplingSpec = field(default_factory=SamplingSpec)
    extra_body: dict[str, Any] = field(default_factory=dict)
    request_timeout_s: float = 600
    stream: bool = False
    idle_timeout_s: float | None = None
    script: Path | None = None

    @property
    def base_urls(self) -> tuple[str, ...]:
        """All of them, whether one or a list was written."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSpec:
    allowed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    sort: Sort | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningSpec:
    """Unset (effort None), off (`none` or disabled), or a level."""

    effort: Effort | None = None
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    max_turns: int = 10
    system_prompt: str | None = None
    ephemeral_system_prompt: str | None = None
    prefill_messages_file: Path | None = None
    prompt_timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    backend: BackendName = "auto"
    image: str | None = None
    cwd: str | None = None
    network: Network = "none"
    cpus: float = 1
    memory_mb: int = 4096
    pids: int = 256
    setup: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    diff: bool = False
    start_timeout_s: float = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSpec:
    """What the spec pins of the web; None leaves it to hermes.yaml.

    `cassette` is a file that searches and pages are recorded in and replayed from; with `replay_only`
    nothing else is asked.
    """

    search: str | None = None
    extract: str | None = None
    cassette: Path | None = None
    replay_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomTool:
    """An own tool: `tool` is `/path/of/file.py:function`; with `host` it runs outside the sandbox."""

    tool: str
    host: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server: a command in the sandbox (with `host`, outside it), or an address.

    `env` names the variables whose values it is given, and no others.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    host: bool = False
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsSpec:
    """`allowed_hosts` (`host` or `host:port`) may be reached by web and browser though not public."""

    custom: tuple[CustomTool, ...] = ()
    mcp: tuple[McpServer, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    web: WebSpec = field(default_factory=WebSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class FiltersSpec:
    require_reasoning: bool = True
    reject_unknown_tools: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    dir: Path = Path("data")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSpec:
    verbose: bool = False
    log_prefix_chars: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSpec:
    """Money (USD), tokens and rates; None for no limit. `total_*` are the run's, `prompt_*` a rollout's."""

    total_cost: float | None = None
    total_tokens: int | None = None
    prompt_cost: float | None = None
    prompt_tokens: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    name: Literal["local", "ray"] = "local"
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A resolved distribution: toolset -> percent, in the order written, after `without`.

    Toolsets of 0 percent are left out. `name` is `custom` for a map in the spec; `source` is the file
    of one that has its own.
    """

    name: str
    toolsets: dict[str, float]
    source: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One run, with every default filled in and everything checked that needs no running.

    Attributes:
        distribution: resolved, and known to be drawable here.
        toolsets: the spec's own toolsets: name -> tools (the built-in ones are in `tools.toolsets`).
        prefill: the messages of `agent.prefill_messages_file`, each {role, content}.
        sources: the files it was read from, the last one first.
    """

    run_name: str
    dataset: DatasetSpec
    batch_size: int
    workers: int = 4
    samples: int = 1
    seed: int = 0
    distribution: Distribution
    without: tuple[str, ...] = ()
    model: ModelSpec = field(default_factory=ModelSpec)
    provider_routing: RoutingSpec = field(default_factory=RoutingSpec)
    reasoning: ReasoningSpec = field(default_factory=ReasoningSpec)
    agent: AgentSpec = field(default_factory=AgentSpec)
    sandbox: SandboxSpec = field(default_factory=SandboxSpec)
    toolsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tools: ToolsSpec = field(default_factory=ToolsSpec)
    filters: FiltersSpec = field(default_factory=FiltersSpec)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    engine: EngineSpec = field(default_factory=EngineSpec)
    reuse: tuple[Path, ...] = ()
    output: OutputSpec = field(default_factory=OutputSpec)
    logging: LoggingSpec = field(default_factory=LoggingSpec)
    prefill: tuple[dict[str, str], ...] = ()
    sources: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSetting:
    """`replicas` are further addresses of the same; `login` is where a key is read if not from a variable."""

    base_url: str
    replicas: tuple[str, ...] = ()
    api_key_env: str | None = None
    login: Literal["portal"] | None = None
    dialect: Dialect = "generic"
    honours: tuple[Literal["reasoning", "routing", "cache_marks"], ...] = ()
    stream: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A key variable may be sent to this host: the user's own word for it."""

    variable: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    container: Literal["docker", "singularity", "modal"] = "docker"
    docker_socket: str | None = None
    singularity_binary: str | None = None
    image_cache: Path | None = None
    allow_local_images: bool = False
    starts_in_flight: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    max_bytes: int = 10_000_000
    backups: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What describes the machine (`hermes.yaml`). Nothing here changes a trajectory's content.

    Attributes:
        source: the file it was read from, or None for the built-in settings.
        warnings: what a person should know about that file, each with its cure.
    """

    endpoints: dict[str, EndpointSetting] = field(default_factory=dict)
    keys: tuple[KeyPair, ...] = ()
    prices: dict[str, dict[str, Any]] = field(default_factory=dict)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    web: dict[str, Any] = field(default_factory=dict)
    browser: dict[str, Any] = field(default_factory=dict)
    vision: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Any] = field(default_factory=dict)
    speech: dict[str, Any] = field(default_factory=dict)
    log: LogSettings = field(default_factory=LogSettings)
    source: Path | None = None
    warnings: tuple[str, ...] = ()
