"""The dataset card (README.md) of a run directory, with the features of its files.

With the features `load_dataset(<run dir>)` needs to infer nothing: without them a JSON reader takes a
column whose first block holds only empty lists for a list of nulls, and fails at the first full one.
"""

from __future__ import annotations

from typing import Any

import msgspec
import msgspec.inspect

from hermes_run.core.registry import TOOLS
from hermes_run.formats.record import TrajectoryRecord

_SCALARS: dict[Any, str] = {
    msgspec.inspect.StrType: "string",
    msgspec.inspect.IntType: "int64",
    msgspec.inspect.FloatType: "float64",
    msgspec.inspect.BoolType: "bool",
}


def features(kind: Any, tools: tuple[str, ...]) -> list[dict[str, Any]]:
    """The features of a Struct type, as a dataset card spells them; `tools` are the columns of counts."""
    described: Any = msgspec.inspect.type_info(kind)
    return [{"name": each.encode_name, **_feature(each.type, tools)} for each in described.fields]


def _feature(kind: Any, tools: tuple[str, ...]) -> dict[str, Any]:
    for scalar, name in _SCALARS.items():
        if isinstance(kind, scalar):
            return {"dtype": name}
    if isinstance(kind, msgspec.inspect.StructType):
        return {"struct": features(kind.cls, tools)}
    if isinstance(kind, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
        inner = _feature(kind.item_type, tools)
        return {"list": inner.get("dtype") or inner["struct"]}
    if isinstance(kind, msgspec.inspect.DictType):
        return {"struct": [{"name": _quoted(tool), **_feature(kind.value_type, tools)} for tool in tools]}
    if isinstance(kind, msgspec.inspect.UnionType):
        present = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
        return _feature(present[0], tools)
    raise TypeError(f"no feature for {kind}")


def _quoted(tool: str) -> str:
    """A tool's name in YAML: an own tool may be called `no` or `a: b`."""
    return tool if tool in TOOLS else msgspec.json.encode(tool).decode()


def _yaml(value: Any, indent: int = 0) -> list[str]:
    """Block YAML of the maps and lists that features are made of."""
    pad, lines = " " * indent, []
    for item in value:
        first = True
        for name, inner in item.items():
            lead = f"{pad}- " if first else f"{pad}  "
            first = False
            if isinstance(inner, list):
                lines.append(f"{lead}{name}:")
                lines += _yaml(inner, indent + 2)
            else:
                lines.append(f"{lead}{name}: {inner}")
    return lines


_TEXT = """\
---
configs:
- config_name: default
  default: true
  data_files: trajectories.jsonl
- config_name: manifest
  data_files: manifest.jsonl
dataset_info:
{features}
tags:
- agent-trajectories
- tool-use
---

# {run_name}

Agent trajectories of `{model}`, toolsets drawn from the distribution `{distribution}`; made by hermes-run.

- outcomes: {outcomes}
- tools called: {tools}
- assistant turns: {turns}, with reasoning {coverage} %

```python
from datasets import load_dataset

trajectories = load_dataset("<this folder>", split="train")
manifest = load_dataset("<this folder>", "manifest", split="train")
```

The features above matter: without them a JSON reader takes a column whose first megabytes hold only
empty lists for a list of nulls, and fails at the first full one. To read a single file, pass them on:

```python
from datasets import load_dataset, load_dataset_builder

features = load_dataset_builder("<this folder>").info.features
load_dataset("json", data_files="<this folder>/batch_0.jsonl", features=features)
```

| file | what it holds |
|---|---|
| `trajectories.jsonl` | what was completed or ended partial, in dataset order |
| `manifest.jsonl` | one entry per rollout, sorted by key; equal runs have equal manifests |
| `batch_N.jsonl` | every trajectory as it was written, discarded ones too |
| `statistics.json` | the sums |
| `tools.json` | the schemas of the tools offered |
| `spec.yaml` | the run; it can be run again as it is |
"""


def card(statistics: dict[str, Any], manifest_entry: Any, extra_tools: tuple[str, ...] = ()) -> str:
    """README.md of a run directory.

    `statistics` are the contents of statistics.json, `manifest_entry` is the type of a manifest line.
    """
    tools = (*TOOLS, *(name for name in extra_tools if name not in TOOLS))
    outcomes = [f"{count} {name}" for name, count in statistics["outcomes"].items() if count]
    reasoning = statistics["reasoning_statistics"]
    infos = [
        {"config_name": "default", "features": features(TrajectoryRecord, tools)},
        {"config_name": "manifest", "features": features(manifest_entry, tools)},
    ]
    return _TEXT.format(
        features="\n".join(_yaml(infos)),
        run_name=statistics["run_name"],
        model=statistics["model"],
        distribution=statistics["distribution"],
        outcomes=", ".join(outcomes) or "none",
        tools=", ".join(statistics["tool_statistics"]) or "none",
        turns=reasoning["total_assistant_turns"],
        coverage=reasoning["coverage"],
    )
