"""Distributions: which toolset is drawn with which percentage. Built-in ones are files beside this one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import did_you_mean
from hermes_run.core.toolsets import TOOLSETS
from hermes_run.errors import SpecError
from hermes_run.spec.locate import KeyPath, Mistakes, Node, Place, Source, shown, shown_path
from hermes_run.spec.model import Distribution
from hermes_run.spec.reading import read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hermes_run.spec.draft import Draft

FOLDER = Path(__file__).parent / "distributions"
DEFAULT = "default"
CUSTOM = "custom"
"""The name of a distribution that is written in the spec itself."""


@dataclass(frozen=True, slots=True)
class DescribedDistribution:
    """A distribution as its file has it: what it is for, and toolset -> percent in the order written."""

    name: str
    description: str
    toolsets: dict[str, float]


def names() -> list[str]:
    """The built-in distributions, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_distributions() -> dict[str, DescribedDistribution]:
    """All built-in distributions by name, sorted."""
    return {name: load_distribution(FOLDER / f"{name}.yaml") for name in names()}


def load_distribution(path: Path) -> DescribedDistribution:
    """The distribution in a file: `{description?, toolsets: {name: percent}}`. Raises SpecError."""
    mistakes = Mistakes()
    found = _read(path, set(TOOLSETS), mistakes)
    mistakes.stop_if_any()
    if found is None:
        raise SpecError(f"{path}: is no distribution")
    return found


def is_path(text: str) -> bool:
    """Whether a distribution is written as the path of a file rather than as a name."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def resolve(draft: Draft) -> Distribution | None:
    """The spec's distribution after `without`, or None after noting what is wrong with it."""
    known = {*TOOLSETS, *draft.value(("toolsets",), {})}
    without = _check_without(draft, known)
    written = draft.value(("distribution",), DEFAULT)
    before = len(draft.mistakes)
    if isinstance(written, dict):
        _check_names(draft.tree.find(("distribution",)), ("distribution",), known, draft.mistakes)
    is_spoiled = draft.is_spoiled(("distribution",)) or draft.is_spoiled(("toolsets",))
    if is_spoiled or len(draft.mistakes) > before:
        return None
    source: Path | None = None
    if isinstance(written, dict):
        name, toolsets = CUSTOM, written
    elif is_path(written):
        source = draft.file_at(("distribution",), "the distribution file")
        found = None if source is None else _read(source, known, draft.mistakes)
        if found is None:
            return None
        name, toolsets = found.name, found.toolsets
    elif written in names():
        name, toolsets = written, load_distribution(FOLDER / f"{written}.yaml").toolsets
    else:
        hint = did_you_mean(written, names())
        draft.note(
            ("distribution",),
            f"there is no distribution {shown(written)}{hint or ';'} known: "
            f"{', '.join(names())}; a file is written with its .yaml",
        )
        return None
    return _reduce(draft, Distribution(name=name, toolsets=toolsets, source=source), without)


def _reduce(draft: Draft, whole: Distribution, without: set[str]) -> Distribution | None:
    toolsets = {name: percent for name, percent in whole.toolsets.items() if percent > 0}
    if not toolsets:
        draft.note(
            ("distribution",),
            "every percentage is 0, so there is nothing to draw; give a toolset more than 0",
        )
        return None
    left = {name: percent for name, percent in toolsets.items() if name not in without}
    if not left:
        draft.note(
            ("without",),
            f"nothing of the distribution {whole.name} is left to draw ({', '.join(toolsets)} "
            "taken out); take out fewer toolsets",
        )
        return None
    return Distribution(name=whole.name, toolsets=left, source=whole.source)


def _check_without(draft: Draft, known: set[str]) -> set[str]:
    without: list[str] = draft.value(("without",), [])
    for index, name in enumerate(without):
        if name not in known:
            draft.note(("without", index), unknown_toolset(name, known))
    return set(without)


def unknown_toolset(name: str, known: Collection[str]) -> str:
    """What to say of a toolset that is nowhere."""
    hint = did_you_mean(name, sorted(known)) or f"; known: {', '.join(sorted(known))}"
    return f"there is no toolset {shown(name)}{hint}"


def _check_names(node: Node | None, path: KeyPath, known: set[str], mistakes: Mistakes) -> None:
    for name in node.value if node is not None else ():
        if name not in known and node is not None:
            mistakes.add(node.keys[name], (*path, name), unknown_toolset(name, known))


def _read(path: Path, known: set[str], mistakes: Mistakes) -> DescribedDistribution | None:
    """A distribution file; mistakes point into it."""
    source = Source(shown_path(path), path.parent, order=500)
    before = len(mistakes)
    tree = read_file(path, source, mistakes)
    if tree is None:
        return None
    for name in tree.value:
        if name not in {"description", "toolsets"} and not name.startswith("x-"):
            hint = did_you_mean(name, ("description", "toolsets")) or "; known: description, toolsets"
            mistakes.add(tree.keys[name], (name,), f"unknown key{hint}")
    description = tree.value.get("description")
    if description is not None and not isinstance(description.value, str):
        mistakes.add(description.place, ("description",), "must be text")
    toolsets = tree.value.get("toolsets")
    if toolsets is None or not isinstance(toolsets.value, dict) or not toolsets.value:
        place = Place(source) if toolsets is None else toolsets.place
        mistakes.add(place, ("toolsets",), "is required, a map of toolset: percent; add one")
        return None
    _check_names(toolsets, ("toolsets",), known, mistakes)
    percents = _percents(toolsets.value, mistakes)
    if len(mistakes) > before:
        return None
    return DescribedDistribution(path.stem, description.value if description else "", percents)


def _percents(toolsets: Mapping[str, Node], mistakes: Mistakes) -> dict[str, float]:
    percents: dict[str, float] = {}
    for name, node in toolsets.items():
        value: Any = node.value
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 100:
            mistakes.add(
                node.place, ("toolsets", name), f"must be a percentage from 0 to 100, not {shown(value)}"
            )
        else:
            percents[name] = value
    return percents
