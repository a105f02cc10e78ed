# ruff: noqa: E501 - command lines as people paste them
"""Command lines of the predecessor and the specs that are equal to them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.errors import SpecError, UsageError
from hermes_run.spec.flags import FLAGS, spec_from_flags
from hermes_run.spec.load import load_spec
from hermes_run.spec.old_commands import POSITIONS, OldCommand, read_command, write_spec

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_run.spec.model import Spec

NEEDED = {"dataset_file": "rows.jsonl", "batch_size": "5", "run_name": "r"}
VALUES = {
    **NEEDED,
    "distribution": "terminal_only", "model": "m", "base_url": "http://127.0.0.1:1/v1", "max_turns": "7",
    "num_workers": "2", "verbose": "true", "max_samples": "3", "max_tokens": "9", "providers_allowed": "a,b",
    "providers_ignored": "c", "providers_order": "b, a", "provider_sort": "price", "reasoning_effort": "high",
    "reasoning_disabled": "true", "ephemeral_system_prompt": "Be: kind\n# not a comment", "log_prefix_chars": "20",
    "prefill_messages_file": "prefill.json", "without": "file",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p"}\n')
    (tmp_path / "prefill.json").write_text('[{"role": "user", "content": "hi"}]')
    return tmp_path


def loaded(folder: Path, text: str) -> Spec:
    (folder / "converted.yaml").write_text(text)
    return load_spec(folder / "converted.yaml")


def comparable(spec: Spec) -> str:
    return repr(spec).partition(", sources=")[0]


def test_every_option_is_tried() -> None:
    assert VALUES.keys() == {flag.dest for flag in FLAGS}
    assert set(POSITIONS) <= {*VALUES, "api_key"}


@pytest.mark.parametrize("name", ["", *sorted(VALUES.keys() - NEEDED.keys()), "all"])
def test_the_printed_spec_is_that_of_the_same_options(folder: Path, name: str) -> None:
    chosen = VALUES if name == "all" else {**NEEDED, **({name: VALUES[name]} if name else {})}
    command = read_command([f"--{dest}={value}" for dest, value in chosen.items()])
    assert command == OldCommand(flags=chosen)
    assert comparable(loaded(folder, write_spec(command))) == comparable(load_spec(None, flags=chosen))


@given(
    flags=st.fixed_dictionaries(
        {name: st.just(value) for name, value in NEEDED.items()},
        optional={
            flag.dest: st.integers(-3, 99).map(str)
            if flag.type == "integer"
            else st.sampled_from(["true", "false"])
            if flag.type == "boolean"
            else st.text(st.characters(codec="utf-8"), max_size=8)
            | st.sampled_from(["no", "null", "1", "~", "- a", "a: b"])
            for flag in FLAGS
            if flag.dest not in NEEDED
        },
    )
)
def test_any_values_are_written_so_that_they_are_read_as_the_same(flags: dict[str, str]) -> None:
    text = write_spec(OldCommand(flags=flags))
    assert yaml.safe_load(text) == spec_from_flags(flags)


@given(
    words=st.lists(
        st.sampled_from(
            ["--", "-", "--x", "a b", "--max_turns", "-v", "--no", "\n", "--resume", "3", "--y=\n# z: 1"]
        ),
        max_size=6,
    )
)
def test_what_has_no_equal_never_becomes_part_of_the_spec(words: list[str]) -> None:
    command = read_command(words)
    try:
        text = write_spec(command)
    except SpecError:
        return
    assert (yaml.safe_load(text) or {}) == spec_from_flags(command.flags)


@pytest.mark.parametrize(
    "words",
    [
        ["--max-turns=7"],
        ["--max_turns=7"],
        ["--max_turns", "7"],
        ["python", "batch_runner.py", "--max_turns=7"],
        ["python3", "-u", "/opt/hermes/batch_runner.py", "--max_turns=7"],
        ["hermes-run", "--max_turns=7"],
        ["python batch_runner.py \\\n    --max_turns=7"],
        ["python", "batch_runner.py", "\\\n", "--max_turns=7"],
        ["uv", "run", "python", "batch_runner.py", "--max_turns=7"],
        ["nohup", "python", "batch_runner.py", "--max_turns=7"],
        ["srun", "--ntasks=1", "python", "./batch_runner.py", "--max_turns=7"],
        ["$ python batch_runner.py --max_turns=7"],
        ["python batch_runner.py --max_turns=7; echo done"],
        ["source venv/bin/activate\npython batch_runner.py \\\n  --max_turns=7\nls data\n"],
        ["--max_turns\n7"],
    ],
)
def test_a_command_line_is_understood_however_it_was_pasted(words: list[str]) -> None:
    assert read_command(words) == OldCommand(flags={"max_turns": "7"})


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--verbose"], "true"),
        (["-v"], "true"),
        (["--verbose", "True"], "True"),
        (["--verbose=False"], "False"),
        (["--noverbose"], "false"),
        (["--no-verbose"], "false"),
    ],
)
def test_switches_are_read_as_the_predecessor_read_them(words: list[str], value: str) -> None:
    assert read_command([*words, "--max_turns", "3"]).flags == {"verbose": value, "max_turns": "3"}


def test_values_without_an_option_are_its_parameters_in_order() -> None:
    command = read_command(["data.jsonl", "10", "my_run", "--num_workers=2", "default"])
    assert command.flags == {
        "dataset_file": "data.jsonl",
        "batch_size": "10",
        "run_name": "my_run",
        "distribution": "default",
        "num_workers": "2",
    }


def test_a_value_without_an_option_is_the_first_parameter_that_no_option_is() -> None:
    needed = [f"--{name}={value}" for name, value in NEEDED.items()]
    assert read_command([*needed, "--max_turns", "3", "mine"]).flags == {
        **NEEDED,
        "max_turns": "3",
        "distribution": "mine",
    }
    assert read_command(["data.jsonl", "--batch_size=5", "r"]).flags == {
        **NEEDED,
        "dataset_file": "data.jsonl",
    }
    many = read_command([*needed, *"abcdefghi"])
    assert many.unknown == ["g", "h", "i"]


def test_what_a_shell_does_around_the_program_is_no_part_of_the_spec() -> None:
    options = " ".join(f"--{name}={value}" for name, value in NEEDED.items())
    secret = "sk-or-v1-0123456789abcdef"
    command = read_command(
        [
            f"export OPENROUTER_API_KEY={secret} && cd ~/old && python batch_runner.py {options} > log.txt 2>&1 &"
        ]
    )
    assert command.flags == NEEDED
    assert command.environment == ["OPENROUTER_API_KEY"]
    assert command.unknown == ["cd ~/old", "> log.txt 2>&1 &"]
    piped = read_command([f"python batch_runner.py {options} --model 'a|b > c' 2>&1 | tee log"])
    assert piped.flags == {**NEEDED, "model": "a|b > c"}


def test_of_a_script_all_that_the_run_depends_on_is_told() -> None:
    lines = [
        "# the first of two",
        "pip install hermes==1",
        "export TERMINAL_ENV=docker",
        "cd ~/old",
        "python batch_runner.py --dataset_file=rows.jsonl --batch_size=5 \\",
        "  --run_name=r",
        "python batch_runner.py --dataset_file=other.jsonl --batch_size=5 --run_name=second",
    ]
    for end in ("\n", "\r\n"):
        command = read_command([end.join(lines) + end])
        assert command.flags == NEEDED
        assert command.environment == ["TERMINAL_ENV"]
        assert command.unknown == [
            "cd ~/old",
            "a further command line of batch_runner.py: convert it by itself",
        ]


def test_a_quotation_that_is_never_closed_is_told() -> None:
    with pytest.raises(UsageError, match="ends within a quotation"):
        read_command(["python batch_runner.py --dataset_file='rows.jsonl --batch_size=5 --run_name=r"])


@pytest.mark.parametrize("text", ["a,b", "a, b", "['a','b']", '["a", "b"]', "('a','b')", "'a,b'", "[a,b]"])
def test_lists_are_read_as_the_predecessor_took_them(text: str) -> None:
    spec = spec_from_flags({"providers_order": text})
    assert spec == {"provider_routing": {"order": ["a", "b"]}}


def test_a_key_is_never_written_and_variables_lose_their_values() -> None:
    secret = "sk-or-v1-0123456789abcdef"
    words = [
        f"OPENROUTER_API_KEY={secret}",
        "TERMINAL_ENV=docker",
        "python",
        "batch_runner.py",
        f"--api_key={secret}",
    ]
    command = read_command([*words, *(f"--{name}={value}" for name, value in NEEDED.items())])
    text = write_spec(command)
    assert secret not in text
    assert "--api_key: a key is never written" in text
    assert "the variable TERMINAL_ENV" in text
    assert command.without_equal == ["the variable TERMINAL_ENV"]  # a known key variable is used here, too


def test_what_has_no_equal_is_named_with_what_was_meant() -> None:
    command = read_command(
        ["--foo=1", "--max_turn", "5", "--bar", *(f"--{n}={v}" for n, v in NEEDED.items())]
    )
    assert command.unknown == ["--foo=1", '--max_turn=5; did you mean "max_turns"?', "--bar"]
    assert write_spec(command).count("# Without an equal: ") == 3


def test_a_value_that_its_option_cannot_take_is_refused() -> None:
    with pytest.raises(SpecError, match=r'--max-turns: agent\.max_turns: must be a whole number, not "many"'):
        write_spec(read_command(["--max_turns=many"]))


def test_comments_say_what_is_another_thing_here() -> None:
    text = write_spec(read_command([json.dumps("x").strip('"'), "10", "r", "--num_workers=8", "--resume"]))
    assert "# workers: prompts in flight" in text
    assert "# --resume is how every run goes here" in text
    assert "# seed: 0" in text
