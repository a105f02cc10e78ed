"""THE main flow: plan, run what is missing, merge, count."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_run.core.secrets import make_redactor
from hermes_run.dataset.plan import Plan, Selection, make_plan
from hermes_run.runner.backends import (
    check_backends,
    images_here,
    leftovers_of,
    make_backends,
    warnings_of_backends,
)
from hermes_run.runner.budgeting import check_limits, open_budget, tell_of_shards
from hermes_run.runner.driver import Driver
from hermes_run.runner.extra_tools import (
    check_host_code,
    check_mcp_can_work,
    mcp_kinds,
    own_kinds,
    secrets_of,
)
from hermes_run.runner.finish import finish, write_tools
from hermes_run.runner.foreign import refuse_foreign
from hermes_run.runner.opening import open_run
from hermes_run.runner.options import RunOptions
from hermes_run.runner.preflight import check_artifacts, check_descriptors, check_toolsets, prove_browser
from hermes_run.runner.resources import Resources, make_model, make_opening, make_outside
from hermes_run.runner.signals import StopSignal
from hermes_run.spec.endpoint import is_scripted, resolve
from hermes_run.spec.proxy import proxy_passwords

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hermes_run.core.contracts import Backend
    from hermes_run.core.task import PromptTask
    from hermes_run.runner.observe import Observer, RunReport
    from hermes_run.runner.opening import OpenRun
    from hermes_run.spec.endpoint import Endpoint
    from hermes_run.spec.model import Settings, Spec

__all__ = ["RunOptions", "plan_only", "run"]


async def run(
    spec: Spec, settings: Settings, observer: Observer, options: RunOptions | None = None
) -> RunReport:
    """Run what is missing of a spec.

    Raises UsageError and EnvironmentStop when nothing could be run, DatasetError, SpecChanged,
    JournalDamaged; Interrupted for a signal before or after the rollouts. What stops the rollouts
    themselves is in the report.
    """
    options = options or RunOptions()
    spec = shard_of_spec(spec, options)
    started = time.monotonic()
    with StopSignal() as signals:
        plan = plan_of(spec, options)
        tell_of_rows_left_out(plan, observer)
        check_toolsets(spec, settings)
        check_host_code(spec, options)
        check_mcp_can_work(spec)
        check_artifacts(spec)
        check_descriptors(spec)
        endpoint = endpoint_of(spec, settings, options)
        check_limits(spec, settings, endpoint)
        tell_of_shards(spec, options.shard, observer)
        backends = make_backends(spec, settings, plan)
        if not options.fresh:
            refuse_foreign(spec.output.dir / spec.run_name, plan)
        with open_run(spec, settings, plan, options, observer) as opened:
            driver = Driver(opened, observer)
            driver.announce()
            if driver.pending:
                first = next(driver.tasks())
                async with open_resources(opened, backends, endpoint, observer, first) as resources:
                    await driver.run(resources, signals)
            duration_s = time.monotonic() - started
            return finish(opened, observer, driver.ending(signals), duration_s)


def plan_only(spec: Spec, settings: Settings, options: RunOptions | None = None) -> dict[str, Any]:
    """`--dry-run`: the plan, without a model call and without a sandbox. Raises like `run`."""
    from hermes_run.runner.dryrun import describe_plan

    options = options or RunOptions()
    spec = shard_of_spec(spec, options)
    plan = plan_of(spec, options)
    check_toolsets(spec, settings)
    check_host_code(spec, options)
    check_mcp_can_work(spec, is_dry=True)
    check_artifacts(spec)
    backends = make_backends(spec, settings, plan)
    if not options.fresh:
        refuse_foreign(spec.output.dir / spec.run_name, plan)
    described = describe_plan(spec, settings, plan, options)
    described["images"] = asyncio.run(images_here(spec, settings, plan, backends))
    return described


def shard_of_spec(spec: Spec, options: RunOptions) -> Spec:
    """The spec of a part: the same work in a run directory of its own, `<run_name>.K-of-N`."""
    if options.shard is None:
        return spec
    return replace(spec, run_name=f"{spec.run_name}.{options.shard.replace('/', '-of-')}")


def plan_of(spec: Spec, options: RunOptions) -> Plan:
    """The plan of a spec's dataset, or of a part of it. Raises DatasetError."""
    chosen = spec.dataset
    selection = Selection(
        chosen.prompt_field, chosen.max_samples, chosen.dedupe, spec.samples, options.shard or ""
    )
    return make_plan(chosen.path, selection, skip_bad_rows=chosen.on_bad_row == "skip")


def tell_of_rows_left_out(plan: Plan, observer: Observer) -> None:
    """Nothing is dropped silently, and nothing to do is no success without a word."""
    if not plan.rows:
        whose = f"part {plan.selection.shard} of {plan.path}" if plan.selection.shard else str(plan.path)
        observer.warn(f"there are no rows in {whose}; nothing is run")
    if plan.removed:
        removed = f"{plan.removed} duplicates" if plan.removed > 1 else "1 duplicate"
        observer.warn(f"{removed} removed (dataset.dedupe)")
    if plan.invalid:
        rows = f"{len(plan.invalid)} rows" if len(plan.invalid) > 1 else "1 row"
        observer.warn(f"{rows} cannot be run and count as invalid; plan.json lists them")


def endpoint_of(spec: Spec, settings: Settings, options: RunOptions) -> Endpoint | None:
    """Where the model is, with the key for it; None for the scripted one. Raises KeyMissing."""
    return None if is_scripted(spec) else resolve(spec, settings, options.api_key)


@asynccontextmanager
async def open_resources(
    opened: OpenRun,
    backends: dict[str, Backend],
    endpoint: Endpoint | None,
    observer: Observer,
    first: PromptTask,
) -> AsyncIterator[Resources]:
    """What the rollouts share: the backends, checked, and the model. Raises BackendMissing.

    `first` is the rollout in whose sandbox MCP servers are asked what they offer.
    """
    spec = opened.spec
    try:
        budget = open_budget(opened)
        missing = await check_backends(spec, backends)
        for text in (*warnings_of_backends(missing), *await leftovers_of(backends)):
            observer.warn(text)
        extra = own_kinds(spec) | await mcp_kinds(opened, backends, first)
        opened.extra |= {name: kind.spec for name, kind in extra.items()}
        write_tools(opened)
        model = make_model(spec, opened.settings, endpoint)
        outside = make_outside(spec, opened.settings)
        try:
            await prove_browser(spec, outside)
            yield Resources(
                spec=spec,
                settings=opened.settings,
                work=opened.snapshot.work,
                model=model,
                backends=backends,
                limits_missing=missing,
                filters=opened.filters,
                budget=budget,
                outside=outside,
                extra=extra,
                redact=make_redactor([*secrets_of(spec, opened.settings, endpoint), *proxy_passwords()]),
                opening=make_opening(spec),
            )
        finally:
            await outside.aclose()
            await model.aclose()
            budget.close()
    finally:
        for backend in backends.values():
            await backend.aclose()
