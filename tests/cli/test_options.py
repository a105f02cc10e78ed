from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_run.cli.options import add_run_options, continuing, flags_of, retry_set
from hermes_run.cli.parser import Parser
from hermes_run.errors import UsageError
from hermes_run.spec.flags import FLAGS

if TYPE_CHECKING:
    from tests.cli.calling import Cli


def parse(*words: str) -> dict[str, object]:
    parser = Parser("run", "")
    add_run_options(parser)
    return flags_of(parser.parse(list(words)))


def test_every_shorthand_of_the_predecessor_is_understood_with_hyphens_and_underscores() -> None:
    for flag in FLAGS:
        for name in flag.names:
            if len(name) == 2:
                continue
            for spelling in (name, name.replace("-", "_").replace("__", "--", 1)):
                value = "true" if flag.type == "boolean" else "7"
                assert parse(spelling, value.title())[flag.dest] == value.title(), spelling
                assert parse(f"{spelling}={value}")[flag.dest] == value, spelling


@pytest.mark.parametrize("words", [["--verbose"], ["-v"], ["-qv"], ["--verbose", "a.yaml"], ["-v", "a.yaml"]])
def test_a_switch_does_not_swallow_the_spec(words: list[str]) -> None:
    parser = Parser("run", "")
    add_run_options(parser)
    arguments = parser.parse(words)
    assert arguments.verbose == "true"
    assert arguments.spec == ("a.yaml" if "a.yaml" in words else None)


def test_what_is_not_given_is_unset() -> None:
    assert set(parse("a.yaml").values()) == {None}


@pytest.mark.parametrize(
    ("lists", "retried"),
    [
        (None, {"failed"}),
        (["failed"], {"failed"}),
        (["none"], set()),
        (["partial, discarded"], {"partial", "discarded"}),
        (["failed", "partial"], {"failed", "partial"}),
    ],
)
def test_retry_names_outcomes(lists: list[str] | None, retried: set[str]) -> None:
    assert retry_set(lists) == retried


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("partail", 'did you mean "partial"'),
        ("none,failed", "none alone"),
        ("", "none alone"),
        ("completed", "no outcome"),
    ],
)
def test_retry_refuses_what_is_no_outcome(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        retry_set([text])


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["a.yaml"], "hermes-run a.yaml"),
        (["my runs/a.yaml", "--set", "workers=2"], "hermes-run 'my runs/a.yaml' --set workers=2"),
        (["a.yaml", "--fresh", "--accept_spec_change", "-q"], "hermes-run a.yaml -q"),
        (["--retry", "partial", "a.yaml", "--retry=failed"], "hermes-run a.yaml"),
        (["--api-key", "sk-1", "a.yaml"], "hermes-run a.yaml"),
        (["a.yaml", "--api_key=sk-1"], "hermes-run a.yaml"),
    ],
)
def test_the_command_that_continues_holds_no_key_and_does_nothing_twice(
    words: list[str], command: str
) -> None:
    assert continuing(words) == command


@pytest.mark.parametrize("name", ["--workers", "--num-workers", "--num_workers"])
def test_a_value_that_cannot_be_is_told_with_the_name_that_was_typed(cli: Cli, name: str) -> None:
    done = cli("--dataset-file=x", "--batch-size=1", "--run-name=r", f"{name}=many")
    assert done.returncode == 2
    assert f'{name.replace("_", "-")}: workers: must be a whole number, not "many"' in done.stderr
