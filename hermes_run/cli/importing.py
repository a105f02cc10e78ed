"""`hermes-run import DIR`: take over a run directory of the predecessor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json, columns, count_of, cut, number, printable
from hermes_run.cli.report import say
from hermes_run.core.text import command_line
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Import a run directory. Every line of it is accounted for."""
    parser = Parser(
        "import",
        "Take over a run directory of hermes-agent's batch runner: what it has is not run again. Records are "
        "matched to rows by the text of the prompt; DIR is only read.",
    )
    parser.add_argument("dir", metavar="DIR", help="its run directory, such as data/NAME")
    parser.add_argument(
        "--dataset",
        metavar="FILE",
        help="the dataset: then rows without a record are pending, and image, cwd and the like count",
    )
    parser.add_argument(
        "--prompt-field", metavar="NAME", help="the column of FILE that holds the prompt (default: prompt)"
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", help="the new run directory; its name is the run's name"
    )
    parser.add_argument("--json", action="store_true", help="the account as one JSON object")
    arguments = parser.parse(words)
    folder = Path(arguments.dir)
    out = Path(arguments.out) if arguments.out else _free_place(folder)

    if arguments.prompt_field and not arguments.dataset:
        raise UsageError("--prompt-field names a column of a dataset; name that, too: --dataset FILE")

    from hermes_run.store.adoption import adopt

    dataset = Path(arguments.dataset) if arguments.dataset else None
    account = adopt(folder, out, dataset, arguments.prompt_field or "prompt")
    account = {"run_dir": str(out), **account}
    say(as_json(account) if arguments.json else _text(account, arguments))
    return 0


def _free_place(folder: Path) -> Path:
    """`data/NAME` where that is free, else `data/NAME_imported`."""
    name = folder.resolve().name
    here = Path("data") / name
    return Path("data") / f"{name}_imported" if here.exists() else here


def _text(account: dict[str, Any], arguments: argparse.Namespace) -> str:
    files = account["files"]
    lines = [
        f"{account['run_dir']}: {count_of(account['adopted'], 'record')} taken over from {account['source']}",
        "found",
        columns(
            [
                (name, number(each["lines"]), "lines,", *_parts(each))
                for name, each in files.items()
                if len(files) <= _SHOWN_FILES or name == "trajectories.jsonl"
            ]
            + [("in all", number(account["lines"]), "lines,", *_parts(_sum(account)))]
        ),
        "became",
        columns(_rows(account)),
    ]
    lines += [f"note: {note}" for note in _notes(account, arguments.dataset)]
    lines.append(f"next: {_next(account, arguments)}")
    return "\n".join(lines)


_SHOWN_FILES = 12
_SHOWN_TEXTS, _LONGEST_TEXT = 10, 120


def _sum(account: dict[str, Any]) -> dict[str, int]:
    return {name: account[name] for name in ("records", "duplicates", "set_aside")}


def _parts(counts: dict[str, int]) -> Sequence[str]:
    return (
        number(counts["records"]),
        f"records ({number(counts['duplicates'])} seen before),",
        number(counts["set_aside"]),
        "set aside",
    )


def _rows(account: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "rows", number(account["rows"])
    for name, count in account["outcomes"].items():
        if count or name == "completed":
            yield f"  {name}", number(count)
    yield "  pending", number(account["pending"])
    for why, count in account["outside_plan"].items():
        yield f"outside the plan, {why}", number(count)


def _notes(account: dict[str, Any], dataset: str | None) -> Iterator[str]:
    if account["set_aside"]:
        why = _some(f"{number(count)} {text}" for text, count in account["set_aside_why"].items())
        yield f"the bytes set aside are in {account['run_dir']}/imported-*.bad ({why})"
    if account["unknown_tools"]:
        yield f"invented tools, which discard their record: {_some(account['unknown_tools'])}"
    if account["other_tools"]:
        names = _some(account["other_tools"])
        yield f"tools that hermes-run has not, with their counts in imported.json: {names}"
    invalid = account["outcomes"]["invalid"]
    if invalid:
        rows = count_of(invalid, "row")
        yield f"{rows} of {dataset} cannot be run; `hermes-run validate` of the spec says why"
    missing = account["checkpoint_completed"] - account["in_plan"]
    if dataset and account["adopted"] and not account["in_plan"]:
        yield (
            f"{dataset} has the prompt of no record: is it the dataset of this run, and is the prompt in the "
            "column that --prompt-field names?"
        )
    elif missing > 0 and dataset:
        yield (
            f"its checkpoint calls {number(account['checkpoint_completed'])} prompts completed, and has no "
            f"record of {number(missing)} of them (it drops what has no reasoning, dead providers included)"
        )
    if not dataset:
        yield "without --dataset, keys are of prompts alone; rows with image, cwd, setup or files have others"


def _some(texts: Iterable[str]) -> str:
    """The first of some texts, which a model may have made up; imported.json has all of them."""
    named = [cut(printable(text), _LONGEST_TEXT) or '""' for text in texts]
    more = len(named) - _SHOWN_TEXTS
    return ", ".join(named[:_SHOWN_TEXTS]) + (f" and {number(more)} more" if more > 0 else "")


def _next(account: dict[str, Any], arguments: argparse.Namespace) -> str:
    run, field, dataset = Path(account["run_dir"]), arguments.prompt_field, arguments.dataset or "FILE"
    words = ["--dataset-file", dataset, "--batch-size", "N", "--run-name", run.name]
    words += [] if str(run.parent) == "data" else ["--set", f"output.dir={run.parent}"]
    words += ["--set", f"dataset.prompt_field={field}"] if field else []
    return f"{command_line(*words)} … (hermes-run convert makes a spec of an old command line)"
