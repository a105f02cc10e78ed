"""Draws docs/quickstart.svg from a real run: `make picture`."""  # noqa: INP001 - a script

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from hermes_run.cli.display import print_summary

PICTURE = Path(__file__).parent / "quickstart.svg"


def draw(statistics: dict[str, Any]) -> str:
    """The SVG of the summary that ends a run of runs/quickstart.yaml."""
    console = Console(record=True, width=74, file=io.StringIO(), force_terminal=True, highlight=False)
    after = [
        ("trajectories", f"data/quickstart/trajectories.jsonl ({statistics['outcomes']['completed']})"),
        ("statistics", "data/quickstart/statistics.json"),
        ("log", "data/quickstart/run.log"),
    ]
    print_summary(console, statistics, after)
    svg = console.export_svg(title="make quickstart", unique_id="quickstart")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # the reader's own fonts do


def without_duration(svg: str) -> str:
    """The picture without the one figure that is another in every run."""
    return re.sub(r"[0-9.]+&#160;s\b", "N&#160;s", svg)


if __name__ == "__main__":
    content = json.loads((Path(sys.argv[1]) / "statistics.json").read_text(encoding="utf-8"))
    PICTURE.write_text(draw(content), encoding="utf-8")
