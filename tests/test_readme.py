"""The documents say nothing that is not so: commands, options, targets, files and schema keys exist."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from hermes_run.cli.main import COMMANDS
from hermes_run.cli.options import add_run_options
from hermes_run.cli.parser import Parser
from hermes_run.core.keys import content_key
from hermes_run.formats.equality import _LEFT_OUT, _LEFT_OUT_METADATA
from hermes_run.spec.fingerprint import IF_SET, IN, OUT
from hermes_run.spec.load import load_spec
from hermes_run.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for folder in (ROOT, ROOT / "docs", ROOT / "benchmarks")
    for path in folder.glob("*.md")
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(name), re.DOTALL)


def commands(name: str) -> Iterator[list[str]]:
    """The words after `hermes-run`, in shell blocks and between backticks."""
    written = [line for block in blocks(name, "sh") for line in block.splitlines()]
    written += re.findall(r"`(hermes-run [^`]+)`", text_of(name))
    written += re.findall(r"^#   (hermes-run .+)$", text_of("runs/quickstart.yaml"), re.MULTILINE)
    for line in written:
        words = shlex.split(line, comments=True)
        if words and words[0] == "hermes-run":
            yield words[1:]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_in_the_documents_exist_and_their_options_are_understood(name: str) -> None:
    for words in commands(name):
        if words[0] in COMMANDS:
            assert COMMANDS[words[0]].module, words
            continue
        parser = Parser("run", "")
        add_run_options(parser)
        assert parser.parse(words).spec or "--run-name" in " ".join(words).replace("_", "-"), words


@pytest.mark.parametrize("name", DOCUMENTS)
def test_make_targets_in_the_documents_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text_of(name), re.MULTILINE))
    assert named <= targets


def test_every_make_target_explains_itself() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", text_of("Makefile"), re.MULTILINE)
    assert phony is not None
    explained = set(re.findall(r"^([a-z-]+):.* ## ", text_of("Makefile"), re.MULTILINE))
    assert set(phony[1].split()) - {"python"} == explained


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", text_of(name)):
        assert target.startswith("https://") or (ROOT / name).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_and_folders_that_are_named_exist(name: str) -> None:
    for target in re.findall(r"`([a-z_]+/(?:[A-Za-z0-9_.-]+/?)*)`", text_of(name)):
        if not target.startswith(("data/", "artifacts/")):  # of a run, not of the project
            assert (ROOT / target).exists() or (ROOT / "hermes_run" / target).exists(), target


def test_the_spec_in_the_readme_is_valid(tmp_path: Path) -> None:
    (example,) = blocks("README.md", "yaml")
    (tmp_path / "examples/data").mkdir(parents=True)
    (tmp_path / "examples/data/coding.jsonl").write_text('{"prompt": "p"}\n')
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs/coding_v1.yaml"
    path.write_text(example)
    assert load_spec(path).run_name == yaml.safe_load(example)["run_name"]


def test_the_readme_names_every_file_of_a_run_directory() -> None:
    table = text_of("README.md").partition("## The run directory")[2].partition("###")[0]
    names = {value for key, value in vars(layout).items() if key.isupper() and isinstance(value, str)}
    missing = {name for name in names if f"`{name}`" not in table and not name.startswith(".")}
    assert not missing


def test_the_readme_explains_every_command_and_exit_code() -> None:
    readme = text_of("README.md")
    for name, command in COMMANDS.items():
        assert not command.module or f"hermes-run {name}" in readme or name == "run", name
    assert all(f" {code} " in readme for code in (0, 1, 2, 3, 4, 5, 129, 130, 143))


def test_the_changelog_has_a_part_for_this_version() -> None:
    from hermes_run import __version__

    assert f"\n## {__version__}" in text_of("CHANGELOG.md")


@pytest.mark.parametrize(("mark", "names"), [("in", {*IN, *IF_SET}), ("out", {*OUT})])
def test_the_page_about_identity_lists_what_shapes_a_rollout_and_what_does_not(
    mark: str, names: set[str]
) -> None:
    table = text_of("docs/identity.md").partition(f"<!-- {mark} -->")[2].partition("\n\n")[0]
    beside = {"without", "auto", "agent.prefill_messages_file"} if mark == "in" else set()
    assert set(re.findall(r"`([a-z_.]+)`", table)) - beside == names


def test_the_page_about_identity_says_what_is_so() -> None:
    page = text_of("docs/identity.md")
    assert content_key("hi") in page
    names = [name for name in inspect.signature(content_key).parameters if f"`{name}`" in page]
    assert names == list(inspect.signature(content_key).parameters)
    (code,) = blocks("docs/identity.md", "python")
    names_here: dict[str, Any] = {}
    exec(code, names_here)
    shown = re.findall(r"^(restore.*\))  +# (.*)$", code, re.MULTILINE)
    assert len(shown) == 2
    for expression, value in shown:
        assert repr(eval(expression, names_here)) == value
    left_out = page.partition("decide: ")[2].partition("; without")[0]
    assert re.findall(r"`([a-z_]+)`", left_out) == [*_LEFT_OUT, "metadata", *_LEFT_OUT_METADATA]
