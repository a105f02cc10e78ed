"""What a run that is put together says of where it comes from: its spec, its tools, what to beware of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.core.text import clean
from hermes_run.store.assemble import MEMORY, About, tool_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_run.store.parts import Part

_BATCH_SIZE = 1000
"""Prompts per batch file where no part says."""


def about_parts(parts: Sequence[Part]) -> About:
    """Spec and names are those of the first part that has them; tools are the union."""
    spec = next((part.spec for part in parts if part.spec.keys() - {MEMORY}), {})
    tools: dict[str, dict[str, Any]] = {}
    for part in parts:
        for name, tool in zip(tool_names(part.tools()), part.tools(), strict=False):
            tools.setdefault(name, tool)
    known: dict[str, Any] = next((found for part in parts if (found := part.statistics())), {})
    size = spec.get("batch_size") or known.get("batch_size")
    return About(
        spec=dict(spec),
        batch_size=size if isinstance(size, int) and size > 0 else _BATCH_SIZE,
        distribution=str(known.get("distribution", "")),
        model=str(known.get("model", "")),
        tools=list(tools.values()),
    )


def remember_parts(about: About, parts: Sequence[Part], works: set[str]) -> None:
    """Put into the spec's memory what a later run compares itself with.

    The work fingerprint is that of the spec, or of all entries where there is no spec. Where the parts
    were judged by different filters nobody's judgement is remembered, and the next run judges anew; parts
    without trajectories have nothing that could be judged.
    """
    memory = dict(next((part.remembered for part in parts if part.remembered), {}))
    if not about.spec.keys() - {MEMORY}:
        memory = {"work": next(iter(works))} if len(works) == 1 else {}
    judged = [part for part in parts if part.view is not None and any(part.view.batches.values())] or parts
    judgements = {part.remembered.get("judgement") for part in judged}
    memory.pop("judgement", None)
    if len(judgements) == 1 and None not in judgements:
        memory["judgement"] = judgements.pop()
    memory["made_of"] = [clean(str(part.path)) for part in parts]
    about.spec = about.spec | {MEMORY: memory}


def _first_has_all_rows(parts: Sequence[Part]) -> bool:
    """Whether the plan that spec.yaml stands for holds every row of the others."""
    first, *others = (part for part in parts if part.plan is not None)
    rows = set(_contents(first))
    return all(rows.issuperset(_contents(other)) for other in others)


def _contents(part: Part) -> Iterator[bytes]:
    return (part.keys[at : at + 16] for at in range(0, len(part.keys), 16))


def warnings_of(parts: Sequence[Part], works: set[str], lines_elsewhere: int) -> Iterator[str]:
    """What a person should know of a run that was put together."""
    for part in parts:
        yield from part.warnings
    if len(works) > 1:
        yield (
            f"the entries were made under {len(works)} different work fingerprints: each keeps its own, "
            "and `works` in statistics.json counts them"
        )
    hashes = {(part.plan.dataset_hash, part.plan.selection.prompt_field) for part in parts if part.plan}
    if len(hashes) > 1 and not _first_has_all_rows(parts):
        yield (
            "the parts were made of different datasets: spec.yaml names the first one's, and running it "
            "plans only the rows of that; give it a dataset that holds all rows to go on with all"
        )
    if lines_elsewhere:
        yield (
            f"{lines_elsewhere} entries came from manifests alone, without their trajectories; they count "
            "in every comparison, and are pending for a run"
        )
