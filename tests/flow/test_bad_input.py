"""Every mistake: what, where and the cure; the right exit code; no traceback; nothing lost."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.lab import Lab, Result
from tests.flow.replies import turns
from tests.servers import fails

if TYPE_CHECKING:
    from tests.servers import ModelServer

TAPE: dict[str, Any] = {"conversations": [{"turns": [{"reasoning": "r", "text": "done"}]}]}


@pytest.fixture
def scripted(lab: Lab) -> Lab:
    lab.write_tape(TAPE)
    lab.write_prompts("a", "b")
    return lab


def refused(result: Result, code: int, *words: str) -> None:
    assert result.code == code, (result.code, result.err)
    for word in words:
        assert word in result.err, result.err
    assert "Traceback" not in result.err + result.out
    assert "bug in hermes-run" not in result.err


def test_a_typo_a_wrong_type_and_an_unknown_distribution_are_told_at_once(scripted: Lab) -> None:
    scripted.spec |= {"workrs": 3, "batch_size": "8", "distribution": "terminal_onyl"}
    refused(scripted.run(), 2, 'did you mean "workers"', "batch_size", 'did you mean "terminal_only"')
    assert not scripted.run_dir.exists()


def test_a_toolset_that_cannot_work_here_is_refused_with_the_option_that_leaves_it_out(scripted: Lab) -> None:
    scripted.spec["distribution"] = {"terminal": 100, "browser": 50}
    refused(scripted.run(), 2, "browser", "--without browser")
    refused(scripted.run("--dry-run"), 2, "--without browser")
    assert scripted.run("--without", "browser").code == 0


def test_missing_dataset(scripted: Lab) -> None:
    (scripted.folder / "data.jsonl").unlink()
    refused(scripted.run(), 2, "data.jsonl")


def test_bad_rows_are_all_listed_before_any_spending(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    rows = [{"prompt": "ok"}, {"prompt": 1}, "nope", {"prompt": ""}, {"prompt": "x", "files": {"../x": "y"}}]
    lab.write_rows(rows)
    refused(
        lab.run(), 2, "data.jsonl:2:", "data.jsonl:3:", "data.jsonl:4:", "data.jsonl:5:", "on_bad_row: skip"
    )
    assert not server.requests


def test_bad_rows_that_are_skipped_are_in_the_ledger(scripted: Lab) -> None:
    scripted.write_rows([{"prompt": "ok"}, {"prompt": 1}, {"prompt": "also"}])
    scripted.spec["dataset"] = {"path": "data.jsonl", "on_bad_row": "skip"}
    scripted.spec["samples"] = 2
    assert scripted.run().code == 0
    assert (
        scripted.statistics()["outcomes"] | {"invalid": 2, "completed": 4}
        == scripted.statistics()["outcomes"]
    )
    assert [line["prompt_index"] for line in scripted.lines()] == [0, 0, 2, 2]
    scripted.assert_sound()


@pytest.mark.parametrize("content", [b"", b"\n  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_an_empty_dataset_ends_well_with_a_word_and_valid_empty_files(scripted: Lab, content: bytes) -> None:
    (scripted.folder / "data.jsonl").write_bytes(content)
    result = scripted.run("-q")
    assert result.code == 0, result.err
    assert "there are no rows in " in result.err
    assert "data.jsonl" in result.err
    checked = scripted.call("validate", str(scripted.write_spec()))
    assert (checked.code, "no rows in " in checked.err) == (0, True)
    assert scripted.lines() == scripted.lines("manifest.jsonl") == []
    assert scripted.statistics()["total_prompts"] == 0
    scripted.assert_sound()


def test_an_unset_key_variable_and_one_aimed_at_a_foreign_host(lab: Lab) -> None:
    lab.write_prompts("a")
    lab.spec["model"] = {"name": "m", "base_url": "https://openrouter.ai/api/v1"}
    lab.env = {"OPENROUTER_API_KEY": ""}
    refused(lab.run(), 4, "OPENROUTER_API_KEY")
    lab.spec["model"] = {
        "name": "m",
        "base_url": "https://evil.example/v1",
        "api_key_env": "OPENROUTER_API_KEY",
    }
    lab.env = {"OPENROUTER_API_KEY": "sk-or-secret-canary"}
    refused(lab.run(), 2, "evil.example", "hermes.yaml")


def test_an_unreachable_endpoint_leaves_all_pending(lab: Lab) -> None:
    lab.use_server("http://127.0.0.1:9/v1")
    lab.write_prompts("a", "b", "c")
    refused(lab.run(), 4, "127.0.0.1:9")
    assert lab.statistics()["outcomes"]["pending"] == 3


def test_refused_credentials_stop_early_and_a_mended_key_completes(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.spec["workers"] = 4
    lab.write_prompts(*(f"[{n}]" for n in range(40)))
    server.respond = lambda _: fails(401)
    refused(lab.run(), 4, "401")
    assert len(server.requests) <= 4
    assert lab.statistics()["outcomes"] | {"pending": 40, "failed": 0} == lab.statistics()["outcomes"]
    server.respond = turns(1)
    assert lab.run().code == 0
    lab.assert_sound()


def test_a_run_directory_of_another_spec_is_refused_field_by_field(scripted: Lab) -> None:
    assert scripted.run().code == 0
    scripted.write_prompts("a", "b", "c")
    scripted.spec["agent"] = {"max_turns": 3}
    refused(scripted.run(), 2, "agent.max_turns", "10", "3", "--accept-spec-change", "--fresh")
    accepted = scripted.run("--accept-spec-change")
    assert accepted.code == 0, accepted.err
    assert scripted.run().code == 0
    works = {entry["work"] for entry in scripted.lines("manifest.jsonl")}
    assert len(works) == 2
    assert sorted(scripted.statistics()["works"].values()) == [1, 2]
    assert scripted.run("--fresh").code == 0
    assert [p.name for p in scripted.run_dir.parent.iterdir() if p.name.startswith("r.old-")]
    assert len({entry["work"] for entry in scripted.lines("manifest.jsonl")}) == 1


def test_other_changes_resume_quietly(scripted: Lab) -> None:
    assert scripted.run().code == 0
    scripted.spec |= {"workers": 1, "batch_size": 7, "logging": {"log_prefix_chars": 20}}
    assert scripted.run().code == 0


def test_no_resume_refuses_a_run_directory_with_entries(scripted: Lab) -> None:
    assert scripted.run("--no-resume").code == 0
    refused(scripted.run("--no-resume"), 2, "--fresh")


def test_a_run_directory_locked_by_a_living_process_is_refused(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.write_prompts("a")
    server.respond = turns(1, delay_s=20)
    child = lab.start()
    while not server.requests:
        time.sleep(0.02)
    refused(lab.run(), 4, "is working in this run directory")
    refused(lab.run("--fresh"), 4, "is working in this run directory")
    assert lab.call("status", str(lab.run_dir), "--json").json()["running"] is True
    child.kill()
    child.communicate()


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 129])
def test_a_run_name_that_is_no_name_is_refused(scripted: Lab, name: str) -> None:
    scripted.spec["run_name"] = name
    refused(scripted.run(), 2, "run_name")


def test_more_workers_than_file_descriptors_is_refused_with_the_numbers(scripted: Lab) -> None:
    path = scripted.write_spec()
    limited = subprocess.run(
        scripted.command("run", str(path), "--set", "workers=300"),
        cwd=scripted.folder,
        env=scripted.environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
    )
    refused(Result(limited.returncode, limited.stdout, limited.stderr), 2, "workers: 300", "256", "ulimit -n")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_stops_with_what_was_reported_kept(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    server.respond = turns(4)
    lab.spec["workers"] = 2
    lab.write_prompts(*(f"[{n}] " + "x" * 20_000 for n in range(60)))
    small = lab.folder / "data"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        refused(lab.run(), 4, "no space left")
        kept = (lab.run_dir / "journal.jsonl").read_bytes().count(b"\n")
        assert kept
        asked = {r.prompt for r in server.requests}
        subprocess.run(["mount", "-o", "remount,size=60m", str(small)], check=True)
        assert lab.run().code == 0
        assert len(lab.lines()) == 60
        again = {r.prompt for r in server.requests[len(asked) * 4 :]}
        assert len(again) <= 60 - kept + 2
        lab.assert_sound()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_row_with_an_image_on_a_backend_without_images_is_refused(scripted: Lab) -> None:
    scripted.write_rows([{"prompt": "a"}, {"prompt": "b", "image": "python:3.12"}])
    refused(scripted.run(), 2, "data.jsonl:2:", "python:3.12", "sandbox.backend is bubblewrap")
    scripted.spec["sandbox"] = {"backend": "auto"}
    scripted.env["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    refused(scripted.run(), 4, "docker", "daemon")


@pytest.mark.parametrize("backend", ["docker", "singularity"])
def test_all_rows_whose_image_is_a_path_of_this_machine_are_told_at_once(scripted: Lab, backend: str) -> None:
    paths = ["/etc", "./here.sif", "../there"]
    scripted.write_rows([{"prompt": path, "image": path} for path in paths])
    scripted.spec["sandbox"] = {"backend": backend}
    lines = [f'data.jsonl:{n}: the image "{path}" is a path' for n, path in enumerate(paths, 1)]
    refused(scripted.run(), 2, *lines, "cannot be used: 3")
    refused(scripted.run("--dry-run"), 2, *lines)
    checked = scripted.call("validate", str(scripted.write_spec()))
    refused(checked, 2, *lines, "3 mistakes in 1 spec")


def test_a_container_backend_wants_an_image_for_every_row(scripted: Lab) -> None:
    scripted.write_rows([{"prompt": "a"}, {"prompt": "b", "image": "python:3.12"}])
    scripted.spec["sandbox"] = {"backend": "docker"}
    refused(scripted.run(), 2, "rows without an image", "sandbox.image")
    scripted.spec["sandbox"]["image"] = "/etc"
    refused(scripted.run(), 2, "/etc", "path of this machine")
    scripted.spec["sandbox"]["image"] = "Not An Image"
    refused(scripted.run(), 2, "sandbox.image", "registry reference")


OF_THE_PREDECESSOR = '{"prompt_index": 0, "conversations": [{"from": "human", "value": "a"}]}\n'


@pytest.mark.parametrize(
    "files",
    [
        {"batch_0.jsonl": OF_THE_PREDECESSOR, "trajectories.jsonl": OF_THE_PREDECESSOR},
        {"checkpoint.json": '{"run_name": "r", "completed_prompts": [0]}', "statistics.json": "{}"},
        {"trajectories.jsonl": "mine\n"},
        {"README.md": "# mine\n"},
        {"spec.yaml": "run_name: mine\n"},
        {"manifest.jsonl": '{"key": "a"}\n'},
    ],
)
def test_a_folder_that_is_no_run_of_ours_is_not_written_into(scripted: Lab, files: dict[str, str]) -> None:
    scripted.run_dir.mkdir(parents=True)
    for name, text in files.items():
        (scripted.run_dir / name).write_text(text)
    refused(scripted.run(), 2, next(iter(files)), "--fresh", "run_name")
    assert {path.name: path.read_text() for path in scripted.run_dir.iterdir()} == files
    assert scripted.run("--fresh").code == 0
    assert len(scripted.lines()) == 2
    (aside,) = scripted.run_dir.parent.glob("r.old-*")
    assert {path.name: path.read_text() for path in aside.iterdir() if path.name != ".lock"} == files


def test_other_files_in_the_run_directory_are_left_alone(scripted: Lab) -> None:
    scripted.run_dir.mkdir(parents=True)
    (scripted.run_dir / "notes.txt").write_text("mine")
    assert scripted.run().code == 0
    assert (scripted.run_dir / "notes.txt").read_text() == "mine"


def test_a_journal_that_is_lost_names_the_repair_whatever_else_is_lost(scripted: Lab) -> None:
    assert scripted.run().code == 0
    for name in ("journal.jsonl", "plan.keys", "plan.json", "spec.yaml", "manifest.jsonl", "checkpoint.json"):
        (scripted.run_dir / name).unlink()
    refused(
        scripted.run(), 2, "journal", f"hermes-run repair {scripted.run_dir.relative_to(scripted.folder)}"
    )
    assert not (scripted.run_dir / "journal.jsonl").exists()


def test_a_manifest_alone_is_not_run_over(scripted: Lab) -> None:
    """As git brings it to another machine: with the spec that the run remembers, and without."""
    assert scripted.run().code == 0
    for path in list(scripted.run_dir.iterdir()):
        if path.name not in ("manifest.jsonl", "spec.yaml"):
            path.unlink()
    before = (scripted.run_dir / "manifest.jsonl").read_bytes()
    for _ in range(2):
        for more in ((), ("--dry-run",)):
            refused = scripted.run(*more)
            assert refused.code == 2
            assert "holds a manifest without its trajectories" in refused.err
            assert "import" not in refused.err
        (scripted.run_dir / "spec.yaml").unlink(missing_ok=True)
    assert [path.name for path in scripted.run_dir.iterdir()] == ["manifest.jsonl"]
    assert (scripted.run_dir / "manifest.jsonl").read_bytes() == before
    assert scripted.run("--fresh").code == 0
