"""Every error that hermes-run raises on purpose, and who hears of it.

::

    HermesRunError
    |-- UsageError           the user, exit 2: nothing was run
    |   |-- SpecError          a spec or settings file is wrong (all its mistakes at once)
    |   |-- DatasetError       rows that cannot be run
    |   |-- UnknownName        a name that no table has, with the nearest one
    |   |-- MissingExtra       an optional dependency is not installed
    |   |-- SpecChanged        the run directory was made by another spec
    |   `-- JournalDamaged     the run's memory is damaged; `hermes-run repair` mends it
    |-- EnvironmentStop      the user, exit 4: the rest stays pending
    |   |-- KeyMissing         the key variable is unset
    |   |-- CredentialsRefused the endpoint said 401 or 403
    |   |-- OutOfCredit        the endpoint said 402
    |   |-- RequestRefused     a 4xx that every row would meet alike
    |   |-- EndpointUnreachable
    |   |-- BackendMissing     the sandbox backend does not work here
    |   |-- RunLocked          a living process works in this run directory
    |   |-- DiskFull
    |   `-- DatasetChanged     it is no longer what was planned
    |-- BudgetStop           the user, exit 5: the rest stays pending
    |-- RolloutError         the manifest (outcome `failed`); never leaves one rollout
    |   |-- ProviderError
    |   |-- SandboxError
    |   `-- BrowserError
    `-- ToolError            the model, as the tool's result; never leaves the turn loop

Limits (turns, tokens, context) are stop reasons, not errors. Anything else inside a rollout becomes
`failed: internal`; anything else outside one is a bug of ours (exit 3).
"""

from __future__ import annotations

from typing import ClassVar

from hermes_run.core.messages import Usage


class HermesRunError(Exception):
    """Base of all errors raised on purpose. The message says what, where and the cure."""

    exit_code: ClassVar[int] = 3


class UsageError(HermesRunError):
    """Wrong command line, spec, settings or dataset: found before anything was run."""

    exit_code = 2


class SpecError(UsageError):
    """A spec or settings file is wrong. The message lists every mistake, one a line."""


class DatasetError(UsageError):
    """The dataset has rows that cannot be run, or is no dataset."""


class UnknownName(UsageError):
    """A name that is in no table; the message names the nearest."""


class MissingExtra(UsageError):
    """An optional dependency is needed and not installed; the message has the pip line."""


class SpecChanged(UsageError):
    """The run directory holds entries made with another work fingerprint."""


class JournalDamaged(UsageError):
    """The journal is missing or damaged in the middle; `hermes-run repair` rebuilds it."""


class EnvironmentStop(HermesRunError):
    """Something outside the spec stops the run. What was not done stays pending."""

    exit_code = 4


class KeyMissing(EnvironmentStop):
    """The variable that should hold the API key is not set."""


class CredentialsRefused(EnvironmentStop):
    """The endpoint refused the key (401, 403)."""


class OutOfCredit(EnvironmentStop):
    """The account has no credit left (402, insufficient quota)."""


class RequestRefused(EnvironmentStop):
    """The endpoint refused what all rows share (model, reasoning, prefill, tools)."""


class EndpointUnreachable(EnvironmentStop):
    """The endpoint was never reached."""


class BackendMissing(EnvironmentStop):
    """The sandbox backend does not work on this machine; the message has the cure.

    Attributes:
        why: what is wrong.
        cure: what to do about it, or "" when `why` says that too.
    """

    def __init__(self, why: str, *, cure: str = "") -> None:
        super().__init__(f"{why}; {cure}" if cure else why)
        self.why = why
        self.cure = cure


class RunLocked(EnvironmentStop):
    """Another living process works in the run directory."""


class DiskFull(EnvironmentStop):
    """No space left where the run writes."""


class DatasetChanged(EnvironmentStop):
    """The dataset is no longer what was planned: it was changed, or is gone, while the run went on."""


class BudgetStop(HermesRunError):
    """The run's budget is used up. What was not done stays pending."""

    exit_code = 5


class RolloutError(HermesRunError):
    """One rollout failed. Becomes the outcome `failed` with `reason`; never leaves the rollout.

    Attributes:
        reason: one of the contract's reasons for `failed`.
        usage: what was billed before the failure, by attempts that are part of no reply.
    """

    reason: str = "internal"

    def __init__(self, message: str, *, reason: str | None = None, usage: Usage | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason
        self.usage = usage or Usage()


class ProviderError(RolloutError):
    """The endpoint gave no usable reply: provider_error, malformed_call, empty_reply or filtered."""

    reason = "provider_error"


class SandboxError(RolloutError):
    """The sandbox: sandbox_start (cannot start), sandbox_lost (died), image (cannot be had).

    Attributes:
        why: what is wrong.
        cure: what to do about it, or "" when `why` says that too, or nothing is known. The message has both.
    """

    reason = "sandbox_lost"

    def __init__(
        self, why: str, *, reason: str | None = None, usage: Usage | None = None, cure: str = ""
    ) -> None:
        super().__init__(f"{why}; {cure}" if cure else why, reason=reason, usage=usage)
        self.why = why
        self.cure = cure


class BrowserError(RolloutError):
    """The browser is gone."""

    reason = "sandbox_lost"


class ContextExceeded(HermesRunError):
    """The conversation outgrew the model's window: the rollout ends partial, reason `context`."""

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage or Usage()


class ToolError(HermesRunError):
    """A tool could not do what was asked. Its text is the model's answer: what, and what to do.

    `usage` is what a helper model used before that.
    """

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage or Usage()
