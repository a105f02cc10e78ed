# ruff: noqa: E501 - whole patches, as models write them
"""patch in V4A mode: what it reads, where hunks fit, and that all of it happens or nothing."""

from __future__ import annotations

import contextlib
import difflib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_run.errors import ToolError
from hermes_run.tools.hunks import apply_hunks
from hermes_run.tools.v4a import parse

if TYPE_CHECKING:
    from hermes_run.core.contracts import ExecResult, Sandbox
    from tests.tools.place import Place

SHOP = """\
class Cart:
    def total(self):
        items = self.items
        return sum(items)

class Order:
    def total(self):
        items = self.items
        return sum(items)
"""


class FullDisk:
    """A sandbox whose disk is full for one name."""

    def __init__(self, inner: Sandbox, name: str) -> None:
        self._inner = inner
        self._name = name
        self.info = inner.info

    async def exec(self, command: str, **more: Any) -> ExecResult:
        if f"p='./{self._name}'" in command and "mv -f" in command:
            command = "echo 'No space left on device'; exit 75"
        return await self._inner.exec(command, **more)


def applied(text: str, hunks: str) -> str:
    return apply_hunks(text, parse(f"*** Update File: f\n{hunks}")[0].hunks, "f")


ENDS = [
    ("\r\na\r\nb\r\nc\r\na", "@@\n a\n-b\n c\n a", "\r\na\r\nc\r\na"),
    ("a\r\nb\r\na", "@@\n b\n a\n+c", "a\r\nb\r\na\r\nc"),
    ("a\r\nb\r\na", "@@\n b\n-a", "a\r\nb"),
    ("a\nb\r\na\nb\r\n", "@@\n a\n b\n a\n-b\n+c", "a\nb\r\na\nc\n"),
    ("\na\n", "@@\n+x\n \n*** End Patch", "x\n\na\n"),
    ("\na\nb\n", "@@\n+x\n \n@@\n a\n-b\n+c", "x\n\na\nc\n"),
]


@pytest.mark.parametrize(("text", "hunks", "after"), ENDS)
def test_lines_that_stay_keep_their_ends_and_empty_ones_are_context(
    text: str, hunks: str, after: str
) -> None:
    assert applied(text, hunks) == after


FEW = st.lists(
    st.sampled_from(["a", "b", "  a", "\ta", "", "{", "}", "f( )", "f()"]), min_size=2, max_size=25
)


@given(FEW, FEW, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([1, 3]))
def test_a_diff_as_hunks_gives_the_new_text_or_an_error_and_never_another(
    old: list[str], new: list[str], end: str, is_ended: bool, context: int
) -> None:
    last = end if is_ended else ""
    assume(old != new and any(old) and (is_ended or (old[-1] and new[-1])))
    _, _, *lines = difflib.unified_diff(old, new, n=context, lineterm="")
    hunks = "\n".join("@@" if line.startswith("@@") else line for line in [*lines, "*** End Patch"])
    with contextlib.suppress(ToolError):
        assert applied(end.join(old) + last, hunks) == end.join(new) + last


def test_one_patch_changes_adds_deletes_and_moves(any_shell: Place) -> None:
    any_shell.put("shop/cart.py", SHOP.encode())
    any_shell.put("old.txt", b"old\n")
    any_shell.sh("printf 'echo 1\\n' >run.sh; chmod 750 run.sh")
    result = any_shell.call(
        "patch",
        mode="patch",
        patch="*** Begin Patch\n*** Update File: shop/cart.py\n@@ class Order: @@\n         items = self.items\n"
        "-        return sum(items)\n+        return round(sum(items), 2)\n*** Add File: docs/new/a.txt\n+one\n+\n"
        "+two\n*** Delete File: old.txt\n*** Move File: run.sh -> bin/go.sh\n*** End Patch",
    )
    assert result["success"] is True
    assert result["files_modified"] == ["shop/cart.py"]
    assert result["files_created"] == ["docs/new/a.txt", "bin/go.sh"]
    assert result["files_deleted"] == ["old.txt", "run.sh"]
    assert result["lint"]["shop/cart.py"] == {"status": "ok"}
    assert "+        return round(sum(items), 2)" in result["diff"]
    assert any_shell.get("shop/cart.py").decode() == SHOP[: SHOP.rindex("sum")] + "round(sum(items), 2)\n"
    assert any_shell.get("docs/new/a.txt") == b"one\n\ntwo\n"
    assert any_shell.sh("stat -c %a bin/go.sh; cat bin/go.sh; ls -A") == b"750\necho 1\nbin\ndocs\nshop\n"


FAILING: dict[str, tuple[str, str]] = {
    "hunk that does not fit": ("*** Update File: b\n@@\n-nowhere\n+x", "no line is 'nowhere'"),
    "file that is not there": ("*** Update File: missing\n@@\n-a\n+b", "there is no file missing"),
    "added file that exists": ("*** Add File: b\n+x", "there is a file already"),
    "moved onto a file": ("*** Move File: c -> b", "there is a file already"),
    "deleted twice": ("*** Delete File: b\n*** Delete File: b", "took it away before"),
    "binary file": ("*** Update File: bin\n@@\n-a\n+b", "bin is a binary file"),
    "folder": ("*** Delete File: folder", "folder is a directory"),
    "under a file": ("*** Add File: b/x\n+x", "is no directory"),
    "wrong line": ("*** Frobnicate File: b", "unknown; known are"),
    "unclear place": ("*** Update File: d\n@@\n-x\n+y", "fits in 2 places in d (lines 1, 3)"),
    "nothing to change": ("*** Update File: b\n@@\n b", "the hunk changes nothing"),
    "no hunk": ("*** Update File: b", "no hunk follows"),
    "text after delete": ("*** Delete File: b\n-b", "nothing follows *** Delete File"),
    "move without target": ("*** Move File: b", "a move is written"),
    "line of an added file": ("*** Add File: n\nx", "every line of an added file begins with +"),
}


@pytest.mark.parametrize("case", FAILING)
def test_patch_with_one_part_that_fails_changes_nothing(place: Place, case: str) -> None:
    place.sh(
        "printf 'a\\n' >a; printf 'b\\n' >b; printf c >c; printf 'x\\n\\nx\\n' >d; mkdir folder; printf 'x\\0' >bin"
    )
    before = place.sh("ls -lAR --time-style=full-iso | grep -v total; cat a b c d")
    part, said = FAILING[case]
    first = "*** Begin Patch\n*** Update File: a\n@@\n-a\n+changed\n*** Add File: sub/new\n+x\n*** Delete File: c\n"
    first = first.replace("*** Delete File: c\n", "") if "Move File: c" in part else first
    assert said in place.error("patch", mode="patch", patch=f"{first}{part}\n*** End Patch")
    assert place.sh("ls -lAR --time-style=full-iso | grep -v total; cat a b c d") == before


def test_write_that_fails_after_all_is_undone(place: Place) -> None:
    place.sh("printf 'a\\n' >a; printf 'c\\n' >c; chmod 640 c; mkdir -p full; printf 'z\\n' >z")
    # what can be proven is: a name that is free, in a folder that can be written; its length is not
    long_name = "full/" + "ä" * 127 + "xx"
    before = place.sh("ls -lA --time-style=+ | grep -v total; cat a c z")
    patch = (
        "*** Update File: a\n@@\n-a\n+b\n*** Delete File: c\n*** Move File: z -> made/deep/z\n"
        f"*** Add File: made/deep/n\n+x\n*** Update File: made/deep/z\n@@\n-z\n+y\n*** Move File: made/deep/n -> {long_name}"
    )
    assert "name of more than 255 bytes" in place.error("patch", mode="patch", patch=patch)
    assert place.sh("ls -lA --time-style=+ | grep -v total; cat a c z") == before


def test_full_disk_in_the_middle_undoes_what_was_done(place: Place) -> None:
    place.sh("printf 'a\\n' >a; chmod 640 a; printf 'c\\n' >c")
    before = place.sh("ls -lAR --time-style=+ | grep -v total; cat a c")
    patch = "*** Update File: a\n@@\n-a\n+b\n*** Delete File: c\n*** Add File: x/y/z\n+1\n*** Add File: last\n+full"
    place.use(FullDisk(place.box, "last"))
    error = place.error("patch", patch=patch)
    assert "No space left" in error
    assert error.endswith("everything is as it was before the patch")
    assert place.sh("ls -lAR --time-style=+ | grep -v total; cat a c") == before


@pytest.mark.parametrize(
    ("before", "hunks", "after"),
    [
        ("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
        ("a\nb\nc\n", "-b\n+B", "a\nB\nc\n"),
        ("a\nb\nc", "@@\n-c\n+C", "a\nb\nC"),
        ("a\n", "@@\n a\n+b", "a\nb\n"),
        ("a\nb\n", "@@ a @@\n+x", "a\nx\nb\n"),
        ("a\nb\n", "@@\n+x", "a\nb\nx\n"),
        ("", "@@\n+x", "x\n"),
        ("a\nb\na\nb\n", "@@\n a\n-b\n+c\n*** End of File", "a\nb\na\nc\n"),
        ("x\n1\nx\n1\n", "@@\n-x\n-1\n+y\n@@\n-x\n+z", None),
        ("x\n1\nq\nx\n2\n", "@@\n 1\n-q\n+r\n@@\n-x\n+z", "x\n1\nr\nz\n2\n"),
        ("    a = 1\n    b = 2\n", "@@\n a = 1\n-b = 2\n+b = 3\n+c = 4", "    a = 1\n    b = 3\n    c = 4\n"),
        ("a = 1  \nb\n", "@@\n a = 1\n-b\n+c", "a = 1  \nc\n"),
        ("a\r\nb\r\nc\r\n", "@@\n a\n-b\n+x\n+y\n c", "a\r\nx\r\ny\r\nc\r\n"),
        ("\ufeffa\nb\n", "@@\n-a\n+x", "\ufeffx\nb\n"),
        ("say(“hi”)\nend\n", '@@\n-say("hi")\n+say("ho")\n end', 'say("ho")\nend\n'),
        (
            SHOP,
            "@@ class Order:\n@@ def total(self):\n-        items = self.items\n+        items = 1",
            SHOP[::1],
        ),
        ("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file", "a\nc\n"),
        ("a\n\nb\n", "@@\n a\n\n-b\n+c", "a\n\nc\n"),
        ("def f():\n  x\n", "@@ -1,2 +1,2 @@ def f():\n-  x\n+  y", "def f():\n  y\n"),
        ("ab = 1\nb = 1\n", "@@\n-b = 1\n+b = 2", "ab = 1\nb = 2\n"),
        ("a\nb\nc\n", "@@\n-a\n-b\n-c", ""),
    ],
)
def test_where_hunks_fit_and_what_stays(before: str, hunks: str, after: str | None) -> None:
    if before is SHOP:
        after = SHOP.replace(
            "class Order:\n    def total(self):\n        items = self.items",
            "class Order:\n    def total(self):\n        items = 1",
        )
    if after is None:
        with pytest.raises(ToolError, match="fits in 2 places"):
            applied(before, hunks)
    else:
        assert applied(before, hunks) == after


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "*** Begin Patch\n{}\n*** End Patch\n",
        "```\n*** Begin Patch\n{}\n*** End Patch\n```",
        "Here it is:\n*** Begin Patch\n{}\n*** End Patch\ndone",
        "*** begin patch\r\n{}\r\n*** end patch\r\n",
    ],
)
def test_wrapping_of_a_patch_is_forgiven(wrap: str) -> None:
    changes = parse(wrap.format("*** Add File: a b.txt\n+x"))
    assert [(change.act, change.path, change.content) for change in changes] == [("add", "a b.txt", "x\n")]


def test_update_that_moves_keeps_its_mode(place: Place) -> None:
    place.sh("printf 'a\\nb\\n' >f; chmod 700 f")
    result: dict[str, Any] = place.call(
        "patch", patch="*** Update File: f\n*** Move to: g/f2\n@@\n a\n-b\n+c"
    )
    assert (result["files_created"], result["files_deleted"]) == (["g/f2"], ["f"])
    assert place.sh("stat -c %a g/f2; cat g/f2; ls") == b"700\na\nc\ng\n"


def test_same_file_may_be_changed_several_times(place: Place) -> None:
    place.put("f", b"1\n2\n3\n")
    result = place.call(
        "patch",
        patch="*** Update File: f\n@@\n-1\n+a\n*** Update File: ./f\n@@\n-3\n+c\n*** Delete File: f\n*** Add File: f\n+new",
    )
    assert (result["files_modified"], result["files_created"], result["files_deleted"]) == (["f"], [], [])
    assert place.get("f") == b"new\n"
    assert place.sh("ls -A") == b"f\n"


@pytest.mark.parametrize("other", ["./f.txt", "sub/../f.txt", "$PWD/f.txt", "link.txt", "folder/f.txt"])
def test_one_file_under_two_names_keeps_both_changes(any_shell: Place, other: str) -> None:
    any_shell.put("f.txt", b"a\nb\nc\n")
    any_shell.sh("ln -s f.txt link.txt; ln -s . folder")
    other = other.replace("$PWD", any_shell.sh("pwd").decode().strip())
    result = any_shell.call(
        "patch",
        patch=f"*** Update File: f.txt\n@@\n-a\n+A\n*** Update File: {other}\n@@\n-c\n+C\n*** Add File: x\n+x",
    )
    assert result["success"] is True
    assert any_shell.get("f.txt") == b"A\nb\nC\n"
    assert len(result["files_modified"]) == 1
    assert any_shell.sh("readlink link.txt; readlink folder") == b"f.txt\n.\n"


def test_a_file_that_is_moved_and_then_changed_keeps_the_name_it_was_given(any_shell: Place) -> None:
    any_shell.put("f.txt", b"a\n")
    patch = "*** Move File: f.txt -> d/f.txt\n*** Update File: d/f.txt\n@@\n-a\n+A\n*** Add File: f.txt\n+new"
    result = any_shell.call("patch", patch=patch)
    assert (result["files_created"], result["files_modified"]) == (["d/f.txt"], ["f.txt"])
    assert any_shell.sh("cat d/f.txt f.txt") == b"A\nnew\n"


@pytest.mark.parametrize("patch", ["*** Add File: d\n+x", "*** Move File: f.txt -> d"])
def test_a_folder_in_the_way_is_told_as_one(any_shell: Place, patch: str) -> None:
    any_shell.put("f.txt", b"a\n")
    any_shell.sh("mkdir d")
    assert "d is a directory" in any_shell.error("patch", patch=patch)


def test_a_link_and_its_target_are_two_files_for_what_takes_names_away(any_shell: Place) -> None:
    any_shell.put("f.txt", b"a\n")
    any_shell.sh("ln -s f.txt link.txt")
    patch = "*** Update File: link.txt\n@@\n-a\n+A\n*** Delete File: link.txt\n*** Move File: f.txt -> g.txt"
    assert any_shell.call("patch", patch=patch)["success"] is True
    assert any_shell.sh("ls -A; cat g.txt") == b"g.txt\nA\n"


def test_one_new_file_under_two_names_is_refused(any_shell: Place) -> None:
    here = any_shell.sh("pwd").decode().strip()
    patch = f"*** Add File: new/a.txt\n+one\n*** Add File: {here}/new/a.txt\n+two"
    assert "there is a file already" in any_shell.error("patch", patch=patch)
    assert any_shell.sh("ls -A") == b""
