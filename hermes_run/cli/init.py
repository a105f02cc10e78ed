"""`hermes-run init [DIR|FILE]`: a commented starter spec, and a small dataset if there is none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import say
from hermes_run.core.text import command_line
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble

SPEC, DATASET = "run.yaml", "prompts.jsonl"
_DATASETS = (".jsonl", ".jsonl.gz", ".jsonl.zst")

STARTER = """\
# One run. `{command}` runs what is missing of it; the same command again continues.
run_name: {run_name}                # its directory: data/{name}
dataset:
  path: {dataset}   # one JSON object a line; paths count from the folder of this file
  # max_samples: 10               # only the first rows
batch_size: 20                    # prompts per batch file
workers: 4                        # prompts in flight
# samples: 1                      # rollouts per prompt

# Each toolset is drawn for a prompt with its percentage (`hermes-run tools`, `hermes-run distributions`).
distribution: {{terminal: 100, file: 100}}
# seed: 0                         # of the draws

model:
  name: anthropic/claude-sonnet-4.6
  # base_url: http://127.0.0.1:8000/v1   # any OpenAI-compatible server; by default OpenRouter
  # api_key_env: MY_KEY           # the NAME of the variable with the key; by default that of base_url's host
  # max_tokens: 4096
  # sampling: {{temperature: 0.7}}
# reasoning: {{effort: medium}}     # unset: nothing is sent; none switches it off

agent:
  max_turns: 10
  # system_prompt: You are careful.
  # prompt_timeout_s: 600

sandbox:
  backend: auto                   # bubblewrap; `local`, your machine itself, has to be written down
  network: none                   # or full
  # setup: [python3 --version]    # shell commands run before the first turn

# What is kept but not merged into trajectories.jsonl. Without a model that shows its reasoning, say false.
filters: {{require_reasoning: true, reject_unknown_tools: true}}
"""

_PROMPTS = (
    "Write the numbers from 1 to 10 into numbers.txt, one a line, and tell me their sum.",
    "Write a shell script hello.sh that greets whom it is given, run it for Ada, and show what it said.",
    "Which files are in the current folder, and how large are they?",
)


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Write the files. Refuses to write over anything."""
    parser = Parser("init", "Write a commented starter spec, and a small dataset if there is none.")
    parser.add_argument(
        "place",
        metavar="DIR|FILE",
        nargs="?",
        default=".",
        help=f"a folder (for {SPEC} in it) or a .yaml file",
    )
    parser.add_argument("--json", action="store_true", help="the paths as one JSON object")
    arguments = parser.parse(words)
    place = Path(arguments.place)
    spec = place if place.suffix in (".yaml", ".yml") and not place.is_dir() else place / SPEC
    if spec.exists() or spec.is_symlink():
        raise UsageError(f"{spec}: exists already, and init writes over nothing; name another file")
    if spec.parent.exists() and not spec.parent.is_dir():
        raise UsageError(f"{spec.parent}: is no folder; name one, or a .yaml file")
    spec.parent.mkdir(parents=True, exist_ok=True)
    dataset = _dataset_in(spec.parent)
    made = [str(spec)]
    if not dataset.exists():
        lines = [json.dumps({"id": f"example-{n}", "prompt": text}) for n, text in enumerate(_PROMPTS, 1)]
        _write_new(dataset, "\n".join(lines) + "\n")
        made.append(str(dataset))
    name = _run_name(spec)
    text = STARTER.format(
        command=command_line(spec.name),
        run_name=name if name == "first" else json.dumps(name),
        name=name,
        dataset=_in_yaml(dataset.name),
    )
    _write_new(spec, text)
    if arguments.json:
        say(as_json({"spec": str(spec), "dataset": str(dataset), "written": made}))
    else:
        say(_next(spec, dataset, made))
    return 0


def _dataset_in(folder: Path) -> Path:
    """The dataset of a folder: the only one, or the one of our name, which may not be there yet."""
    own = folder / DATASET
    found = [path for path in sorted(folder.iterdir()) if path.name.endswith(_DATASETS) and path.is_file()]
    return found[0] if len(found) == 1 and not own.exists() else own


def _run_name(spec: Path) -> str:
    """The file's name as far as a run can have it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", spec.stem).lstrip(".")[:128]
    return "first" if spec.name == SPEC or not name else name


def _in_yaml(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9._-]*", name) else json.dumps(name)


def _write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet, whole or not at all."""
    from hermes_run.store.disk import replace_file

    replace_file(path, text.encode())


def _next(spec: Path, dataset: Path, made: Sequence[str]) -> str:
    return "\n".join(
        (
            f"wrote {' and '.join(made)}",
            "next:",
            f"  {command_line('validate', spec)}     # runs nothing; prompts are in {dataset}",
            "  export OPENROUTER_API_KEY=…      # or name another endpoint: --base-url http://127.0.0.1:8000/v1",
            f"  {command_line(spec, '--dry-run')}    # what would be run",
            f"  {command_line(spec)}",
        )
    )
