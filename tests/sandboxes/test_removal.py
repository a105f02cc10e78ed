"""Removing folders that commands have made hard to remove."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_run.sandboxes._removal import removal, remove_tree

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_folder_too_deep_for_any_path_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "top").mkdir()
    os.chdir("top")
    for _ in range(1500):
        os.mkdir("folder")  # noqa: PTH102 - a path of its own would be too long
        os.chdir("folder")
        os.mkdir("0")  # noqa: PTH102 - named as what is moved up
    os.chdir(tmp_path)
    remove_tree("top")
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_what_they_point_to_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o750)
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "kept" / "file").chmod(0o640)
    inside = tmp_path / "top" / "a" / "b"
    inside.mkdir(parents=True)
    for place in (inside, inside.parent, tmp_path / "top"):
        (place / "folder").symlink_to(tmp_path / "kept")
        (place / "file").symlink_to(tmp_path / "kept" / "file")
        (place / "nowhere").symlink_to("nowhere")
    for place in (inside, inside.parent, tmp_path / "top"):
        place.chmod(0)
    remove_tree(str(tmp_path / "top"))
    (tmp_path / "link").symlink_to("kept")
    remove_tree(str(tmp_path / "link"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "kept" / "file").stat().st_mode & 0o777 == 0o640


def test_big_folder_is_removed_in_pieces_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"{number}").touch()
    assert sum(1 for _ in removal(str(tmp_path))) >= 5
    assert not tmp_path.exists()
    remove_tree(str(tmp_path))
