from __future__ import annotations

import pytest

from hermes_run.cli.parser import Parser
from hermes_run.errors import UsageError


def make_parser() -> Parser:
    parser = Parser("run", "for the tests")
    parser.add_argument("spec", nargs="?")
    parser.add_argument("--dataset-file")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--resume", dest="resume", action="store_true", default=True)
    parser.add_argument("--no-resume", dest="resume", action="store_false")
    parser.add_argument("--verbose", "-v", action="store_true")
    return parser


@pytest.mark.parametrize(
    "words",
    [
        ["--dataset-file", "a.jsonl"],
        ["--dataset_file", "a.jsonl"],
        ["--dataset-file=a.jsonl"],
        ["--dataset_file=a.jsonl"],
    ],
)
def test_an_option_may_have_hyphens_or_underscores_and_an_equals_sign(words: list[str]) -> None:
    assert make_parser().parse(words).dataset_file == "a.jsonl"


def test_a_value_keeps_its_underscores_and_leading_hyphens() -> None:
    arguments = make_parser().parse(["--dataset_file", "--odd_name=x", "--set=model.name=a_b", "--set", "-5"])
    assert arguments.dataset_file == "--odd_name=x"
    assert arguments.set == ["model.name=a_b", "-5"]


def test_an_empty_value_is_a_value() -> None:
    assert make_parser().parse(["--dataset-file="]).dataset_file == ""


def test_an_option_is_no_value_of_another_option() -> None:
    with pytest.raises(UsageError, match="--dataset-file: expected one argument"):
        make_parser().parse(["--dataset_file", "--verbose"])


@pytest.mark.parametrize(
    ("words", "resume", "verbose"),
    [
        (["--verbose", "a.yaml"], True, True),
        (["--verbose=True"], True, True),
        (["--verbose", "True"], True, True),
        (["--verbose=false"], True, False),
        (["--resume=False"], False, False),
        (["--resume", "False"], False, False),
        (["--no_resume"], False, False),
    ],
)
def test_a_switch_may_be_written_as_the_predecessor_had_it(
    words: list[str], resume: bool, verbose: bool
) -> None:
    arguments = make_parser().parse(words)
    assert (arguments.resume, arguments.verbose) == (resume, verbose)


def test_a_switch_with_any_other_value_is_refused() -> None:
    with pytest.raises(UsageError, match='--verbose is a switch: true or false, not "maybe"'):
        make_parser().parse(["--verbose=maybe"])


@pytest.mark.parametrize("words", [["--datset-file", "a"], ["--datset_file=a"], ["--dataset-fil", "a"]])
def test_an_unknown_option_is_refused_with_the_nearest(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r'there is no option "--dat.*did you mean "--dataset-file"'):
        make_parser().parse(words)


def test_an_unknown_short_option_is_refused() -> None:
    with pytest.raises(UsageError, match='there is no option "-x"'):
        make_parser().parse(["a.yaml", "-x"])


def test_a_further_argument_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match='unexpected argument "b'):
        make_parser().parse(["a.yaml", "b.yaml"])


def test_after_two_hyphens_everything_is_an_argument() -> None:
    assert make_parser().parse(["--", "--verbose"]).spec == "--verbose"
