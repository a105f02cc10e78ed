"""C30: dataset files as people have them, from the command line."""

from __future__ import annotations

import gzip
import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.replies import turns
from tests.servers import says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flow.lab import Lab
    from tests.flow.zygote import Run
    from tests.servers import Answer, ModelServer, Request

pytestmark = pytest.mark.slow

BIG = "x" * 5_000_000
GOOD = [
    b'\xef\xbb\xbf{"prompt": "with a mark"}\r\n',
    b"\r\n",
    b" \t \n",
    b'{"prompt": "caf\xc3\xa9", "difficulty": 3}\n',
    b'{"prompt": "cafe\xcc\x81", "difficulty": null}\n',
    b'{"prompt": "trailing "}\n',
    b'{"prompt": "trailing"}\n',
    '{"prompt": "line\u2028separator"}\n'.encode(),
    b'{"prompt": "' + BIG.encode() + b'"}\n',
    b'{"prompt": "no end of line", "tags": [1, {"a": null}], "id": 17}',
]
BAD: list[tuple[bytes, str]] = [
    (b"# a comment", "JSON"),
    (b'{"prompt": 123}', "number"),
    (b'{"prompt": null}', "null"),
    (b'{"prompt": ""}', "empty"),
    (b'{"prompt": ["a", "b"]}', "list"),
    (b'{"messages": [{"role": "user", "content": "x"}]}', "messages"),
    (b'{"conversations": [{"from": "system", "value": "x"}]}', "conversations"),
    (b'{"prompt": "a", "prompt": "b"}', "twice"),
    (b'{"prompt": "a", "score": NaN}', "NaN"),
    (b'["prompt"]', "object"),
    (b'{"prompt": "a"', "JSON"),
    (b'{"prompt": "caf\xe9"}', "UTF-8"),
    (b'{"prompt": "a", "image": "x:1", "docker_image": "y:1"}', "docker_image"),
    (b'{"prompt": "a", "files": {"../x": ""}}', "workspace"),
    (b'{"promt": "a"}', "prompt"),
]


def write(lab: Lab, data: bytes, name: str = "data.jsonl") -> Path:
    path = lab.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def prompts_of(lab: Lab) -> list[str]:
    return [line["conversations"][0]["value"] for line in lab.lines()]


def test_every_form_of_a_good_line_is_a_row_that_carries_its_columns(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    write(lab, b"".join(GOOD))
    assert lab.run("-q").code == 0
    prompts = prompts_of(lab)
    assert prompts[:3] == ["with a mark", "café", "cafe\u0301"]
    assert prompts[3:6] == ["trailing ", "trailing", "line\u2028separator"]
    assert (prompts[6] == BIG, prompts[7]) == (True, "no end of line")
    assert len({line["key"].split("#")[0] for line in lab.lines()}) == 8, "none of them is a copy"
    rows = [json.loads(line["metadata"]["row"]) for line in lab.lines()]
    assert (rows[1], rows[2]) == ({"difficulty": 3}, {"difficulty": None})
    assert rows[7] == {"tags": [1, {"a": None}], "id": 17}
    assert [line["prompt_index"] for line in lab.lines()] == list(range(8))
    lab.assert_sound()


def test_every_bad_line_is_told_by_number_and_reason_and_nothing_is_spent(
    lab: Lab, server: ModelServer
) -> None:
    lab.use_server(server.url)
    write(lab, b'{"prompt": "good"}\n\n' + b"\n".join(line for line, _ in BAD) + b"\n")
    lab.write_spec()
    for command in (("validate", "spec.yaml"), ("run", "spec.yaml"), ("spec.yaml", "--dry-run", "--json")):
        result = lab.call(*command)
        assert result.code == 2
        told = result.err.splitlines()
        for number, (_, word) in enumerate(BAD, 3):
            (line,) = [text for text in told if f"data.jsonl:{number}:" in text]
            assert word in line
    assert not server.requests
    assert not lab.run_dir.exists()


def test_bad_lines_that_are_skipped_are_counted_once_for_each_sample(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    lab.spec |= {"samples": 3, "dataset": {"path": "data.jsonl", "on_bad_row": "skip"}}
    write(lab, b"\n".join([BAD[0][0], b'{"prompt": "good"}', *(line for line, _ in BAD[1:])]))
    assert lab.call("validate", str(lab.write_spec())).code == 0
    assert lab.run("-q").code == 0
    outcomes = lab.statistics()["outcomes"]
    assert outcomes | {"completed": 3, "invalid": 3 * len(BAD), "pending": 0} == outcomes
    assert [line["prompt_index"] for line in lab.lines()] == [1, 1, 1]
    plan = json.loads((lab.run_dir / "plan.json").read_text())
    assert [bad["line"] for bad in plan["invalid"]] == [1, *range(3, len(BAD) + 2)]
    lab.assert_sound()
    mended = b"\n".join([b'{"prompt": "mended"}', b'{"prompt": "good"}'])
    write(lab, mended)
    before = len(server.requests)
    assert lab.run("-q").code == 0
    assert len(server.requests) == before + 3
    assert lab.statistics()["outcomes"]["invalid"] == 0
    lab.assert_sound()


@pytest.mark.parametrize("text", [b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n\t\n"])
def test_a_file_without_rows_ends_well_with_every_file_there(
    lab: Lab, server: ModelServer, text: bytes
) -> None:
    lab.use_server(server.url)
    write(lab, text)
    result = lab.run()
    assert result.code == 0
    names = ["trajectories", "journal", "manifest"]
    assert [lab.lines(f"{name}.jsonl") for name in names] == [[], [], []]
    for name in ("plan", "checkpoint", "statistics", "tools"):
        json.loads((lab.run_dir / f"{name}.json").read_text())
    for name in ("spec.yaml", "run.log", "README.md"):
        assert (lab.run_dir / name).is_file()
    lab.assert_sound()
    assert not server.requests


def test_a_folder_and_a_missing_file_are_refused_by_name(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    (lab.folder / "data.jsonl").mkdir()
    for name in ("data.jsonl", "missing.jsonl"):
        lab.spec["dataset"] = {"path": name}
        result = lab.run()
        assert result.code == 2
        assert name in result.err
        assert "Traceback" not in result.err


@pytest.mark.parametrize("name", ["data.jsonl.gz", "data.jsonl", "rows"])
def test_a_compressed_dataset_gives_what_a_plain_one_gives(lab: Lab, server: ModelServer, name: str) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    rows = b"".join(b'{"prompt": "row %d"}\n' % number for number in range(5))
    path = write(lab, gzip.compress(rows[:50]) + gzip.compress(rows[50:]), name)
    lab.spec["dataset"] = {"path": name}
    assert lab.run("-q").code == 0
    assert prompts_of(lab) == [f"row {number}" for number in range(5)]
    packed = path.read_bytes()
    path.unlink()
    lab.spec["dataset"] = {"path": "plain.jsonl"}
    write(lab, rows, "plain.jsonl")
    before = len(server.requests)
    assert lab.run("-q").code == 0
    assert len(server.requests) == before
    write(lab, packed[:-9], name)
    lab.spec["dataset"] = {"path": name}
    cut = lab.run("-q")
    assert cut.code == 2
    assert name in cut.err
    lab.assert_sound()


def test_the_output_folder_may_hold_the_dataset(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    path = write(lab, b'{"prompt": "a"}\n', "data/data.jsonl")
    lab.spec["dataset"] = {"path": "data/data.jsonl"}
    for words in ((), ("--fresh",)):
        assert lab.run("-q", *words).code == 0
        assert path.read_bytes() == b'{"prompt": "a"}\n'
    lab.assert_sound()


@pytest.mark.parametrize("name", ["trajectories.jsonl", "batch_0.jsonl", "journal.jsonl", "mine.jsonl"])
def test_a_dataset_in_the_run_directory_is_refused_and_not_touched(
    lab: Lab, server: ModelServer, name: str
) -> None:
    lab.use_server(server.url)
    path = write(lab, b'{"prompt": "a"}\n', f"data/r/{name}")
    (lab.folder / "link.jsonl").symlink_to(path)
    for dataset in (f"data/r/{name}", "link.jsonl", f"data/../data/r/{name}"):
        lab.spec["dataset"] = {"path": dataset}
        for words in ((), ("--fresh",)):
            result = lab.run("-q", *words)
            assert result.code == 2, dataset
            assert "run directory" in result.err
    assert path.read_bytes() == b'{"prompt": "a"}\n'
    assert [each.name for each in path.parent.iterdir()] == [name]


def peak_memory_mb(child: Run) -> float:
    status = Path(f"/proc/{child.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def first_call(lab: Lab, server: ModelServer) -> tuple[float, float]:
    """Seconds until the first call, and the memory (MB) that it took until then; then it is stopped."""
    server.requests.clear()
    began = time.monotonic()
    child = lab.start("-q")
    while not server.requests:
        assert child.poll() is None
        time.sleep(0.05)
    seconds, memory_mb = time.monotonic() - began, peak_memory_mb(child)
    time.sleep(3)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return seconds, memory_mb


@pytest.mark.slow
def test_a_million_lines_begin_and_resume_soon_and_in_little_memory(lab: Lab, server: ModelServer) -> None:
    def respond(_: Any) -> Any:
        return says("x", reasoning="r")

    server.respond = respond
    lab.use_server(server.url)
    lab.spec |= {"workers": 16, "batch_size": 1000}
    with (lab.folder / "data.jsonl").open("w") as stream:
        stream.writelines(f'{{"prompt": "line {number}"}}\n' for number in range(1_000_000))
    for _ in range(2):
        seconds, memory_mb = first_call(lab, server)
        assert seconds < 60
        assert memory_mb < 1000
    assert (lab.run_dir / "journal.jsonl").read_bytes().count(b"\n") > 10


def grown(rows: list[bytes]) -> list[bytes]:
    return [*rows, b'{"prompt": "[new]"}\n']


CHANGES: dict[str, tuple[Callable[[list[bytes]], list[bytes] | None], bool]] = {
    "a row on top": (lambda rows: [b'{"prompt": "[new]"}\n', *rows], True),
    "turned round": (lambda rows: rows[::-1], True),
    "cut": (lambda rows: rows[:5], True),
    "gone": (lambda _: None, True),
    "rows at the end": (grown, False),
}
"""What happens to the file while a run goes on, and whether that stops it."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_dataset_that_is_changed_meanwhile_loses_and_repeats_nothing(
    lab: Lab, server: ModelServer, change: str
) -> None:
    """Rows are read when their turn comes. What is in flight then is paid for: it is let finish."""
    how, stops = CHANGES[change]
    text = "x" * 20_000  # so that the file is larger than what is read of it at once
    rows = [b'{"prompt": "[%d] %s"}\n' % (n, text.encode()) for n in range(60)]
    path = write(lab, b"".join(rows))

    def respond(request: Request) -> Answer:
        if request.prompt.startswith("[1]") and path.exists():
            changed = how(rows)
            if changed is None:
                path.unlink()
            else:
                path.write_bytes(b"".join(changed))
        return says("done", reasoning="r", delay_s=0.1)

    server.respond = respond
    lab.use_server(server.url)
    lab.spec["batch_size"] = 5
    result = lab.run()
    assert "Traceback" not in result.err
    assert result.code == (4 if stops else 0), result.err
    if stops:
        assert "run the same command again" in result.err
    paid = [json.loads(line) for line in (lab.run_dir / "journal.jsonl").read_text().splitlines()]
    assert len(paid) == len(server.requests), "every reply that was paid for is kept"
    assert all(entry["status"] == "completed" for entry in paid)
    server.respond = turns(1)
    if change == "gone":
        write(lab, b"".join(rows))
    assert lab.run("-q").code == 0
    assert set(Counter(request.prompt for request in server.requests).values()) == {1}
    wanted = how(rows) or rows
    assert [line["conversations"][0]["value"] for line in lab.lines()] == [
        json.loads(row)["prompt"] for row in wanted
    ]
    lab.assert_sound()
