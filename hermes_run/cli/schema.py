"""`hermes-run schema [NAME]`: a JSON Schema, for editors and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Print a schema."""
    from hermes_run.spec.schema import NAMES, load_schema

    parser = Parser("schema", "A JSON Schema (2020-12), for editors and checks.")
    parser.add_argument("name", metavar="NAME", nargs="?", default="run-spec", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="the same: a schema is JSON")
    say(as_json(load_schema(parser.parse(words).name)))
    return 0
