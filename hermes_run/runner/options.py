"""What a command line may ask of a run beside its spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_run.runner.pilot import Confirm


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a command line may ask of a run beside its spec.

    Attributes:
        resume: go on in a run directory that holds entries; off: refuse it.
        fresh: set the old run directory aside first.
        retry: statuses of finished rollouts that are run again.
        accept_spec_change: go on although the work fingerprint changed.
        allow_host_code: let the spec's own code run outside the sandbox where it asks for it.
        api_key: wins over the spec's key variable.
        shard: "K/N" (K from 1): only that part of the key space, in a run directory of its own.
        pilot: run so many rollouts first, then ask `confirm`; 0 for none.
        confirm: is shown the forecast after the pilot; whether the rest is to be run.
    """

    resume: bool = True
    fresh: bool = False
    retry: frozenset[str] = frozenset({"failed"})
    accept_spec_change: bool = False
    allow_host_code: bool = False
    api_key: str | None = None
    shard: str | None = None
    pilot: int = 0
    confirm: Confirm | None = None
