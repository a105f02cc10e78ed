"""Where a model's indentation is not the file's, new lines stand where they belong."""

from __future__ import annotations

import pytest

from hermes_run.tools.hunks import apply_hunks
from hermes_run.tools.indentation import mover
from hermes_run.tools.patch import Edit
from hermes_run.tools.v4a import parse

FILE = """\
class A:
    def f(self):
        x = 1
        if x:
            return x
        return 0
"""
PATCH = """\
*** Update File: a.py
@@ class A @@
     def f(self):
         x = 1
         if x:
-            return x
+            for y in x:
+                print(y)
+
+            return 2
+        x = 3
         return 0
"""
OLD = "        if x:\n            return x\n"
NEW = """\
        if x:
            for y in x:
                print(y)

            return 2
        x = 3
"""
AFTER = FILE.replace(OLD, NEW)
UNITS = {"tabs": "\t", "two": "  ", "eight": " " * 8, "three": "   "}


def in_units(text: str, unit: str) -> str:
    return text.replace("    ", unit)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("said", ["    ", *UNITS.values()])
def test_new_lines_stand_in_the_units_of_the_file(unit: str, said: str) -> None:
    before, after = in_units(FILE, UNITS[unit]), in_units(AFTER, UNITS[unit])
    lines = PATCH.splitlines(keepends=True)
    patch = "".join(line[0] + in_units(line[1:], said) for line in lines)
    assert apply_hunks(before, parse(patch)[0].hunks, "a.py") == after
    old, new = in_units(OLD, said), in_units(NEW, said)
    assert Edit(before, "a.py").replaced(old, new, in_all_places=False) == after


@pytest.mark.parametrize(
    ("was", "stands", "lines", "after"),
    [
        (["    "], ["\t"], ["    a", "        b", "c", ""], ["\ta", "\t\tb", "c", ""]),
        (["    ", "        "], ["\t\t", "\t\t\t"], ["            a"], ["\t\t\t\ta"]),
        (["", "    "], ["  ", "      "], ["a", "    b"], ["  a", "      b"]),
        (["    ", "      "], ["", "  "], ["    a", "  b"], ["a", "  b"]),
        (["", "    "], ["", "  "], ["    a", "      aligned"], ["  a", "    aligned"]),
        (["", "    ", "    "], ["", "  ", "   "], ["    a"], ["    a"]),  # it is not clear how
        ([], [], ["  a"], ["  a"]),
    ],
)
def test_a_line_is_moved_as_the_others_are(
    was: list[str], stands: list[str], lines: list[str], after: list[str]
) -> None:
    assert list(map(mover(was, stands), lines)) == after
