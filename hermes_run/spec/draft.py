"""A spec on its way to becoming a Spec: well-shaped values, their places, and the mistakes so far."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.spec.locate import shown_path
from hermes_run.spec.reading import nearest_file

if TYPE_CHECKING:
    from hermes_run.spec.locate import KeyPath, Mistakes, Node
    from hermes_run.spec.model import Settings


@dataclass(frozen=True, slots=True)
class Draft:
    """What the checks of meaning look at.

    `tree` holds only what fits the schema; `bad` are the paths of what does not, noted already.
    """

    tree: Node
    bad: frozenset[KeyPath]
    mistakes: Mistakes
    settings: Settings

    def value(self, path: KeyPath, default: Any = None) -> Any:
        """The plain value at `path`, or `default` when it is not written."""
        node = self.tree.find(path)
        return default if node is None else node.plain()

    def is_written(self, path: KeyPath) -> bool:
        """Whether there is anything but null at `path`."""
        return self.value(path) is not None

    def is_spoiled(self, path: KeyPath) -> bool:
        """Whether something at or below `path` was wrong, so that its absence says nothing."""
        return any(bad[: len(path)] == path or path[: len(bad)] == bad for bad in self.bad)

    def note(self, path: KeyPath, text: str) -> None:
        """Note a mistake at the value of `path`."""
        self.mistakes.add(self.tree.place_of(path), path, text)

    def path_at(self, path: KeyPath) -> Path | None:
        """The absolute path written at `path`, counted from its file's folder; None when unset."""
        node = self.tree.find(path)
        if node is None or node.value is None:
            return None
        return absolute(node.place.source.folder, node.value)

    def is_in_file(self, path: KeyPath) -> bool:
        """Whether the value at `path` is not written on the command line."""
        node = self.tree.find(path)
        return node is None or node.place.source.is_file

    def file_at(self, path: KeyPath, what: str) -> Path | None:
        """As `path_at`, noting a mistake when it is no readable file. `what` is for the message."""
        found = self.path_at(path)
        problem = "" if found is None else file_problem(found, is_in_file=self.is_in_file(path))
        if problem:
            self.note(path, f"{what} {problem}")
            return None
        return found


def absolute(folder: Path, text: str) -> Path:
    """`text` as a path, from `folder` when relative, `~` being the home folder; symlinks are kept."""
    return Path(os.path.abspath(folder / os.path.expanduser(text)))  # noqa: PTH100, PTH111 - never raises


def file_problem(path: Path, *, is_in_file: bool = True) -> str:
    """Why `path`, written in a file or on the command line, is no readable file, with the cure, or ""."""
    name = shown_path(path)
    try:
        kind = os.stat(path).st_mode  # noqa: PTH116 - Path.exists() hides names that no file can have
    except (FileNotFoundError, NotADirectoryError):
        return f"{name} does not exist{nearest_file(path)}; {counted_from(is_in_file=is_in_file)}"
    except (OSError, ValueError) as error:
        return f"{name} cannot be found: {getattr(error, 'strerror', None) or error}; check the path"
    if stat.S_ISDIR(kind):
        return f"{name} is a folder; name a file in it"
    if not stat.S_ISREG(kind):
        return f"{name} is no regular file; name one"
    return "" if os.access(path, os.R_OK) else f"{name} cannot be read; check its permissions"


def counted_from(*, is_in_file: bool) -> str:
    """Where paths begin that are written in a file, or on the command line: the end of a message."""
    start = "the folder of the file they are in" if is_in_file else "the working directory here"
    return f"paths count from {start}"
