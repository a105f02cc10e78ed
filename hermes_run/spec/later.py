"""Keys of the contract whose feature is not there yet: known to the schema, refused when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import BACKENDS, ENGINES

if TYPE_CHECKING:
    from hermes_run.spec.draft import Draft
    from hermes_run.spec.locate import KeyPath

NOT_YET: dict[tuple[str, ...], Any] = {
    ("checks",): [],
    ("engine", "processes"): 1,
}
"""Key -> the one value it can have for now, its default."""

_TEXT = "is not available yet in this version of hermes-run; take it out"


def refuse_what_is_not_there(draft: Draft) -> None:
    """Note every key whose feature is not available."""
    for path, default in NOT_YET.items():
        if draft.value(path, default) != default:
            draft.note(path, _TEXT)
    for path, table in ((("sandbox", "backend"), BACKENDS), (("engine", "name"), ENGINES)):
        _refuse_row(draft, path, table)


def _refuse_row(draft: Draft, path: KeyPath, table: dict[str, Any]) -> None:
    name = draft.value(path)
    if name in table and not table[name].path:
        there = ", ".join(known for known, row in table.items() if row.path)
        draft.note(path, f"{name} is not available yet in this version of hermes-run; available: {there}")
