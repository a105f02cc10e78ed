"""YAML files and options -> Spec, with all mistakes at once; and back to YAML, with all defaults."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.spec import distributions, meaning
from hermes_run.spec.draft import Draft
from hermes_run.spec.effective import dump_effective, load_effective, whole_numbers
from hermes_run.spec.endpoint import read_key, warnings_of
from hermes_run.spec.flags import OPTIONS_ONLY, OTHER_NAMES
from hermes_run.spec.later import refuse_what_is_not_there
from hermes_run.spec.layers import read_layers
from hermes_run.spec.locate import Mistakes
from hermes_run.spec.mcp import check_mcp
from hermes_run.spec.model import Settings, Spec
from hermes_run.spec.own_tools import check_own_tools, written_tools
from hermes_run.spec.prefill import read_prefill
from hermes_run.spec.schema import load_schema
from hermes_run.spec.shape import MACHINE, check_shape
from hermes_run.spec.texts import refuse_keys, refuse_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_run.spec.locate import Node
    from hermes_run.spec.model import Distribution

_NOTHING: Mapping[str, Any] = {}


def load_spec(
    path: Path | None,
    *,
    sets: Sequence[str] = (),
    flags: Mapping[str, Any] = _NOTHING,
    settings: Settings | None = None,
    require_key: bool = False,
) -> Spec:
    """The spec of a run, complete and checked as far as that needs no running.

    Args:
        path: the YAML file; None when `flags` and `sets` make the whole spec.
        sets: texts of `--set`, `a.b=VALUE` with VALUE in YAML; they win over `flags`, which win over
            the file.
        flags: `Flag.dest` -> value, see `spec.flags`.
        settings: the machine's; None for the built-in ones (no hermes.yaml is looked for).
        require_key: whether the key variable has to be set already.

    Raises:
        SpecError: every mistake of all files and options, one a line,
            `file:line:column: dotted.key: what; cure`.
        KeyMissing: with `require_key`, when the key variable is unset.
    """
    mistakes = Mistakes()
    layers = read_layers(path, sets=sets, flags=flags, mistakes=mistakes)
    if layers is None:
        mistakes.stop_if_any()
        raise AssertionError("a spec that cannot be read has a mistake")
    draft = _well_shaped(layers.tree, mistakes, settings or Settings())
    distribution = _check_meaning(draft)
    prefill_file = draft.file_at(("agent", "prefill_messages_file"), "the file of prefill messages")
    prefill = () if prefill_file is None else read_prefill(prefill_file, mistakes)
    mistakes.stop_if_any()
    if distribution is None:
        raise AssertionError("a distribution that cannot be had is a mistake")
    spec = _build(draft, distribution, prefill, layers.files)
    if require_key:
        read_key(spec, draft.settings)
    return spec


def _other_names() -> dict[str, str]:
    """Names that people write as spec keys -> what is meant: a key, an option, the machine's settings."""
    options = {name: f"--{name.replace('_', '-')}" for name in OPTIONS_ONLY}
    return dict.fromkeys(load_schema("settings")["properties"], MACHINE) | OTHER_NAMES | options


def _well_shaped(tree: Node, mistakes: Mistakes, settings: Settings) -> Draft:
    told = refuse_variables(tree, mistakes)
    told |= refuse_keys(tree, mistakes, told)
    shaped, bad = check_shape(tree, "run-spec", mistakes, told=told, other_names=_other_names())
    return Draft(shaped, bad, mistakes, settings)


def _check_meaning(draft: Draft) -> Distribution | None:
    refuse_what_is_not_there(draft)
    meaning.check_files(draft)
    meaning.check_reuse(draft)
    meaning.check_image(draft)
    meaning.check_model(draft)
    meaning.check_routing(draft)
    meaning.check_streaming(draft)
    meaning.check_limits(draft)
    meaning.check_toolsets(draft)
    meaning.check_tools(draft)
    check_own_tools(draft)
    check_mcp(draft)
    return distributions.resolve(draft)


def _build(
    draft: Draft, distribution: Distribution, prefill: tuple[dict[str, str], ...], files: tuple[Path, ...]
) -> Spec:
    plain: dict[str, Any] = whole_numbers(draft.tree.plain())
    for section, key in (("dataset", "path"), ("model", "script"), ("agent", "prefill_messages_file")):
        found = draft.path_at((section, key))
        if found is not None:
            plain[section][key] = found
    cassette = draft.path_at(("tools", "web", "cassette"))
    if cassette is not None:
        plain["tools"]["web"]["cassette"] = cassette
    if "custom" in plain.get("tools", {}):
        plain["tools"]["custom"] = [{"tool": tool, "host": host} for tool, host in written_tools(draft)]
    plain["reuse"] = [draft.path_at(("reuse", at)) for at in range(len(plain.get("reuse", ())))]
    model = plain.setdefault("model", {})
    model["extra_body"] = draft.value(("model", "extra_body"), {})
    model["api_key_env"] = meaning.key_variable_of(draft)
    urls = meaning.base_urls_of(draft)
    model["base_url"] = urls[0] if len(urls) == 1 else urls
    if "output" in plain and "dir" in plain["output"]:
        plain["output"]["dir"] = Path(os.path.expanduser(plain["output"]["dir"]))  # noqa: PTH111 - never raises
    plain |= {"distribution": asdict(distribution), "prefill": prefill, "sources": files}
    return msgspec.convert(plain, Spec, dec_hook=lambda kind, value: kind(value))


__all__ = ["dump_effective", "load_effective", "load_spec", "warnings_of"]
