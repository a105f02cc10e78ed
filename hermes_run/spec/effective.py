"""A Spec as YAML again: every default filled in, and itself a valid spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from hermes_run.spec.distributions import CUSTOM
from hermes_run.spec.later import NOT_YET
from hermes_run.spec.scalars import reads_as_text
from hermes_run.spec.schema import load_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.spec.model import Spec


def load_effective(spec: Spec) -> dict[str, Any]:
    """The whole spec as plain values, keys in the order of the schema, paths absolute.

    Loading it again gives an equal Spec (`sources` aside). Left out are `extends`, which is resolved,
    the user's own x- keys, and `model.base_url` beside a `model.endpoint`.
    """
    plain: dict[str, Any] = whole_numbers(_with_lists(msgspec.to_builtins(spec, enc_hook=str)))
    plain["model"]["extra_body"] = _with_lists(spec.model.extra_body)
    for name in ("prefill", "sources"):
        del plain[name]
    for path, default in NOT_YET.items():
        inside = plain
        for step in path[:-1]:
            inside = inside.setdefault(step, {})
        inside[path[-1]] = default
    plain["distribution"] = _distribution(spec)
    if spec.model.endpoint is not None:
        del plain["model"]["base_url"]
    ordered: dict[str, Any] = _in_order(plain, load_schema("run-spec"))
    return ordered


def whole_numbers(value: Any) -> Any:
    """Floats that are whole as integers: JSON Schema calls 8.0 an integer, and so may a spec."""
    if isinstance(value, dict):
        return {name: whole_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _with_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_lists(item) for name, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _distribution(spec: Spec) -> Any:
    distribution = spec.distribution
    if distribution.source is not None:
        return str(distribution.source)
    return whole_numbers(distribution.toolsets) if distribution.name == CUSTOM else distribution.name


def _in_order(value: Any, schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None:
        return value
    return {name: _in_order(value[name], properties[name]) for name in properties if name in value}


class _Dumper(yaml.SafeDumper):
    """Quotes what the reader would not read as text, and writes long texts as blocks."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - yaml's signature
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if not reads_as_text(text) or any(not c.isprintable() and c != "\n" for c in text):
        style = '"'
    elif "\n" in text.strip():
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_effective(spec: Spec) -> str:
    """`load_effective` as YAML text."""
    return dump_plain(load_effective(spec))


def dump_plain(value: dict[str, Any]) -> str:
    """Plain values as YAML that the reader of specs reads as the same."""
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=110,
        default_flow_style=False,
    )
    return text
