"""The dataset card: the real `datasets` reads every file of a run directory with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from hermes_run.core.messages import Assistant, ToolCall, ToolResult, Usage, User
from hermes_run.core.registry import TOOLS
from hermes_run.core.text import clean
from hermes_run.core.trajectory import StopReason, ToolCount
from hermes_run.formats.card import card
from hermes_run.formats.sharegpt import ShareGPT
from hermes_run.store.entry import Entry, JournalLine
from tests.trajectories import example

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from hermes_run.core.trajectory import Trajectory

pytestmark = pytest.mark.datasets
ODD_NAMES = ("no", "123", "a: b", "- x", "mcp:clock", "#", "null", "é", '"quoted"', "1e3", "{}", " ")
STATISTICS: dict[str, Any] = {
    "run_name": "coding_v1",
    "model": "some/model",
    "distribution": "default",
    "outcomes": {"completed": 2, "partial": 0, "failed": 1},
    "reasoning_statistics": {"total_assistant_turns": 4, "coverage": 50.0},
    "tool_statistics": {"terminal": {"count": 1}},
}


@pytest.fixture(scope="module")
def datasets() -> ModuleType:
    module: ModuleType = pytest.importorskip("datasets")
    module.disable_progress_bars()
    return module


def entry(**changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "key": "790c0db829322dcaaa43cbac0fe1eac1#0",
        "status": "completed",
        "reason": "finished",
        "hash": "0" * 32,
        "work": "1" * 32,
        "toolsets": ("file", "terminal"),
        "turns": 2,
        "api_calls": 2,
        "usage": Usage(calls=2, cost=0.25),
        "cost": 0.25,
        "model": "some/model",
        "image_digest": "",
        "error": "",
    }
    return Entry(**(fields | changes))


FAILED = entry(
    status="failed",
    reason="image",
    hash="",
    toolsets=(),
    turns=0,
    api_calls=0,
    usage=Usage(),
    cost=None,
    error="no",
)


def lines(values: list[Any]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


def run_folder(
    folder: Path,
    trajectories: list[Trajectory],
    entries: list[Entry] | None = None,
    own: tuple[str, ...] = (),
) -> Path:
    """A folder with the files of a run that a reader of data sets may open."""
    run = folder / "run"
    run.mkdir()
    form = ShareGPT(own)
    data = b"".join(form.encode(each) + b"\n" for each in trajectories)
    for name in ("trajectories.jsonl", "batch_0.jsonl"):
        (run / name).write_bytes(data)
    entries = [entry()] if entries is None else entries
    (run / "manifest.jsonl").write_bytes(lines(entries))
    journal = [
        JournalLine(
            **{name: getattr(each, name) for name in Entry.__struct_fields__},
            batch=0,
            offset=0,
            length=1,
            line_hash="",
            finished_at="2026-11-30T08:15:00",
            duration_s=1.5,
        )
        for each in entries
    ]
    (run / "journal.jsonl").write_bytes(lines(journal))
    (run / "README.md").write_text(card(STATISTICS, Entry, own), encoding="utf-8")
    return run


def rows_of(loaded: Any) -> list[Any]:
    """What was read, as JSON. Arrow takes texts like our timestamps for times and spells them its own way."""
    rows = [json.loads(json.dumps(row, default=lambda moment: moment.isoformat())) for row in loaded]
    for row in rows:
        if "metadata" in row:
            row["metadata"]["timestamp"] = row["metadata"]["timestamp"].replace(" ", "T")
    return rows


def plain(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def test_the_folder_is_read_as_it_is(tmp_path: Path, datasets: ModuleType) -> None:
    run = run_folder(tmp_path, [example(prompt_index=n) for n in range(3)], [FAILED, entry()])
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset(str(run), split="train", cache_dir=cache)
    assert rows_of(loaded) == plain(run / "trajectories.jsonl")
    manifest = datasets.load_dataset(str(run), "manifest", split="train", cache_dir=cache)
    assert rows_of(manifest) == plain(run / "manifest.jsonl")
    streamed = datasets.load_dataset(str(run), split="train", streaming=True)
    assert rows_of(streamed) == plain(run / "trajectories.jsonl")


@pytest.mark.parametrize("name", ["trajectories.jsonl", "batch_0.jsonl"])
def test_a_single_file_is_read_with_the_features_of_the_card(
    tmp_path: Path, datasets: ModuleType, name: str
) -> None:
    """As the card itself tells its reader to."""
    run = run_folder(tmp_path, [example(messages=(User("x"),)), example()])
    features = datasets.load_dataset_builder(str(run)).info.features
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset(
        "json", data_files=str(run / name), features=features, split="train", cache_dir=cache
    )
    assert rows_of(loaded) == plain(run / name)


@pytest.mark.parametrize("name", ["trajectories.jsonl", "batch_0.jsonl", "manifest.jsonl", "journal.jsonl"])
def test_a_single_file_of_ordinary_rollouts_is_read_without_features_too(
    tmp_path: Path, datasets: ModuleType, name: str
) -> None:
    run = run_folder(
        tmp_path, [example(), example(messages=(User("x"),))], [entry(), FAILED, entry(cost=1.0)]
    )
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset("json", data_files=str(run / name), split="train", cache_dir=cache)
    assert rows_of(loaded) == plain(run / name)


def test_a_manifest_whose_costs_are_all_unknown_and_whose_rollouts_all_failed_is_read(
    tmp_path: Path, datasets: ModuleType
) -> None:
    """Also of a run that merged nothing: its trajectories.jsonl is there and empty."""
    run = run_folder(tmp_path, [], [FAILED])
    cache = str(tmp_path / "cache")
    for given in (
        {"path": "json", "data_files": str(run / "manifest.jsonl")},
        {"path": str(run), "name": "manifest"},
    ):
        loaded = datasets.load_dataset(**given, split="train", cache_dir=cache)
        assert rows_of(loaded) == plain(run / "manifest.jsonl")


def test_twelve_megabytes_without_any_tool_call_are_read(tmp_path: Path, datasets: ModuleType) -> None:
    """A reader that infers takes the empty lists of its first block for lists of nulls, and fails later."""
    filler = "word " * 20_000
    silent = [
        example(
            prompt_index=n,
            messages=(User("x"), Assistant(f"{n} {filler}")),
            stop_reason=StopReason.TRUNCATED,
            tool_counts={},
            toolsets=(),
            usage=Usage(),
        )
        for n in range(130)
    ]
    run = run_folder(tmp_path, [*silent, example()])
    assert len(ShareGPT().encode(silent[0])) * len(silent) > 12_000_000
    cache = str(tmp_path / "cache")
    features = datasets.load_dataset_builder(str(run)).info.features
    for loaded in (
        datasets.load_dataset(str(run), split="train", cache_dir=cache),
        datasets.load_dataset(
            "json", data_files=str(run / "batch_0.jsonl"), features=features, split="train", cache_dir=cache
        ),
    ):
        assert len(loaded) == 131
        assert rows_of([loaded[130]]) == plain(run / "trajectories.jsonl")[130:]


def test_one_line_larger_than_a_readers_block_is_read(tmp_path: Path, datasets: ModuleType) -> None:
    run = run_folder(tmp_path, [example(messages=(User("x" * 12_000_000),)), example()])
    loaded = datasets.load_dataset(str(run), split="train", cache_dir=str(tmp_path / "cache"))
    assert [len(row["conversations"][0]["value"]) for row in loaded] == [12_000_000, 15]


def test_odd_texts_come_back_as_they_are(tmp_path: Path, datasets: ModuleType) -> None:
    odd = clean('\ud835 \U0010d835 \x00\x1f\x7f \u2028\u2029\u0085 \ufeff \U0001f600 \\u0041 \r\n\t "')
    texts = (User(odd), Assistant(odd, odd, (ToolCall(odd, odd, odd),)), ToolResult(odd, odd, odd))
    run = run_folder(
        tmp_path, [example(messages=texts, row=json.dumps({odd: odd}), draw={odd: 1.5}), example()]
    )
    assert len(plain(run / "trajectories.jsonl")) == 2, "a line ends at a newline alone"
    loaded = datasets.load_dataset(str(run), split="train", cache_dir=str(tmp_path / "cache"))
    assert rows_of(loaded) == plain(run / "trajectories.jsonl")
    assert loaded[0]["conversations"][0]["value"] == odd


def test_own_tools_are_columns_whatever_their_names_would_mean_in_yaml(
    tmp_path: Path, datasets: ModuleType
) -> None:
    counted = example(tool_counts={name: ToolCount(1, 1, 0) for name in ODD_NAMES})
    run = run_folder(tmp_path, [counted], own=ODD_NAMES)
    loaded = datasets.load_dataset(str(run), split="train", cache_dir=str(tmp_path / "cache"))
    assert list(loaded.features["tool_stats"]) == [*TOOLS, *ODD_NAMES]
    assert rows_of(loaded) == plain(run / "trajectories.jsonl")


# ------------------------------------------------------------------ the text, without datasets


@pytest.mark.parametrize(
    "odd", ["x\n---\nconfigs: []", "{features}", "`a` <b> {0}", "%s", "\u2028", "a|b", "name: x"]
)
def test_what_a_run_is_called_never_reaches_the_head_of_the_card(odd: str) -> None:
    text = card(STATISTICS | {"run_name": odd, "model": odd, "distribution": odd}, Entry)
    _, head, body = text.split("---\n", 2)
    content = yaml.safe_load(head)
    assert [each["config_name"] for each in content["configs"]] == ["default", "manifest"]
    assert content == yaml.safe_load(card(STATISTICS, Entry).split("---\n", 2)[1])
    assert "{run_name}" not in body


def test_the_card_says_what_the_run_came_to_and_why_features_matter() -> None:
    text = card(STATISTICS, Entry)
    for words in ("# coding_v1", "`some/model`", "2 completed, 1 failed", "terminal", "features=features"):
        assert words in text
    assert "0 partial" not in text


def test_an_empty_run_has_a_card_too() -> None:
    nothing = {
        "outcomes": {"completed": 0},
        "tool_statistics": {},
        "reasoning_statistics": {"total_assistant_turns": 0, "coverage": 0.0},
    }
    text = card(STATISTICS | nothing, Entry)
    assert "outcomes: none" in text
    assert "tools called: none" in text
