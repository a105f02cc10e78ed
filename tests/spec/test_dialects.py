"""The table of dialects, and what docs/providers.md says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from hermes_run.models.config import ModelConfig
from hermes_run.models.dialects import dialect_fields
from hermes_run.spec.dialects import LEVELS, TRAITS, level_for
from hermes_run.spec.endpoint import DIALECTS
from hermes_run.spec.keys_and_hosts import KNOWN_HOSTS
from hermes_run.spec.model import Dialect, Effort

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"


def shown(dialect: str, reasoning: str) -> str:
    """The fields of a request, as the page writes them."""
    fields = dialect_fields(ModelConfig(name="m", base_url="http://x", dialect=dialect, reasoning=reasoning))
    level = level_for(dialect, reasoning) if reasoning in LEVELS else ""
    texts = [f"`{name}: {json.dumps(value)}`" for name, value in fields.items()]
    return ", ".join(texts).replace(f'"{level}"', "L") if texts else "nothing"


def test_the_page_has_the_table_of_dialects() -> None:
    rows = []
    for dialect, traits in TRAITS.items():
        levels = traits.levels if traits.reasoning else ()
        cells = [dialect, shown(dialect, "off"), shown(dialect, "high"), ", ".join(levels)]
        cells += [", ".join(sorted(each)) for each in (traits.honours, traits.declared)]
        rows.append("| " + " | ".join(cells) + " |")
    expected = [" ".join(row.split()) for row in rows]
    table = PAGE.read_text(encoding="utf-8").split("<!-- dialects -->\n")[1].split("\n\n")[0]
    assert [" ".join(line.split()) for line in table.splitlines()[2:]] == expected


def test_every_known_host_is_on_the_page_with_its_variable() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for host, dialect in DIALECTS.items():
        assert host in text
        assert KNOWN_HOSTS[host][0] in text
        assert f"`{dialect}`" in text


def test_the_table_holds_every_dialect_and_every_level() -> None:
    assert set(TRAITS) == set(get_args(Dialect))
    assert ("none", *LEVELS) == get_args(Effort)


def test_a_level_that_is_missing_becomes_the_nearest_below() -> None:
    assert [level_for("openrouter", level) for level in LEVELS] == [*LEVELS[:-1], "max"]
    assert [level_for("google", level) for level in LEVELS] == ["low", "low", "medium", *["high"] * 4]
