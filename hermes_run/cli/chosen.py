"""What select, subtract and intersect share: where what was chosen goes, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.cli.plain import as_json, columns, count_of, number
from hermes_run.cli.report import complain, say
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from hermes_run.cli.parser import Parser
    from hermes_run.store.rows_out import RowsWish


def add_destinations(parser: Parser) -> None:
    """`-o`, `--rows`, `--dataset`, `--json`."""
    parser.add_argument("-o", "--out", metavar="OUT", help="a new run directory of what was chosen")
    parser.add_argument("--rows", metavar="FILE", help="a new dataset: the rows of what was chosen")
    parser.add_argument(
        "--dataset",
        metavar="FILE",
        help="where --rows finds them (default: the run's own dataset, else the records)",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def destinations(arguments: argparse.Namespace) -> tuple[Path | None, RowsWish | None]:
    """OUT and the rows that are wished for. Raises UsageError when there is neither."""
    from hermes_run.store.rows_out import RowsWish, refuse_rows_file

    if arguments.out is None and arguments.rows is None:
        raise UsageError("where does it go? -o OUT makes a run directory, --rows FILE a dataset")
    if arguments.dataset is not None and arguments.rows is None:
        raise UsageError("--dataset is where --rows FILE finds the rows; name that too")
    out = None if arguments.out is None else Path(arguments.out)
    if arguments.rows is None:
        return out, None
    refuse_rows_file(Path(arguments.rows))
    return out, RowsWish(Path(arguments.rows), None if arguments.dataset is None else Path(arguments.dataset))


def tell(found: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Say what was chosen and where it is."""
    if arguments.json:
        say(as_json(found))
        return
    for text in found["warnings"]:
        complain(f"warning: {text}")
    lines = [f"{count_of(found['chosen'], 'rollout')} chosen"]
    if found["out"] is not None:
        lines += [found["out"], *filter(None, [account(found)])]
    if "rows_file" in found:
        made = found["made_again"]
        lines.append(
            f"{found['rows_file']}: {count_of(found['rows'], 'row')}"
            + (f", {number(made)} of them from the records" if made else "")
        )
    say("\n".join(lines))


def account(found: dict[str, Any]) -> str:
    """The outcomes of a new run, those that there are, as a table."""
    rows = [(name, number(count)) for name, count in found["outcomes"].items() if count]
    if found["without_trajectory"]:
        rows.append(("without trajectory", number(found["without_trajectory"])))
    return columns(rows)
