"""The one owner of retries: what is tried again, how often, after how long.

- Real errors (see `verdicts.py`): 5 attempts in all, full-jitter exponential backoff; where there are
  several endpoints, at another one.
- Malformed calls and empty replies: 3 attempts in all, counted for themselves.
- Refusals for rate (429): a cool-down shared by all rollouts, which uses up no attempt. After nothing but
  refusals for 20 seconds they go on at another endpoint that has room; without one, 15 minutes stop the run.
- What the endpoint wants to be sent otherwise is sent so, once for each thing, and uses up no attempt.
- An endpoint that never answered and cannot be connected to, or answers with web pages, stops the run.
- One that was there and cannot be connected to any more is waited for, which uses up no attempt; after five
  minutes the run stops.

What thrown-away replies were billed is part of the final reply's usage, or of the error's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hermes_run.core.messages import Reply, Usage
from hermes_run.errors import ContextExceeded, ProviderError, RequestRefused
from hermes_run.models.limiter import Dismissed
from hermes_run.models.verdicts import UNKNOWN_USAGE, Unusable, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_run.models.endpoints import Endpoint, Seat
    from hermes_run.models.limiter import Pass

_log = logging.getLogger("hermes_run.models")

_GONE = "gone"
_GONE_STEPS = 5
"""An endpoint that is gone is looked for every few seconds."""
_BYTES_PER_TOKEN = 4.0
_REPLY_TOKENS = 500.0
"""What a call is taken to need of `tokens_per_minute` before the first replies say more."""


class RetryPolicy(Struct, frozen=True):
    """How patient to be.

    Attributes:
        attempts: for real errors, the first one included.
        reply_attempts: for malformed calls and for empty replies, each.
        base_s, cap_s: the n-th wait is random between 0 and min(cap, base * 2**(n - 1)).
        move_s: nothing but refusals for rate for this long, and rollouts go on at another endpoint.
        give_up_s: the same where there is no other one stops the run.
        gone_s: an endpoint that was there and cannot be connected to for this long stops the run.
    """

    attempts: int = 5
    reply_attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 30.0
    move_s: float = 20.0
    give_up_s: float = 900.0
    gone_s: float = 300.0


def backoff_s(policy: RetryPolicy, failures: int) -> float:
    """The wait after the n-th failure (from 1): full jitter, so that rollouts do not march in step."""
    return random.uniform(0, min(policy.cap_s, policy.base_s * 2 ** min(failures - 1, 32)))  # noqa: S311 - timing only


class Call:
    """One call until there is a reply or an error that ends the rollout or the run.

    Args:
        attempt: makes one request to an endpoint; raises Unusable when it gave no reply.
        seat: where the rollout is served.
        policy: how patient to be.
        size: bytes of the request, about.
    """

    def __init__(
        self,
        attempt: Callable[[Endpoint], Awaitable[Reply]],
        seat: Seat,
        policy: RetryPolicy,
        size: int = 0,
    ) -> None:
        self._attempt = attempt
        self._seat = seat
        self._policy = policy
        self._size = size
        self._billed = Usage()
        self._failures: Counter[str] = Counter()
        self._adapted: set[str] = set()
        self._is_sent = False

    @property
    def unsettled(self) -> Usage:
        """What it was billed so far; a request that has no answer yet may have been."""
        return self._billed + UNKNOWN_USAGE if self._is_sent else self._billed

    async def reply(self) -> Reply:
        """The reply. Raises ProviderError, ContextExceeded, EnvironmentStop."""
        while True:
            endpoint = self._place()
            reply, verdict = await self._ask(endpoint)
            if reply is not None:
                return replace(reply, usage=self._billed + reply.usage) if self._billed.calls else reply
            if verdict is not None and verdict.kind != "cool_down":
                wait_s = self._judge(endpoint, verdict)
                if wait_s:
                    await asyncio.sleep(wait_s)

    def _place(self) -> Endpoint:
        """Where it is asked next."""
        if self._is_refused_alone(self._seat.endpoint):
            self._seat.move()
        return self._seat.endpoint

    def _is_refused_alone(self, endpoint: Endpoint) -> bool:
        """Whether it has refused everything for long, and another one has not."""
        return endpoint.gate.refused_for_s() >= self._policy.move_s and self._seat.has_better()

    async def _ask(self, endpoint: Endpoint) -> tuple[Reply | None, Verdict | None]:
        """One request, through the gate."""
        gate = endpoint.gate
        expected = 0.0
        if gate.counts_tokens:
            expected = max(self._size / _BYTES_PER_TOKEN + _REPLY_TOKENS, endpoint.tokens_per_call)
        try:
            passed = await gate.passed(expected)
        except Dismissed:
            return None, None
        try:
            if endpoint.stopped is not None:
                raise endpoint.stopped
            self._is_sent = True
            reply = await self._attempt(endpoint)
        except Unusable as unusable:
            self._is_sent = False
            self._billed += unusable.usage
            if unusable.verdict.kind == "cool_down":
                self._cool_down(endpoint, passed, unusable.verdict)
            else:
                gate.answered()
            return None, unusable.verdict
        else:
            self._is_sent = False
            tokens = reply.usage.total_tokens
            endpoint.replied(tokens)
            gate.succeeded(passed, tokens - expected if tokens else 0.0)
            return reply, None
        finally:
            gate.left()

    def _cool_down(self, endpoint: Endpoint, passed: Pass, verdict: Verdict) -> None:
        endpoint.gate.cool_down(passed, verdict.wait_s, verdict.text)
        if self._is_refused_alone(endpoint):
            endpoint.gate.dismiss()
        elif endpoint.gate.refused_for_s() >= self._policy.give_up_s:
            endpoint.stop_with(
                RequestRefused(
                    f"{endpoint.where} has answered nothing but refusals for"
                    f" {self._policy.give_up_s / 60:.0f} minutes: {verdict.text}. Cure: lower workers or"
                    " raise the rate limit, then run the same command again."
                )
            )

    def _judge(self, endpoint: Endpoint, verdict: Verdict) -> float:
        """How long to wait before the next attempt, or the error that ends it."""
        if verdict.kind == "adapt" and verdict.adapt not in self._adapted:
            self._adapted.add(verdict.adapt)
            before = endpoint.variant
            endpoint.adapt(verdict)
            if before != endpoint.variant:
                _log.warning("%s: %s; sent otherwise from here on", endpoint.where, verdict.text)
            return 0.0
        if verdict.kind in ("stop", "adapt"):
            endpoint.stop(verdict)
        if verdict.kind == "context":
            raise ContextExceeded(verdict.text, usage=self._billed)
        if verdict.kind == "fail":
            raise ProviderError(verdict.text, reason=verdict.reason, usage=self._billed)
        return self._again(endpoint, verdict)

    def _again(self, endpoint: Endpoint, verdict: Verdict) -> float:
        policy, reason = self._policy, verdict.reason
        if verdict.unreached and endpoint.was_reached:
            return self._wait_for(endpoint, verdict)
        self._failures[reason] += 1
        failures = self._failures[reason]
        if verdict.unreached:
            endpoint.was_down(time.monotonic())
        if failures >= (policy.attempts if reason == "provider_error" else policy.reply_attempts):
            endpoint.give_up(verdict, failures, self._billed)
        if reason == "provider_error":
            self._seat.move()
        wait_s = max(backoff_s(policy, failures), verdict.wait_s or 0.0)
        _log.info("%s: %s; again in %.1f s", endpoint.where, verdict.text, wait_s)
        return wait_s

    def _wait_for(self, endpoint: Endpoint, verdict: Verdict) -> float:
        """How long to wait for an endpoint that was there: it may be started anew."""
        policy, now = self._policy, time.monotonic()
        if not endpoint.gone_for_s(now):
            what = "%s cannot be reached: %s; its calls wait for up to %.0f s"
            _log.warning(what, endpoint.where, verdict.text, policy.gone_s, extra={"wait_s": policy.gone_s})
        endpoint.was_down(now)
        if self._seat.is_gone(now, policy.gone_s):
            endpoint.stop_as_gone(verdict, policy.gone_s)
        self._seat.move()
        self._failures[_GONE] += 1
        return backoff_s(policy, min(self._failures[_GONE], _GONE_STEPS))
