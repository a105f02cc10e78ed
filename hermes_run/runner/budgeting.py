"""A run's budget at its start: whether its limits can be kept, and what it has used already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.errors import UsageError
from hermes_run.models.prices import Price
from hermes_run.runner.budget import Budget
from hermes_run.runner.resources import make_opening, price_table
from hermes_run.spec.endpoint import is_scripted
from hermes_run.store.spending import Spending, largest

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_run.core.task import PromptTask
    from hermes_run.runner.observe import Observer
    from hermes_run.runner.opening import OpenRun
    from hermes_run.spec.endpoint import Endpoint
    from hermes_run.spec.model import Settings, Spec

_MOST_BYTES_PER_TOKEN = 16
"""Of a text that is read: a token of English has four, one of code or blanks seldom more than this."""

_NEVER_TELL_COST = ("openai", "anthropic", "google")
"""Dialects whose replies never say what they cost; of others it shows with the first reply."""


def check_limits(spec: Spec, settings: Settings, endpoint: Endpoint | None) -> None:
    """Raises UsageError for a limit of money where nobody would know what calls cost.

    `endpoint` is None for the scripted model, whose tape says what it likes.
    """
    limits = spec.limits
    if endpoint is None or endpoint.dialect not in _NEVER_TELL_COST or spec.model.name in settings.prices:
        return
    for key in ("total_cost", "prompt_cost"):
        if getattr(limits, key) is not None:
            raise UsageError(
                f"limits.{key}: {endpoint.base_url} does not say what its calls cost, so the limit could not "
                f"be kept. Add it to hermes.yaml: `prices: {{{spec.model.name}: {{input: …, output: …}}}}`"
                " (USD per million tokens; or flat: true for a subscription), or limit tokens instead"
            )


def tell_of_shards(spec: Spec, shard: str | None, observer: Observer) -> None:
    """Each shard has a budget of its own: shards may be on machines that know nothing of one another."""
    count = int(shard.partition("/")[2]) if shard else 1
    for name in ("total_cost", "total_tokens"):
        limit = getattr(spec.limits, name)
        if count > 1 and limit is not None:
            whole = f"{limit * count:,.2f} USD" if name == "total_cost" else f"{limit * count:,} tokens"
            observer.warn(
                f"limits.{name} counts for this shard alone: all {count} together may use {whole}; "
                f"divide it by {count} if it is meant for all"
            )


def open_budget(opened: OpenRun) -> Budget:
    """The budget of an open run directory, with all that the run has used before."""
    limits, journal = opened.spec.limits, opened.journal
    if limits.total_cost is None and limits.total_tokens is None:
        return Budget(limits)
    ledger = Spending(opened.folder)
    before = journal.fold.spent + ledger.carried
    return Budget(
        limits, before, largest(opened.folder), ledger, least_of_a_call(opened.spec, opened.settings)
    )


def least_of_a_call(spec: Spec, settings: Settings) -> Callable[[PromptTask], tuple[float, float]]:
    """What the first call of a rollout takes at least, in USD and tokens: reading what it is asked.

    Nothing is known of a tape, and nothing of the cost where hermes.yaml has no price.
    """
    if is_scripted(spec):
        return lambda _: (0.0, 0.0)
    opening = sum(len(message.text.encode()) for message in make_opening(spec))
    price = price_table(settings).get(spec.model.name, Price())

    def least(task: PromptTask) -> tuple[float, float]:
        tokens = (opening + len(task.prompt.encode("utf-8", "surrogatepass"))) // _MOST_BYTES_PER_TOKEN
        return price.of(tokens, 0, cached_tokens=tokens), tokens

    return least
