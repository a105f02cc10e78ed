"""Manifests as sets: the laws of merge, subtract, intersect and diff, and of sums over parts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_run.core.messages import Usage
from hermes_run.core.trajectory import DISCARDED_REASONS, FAILED_REASONS, Status, StopReason
from hermes_run.quality.statistics import Statistics
from hermes_run.store.combine import intersect_runs, merge_runs, subtract_runs
from hermes_run.store.entry import Entry, encode
from hermes_run.store.inspect import diff, status
from hermes_run.store.manifest import read_manifest, sort_key, write_manifest
from hermes_run.store.tally import Tally
from hermes_run.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTENTS = [f"{number:032x}" for number in (0, 1, 2, 2**64, 2**127 + 5)]
KEYS = st.tuples(st.sampled_from(CONTENTS), st.sampled_from([0, 1, 2, 9, 10, 11])).map(
    lambda pair: f"{pair[0]}#{pair[1]}"
)
COSTS = st.integers(0, 10**12).map(lambda units: units / 10**10)
USAGES = st.builds(
    Usage,
    prompt_tokens=st.integers(0, 2**40),
    completion_tokens=st.integers(0, 9),
    cost=COSTS,
    calls=st.integers(0, 5),
    calls_without_cost=st.integers(0, 2),
)
REASONS = {
    Status.COMPLETED: ["finished"],
    Status.PARTIAL: [reason.value for reason in StopReason if reason is not StopReason.FINISHED],
    Status.DISCARDED: [*DISCARDED_REASONS],
    Status.FAILED: [*FAILED_REASONS],
}


@st.composite
def entries(draw: st.DrawFn, key: str) -> Entry:
    found = draw(st.sampled_from(Status))
    has_failed = found is Status.FAILED
    return Entry(
        key=key,
        status=found.value,
        reason=draw(st.sampled_from(REASONS[found])),
        hash="" if has_failed else draw(st.sampled_from(["a" * 32, "b" * 32])),
        work=draw(st.sampled_from(["0" * 32, "1" * 32])),
        toolsets=draw(st.sampled_from([(), ("file",), ("file", "terminal")])),
        turns=0 if has_failed else draw(st.integers(0, 3)),
        api_calls=draw(st.integers(0, 3)),
        usage=draw(USAGES),
        cost=draw(st.none() | COSTS),
        model=draw(st.sampled_from(["", "m", 'odd "é" \\ name'])),
        image_digest="",
        error="no\tgood" if has_failed else "",
    )


Manifest = dict[str, Entry]
manifests: st.SearchStrategy[Manifest] = st.lists(KEYS, unique=True, max_size=8).flatmap(
    lambda keys: st.fixed_dictionaries({key: entries(key) for key in keys})
)


SHARED_MEMORY = Path("/dev/shm")
"""Nothing here is about power cuts: where files are synced to memory, the same takes a tenth of the time."""


class Folder:
    """Manifest files and runs of them, gone when the block ends."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        self.path = Path(self._place.name)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    def new(self) -> Path:
        self._count += 1
        return self.path / f"r{self._count}"

    def write(self, manifest: Manifest) -> Path:
        path = self.new().with_suffix(".jsonl")
        write_manifest(path, (manifest[key] for key in sorted(manifest, key=sort_key)))
        return path

    def merge(self, *parts: Path, **how: Any) -> Path:
        out = self.new()
        merge_runs(parts, out, **how)
        assert verify(out) == []
        return out


def read(run: Path) -> Manifest:
    path = run / "manifest.jsonl" if run.is_dir() else run
    return {entry.key: entry for entry in read_manifest(path)}


def bytes_of(run: Path) -> bytes:
    return (run / "manifest.jsonl").read_bytes()


@given(manifests)
def test_a_run_merged_with_itself_is_itself(a: Manifest) -> None:
    with Folder() as here:
        path = here.write(a)
        assert bytes_of(here.merge(path, path)) == path.read_bytes()
        assert bytes_of(here.merge(path)) == path.read_bytes()


@given(manifests)
def test_a_run_without_itself_is_nothing(a: Manifest) -> None:
    with Folder() as here:
        path, out = here.write(a), here.new()
        assert subtract_runs([path, path], out)["chosen"] == 0
        assert (verify(out), read(out)) == ([], {})
        assert status(out)["pending"] == 0


@given(manifests, manifests)
def test_the_order_of_two_runs_changes_no_merged_manifest(a: Manifest, b: Manifest) -> None:
    with Folder() as here:
        left, right = here.write(a), here.write(b)
        assert bytes_of(here.merge(left, right)) == bytes_of(here.merge(right, left))


@settings(deadline=None)
@given(manifests, manifests, manifests)
def test_it_does_not_matter_which_two_of_three_runs_are_merged_first(
    a: Manifest, b: Manifest, c: Manifest
) -> None:
    with Folder() as here:
        one, two, three = (here.write(each) for each in (a, b, c))
        at_once = here.merge(one, two, three)
        assert bytes_of(here.merge(here.merge(one, two), three)) == bytes_of(at_once)
        assert bytes_of(here.merge(one, here.merge(two, three))) == bytes_of(at_once)


@given(manifests, manifests)
def test_a_merge_has_every_key_once_with_the_better_outcome(a: Manifest, b: Manifest) -> None:
    ranks = [each.value for each in Status]
    with Folder() as here:
        merged = read(here.merge(here.write(a), here.write(b)))
    assert merged.keys() == a.keys() | b.keys()
    for key, entry in merged.items():
        rivals = [each[key] for each in (a, b) if key in each]
        assert entry in rivals
        assert ranks.index(entry.status) == min(ranks.index(each.status) for each in rivals)


@given(manifests, manifests)
def test_first_and_last_say_which_run_wins(a: Manifest, b: Manifest) -> None:
    with Folder() as here:
        left, right = here.write(a), here.write(b)
        assert read(here.merge(left, right, policy="first")) == b | a
        assert read(here.merge(left, right, policy="last")) == a | b


@given(manifests, manifests)
def test_a_merged_plan_covers_its_keys_and_adds_up(a: Manifest, b: Manifest) -> None:
    with Folder() as here:
        out = here.merge(here.write(a), here.write(b))
        found = status(out)
        keys = read(out)
    highest: dict[str, int] = {}
    for key in keys:
        content, _, ordinal = key.partition("#")
        highest[content] = max(highest.get(content, 0), int(ordinal) + 1)
    assert found["outside_plan"] == 0
    assert sum(found["outcomes"].values()) == len(keys)
    assert found["pending"] == sum(highest.values()) - len(keys)


@given(manifests, manifests)
def test_renumbered_runs_stand_side_by_side(a: Manifest, b: Manifest) -> None:
    with Folder() as here:
        merged = read(here.merge(here.write(a), here.write(b), renumber=True))
    assert len(merged) == len(a) + len(b)
    for content in CONTENTS:
        mine = [
            each
            for run in (a, b)
            for key in sorted(run, key=sort_key)
            if key[:32] == content
            for each in [run[key]]
        ]
        theirs = [merged[key] for key in sorted(merged, key=sort_key) if key[:32] == content]
        assert [each.reason for each in theirs] == [each.reason for each in mine]


@given(manifests, manifests)
def test_what_two_runs_share_and_what_they_do_not_is_all_there_is(a: Manifest, b: Manifest) -> None:
    with Folder() as here:
        left, right = here.write(a), here.write(b)
        shared, own = here.new(), here.new()
        intersect_runs([left, right], shared)
        subtract_runs([left, right], own)
        assert (verify(shared), verify(own)) == ([], [])
        assert read(shared) == {key: entry for key, entry in a.items() if key in b}
        assert read(own) == {key: entry for key, entry in a.items() if key not in b}
        assert bytes_of(here.merge(shared, own)) == left.read_bytes()


@given(manifests, manifests)
def test_a_difference_looks_the_same_from_the_other_side(a: Manifest, b: Manifest) -> None:
    with Folder() as here:
        left, right = here.write(a), here.write(b)
        there, back = diff(left, right), diff(right, left)
    assert (there.only_a, there.only_b, there.same) == (back.only_b, back.only_a, back.same)
    mirrored = [
        {"key": each["key"], "fields": {name: pair[::-1] for name, pair in each["fields"].items()}}
        for each in back.changed()
    ]
    changed = list(there.changed())
    assert changed == mirrored
    assert set(there.only_a) == a.keys() - b.keys()
    assert there.same + len(changed) == len(a.keys() & b.keys())


def folded(found: Iterable[Entry]) -> Statistics:
    statistics = Statistics()
    for entry in found:
        statistics.count_entry(entry)
    return statistics


@given(manifests, manifests)
def test_statistics_of_two_parts_are_the_sums_of_theirs(a: Manifest, b: Manifest) -> None:
    assert folded([*a.values(), *b.values()]) == folded(a.values()) + folded(b.values())


@given(manifests)
def test_the_quick_sums_are_the_sums(a: Manifest) -> None:
    at_once, one_by_one = Tally(), Tally()
    if a:
        at_once.add_all(list(a.values()))
    for entry in a.values():
        one_by_one.add(entry)
    assert at_once.statistics() == one_by_one.statistics() == folded(a.values())


@given(manifests)
def test_a_manifest_that_is_spelled_otherwise_is_merged_in_our_spelling(a: Manifest) -> None:
    with Folder() as here:
        path = here.write(a)
        odd = here.new().with_suffix(".jsonl")
        lines = [encode(a[key]).replace(b'":', b'" : ') for key in sorted(a, key=sort_key)]
        odd.write_bytes(b"\n".join(lines))
        assert bytes_of(here.merge(odd)) == path.read_bytes()
        assert diff(odd, path).same == len(a)
