"""The layers of a spec, one on the other: what `extends` names < the file < options < `--set`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.errors import SpecError
from hermes_run.spec.flags import WITHOUT_SPEC, flag_nodes
from hermes_run.spec.locate import KeyPath, Mistakes, Node, Place, Source, shown, shown_path
from hermes_run.spec.reading import nearest_file, read_file
from hermes_run.spec.yaml_tree import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SET_ORDER = 2_000
MAX_EXTENDS = 50


@dataclass(frozen=True, slots=True)
class Layers:
    """All layers merged, and the files they are from, the last one first."""

    tree: Node
    files: tuple[Path, ...]


def merged(below: Node, above: Node) -> Node:
    """Maps merge deeply; anything else that is above wins."""
    if not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    value = dict(below.value)
    for name, node in above.value.items():
        value[name] = merged(value[name], node) if name in value else node
    return replace(above, value=value, keys={**below.keys, **above.keys})


def put(tree: Node, path: tuple[str, ...], node: Node) -> Node:
    """The tree with `node` at `path`, whatever was there; maps on the way are made."""
    if not path:
        return node
    name, rest = path[0], path[1:]
    is_map = isinstance(tree.value, dict)
    value = dict(tree.value) if is_map else {}
    inside = value.get(name, Node({}, node.place))
    value[name] = put(inside, rest, node)
    keys = {**tree.keys} if is_map else {}
    keys[name] = node.place if not rest else keys.get(name, node.place)
    return Node(value, tree.place if is_map else node.place, keys)


def read_layers(
    path: Path | None, *, sets: Sequence[str], flags: Mapping[str, Any], mistakes: Mistakes
) -> Layers | None:
    """Read and merge all layers; None when there is nothing to go on with.

    Args:
        path: the spec file, or None when options alone make the spec.
        sets: `a.b=VALUE` texts, VALUE in YAML.
        flags: see `flags.flag_nodes`.
        mistakes: what is wrong is added here.
    """
    folder = _working_directory()
    given = [*flag_nodes(flags, folder, mistakes), *_read_sets(sets, folder, mistakes)]
    options = [entry for entry in given if entry[0] != ("extends",)]
    extends = next((node for key, node in reversed(given) if key == ("extends",)), None)
    chain = _Chain(mistakes)
    if path is not None:
        tree = chain.read(path, Source(shown_path(path), path.parent), extends)
    else:
        tree = Node({}, Place(Source("command line", folder, is_file=False)))
        if extends is not None:
            tree = chain.below(tree, extends)
        elif not _has_the_three(options, tree.place, mistakes):
            return None
    if tree is None:
        return None
    for key, node in options:
        tree = put(tree, key, node)
    return Layers(tree, tuple(chain.files))


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise SpecError("the working directory does not exist any more; go to one that does") from None


def _has_the_three(options: list[tuple[tuple[str, ...], Node]], place: Place, mistakes: Mistakes) -> bool:
    keys = {
        "--dataset-file": ("dataset", "path"),
        "--batch-size": ("batch_size",),
        "--run-name": ("run_name",),
    }
    missing = [name for name in WITHOUT_SPEC if keys[name] not in [key for key, _ in options]]
    if missing:
        text = f"no spec file is given; name one, or add {', '.join(missing)}"
        mistakes.add(place, (), text)
    return not missing


class _Chain:
    """Follows `extends` from file to file."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.files: list[Path] = []
        self.shown: list[str] = []

    def read(self, path: Path, source: Source, extends: Node | None = None) -> Node | None:
        self.files.append(Path(os.path.abspath(path)))  # noqa: PTH100 - symlinks stay as they are written
        self.shown.append(source.shown)
        tree = read_file(path, source, self.mistakes)
        if tree is None:
            return None
        named = extends or tree.value.get("extends")
        value = {name: node for name, node in tree.value.items() if name != "extends"}
        tree = replace(tree, value=value)
        return tree if named is None or named.value is None else self.below(tree, named)

    def below(self, tree: Node, named: Node) -> Node | None:
        """`tree` on top of the file that `named` names."""
        if not isinstance(named.value, str) or not named.value:
            self.mistakes.add(
                named.place, ("extends",), f"must be the path of a spec file, not {shown(named.value)}"
            )
            return tree
        path = named.place.source.folder / Path(named.value).expanduser()
        if not self._can_follow(path, named):
            return tree
        source = Source(shown_path(path), path.parent, order=len(self.files))
        base = self.read(path, source)
        return tree if base is None else merged(base, tree)

    def _can_follow(self, path: Path, named: Node) -> bool:
        at: KeyPath = ("extends",)
        try:
            if not path.is_file():
                what = (
                    "is a folder"
                    if path.is_dir()
                    else f"there is no file {shown_path(path)}{nearest_file(path)}"
                )
                self.mistakes.add(
                    named.place, at, f"{what}; name a spec file, relative to the file that extends it"
                )
                return False
            if any(path.samefile(file) for file in self.files if file.exists()):
                circle = " -> ".join([*self.shown, shown_path(path)])
                self.mistakes.add(named.place, at, f"goes round in a circle ({circle}); take one of them out")
                return False
        except (OSError, ValueError) as error:
            self.mistakes.add(named.place, at, f"cannot be followed: {error}")
            return False
        if len(self.files) >= MAX_EXTENDS:
            self.mistakes.add(named.place, at, f"more than {MAX_EXTENDS} files in a chain; make it shorter")
            return False
        return True


def _read_sets(sets: Sequence[str], folder: Path, mistakes: Mistakes) -> list[tuple[tuple[str, ...], Node]]:
    nodes: list[tuple[tuple[str, ...], Node]] = []
    for text in sets:
        key, equals, value = text.partition("=")
        source = Source(f"--set {key.strip()}", folder, order=_SET_ORDER + len(nodes), is_file=False)
        path = tuple(key.strip().split("."))
        if not equals or not all(path) or any(name != name.strip() for name in path):
            cure = f"--set needs KEY=VALUE, such as model.name=scripted, not {shown(text)}"
            mistakes.add(Place(Source("--set", folder, order=_SET_ORDER, is_file=False)), (), cure)
            continue
        before = len(mistakes)
        node = parse_yaml(value, source, mistakes, path)
        if node is None and len(mistakes) > before:
            continue
        nodes.append((path, node or Node(None, Place(source))))
    return nodes
