"""The one owner of retries: what is tried again, how often, after how long.

- Real errors (see `verdicts.py`): 5 attempts in all, full-jitter exponential backoff.
- Malformed calls and empty replies: 3 attempts in all, counted for themselves.
- Refusals for rate (429): a cool-down shared by all rollouts, which uses up no attempt; nothing but
  refusals for 15 minutes stops the run.
- An endpoint that never answered and cannot be connected to stops the run.

What thrown-away replies were billed is part of the final reply's usage, or of the error's.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from hermes_run.core.messages import Reply, Usage
from hermes_run.errors import (
    ContextExceeded,
    CredentialsRefused,
    EndpointUnreachable,
    OutOfCredit,
    ProviderError,
    RequestRefused,
)
from hermes_run.models.verdicts import Unusable, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_run.models.limiter import Gate

_log = logging.getLogger("hermes_run.models")


class RetryPolicy(Struct, frozen=True):
    """How patient to be.

    Attributes:
        attempts: for real errors, the first one included.
        reply_attempts: for malformed calls and for empty replies, each.
        base_s, cap_s: the n-th wait is random between 0 and min(cap, base * 2**(n - 1)).
        give_up_s: nothing but refusals for rate for this long stops the run.
    """

    attempts: int = 5
    reply_attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 30.0
    give_up_s: float = 900.0


class Endpoint:
    """What is known of an endpoint during a run, shared by all rollouts.

    Attributes:
        where: its URL, without secrets.
        key_hint: where its key comes from, for messages.
        was_reached: whether it ever answered.
    """

    def __init__(self, where: str, gate: Gate, key_hint: str = "") -> None:
        self.where = where
        self.gate = gate
        self.key_hint = key_hint
        self.was_reached = False

    def stop(self, verdict: Verdict) -> NoReturn:
        """Raise the error that stops the run, with the cure."""
        cures = {
            CredentialsRefused: f"check the key{self.key_hint} and that it may use this model",
            OutOfCredit: "add credit or raise the quota",
            RequestRefused: "correct the spec",
        }
        cure = cures.get(verdict.stop, "see run.log")
        raise verdict.stop(f"{self.where}: {verdict.text}. Cure: {cure}, then run the same command again.")

    def give_up(self, verdict: Verdict, attempts: int, usage: Usage) -> NoReturn:
        """Raise what remains when the attempts are used up."""
        if verdict.unreached and not self.was_reached:
            raise EndpointUnreachable(
                f"{self.where} was never reached: {verdict.text} ({attempts} attempts). Cure: check"
                " model.base_url, the network, and that the server runs, then run the same command again."
            )
        raise ProviderError(f"{verdict.text} ({attempts} attempts)", reason=verdict.reason, usage=usage)


def backoff_s(policy: RetryPolicy, failures: int) -> float:
    """The wait after the n-th failure (from 1): full jitter, so that rollouts do not march in step."""
    return random.uniform(0, min(policy.cap_s, policy.base_s * 2 ** min(failures - 1, 32)))  # noqa: S311 - timing only


async def with_retries(
    attempt: Callable[[], Awaitable[Reply]], endpoint: Endpoint, policy: RetryPolicy
) -> Reply:
    """A reply, or the error that ends the rollout or the run.

    `attempt` makes one request; it raises Unusable when it gave no reply.

    Raises ProviderError, ContextExceeded, EnvironmentStop.
    """
    billed = Usage()
    failures: Counter[str] = Counter()
    while True:
        passed_at = await endpoint.gate.passed()
        try:
            reply = await attempt()
        except Unusable as unusable:
            verdict = unusable.verdict
            billed += unusable.usage
        else:
            endpoint.gate.succeeded()
            return replace(reply, usage=billed + reply.usage) if billed.calls else reply
        if verdict.kind == "cool_down":
            _cool_down(endpoint, passed_at, verdict, policy)
            continue
        endpoint.gate.answered()
        if verdict.kind == "stop":
            endpoint.stop(verdict)
        if verdict.kind == "context":
            raise ContextExceeded(verdict.text, usage=billed)
        if verdict.kind == "fail":
            raise ProviderError(verdict.text, reason=verdict.reason, usage=billed)
        failures[verdict.reason] += 1
        allowed = policy.attempts if verdict.reason == "provider_error" else policy.reply_attempts
        if failures[verdict.reason] >= allowed:
            endpoint.give_up(verdict, failures[verdict.reason], billed)
        wait_s = max(backoff_s(policy, failures[verdict.reason]), verdict.wait_s or 0.0)
        _log.info("%s: %s; again in %.1f s", endpoint.where, verdict.text, wait_s)
        await asyncio.sleep(wait_s)


def _cool_down(endpoint: Endpoint, passed_at: float, verdict: Verdict, policy: RetryPolicy) -> None:
    endpoint.gate.cool_down(passed_at, verdict.wait_s, verdict.text)
    if endpoint.gate.refused_for_s() >= policy.give_up_s:
        raise RequestRefused(
            f"{endpoint.where} has answered nothing but refusals for {policy.give_up_s / 60:.0f} minutes:"
            f" {verdict.text}. Cure: lower workers or raise the rate limit, then run the same command again."
        )
