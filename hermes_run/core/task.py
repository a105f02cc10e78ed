"""A dataset row made ready to run."""

from __future__ import annotations

from msgspec import Struct


class PromptTask(Struct, frozen=True):
    """One rollout to do: a row and an ordinal.

    Attributes:
        key: the rollout key, `<content key>#<ordinal>`.
        prompt_index: the row's place in the dataset, from 0.
        prompt: its text.
        image: a container image, or "" for the spec's.
        cwd: where commands start inside the sandbox, or "".
        setup: shell commands run before the first turn, after the spec's.
        files: path in the workspace -> text.
        images: pictures that go with the prompt: addresses or data URLs.
        row_id: the row's own `id` as text, or "".
        row: the other columns as one JSON string (`metadata.row`).
        batch: the number of the batch file that its outcome goes to.
    """

    key: str
    prompt_index: int
    prompt: str
    image: str = ""
    cwd: str = ""
    setup: tuple[str, ...] = ()
    files: dict[str, str] = {}
    row_id: str = ""
    row: str = "{}"
    batch: int = 0
    images: tuple[str, ...] = ()
