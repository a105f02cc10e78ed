"""A run directory of the predecessor taken over as one of ours. Contract, section 1, `import`.

Its records become lines and entries with `work: imported`, judged by our filters; the first run of a
spec in the new directory writes spec.yaml. Beside the files of any run there are
`imported.json` (the account of every file, line, record and tool of the old one) and, for what no
record could be made of, `imported-<file>.bad` with the bytes. The old directory is only read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.keys import unpack_key
from hermes_run.core.registry import FILTERS, TOOLS, load
from hermes_run.core.text import clean, clean_within
from hermes_run.core.trajectory import Status
from hermes_run.dataset.plan import Plan, Selection, make_plan
from hermes_run.errors import UsageError
from hermes_run.formats.sharegpt import ShareGPT
from hermes_run.store import layout
from hermes_run.store.assemble import About, Assembly, assembling
from hermes_run.store.disk import replace_file
from hermes_run.store.lines import adopted_line
from hermes_run.store.matching import Matching, match_alone, match_rows
from hermes_run.store.planfile import plan_file
from hermes_run.store.predecessor import Predecessor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_run.store.predecessor import Sighting

ACCOUNT = "imported.json"
_BATCH_SIZE = 20
"""Where its statistics do not say."""


def adopt(
    folder: Path, out: Path, dataset: Path | None = None, prompt_field: str = "prompt"
) -> dict[str, Any]:
    """Make `out` of the predecessor's `folder`; the account of all that was found.

    `prompt_field` is the column of `dataset` that holds the prompt.

    Raises UsageError for a folder that is none of the predecessor's and for an `out` that cannot be
    made, DatasetError.
    """
    if out.resolve() == folder.resolve() or out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{out}: lies in {folder}, which import never changes; name another OUT")
    with Predecessor(folder) as old:
        if dataset is None:
            plan = Plan(folder / layout.TRAJECTORIES, Selection())
            matching = match_alone(plan, old.sightings)
        else:
            plan = make_plan(dataset, Selection(prompt_field), skip_bad_rows=True)
            _refuse_all_bad(plan, dataset)
            matching = match_rows(plan, old.sightings, old.other_tools)
        with assembling(out, _about(old)) as new:
            new.set_plan(plan_file(plan), plan.packed_keys)
            adopting = _Adopting(old, new)
            adopting.take_planned(plan, matching, has_dataset=dataset is not None)
            adopting.take_outside(matching)
            account = adopting.account(plan, matching)
            for name, data in old.bad.items():
                replace_file(new.folder / f"imported-{name}.bad", bytes(data))
            details = account | {"set_aside_pieces": old.aside, "system_turns": _system_turns(old)}
            replace_file(new.folder / ACCOUNT, msgspec.json.format(msgspec.json.encode(details)) + b"\n")
    return account


def _refuse_all_bad(plan: Plan, dataset: Path) -> None:
    """Raises UsageError when no row of the dataset can be run: it is not the one that was meant."""
    if plan.rows and len(plan.invalid) == plan.rows:
        first = plan.invalid[0]
        raise UsageError(
            f"{dataset}: no row of it can be run (line {first.line}: {first.reason}); name the dataset of "
            "this run, and the column that holds the prompt: --prompt-field NAME"
        )


def _about(old: Predecessor) -> About:
    statistics = clean_within(layout.read_json(old.folder / layout.STATISTICS))
    tools = [
        {"type": "function", "function": tool}
        for name, tool in sorted(old.signatures.items())
        if name in TOOLS  # a name in tools.json is a column of every line
    ]
    return About(
        batch_size=old.batch_size or _BATCH_SIZE,
        distribution=str(statistics.get("distribution") or ""),
        model=str(statistics.get("model") or ""),
        tools=tools,
    )


def _system_turns(old: Predecessor) -> list[dict[str, Any]]:
    return [{"records": count, "value": text} for text, count in old.system_turns.most_common()]


class _Adopting:
    def __init__(self, old: Predecessor, new: Assembly) -> None:
        self._old = old
        self._new = new
        self._form = ShareGPT()
        self._filters = tuple(load("filter", FILTERS, name)() for name in FILTERS)
        self._outcomes: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def take_planned(self, plan: Plan, matching: Matching, *, has_dataset: bool) -> None:
        """The records of planned rollouts, in dataset order, with what their rows say."""
        rows = _rows(plan, matching) if has_dataset else _places(plan)
        for position, key, prompt_index, row in rows:
            text, entry = self._line(matching.planned[position], key, prompt_index, row)
            self._new.add(entry, text, prompt_index)
            self._outcomes[entry.status] += 1
            if entry.status != Status.COMPLETED.value:
                self._reasons[entry.reason] += 1

    def take_outside(self, matching: Matching) -> None:
        """The records beyond the plan, by key."""
        for each in sorted(matching.outside, key=lambda outside: outside.key):
            text, entry = self._line(each.sighting, unpack_key(each.key), each.sighting.prompt_index, "{}")
            self._new.add(entry, text, None)

    def _line(self, sighting: Sighting, key: str, prompt_index: int, row: str) -> tuple[bytes, Any]:
        trajectory = msgspec.structs.replace(
            self._old.trajectory(sighting), key=key, prompt_index=prompt_index, row=row
        )
        text = self._form.encode(trajectory)
        return text, adopted_line(text, 0, 0, self._filters)[1]

    def account(self, plan: Plan, matching: Matching) -> dict[str, Any]:
        """Where every line, record and row went."""
        old, accounts = self._old, self._old.accounts
        outcomes = {each.value: self._outcomes[each.value] for each in Status}
        why = Counter(each.why for each in matching.outside)
        return {
            "source": clean(str(old.folder)),
            "files": msgspec.to_builtins(accounts),
            "lines": sum(each.lines for each in accounts.values()),
            "records": sum(each.records for each in accounts.values()),
            "duplicates": sum(each.duplicates for each in accounts.values()),
            "set_aside": len(old.aside),
            "set_aside_why": dict(Counter(each.why for each in old.aside)),
            "adopted": len(old.sightings),
            "in_plan": len(matching.planned),
            "outside_plan": dict(sorted(why.items())),
            "rows": plan.rows,
            "outcomes": outcomes | {"invalid": len(plan.invalid)},
            "reasons": dict(sorted(self._reasons.items())),
            "pending": plan.planned - len(matching.planned),
            "checkpoint_completed": old.done,
            "unknown_tools": dict(sorted(old.invented.items())),
            "other_tools": {
                name: msgspec.to_builtins(count) for name, count in old.other_tools.items() if count.count
            },
        }


def _rows(plan: Plan, matching: Matching) -> Iterator[tuple[int, str, int, str]]:
    """(position, rollout key, place, other columns) of the rows that have a record."""
    matched = [rollout for rollout in plan.rollouts() if rollout.position in matching.planned]
    tasks = plan.read_tasks(iter(matched))
    for rollout, task in zip(matched, tasks, strict=True):
        yield rollout.position, task.key, task.prompt_index, task.row


def _places(plan: Plan) -> Iterator[tuple[int, str, int, str]]:
    for rollout in plan.rollouts():
        yield rollout.position, unpack_key(rollout.key), plan.prompt_index(rollout.position), "{}"
