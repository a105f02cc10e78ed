"""From the rows of a dataset to the rollouts that it asks for."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.core.keys import content_key, shard_of, split_key, unpack_key
from hermes_run.dataset.plan import InvalidRow, Plan, Rollout, Selection, equal_rows, make_plan, planned_keys
from hermes_run.errors import DatasetChanged, DatasetError

if TYPE_CHECKING:
    from collections.abc import Callable

CASE_C30 = Path(__file__).parent.parent / "data" / "rows_as_people_have_them.jsonl"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": lambda data: gzip.compress(data, 1),
    "zst": zstandard.ZstdCompressor().compress,
}


def written(folder: Path, *prompts: str, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_text(
        "".join(json.dumps({"prompt": prompt, "n": n}) + "\n" for n, prompt in enumerate(prompts))
    )
    return path


def keys_of(plan: Plan) -> list[str]:
    return [unpack_key(rollout.key) for rollout in plan.rollouts()]


def planned(tmp_path: Path, *prompts: str, **selection: Any) -> Plan:
    return make_plan(written(tmp_path, *prompts), Selection(**selection))


# ------------------------------------------------------------------ ordinals

PACKED = st.lists(st.integers(0, 5).map(lambda number: bytes([number]) * 16), max_size=20)
SHARED_HEADS = st.lists(st.sampled_from([b"h" * 8 + bytes([n]) * 8 for n in range(3)]), max_size=12)


def ordinals(rows: list[bytes], samples: int) -> dict[bytes, list[tuple[int, int]]]:
    """Content key -> (ordinal, position of its row) as planned."""
    joined = b"".join(rows)
    found: dict[bytes, list[tuple[int, int]]] = {content: [] for content in rows}
    for position, packed in planned_keys(joined, equal_rows(joined), samples):
        found[packed[:16]].append((int.from_bytes(packed[16:], "big"), position))
    return found


@given(PACKED | SHARED_HEADS, st.integers(1, 4))
def test_a_key_planned_m_times_has_the_ordinals_0_to_m_and_the_o_mod_nth_row_owns_o(
    rows: list[bytes], samples: int
) -> None:
    places = {content: [at for at, row in enumerate(rows) if row == content] for content in rows}
    for content, owned in ordinals(rows, samples).items():
        count = rows.count(content)
        assert sorted(ordinal for ordinal, _ in owned) == list(range(count * samples))
        assert all(position == places[content][ordinal % count] for ordinal, position in owned)


@given(PACKED, st.integers(1, 4), st.integers(0, 3), PACKED, st.randoms())
def test_more_samples_or_copies_in_any_order_orphan_no_key(
    rows: list[bytes], samples: int, further: int, added: list[bytes], random: Any
) -> None:
    before = ordinals(rows, samples)
    grown = rows + added
    random.shuffle(grown)
    after = ordinals(grown, samples + further)
    for content, owned in before.items():
        assert {ordinal for ordinal, _ in owned} <= {ordinal for ordinal, _ in after[content]}


@given(PACKED | SHARED_HEADS)
def test_equal_rows_are_those_that_stand_more_than_once(rows: list[bytes]) -> None:
    counted = Counter(rows)
    expected = {c: [at for at, row in enumerate(rows) if row == c] for c, n in counted.items() if n > 1}
    assert {content: list(at) for content, at in equal_rows(b"".join(rows)).items()} == expected


def test_rollouts_come_in_dataset_order_a_rows_samples_together(tmp_path: Path) -> None:
    plan = planned(tmp_path, "a", "b", "a", samples=2)
    a, b = content_key("a"), content_key("b")
    assert keys_of(plan) == [f"{a}#0", f"{a}#2", f"{b}#0", f"{b}#1", f"{a}#1", f"{a}#3"]
    assert (plan.rows, plan.total, plan.planned, len(plan)) == (3, 6, 6, 3)


def test_shards_partition_the_rollouts(tmp_path: Path) -> None:
    plan = planned(tmp_path, *(f"task {n % 70}" for n in range(100)), samples=2)
    keys = keys_of(plan)
    parts: list[list[str]] = [[], [], []]
    for key in keys:
        content, _ = split_key(key) or ("", 0)
        parts[shard_of(content, 3)].append(key)
    assert all(parts)
    assert sorted(key for part in parts for key in part) == sorted(set(keys)) == sorted(keys)


# ------------------------------------------------------------------ selection


def test_max_samples_takes_the_first_rows_and_the_keys_of_the_others_do_not_move(tmp_path: Path) -> None:
    few = planned(tmp_path, "a", "b", "a", "c", max_samples=2)
    assert keys_of(few) == keys_of(planned(tmp_path, "a", "b", "a", "c"))[:2]
    assert few.rows == 2
    assert len(planned(tmp_path, "a", "b", max_samples=99)) == 2


def test_max_samples_does_not_look_at_later_rows(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\n{"prompt":"a"}\n\n{"prompt":"b"}\nbroken\n')
    plan = make_plan(path, Selection(max_samples=2))
    assert len(plan) == 2
    assert plan.dataset_hash == xxhash.xxh3_128_hexdigest(b'\n{"prompt":"a"}\n\n{"prompt":"b"}\n')


def test_dedupe_runs_equal_rows_once_and_counts_what_it_removed(tmp_path: Path) -> None:
    plan = planned(tmp_path, "a", "a", "b", "a", "b", dedupe=True, samples=2)
    a, b = content_key("a"), content_key("b")
    assert keys_of(plan) == [f"{a}#0", f"{a}#1", f"{b}#0", f"{b}#1"]
    assert (plan.rows, plan.removed, plan.total) == (2, 3, 4)
    assert [plan.prompt_index(position) for position in range(2)] == [0, 2]


def test_dedupe_works_on_what_max_samples_left(tmp_path: Path) -> None:
    plan = planned(tmp_path, "a", "a", "b", dedupe=True, max_samples=2)
    assert (plan.rows, plan.removed) == (1, 1)


def test_equal_rows_are_equal_in_their_work_and_each_keeps_its_own_columns(tmp_path: Path) -> None:
    plan = planned(tmp_path, "a", "b", "a")
    tasks = list(plan.read_tasks(plan.rollouts()))
    assert [task.row for task in tasks] == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert [task.prompt_index for task in tasks] == [0, 1, 2]
    assert [task.key[-2:] for task in tasks] == ["#0", "#0", "#1"]


def test_another_column_can_hold_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"question":"a"}\n{"question":"b","prompt":"other"}\n')
    plan = make_plan(path, Selection(prompt_field="question"))
    assert [task.prompt for task in plan.read_tasks(plan.rollouts())] == ["a", "b"]


def test_images_are_counted_with_the_first_line_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('\n{"prompt":"a","image":"x"}\n{"prompt":"b"}\n{"prompt":"c","docker_image":"x"}\n')
    plan = make_plan(path, Selection())
    assert (plan.images, plan.first_image_line, plan.without_image) == ({"x": 2}, {"x": 2}, 1)


# ------------------------------------------------------------------ bad rows


def test_every_bad_row_is_listed_with_its_line_before_anything_is_run() -> None:
    with pytest.raises(DatasetError) as caught:
        make_plan(CASE_C30, Selection())
    *bad, cure = str(caught.value).splitlines()
    where = f"{CASE_C30}:"
    assert [int(line.removeprefix(where).partition(":")[0]) for line in bad] == [
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
        13,
        16,
    ]
    assert cure.startswith("10 of 16 rows cannot be run; ")
    assert "on_bad_row: skip" in cure


def test_skipped_bad_rows_are_in_the_ledger_as_invalid_and_keep_their_place() -> None:
    plan = make_plan(CASE_C30, Selection(samples=3), skip_bad_rows=True)
    assert (plan.rows, plan.total, len(plan), plan.planned) == (16, 48, 6, 18)
    assert [(bad.line, bad.prompt_index) for bad in plan.invalid] == [
        *((line, line - 3) for line in range(5, 14)),
        (16, 13),
    ]
    assert [plan.prompt_index(position) for position in range(len(plan))] == [0, 1, 11, 12, 14, 15]
    assert plan.invalid[0] == InvalidRow(5, 2, "it is no JSON: Expecting value at column 1")
    rows = [task.row for task in plan.read_tasks(plan.rollouts())][::3]
    assert rows == ["{}", '{"difficulty":"hard"}', "{}", "{}", "{}", "{}"]


def test_many_bad_rows_are_all_listed_and_equal_reasons_take_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    lines = ["{}"] * 1000 + ['{"prompt": 5}', "{}", '{"prompt":"good"}', "{}", *['{"prompt": 5}'] * 3]
    path.write_text("\n".join(lines))
    with pytest.raises(DatasetError) as caught:
        make_plan(path, Selection())
    *bad, one, other, cure = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in bad] == [str(number) for number in range(1, 1001)]
    assert '"prompt" is a number' in one
    assert one.startswith(f"{path}:1001, 1005-1007: ")
    assert other.startswith(f"{path}:1002, 1004: it has no")
    assert cure.startswith("1006 of 1007 rows")


def test_a_dataset_without_rows_is_an_empty_plan(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert (plan.rows, plan.total, plan.planned, list(plan.rollouts())) == (0, 0, 0, [])
    assert list(plan.read_tasks(plan.rollouts())) == []
    assert plan.dataset_hash == xxhash.xxh3_128_hexdigest(b"")


# ------------------------------------------------------------------ reading rows again


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_tasks_are_read_when_asked_for_and_some_may_be_left_out(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "data.jsonl"
    rows = [{"prompt": f"task {n % 7}", "id": n, "files": {"a": str(n % 7)}} for n in range(20)]
    path.write_bytes(pack(b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(row).encode() for row in rows)))
    plan = make_plan(path, Selection(samples=2))
    wanted = [rollout for number, rollout in enumerate(plan.rollouts()) if number % 3]
    tasks = list(plan.read_tasks(wanted))
    assert [task.key for task in tasks] == [unpack_key(rollout.key) for rollout in wanted]
    for rollout, task in zip(wanted, tasks, strict=True):
        row = rows[rollout.position]
        assert (task.prompt, task.row_id, task.files) == (row["prompt"], str(row["id"]), row["files"])
        assert task.prompt_index == rollout.position
    assert [(position, row.row_id) for position, row in plan.read_rows()] == [(n, str(n)) for n in range(20)]


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"task 5", b"task X"),
        lambda data: data[: len(data) // 2],
        lambda data: data[:0],
        lambda data: b'{"prompt":"new"}\n' + data,
        lambda data: b"".join(reversed(data.splitlines(keepends=True))),
        lambda data: data.replace(b'{"prompt": "task 5"', b'{"promp": "task 55"'),
    ],
)
def test_a_dataset_changed_while_the_run_reads_it_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes], change: Callable[[bytes], bytes]
) -> None:
    path = written(tmp_path, *(f"task {n}" for n in range(10)))
    data = path.read_bytes()
    path.write_bytes(pack(data))
    plan = make_plan(path, Selection())
    path.write_bytes(pack(change(data)))
    with pytest.raises(DatasetChanged, match="was changed while the run was reading it"):
        list(plan.read_tasks(plan.rollouts()))
    with pytest.raises(DatasetChanged, match="was changed while the run was reading it"):
        list(plan.read_rows())


def test_a_dataset_removed_while_the_run_reads_it_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, "a")
    plan.path.unlink()
    with pytest.raises(DatasetChanged, match="cannot be read"):
        list(plan.read_tasks(plan.rollouts()))


def test_a_row_whose_other_columns_changed_is_taken_as_it_is_now(tmp_path: Path) -> None:
    plan = planned(tmp_path, "a")
    plan.path.write_text('{"prompt":"a","n":7}\n')
    assert [task.row for task in plan.read_tasks([Rollout(next(plan.rollouts()).key, 0)])] == ['{"n":7}']


# ------------------------------------------------------------------ memory

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
MEASURE = """
import gzip, sys, zstandard
from pathlib import Path
from hermes_run.dataset.plan import Selection, make_plan
def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
before = peak()
plan = make_plan(Path(sys.argv[1]), Selection())
after_plan = peak()
tasks = sum(len(task.prompt) > 0 for task in plan.read_tasks(plan.rollouts()))
print(after_plan - before, peak() - before, tasks)
"""


def measure(path: Path) -> tuple[float, float, int]:
    """MiB that making and reading a plan take at most, and how many tasks there were."""
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    plan, whole, tasks = done.stdout.split()
    return float(plan), float(whole), int(tasks)


@needs_proc
@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_memory_does_not_grow_with_the_size_of_rows(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Forty rows of 1 MB take what their largest row takes, not their sum."""
    path = tmp_path / "data.jsonl"
    rows = (
        json.dumps({"prompt": f"task {n}", "text": Random(n).randbytes(500_000).hex()}) for n in range(40)
    )
    path.write_bytes(pack("\n".join(rows).encode()))
    _, whole, tasks = measure(path)
    assert tasks == 40
    assert whole < 20


@needs_proc
@pytest.mark.slow
def test_a_million_rows_are_planned_within_the_memory_and_time_of_the_case(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    with path.open("w") as stream:
        stream.writelines(f'{{"prompt":"task {n % 999_000}"}}\n' for n in range(1_000_000))
    plan, whole, tasks = measure(path)
    assert tasks == 1_000_000
    assert plan < 150
    assert whole < 160


def test_a_row_costs_32_bytes(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "data.jsonl"
    with path.open("w") as stream:
        stream.writelines(f'{{"prompt":"task {n}"}}\n' for n in range(20_000))
    make_plan(path, Selection(max_samples=10))
    tracemalloc.start()
    plan = make_plan(path, Selection())
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan) == 20_000
    assert size / len(plan) < 32 * 1.15
