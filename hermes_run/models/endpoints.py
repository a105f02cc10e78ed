"""The endpoints of a run: what is known of each, and which of them a rollout talks to.

A rollout stays with the one it began with, so that prefix caches hit: the one with the least calls in
flight and waiting; the samples of one prompt together, as long as theirs is hardly busier than others. It
moves on when that one fails.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from hermes_run.errors import (
    CredentialsRefused,
    EndpointUnreachable,
    EnvironmentStop,
    OutOfCredit,
    ProviderError,
    RequestRefused,
)
from hermes_run.models.requests import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.core.messages import Usage
    from hermes_run.models.limiter import Gate
    from hermes_run.models.verdicts import Verdict

_REMEMBERED = 4096
_DOWN_S = 5.0
_DOWN_AT_MOST_S = 60.0
"""An endpoint that could not be connected to gets no new rollouts for so long: doubled each time."""
_SLACK = 2
"""Calls by which the endpoint of a prompt's other samples may be busier than the least busy one."""


class Endpoint:
    """What is known of an endpoint during a run, shared by all rollouts.

    Attributes:
        where: its URL, without secrets.
        address: where requests go.
        key_hint: where its key comes from, for messages.
        was_reached: whether it ever answered.
        has_replied: whether it ever gave a reply.
        variant: how it wants its requests, as far as it taught that.
        stopped: the error that it stopped the run with; whoever would ask it gets the same one.
        tokens_per_call: of its replies, averaged.
    """

    def __init__(
        self, where: str, address: str, gate: Gate, key_hint: str = "", variant: Variant | None = None
    ) -> None:
        self.where = where
        self.address = address
        self.gate = gate
        self.key_hint = key_hint
        self.was_reached = False
        self.has_replied = False
        self.variant = variant or Variant()
        self.stopped: EnvironmentStop | None = None
        self.tokens_per_call = 0.0
        self.rollouts = 0
        self.down_until = 0.0
        self._downs = 0
        self._gone_since = 0.0

    def stop(self, verdict: Verdict) -> NoReturn:
        """Raise the error that stops the run, with the cure."""
        cures = {
            CredentialsRefused: f"check the key{self.key_hint} and that it may use this model",
            OutOfCredit: "add credit or raise the quota",
            RequestRefused: "correct the spec",
        }
        cure = verdict.cure or cures.get(verdict.stop, "see run.log")
        said = verdict.text.removesuffix(".")
        self.stop_with(verdict.stop(f"{self.where}: {said}. Cure: {cure}, then run the same command again."))

    def stop_with(self, error: EnvironmentStop) -> NoReturn:
        """Raise it, now and for everybody who comes."""
        self.stopped = error
        raise error

    def give_up(self, verdict: Verdict, attempts: int, usage: Usage) -> NoReturn:
        """Raise what remains when the attempts are used up."""
        if verdict.unreached and not self.was_reached:
            self.stop_with(
                EndpointUnreachable(
                    f"{self.where} was never reached: {verdict.text} ({attempts} attempts). Cure: check"
                    " model.base_url, the network, and that the server runs, then run the same command again."
                )
            )
        if verdict.is_page and not self.has_replied:
            self.stop_with(
                RequestRefused(
                    f"{self.where} answers with a web page ({attempts} attempts), so it is not the API. Cure:"
                    " write the address of the API as model.base_url (it often ends with /v1), then run the"
                    " same command again."
                )
            )
        raise ProviderError(f"{verdict.text} ({attempts} attempts)", reason=verdict.reason, usage=usage)

    def stop_as_gone(self, verdict: Verdict, seconds: float) -> NoReturn:
        """Raise what remains when it stays away."""
        self.stop_with(
            EndpointUnreachable(
                f"{self.where} cannot be reached any more: {verdict.text}, for {seconds / 60:.0f} minutes."
                " Cure: look at the server and the network, then run the same command again."
            )
        )

    def adapt(self, verdict: Verdict) -> None:
        """Send what follows as the endpoint wants it."""
        match verdict.adapt:
            case "max_tokens":
                before = self.variant.max_tokens
                most = verdict.affordable if before is None else min(before, verdict.affordable)
                self.variant = replace(self.variant, max_tokens=most)
            case "length_field":
                self.variant = replace(self.variant, length_field="max_completion_tokens")
            case "is_stream":
                self.variant = replace(self.variant, is_stream=True)
            case "takes_reasoning":
                self.variant = replace(self.variant, takes_reasoning=False)

    def is_up(self, now: float) -> bool:
        """Whether it could be connected to, as far as is known."""
        return now >= self.down_until

    def gone_for_s(self, now: float) -> float:
        """For how long an endpoint that was there could not be connected to."""
        return now - self._gone_since if self._gone_since else 0.0

    def answered(self) -> None:
        """Something came from it."""
        self.was_reached = True
        self._gone_since = 0.0

    def was_down(self, now: float) -> None:
        """It could not be connected to."""
        if self.was_reached and not self._gone_since:
            self._gone_since = now
        self.down_until = now + min(_DOWN_AT_MOST_S, _DOWN_S * 2 ** min(self._downs, 8))
        self._downs += 1

    def replied(self, tokens: int) -> None:
        """A reply came that took so many tokens (0: unknown)."""
        self.has_replied = True
        self._downs = 0
        self.down_until = 0.0
        if tokens:
            self.tokens_per_call += (tokens - self.tokens_per_call) * (0.1 if self.tokens_per_call else 1)


class Replicas:
    """Endpoints that are alike."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.all = tuple(endpoints)
        self._of_prompt: OrderedDict[str, Endpoint] = OrderedDict()

    def choose(self, prompt: str = "", avoid: Endpoint | None = None) -> Endpoint:
        """The one for a rollout of `prompt` (a content key), not `avoid` if there is another."""
        if len(self.all) == 1:
            return self.all[0]
        now = time.monotonic()
        choice = [each for each in self.all if each is not avoid]
        choice = [each for each in choice if each.is_up(now)] or choice
        best = min(choice, key=lambda each: (each.gate.closed_for_s() > 0, each.gate.load, each.rollouts))
        known = self._of_prompt.get(prompt)
        if known in choice and known.gate.load <= best.gate.load + _SLACK and not known.gate.closed_for_s():
            best = known
        if prompt:
            self._of_prompt[prompt] = best
            if len(self._of_prompt) > _REMEMBERED:
                self._of_prompt.popitem(last=False)
        best.rollouts += 1
        return best


class Seat:
    """Where one rollout is served."""

    def __init__(self, replicas: Replicas, prompt: str = "") -> None:
        self._replicas = replicas
        self._prompt = prompt
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint; chosen when first needed."""
        if self._endpoint is None:
            self._endpoint = self._replicas.choose(self._prompt)
        return self._endpoint

    def has_better(self) -> bool:
        """Whether another endpoint refuses nothing."""
        return any(each.gate.refused_for_s() == 0 for each in self._replicas.all)

    def is_gone(self, now: float, seconds: float) -> bool:
        """Whether no endpoint that was ever there could be connected to for so long."""
        there = [each for each in self._replicas.all if each.was_reached]
        return all(each.gone_for_s(now) >= seconds for each in there)

    def move(self) -> None:
        """Go on elsewhere: the endpoint failed."""
        if len(self._replicas.all) > 1:
            self._endpoint = self._replicas.choose(avoid=self._endpoint)
