"""Run, kill, lose power, edit the dataset, change filters, resume, select, merge: against what was done."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hermes_run.core.keys import content_key, pack_key, rollout_key
from hermes_run.core.messages import Assistant, Message, ToolCall, ToolResult, Usage, User
from hermes_run.core.text import clean
from hermes_run.core.trajectory import Outcome, Status, StopReason, ToolCount, Trajectory
from hermes_run.quality.filters import judge
from hermes_run.runner.driver import Driver
from hermes_run.runner.finish import finish
from hermes_run.runner.flow import plan_of
from hermes_run.runner.opening import OpenRun, open_store
from hermes_run.runner.options import RunOptions
from hermes_run.spec.model import (
    DatasetSpec,
    Distribution,
    FiltersSpec,
    ModelSpec,
    OutputSpec,
    Settings,
    Spec,
)
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers, batch_path
from hermes_run.store.combine import merge_runs, select_run, subtract_runs
from hermes_run.store.inspect import repair, status
from hermes_run.store.verify import verify
from tests.properties.expected import KEPT, Event, Expected, status_of
from tests.properties.power import Disk

if TYPE_CHECKING:
    from hermes_run.core.task import PromptTask

PROMPTS = ("a", "b", "c", "d", "é", "\U0010d83d")
WORK = "0" * 32
USAGE = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, calls=1, calls_without_cost=1)

kinds = st.lists(st.sampled_from((*KEPT, "broken")), min_size=1, max_size=5)
datasets = st.lists(st.sampled_from(PROMPTS), max_size=7)
retries = st.sampled_from(
    [
        frozenset({"failed"}),
        frozenset[str](),
        frozenset({"partial"}),
        frozenset({"failed", "partial", "discarded"}),
    ]
)


class Deaf:
    """An observer."""

    def planned(self, *, total: int, done: int, pending: int, run_dir: Path) -> None: ...
    def started(self, task: PromptTask) -> None: ...
    def finished(self, outcome: Outcome) -> None: ...
    def phase(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...


def trajectory_of(task: PromptTask, kind: str, text: str) -> Trajectory:
    """What a rollout of a kind leaves."""
    call = ToolCall("c", "invented" if kind == "inventive" else "todo", "{}")
    messages: list[Message] = [
        User(task.prompt),
        Assistant("", "" if kind == "mute" else "because", (call,)),
        ToolResult("c", call.name, "{}"),
    ]
    if kind != "cut":
        messages.append(Assistant(text))
    return Trajectory(
        key=task.key,
        prompt_index=task.prompt_index,
        messages=tuple(messages),
        stop_reason=StopReason.MAX_TURNS if kind == "cut" else StopReason.FINISHED,
        api_calls=1,
        toolsets=("todo",),
        tool_counts={} if kind == "inventive" else {"todo": ToolCount(1, 1, 0)},
        unknown_tools=("invented",) if kind == "inventive" else (),
        usage=USAGE,
        model="m",
        served_model=text,
        draw={"todo": 100.0},
        work=WORK,
        backend="bubblewrap",
        row=task.row,
        batch=task.batch,
        timestamp="2026-01-01T00:00:00",
    )


class RunDirectory(RuleBasedStateMachine):
    """See the module. The product's own opening, driver, writer and merge; only rollouts are made up."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="hermes-run-test-"))
        self._stack.callback(shutil.rmtree, self._folder)
        self._disk = self._stack.enter_context(Disk())
        self._expected = Expected()
        self._rows: list[str] = []
        self._samples = 1
        self._dedupe = False
        self._filters = FiltersSpec()
        self._batch_size = 2
        self._retry = frozenset[str]()
        self._pending: list[str] = []
        self._opened: OpenRun | None = None
        self._driver: Driver | None = None
        self._attempts = 0
        self._is_finished = False

    def teardown(self) -> None:
        if self._opened is not None:
            self._drop()
        self._stack.close()

    # ---------------------------------------------------------------- what a user changes

    @initialize(rows=datasets, batch_size=st.integers(1, 3))
    def begin(self, rows: list[str], batch_size: int) -> None:
        self._batch_size = batch_size
        self._write_rows(rows)

    @precondition(lambda self: self._opened is None)
    @rule(rows=datasets)
    def replace_the_dataset(self, rows: list[str]) -> None:
        self._write_rows(rows)

    @precondition(lambda self: self._opened is None and self._rows)
    @rule(data=st.data())
    def edit_the_dataset(self, data: st.DataObject) -> None:
        how = data.draw(st.sampled_from(["reverse", "drop", "double", "add"]))
        place = data.draw(st.integers(0, len(self._rows) - 1))
        rows = list(self._rows)
        if how == "reverse":
            rows.reverse()
        elif how == "drop":
            del rows[place]
        else:
            rows.insert(place, rows[place] if how == "double" else data.draw(st.sampled_from(PROMPTS)))
        self._write_rows(rows[:8])

    @precondition(lambda self: self._opened is None)
    @rule(samples=st.integers(1, 3), dedupe=st.booleans(), batch_size=st.integers(1, 3))
    def change_what_is_planned(self, samples: int, dedupe: bool, batch_size: int) -> None:
        self._samples, self._dedupe, self._batch_size = samples, dedupe, batch_size

    @precondition(lambda self: self._opened is None)
    @rule(require_reasoning=st.booleans(), reject_unknown_tools=st.booleans())
    def change_the_filters(self, require_reasoning: bool, reject_unknown_tools: bool) -> None:
        self._is_finished = False  # until a run has judged its records again
        self._filters = FiltersSpec(
            require_reasoning=require_reasoning, reject_unknown_tools=reject_unknown_tools
        )

    @precondition(lambda self: self._opened is None and any(e.has_line for e in self._expected.events))
    @rule()
    def lose_the_journal_and_repair(self) -> None:
        """What has a line is rebuilt, whatever the plan says; what had failed is not."""
        self._is_finished = False
        journal = self._run_dir / layout.JOURNAL
        journal.unlink()
        repair(self._run_dir)
        kept = [event for event in self._expected.events if event.has_line]
        self._expected.events = sorted(kept, key=lambda event: (event.batch, event.line_end))
        end = 0
        for event, line in zip(self._expected.events, journal.read_bytes().split(b"\n"), strict=False):
            assert json.loads(line)["key"] == event.key
            end += len(line) + 1
            event.entry_end = end - 1

    @precondition(lambda self: self._is_finished)
    @rule(chosen=st.sets(st.sampled_from([each.value for each in Status])))
    def split_it_and_merge_the_parts(self, chosen: set[str]) -> None:
        """Into the entries of some outcomes and the others; the merged run takes the run's place."""
        run, state = self._run_dir, self._expected.current()
        manifest = (run / layout.MANIFEST).read_bytes()
        part, rest, whole = (self._folder / "parts" / name / "r" for name in ("part", "rest", "whole"))
        select_run(run, part, lambda entry: entry.status in chosen)
        subtract_runs([run, part], rest)
        of_part = {key for key, event in state.items() if self._status(event) in chosen}
        assert keys_in(part) == sorted(of_part, key=pack_key)
        assert keys_in(rest) == sorted(state.keys() - of_part, key=pack_key)
        merge_runs([rest, part], whole)
        assert [damage for each in (part, rest, whole) for damage in verify(each)] == []
        assert (whole / layout.MANIFEST).read_bytes() == manifest
        shutil.rmtree(run)
        whole.rename(run)
        self._disk.trust(run)
        shutil.rmtree(self._folder / "parts")
        self._expected.events = self._events_of_journal(state)

    def _events_of_journal(self, state: dict[str, Event]) -> list[Event]:
        """The outcomes that count, where a run directory made anew has them."""
        events, end = [], 0
        for raw in (self._run_dir / layout.JOURNAL).read_bytes().splitlines():
            line, end = json.loads(raw), end + len(raw) + 1
            old, line_end = state[line["key"]], line["offset"] + line["length"]
            new = Event(old.key, old.kind, old.text, line["batch"], line_end, line["length"] > 0, end - 1)
            events.append(new)
        assert {event.key for event in events} == state.keys()
        return events

    # ---------------------------------------------------------------- what a run does

    @precondition(lambda self: self._opened is None)
    @rule(retry=retries)
    def open(self, retry: frozenset[str]) -> None:
        spec, self._is_finished = self._spec(), False
        layout.create_run_dir(self._run_dir)
        options = RunOptions(retry=retry)
        opened = self._opened = open_store(spec, Settings(), plan_of(spec, options), options)
        adopted, lost = self._expected.reopen(set(self._planned()))
        for event in adopted:
            event.entry_end = self._end_of_entry(opened, event.key)
            self._expected.events.append(event)
        self._expected.events += [Event(key, "lost", entry_end=opened.journal.size - 1) for key in lost]
        self._driver = Driver(opened, Deaf())
        self._tasks = self._driver.tasks()
        self._retry = retry
        self._pending = self._expected_pending()
        assert self._driver.pending == len(self._pending)

    @precondition(lambda self: self._driver is not None and self._pending)
    @rule(kinds=kinds, order=st.randoms(use_true_random=False))
    def run_some(self, kinds: list[str], order: Any) -> None:
        """As many workers as kinds: they take tasks in order and end in any order."""
        opened, driver = self._running()
        paired = [(next(self._tasks), kind) for kind in kinds[: len(self._pending)]]
        expected, self._pending = self._pending[: len(paired)], self._pending[len(paired) :]
        assert [task.key for task, _ in paired] == expected, "not what is pending, in dataset order"
        order.shuffle(paired)
        for task, kind in paired:
            self._attempts += 1
            text = f"attempt {self._attempts} “é”"
            driver.writer.write(self._outcome(task, kind, text))
            has_line = kind in KEPT
            line_end = batch_path(self._run_dir, task.batch).stat().st_size - 1 if has_line else 0
            self._expected.events.append(
                Event(task.key, kind, text, task.batch, line_end, has_line, opened.journal.size - 1)
            )

    @precondition(lambda self: self._driver is not None)
    @rule()
    def sync(self) -> None:
        _, driver = self._running()
        driver.writer.begin_sync()()

    @precondition(lambda self: self._driver is not None)
    @rule()
    def kill(self) -> None:
        self._drop()

    @precondition(lambda self: self._driver is not None)
    @rule(share=st.floats(0, 1), is_line_torn=st.booleans())
    def kill_in_a_write(self, share: float, is_line_torn: bool) -> None:
        """The last thing that was being written is there in part: a line, or the entry after it."""
        opened, _ = self._running()
        last = self._expected.events[-1] if self._expected.events else None
        is_last = last is not None and last.kind != "lost" and last.entry_end == opened.journal.size - 1
        self._drop()
        if last is None or not is_last:
            return
        journal = self._run_dir / layout.JOURNAL
        cut_last_line(journal, 0.0 if is_line_torn else share)
        if is_line_torn and last.has_line:
            cut_last_line(batch_path(self._run_dir, last.batch), share)
        self._expected.cut(journal.stat().st_size, self._batch_sizes())

    @precondition(lambda self: self._driver is not None)
    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Any file may lose what was not synced, from any byte on, whatever the others lose."""
        self._drop()
        shares = st.sampled_from([0.0, 0.0, 1.0]) | st.floats(0, 1)
        for number in batch_numbers(self._run_dir):
            self._disk.cut(batch_path(self._run_dir, number), data.draw(shares))
        journal = self._run_dir / layout.JOURNAL
        self._disk.cut(journal, data.draw(shares))
        self._expected.cut(journal.stat().st_size, self._batch_sizes())

    @precondition(lambda self: self._driver is not None)
    @rule(again=st.booleans())
    def finish(self, again: bool) -> None:
        self._end()
        self._check_outputs()
        self._is_finished = True
        if again:
            before = self._derived()
            self.open(frozenset())
            self._end()
            self._is_finished = True
            assert self._derived() == before, "a run with nothing to do changed its outputs"

    # ---------------------------------------------------------------- what always holds

    @invariant()
    def the_fold_is_what_was_written(self) -> None:
        if self._opened is None:
            return
        journal, state = self._opened.journal, self._expected.current()
        for key, event in state.items():
            entry = journal.find(pack_key(key))
            assert entry is not None, f"{key}: a reported outcome is gone"
            assert (entry.status, entry.model) == (self._status(event), event.text), key
        assert len(journal.fold) == len(state), "outcomes that nobody reported, or whose line is gone"

    @invariant()
    def what_was_spent_is_counted_once(self) -> None:
        if self._opened is not None:
            paid = sum(e.kind != "lost" and e.entry_end is not None for e in self._expected.events)
            assert self._opened.journal.fold.spent.calls == paid

    @invariant()
    def the_ledger_holds(self) -> None:
        if self._opened is None:
            return
        found, planned, state = status(self._run_dir), self._planned(), self._expected.current()
        counts = Counter(self._status(state[key]) for key in planned if key in state)
        assert found["pending"] == sum(key not in state for key in planned)
        assert found["outcomes"] == {each.value: counts[each.value] for each in Status} | {"invalid": 0}
        assert found["outside_plan"] == len(state.keys() - set(planned))
        assert sum(found["outcomes"].values()) + found["pending"] == len(planned)

    # ---------------------------------------------------------------- how it is done

    @property
    def _run_dir(self) -> Path:
        return self._folder / "data" / "r"

    def _spec(self) -> Spec:
        return Spec(
            run_name="r",
            dataset=DatasetSpec(path=self._folder / "rows.jsonl", dedupe=self._dedupe),
            batch_size=self._batch_size,
            samples=self._samples,
            filters=self._filters,
            distribution=Distribution(name="custom", toolsets={"todo": 100.0}),
            model=ModelSpec(name="m", base_url="http://127.0.0.1:9/v1"),
            output=OutputSpec(dir=self._folder / "data"),
        )

    def _write_rows(self, rows: list[str]) -> None:
        self._rows = rows
        lines = [json.dumps({"prompt": prompt, "place": place}) + "\n" for place, prompt in enumerate(rows)]
        (self._folder / "rows.jsonl").write_text("".join(lines))

    def _planned(self) -> dict[str, int]:
        """Rollout key -> place of its row, in dataset order; in other words than the product's."""
        rows = list(dict.fromkeys(self._rows)) if self._dedupe else self._rows
        copies, seen = Counter(rows), Counter[str]()
        planned: dict[str, int] = {}
        for number, prompt in enumerate(rows):
            place = self._rows.index(prompt) if self._dedupe else number
            for sample in range(self._samples):
                ordinal = seen[prompt] + sample * copies[prompt]
                planned[rollout_key(content_key(clean(prompt)), ordinal)] = place
            seen[prompt] += 1
        return planned

    def _status(self, event: Event) -> str:
        return status_of(
            event.kind,
            require_reasoning=self._filters.require_reasoning,
            reject_unknown_tools=self._filters.reject_unknown_tools,
        )

    def _expected_pending(self) -> list[str]:
        state = self._expected.current()
        return [k for k in self._planned() if k not in state or self._status(state[k]) in self._retry]

    def _outcome(self, task: PromptTask, kind: str, text: str) -> Outcome:
        opened, _ = self._running()
        failed = Outcome(
            key=task.key,
            prompt_index=task.prompt_index,
            batch=task.batch,
            status=Status.FAILED,
            reason="provider_error",
            duration_s=1.5,
            finished_at="2026-01-01T00:00:00",
            work=WORK,
            error="no",
            usage=USAGE,
            served_model=text,
        )
        if kind == "broken":
            return failed
        trajectory = trajectory_of(task, kind, text)
        found, reason = judge(trajectory, opened.filters)
        return msgspec.structs.replace(failed, status=found, reason=reason, trajectory=trajectory, error="")

    def _running(self) -> tuple[OpenRun, Driver]:
        assert self._opened is not None
        assert self._driver is not None
        return self._opened, self._driver

    def _drop(self) -> None:
        """End as a killed process does: descriptors are closed, nothing else happens."""
        opened, driver = self._running()
        for file in (*driver.writer._files.values(), *driver.writer._complete):
            file.close()
        os.close(opened.journal._reader)
        opened.journal._file.close()
        self._opened = self._driver = None

    def _end(self) -> None:
        opened, driver = self._running()
        driver.writer.begin_sync(final=True)()
        self._report = finish(opened, Deaf(), (0, "", 0), 1.0)
        opened.journal.close()
        self._opened = self._driver = None

    def _end_of_entry(self, opened: OpenRun, key: str) -> int:
        """Where the newline of its journal line is."""
        offset = opened.journal.fold.offset(pack_key(key))
        return (self._run_dir / layout.JOURNAL).read_bytes().index(b"\n", offset)

    def _batch_sizes(self) -> dict[int, int]:
        return {n: batch_path(self._run_dir, n).stat().st_size for n in batch_numbers(self._run_dir)}

    def _derived(self) -> dict[str, Any]:
        statistics = json.loads((self._run_dir / layout.STATISTICS).read_text())
        for name in ("completed_at", "duration_seconds"):
            del statistics[name]
        files = (layout.TRAJECTORIES, layout.MANIFEST, layout.PLAN, layout.CARD, layout.SPEC, layout.JOURNAL)
        return {name: (self._run_dir / name).read_bytes() for name in files} | {"statistics": statistics}

    def _check_outputs(self) -> None:
        state, planned = self._expected.current(), self._planned()
        assert verify(self._run_dir) == []
        merged = json_lines(self._run_dir / layout.TRAJECTORIES)
        wanted = [k for k in planned if k in state and self._status(state[k]) in ("completed", "partial")]
        assert [line["key"] for line in merged] == wanted, "not the plan, or not in the dataset's order"
        for line in merged:
            place = planned[line["key"]]
            assert line["metadata"]["served_model"] == state[line["key"]].text
            assert (line["prompt_index"], json.loads(line["metadata"]["row"])) == (place, {"place": place})
        manifest = json_lines(self._run_dir / layout.MANIFEST)
        assert [entry["key"] for entry in manifest] == sorted(state, key=pack_key)
        assert all(entry["model"] == state[entry["key"]].text for entry in manifest)
        statistics = self._report.statistics
        assert sum(statistics["outcomes"].values()) == len(planned) == statistics["total_prompts"]
        pending = sum(key not in state for key in planned)
        assert statistics["outcomes"]["pending"] == pending == self._report.pending
        assert statistics["tool_statistics"].get("todo", {"count": 0})["count"] == sum(
            state[k].kind in ("thoughtful", "mute", "cut") for k in planned if k in state
        )
        done = Counter(planned[k] for k in planned if k in state and state[k].kind != "broken")
        checkpoint = json.loads((self._run_dir / layout.CHECKPOINT).read_text())
        assert checkpoint["completed_prompts"] == sorted(p for p in done if done[p] == self._samples)
        for number in batch_numbers(self._run_dir):
            assert all(line["key"] for line in json_lines(batch_path(self._run_dir, number)))


def keys_in(run: Path) -> list[str]:
    return [entry["key"] for entry in json_lines(run / layout.MANIFEST)]


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def cut_last_line(path: Path, share: float) -> None:
    """Leave a share of the last line, its newline included."""
    data = path.read_bytes()
    begins = data[:-1].rfind(b"\n") + 1
    os.truncate(path, begins + int((len(data) - begins) * share))


def run_machine(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        RunDirectory,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            report_multiple_bugs=False,
            phases=[Phase.generate],  # a failure is told as it was found: shrinking one takes minutes
        ),
    )


def test_no_order_of_runs_kills_edits_and_merges_loses_or_repeats_anything() -> None:
    run_machine(60, 30)


@pytest.mark.slow
def test_no_long_order_of_runs_kills_edits_and_merges_loses_or_repeats_anything() -> None:
    run_machine(500, 60)


def test_verdicts_of_changed_filters_survive_a_power_failure() -> None:
    """spec.yaml remembers by which filters the journal was judged: it must not know before the journal."""
    machine = RunDirectory()
    try:
        machine.begin(["a"], 1)
        machine.open(frozenset())
        machine.run_some(["mute"], random.Random(0))
        machine.finish(again=False)
        machine.change_the_filters(require_reasoning=False, reject_unknown_tools=True)
        machine.open(frozenset())
        machine.kill()
        machine._disk.cut(machine._run_dir / layout.JOURNAL, 1.0)
        machine.open(frozenset())
        machine.the_fold_is_what_was_written()
        machine.finish(again=True)
    finally:
        machine.teardown()
