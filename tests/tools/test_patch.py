"""patch in real sandboxes: what it changes, and what it leaves as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_run.tools.patch import MAX_DIFF_CHARS, Edit, diff
from tests.tools.test_matching import ONLY, TEXT

if TYPE_CHECKING:
    from tests.tools.place import Place


def test_result_says_what_was_done(any_shell: Place) -> None:
    any_shell.put("shop/a.py", b"a = 1\nb = 2\nc = 3\n")
    assert any_shell.call(
        "patch", mode="replace", path="shop/a.py", old_string="b = 2", new_string="b = 5"
    ) == {
        "success": True,
        "diff": "--- a/shop/a.py\n+++ b/shop/a.py\n@@ -1,3 +1,3 @@\n a = 1\n-b = 2\n+b = 5\n c = 3",
        "files_modified": ["shop/a.py"],
        "files_created": [],
        "files_deleted": [],
        "lint": {"status": "ok"},
        "strategy": "exact",
        "replacements": 1,
    }
    assert any_shell.get("shop/a.py") == b"a = 1\nb = 5\nc = 3\n"


@pytest.mark.parametrize("strategy", ONLY)
def test_each_strategy_changes_the_file(place: Place, strategy: str) -> None:
    place.put("a.py", TEXT.encode())
    old, stands = ONLY[strategy]
    result = place.call("patch", path="a.py", old_string=old, new_string="<new>")
    assert result["strategy"] == strategy
    assert place.get("a.py").decode().count("<new>") == 1
    assert place.get("a.py").decode().replace("<new>", "").split() == TEXT.replace(stands, "").split()


def test_several_places_need_replace_all(place: Place) -> None:
    place.put("f", b"x = 1\ny = 2\nx = 1\n")
    error = place.error("patch", path="f", old_string="x = 1", new_string="x = 3")
    assert "old_string stands in 2 places in f (lines 1, 3; exact match); give more context" in error
    assert place.get("f") == b"x = 1\ny = 2\nx = 1\n"
    result = place.call("patch", path="f", old_string="x = 1", new_string="x = 3", replace_all="true")
    assert result["replacements"] == 2
    assert place.get("f") == b"x = 3\ny = 2\nx = 3\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\nb\r\nc\n", "a", "x\ny", b"x\ny\nb\r\nc\n"),
        (b"a\nb\r\nc\n", "b\nc", "x\ny", b"a\nx\r\ny\n"),
        (b"a\nb\r\nc\n", "c", "x", b"a\nb\r\nx\n"),
        (b"a\nb\r\nc\r\nd\r\n", "a\nb", "x\ny", b"x\ny\r\nc\r\nd\r\n"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a", "x", b"\xef\xbb\xbfx\r\nb\r\n"),
        (b"\xef\xbb\xbfa\n", "a\n", "", b"\xef\xbb\xbf"),
        (b"a\nb", "b", "c", b"a\nc"),
        (b"a\nb", "b\n", "c\n", b"a\nc"),
        (b"a\n", "a", "", b"\n"),
        (b"caf\xe9 a\xff\n", "a\U0010dcff", "b", b"caf\xe9 b\n"),
        ("\U0010dce9 x\n".encode(), "x", "y", "\U0010dce9 y\n".encode()),
        (b"a\x01b\n", "a\x01b", "c", b"c\n"),
        ("ä€😀\n".encode(), "€", "£", "ä£😀\n".encode()),
    ],
)
def test_what_is_not_replaced_stays_byte_for_byte(
    place: Place, before: bytes, old: str, new: str, after: bytes
) -> None:
    place.put("f", before)
    place.call("patch", path="f", old_string=old, new_string=new)
    assert place.get("f") == after


def test_mode_and_links_are_kept(any_shell: Place) -> None:
    any_shell.sh("printf 'echo one\\n' >run; chmod 750 run; ln -s run link")
    any_shell.call("patch", path="link", old_string="one", new_string="two")
    assert any_shell.sh("stat -c %a run; readlink link; sh run") == b"750\nrun\ntwo\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "f", "old_string": "", "new_string": "x"}, "old_string is empty"),
        ({"path": "f", "old_string": "x", "new_string": "x"}, "are the same"),
        ({"path": "f", "old_string": "a\r\n", "new_string": "a\n"}, "are the same"),
        (
            {"path": "f", "old_string": "nowhere", "new_string": "x"},
            "was not found in f; read the file again",
        ),
        (
            {"path": "f", "old_string": "alpha = on\n", "new_string": "x"},
            "the nearest is line 2: alpha = one",
        ),
        ({"path": "empty", "old_string": "x", "new_string": "y"}, "was not found in empty"),
        ({"path": "g", "old_string": "x", "new_string": "y"}, "there is no file g"),
        ({"path": "bin", "old_string": "x", "new_string": "y"}, "bin is a binary file"),
        ({"path": "folder", "old_string": "x", "new_string": "y"}, "folder is a directory"),
        ({"path": "f", "old_string": "x"}, 'missing parameter "new_string"'),
        (
            {"path": "f", "old_string": "x", "new_string": "y", "mode": "patch"},
            'missing parameter "patch"; mode patch takes patch',
        ),
        ({"mode": "patch", "patch": "*** Begin Patch"}, "the patch is empty"),
        ({}, 'missing parameter "path"; mode replace takes path, old_string, new_string'),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(
    place: Place, arguments: dict[str, str], said: str
) -> None:
    place.sh("printf 'first\\nalpha = one\\n' >f; : >empty; printf 'x\\0' >bin; mkdir folder")
    assert said in place.error("patch", **arguments)
    assert place.get("f") == b"first\nalpha = one\n"


def test_syntax_of_the_new_text_is_checked(place: Place) -> None:
    place.put("a.py", b"x = (1)\n")
    result = place.call("patch", path="a.py", old_string="(1)", new_string="(1")
    assert result["success"] is True
    assert "was never closed" in result["lint"]["message"]


def test_diff_has_the_lines_of_the_whole_file() -> None:
    before = "".join(f"{i}\n" for i in range(1, 101))
    assert diff("/f", before, before.replace("50\n", "x\ny\n")) == (
        "--- a/f\n+++ b/f\n@@ -47,7 +47,8 @@\n 47\n 48\n 49\n-50\n+x\n+y\n 51\n 52\n 53"
    )
    assert diff("f", "a", "b") == (
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file"
    )
    assert diff("f", "a\r\nb\r\n", "a\r\nc\r\n") == "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c"
    assert diff("f", "", "a\n") == "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+a"
    assert diff("f", "a\n", "") == "--- a/f\n+++ b/f\n@@ -1 +0,0 @@\n-a"


def test_huge_diff_is_bounded() -> None:
    many = "".join(f"line {i}\n" for i in range(3_000))
    text = diff("f", many, many.replace("line", "row"))
    assert len(text) < MAX_DIFF_CHARS + 100
    assert text.endswith("characters of the diff left out]")
    many = "".join(f"line {i}\n" for i in range(30_000))
    assert (
        diff("f", many, many.replace("line", "row")) == "[left out: a diff of 30000 old and 30000 new lines]"
    )


def test_edit_of_crlf_text_maps_every_place() -> None:
    text = "".join(f"line {i}\r\n" if i % 3 else f"line {i}\n" for i in range(300))
    for i in range(300):
        edited = Edit(text, "f").replaced(f"line {i}\n", f"row {i}\n", in_all_places=False)
        assert edited == text.replace(f"line {i}\r\n", f"row {i}\r\n").replace(f"line {i}\n", f"row {i}\n")
