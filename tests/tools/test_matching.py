"""The nine strategies: each has what only it finds, and none finds what is not meant."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.tools import matching
from hermes_run.tools.matching import STRATEGIES, find

TEXT = """\
class Shop:
    def price(self, item):
        # the price of one item, taxes included
        base = self.prices[item]
        rate  =  self.rates.get(item, 0)
        return base * (1 + rate)

    def label(self, item):
        name = "“" + item + "”"
        return name + " — " + str(self.price(item))


def main():
    shop = Shop()
    print(shop.label("tea"),
          shop.price("tea"))
"""

ONLY = {
    "exact": ("base = self.prices[item]", "base = self.prices[item]"),
    "line-trimmed": (
        "base = self.prices[item]  \nrate  =  self.rates.get(item, 0)\t",
        "        base = self.prices[item]\n        rate  =  self.rates.get(item, 0)",
    ),
    "whitespace-normalised": ("rate = self.rates.get(item, 0)", "rate  =  self.rates.get(item, 0)"),
    "indentation-flexible": (
        'shop.label("tea"),\nshop.price("tea")',
        'shop.label("tea"),\n          shop.price("tea")',
    ),
    "escape-normalised": (
        'shop.label(\\"tea\\"),\\n          shop.price(\\"tea\\"))',
        'shop.label("tea"),\n          shop.price("tea"))',
    ),
    "trimmed-boundary": ("\n\n  self.prices[item]  \n", "self.prices[item]"),
    "unicode-normalised": (
        'name = """ + item + """\n        return name + " - " + str',
        'name = "“" + item + "”"\n        return name + " — " + str',
    ),
    "block-anchor": (
        TEXT[TEXT.index("    def price") : TEXT.index("\n\n    def label")].replace("taxes", "VAT"),
        TEXT[TEXT.index("    def price") : TEXT.index("\n\n    def label")],
    ),
    "context-aware": (
        "def main() -> None:\n    shop = Shop()\n    print(shop.label('tea'),",
        'def main():\n    shop = Shop()\n    print(shop.label("tea"),',
    ),
}


def matched(text: str, old: str) -> list[str]:
    found = find(text, old, "")
    return [text[place.start : place.end] for place in found.places] if found else []


def test_order_is_that_of_the_reference() -> None:
    assert tuple(ONLY) == STRATEGIES


@pytest.mark.parametrize("strategy", ONLY)
def test_each_strategy_has_what_only_it_finds(strategy: str) -> None:
    old, stands = ONLY[strategy]
    found = find(TEXT, old, "")
    assert found is not None
    assert found.strategy == strategy
    assert matched(TEXT, old) == [stands]
    others = {name for name, locate, _ in matching._STRATEGIES if locate(TEXT, old)} - {strategy}
    if strategy != "exact":  # what stands there exactly is alike in every way
        assert others <= {"context-aware"}  # which finds most of what others do, and so is the last


@pytest.mark.parametrize(
    "old",
    [
        "no such text",
        "base = self.prices[items]",
        "base=self.prices[item]",  # white space cannot be left out
        "   \n\t\n ",
        "\nax\n",  # only inside of words
        "return bas\n",
        "\\n",
        "def price(self, item):\n    pass\n    pass\n    return base * (1 + rate)",  # only the anchors
        "def main():\n    a = 1\n    b = 2\n    c = 3",  # one line of four
        "import os\nimport sys",
        "class Shop:\n    x\n    y\n    z\n    def label(self, item):",
    ],
)
def test_what_is_not_there_is_not_found(old: str) -> None:
    assert find(TEXT, old, "") is None


def test_places_come_in_order_and_never_overlap() -> None:
    assert matched("aaaa", "aa") == ["aa", "aa"]
    assert len(matched("x = 1\n  x = 1\n", "x  =  1")) == 2
    assert len(matched("  a\n  a\n  a\n", "a \na ")) == 1


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("a = 1\nb = 2", "a = 3\nb = 4", "if x:\n    a = 3\n    b = 4\n"),  # moved in
        ("a = 1\nb = 2", "if y:\n    a = 3", "if x:\n    if y:\n        a = 3\n"),
        ("        a = 1\n        b = 2", "        a = 3\n\n        b = 4", "if x:\n    a = 3\n\n    b = 4\n"),
        ("a = 1\nb = 2", "    a = 3\n    b = 4", "if x:\n    a = 3\n    b = 4\n"),  # right already
        ("  a = 1\n\tb = 2", "  a = 3\n\tb = 4", "if x:\n  a = 3\n\tb = 4\n"),  # no one way
        ("\ta = 1\n\tb = 2\n", "\ta = 3\n", "if x:\n    a = 3\n"),  # in the file's units
    ],
)
def test_new_lines_are_indented_like_those_they_replace(old: str, new: str, after: str) -> None:
    text = "if x:\n    a = 1\n    b = 2\n"
    assert replaced(text, old, new) == after


def replaced(text: str, old: str, new: str) -> str:
    found = find(text, old, new)
    assert found is not None
    for place, put in reversed(list(zip(found.places, found.replacements, strict=True))):
        text = text[: place.start] + put + text[place.end :]
    return text


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ('say("hi")\n', 'say(\\"hi\\")', 'say(\\"ho\\")', 'say("ho")\n'),
        ("a\n\tb\n", "a\\n\\tb", "c\\nd", "c\nd\n"),
        ("a\n\tb\n", "a\\n\\tb", 'c\nprint("\\n")', 'c\nprint("\\n")\n'),  # real line breaks: as written
        ("f(x);g(y)", "\nf(x);\n", "\nh(x);\n", "h(x);g(y)"),
        ("f(x);g(y)", "  f(x);", "h(x);", "h(x);g(y)"),
        ("end", "\nend\n", "END", "END"),
        ("  last", "last\n", "end\n", "  end"),  # no line end is added at the end of the file
        ("“quoted” text", '"quoted" text', "plain text", "plain text"),
        ("cafe\u0301 au lait", "caf\u00e9 au", "the\u0301 au", "the\u0301 au lait"),
        ("wait\u2026 now", "wait... now", "go", "go"),
        ("a\u00a0b\u200bc", "a bc", "d", "d"),
    ],
)
def test_new_text_drifts_with_the_old_one(text: str, old: str, new: str, after: str) -> None:
    assert replaced(text, old, new) == after


def test_place_inside_of_one_character_is_no_place() -> None:
    assert find("wait\u2026", "wait..", "x") is None


def test_most_alike_of_overlapping_blocks_is_taken() -> None:
    text = "a = 1\nb = 2\nb = 2\nc = 3\n"
    assert matched(text, "b = 2\nc = 33\n") == ["b = 2\nc = 3\n"]


def test_two_blocks_alike_are_two_places() -> None:
    block = "start()\n    one({})\nend()\n"
    assert len(matched(block.format(1) + block.format(2), "start()\n    one(3)\nend()\n")) == 2


@pytest.mark.slow
def test_large_files_are_searched_in_time() -> None:
    begin = time.process_time()
    text = "".join(f"    value_{i} = compute({i}, {i * 7})\n    }}\n" for i in range(60_000))
    assert find(text, "    nothing of the kind\n    }\n    value = x\n    }\n    again\n", "") is None
    assert find(" " * 300_000 + "x", "   y  =  z", "") is None
    assert find("\n" * 300_000, "\n\n\n\nfoo\n\n\n", "") is None
    assert find("é" * 300_000, "e\u0301x", "") is None
    long_line = "abcdefghij" * 30_000
    assert find(f"start\n{long_line}x\nend\n", f"start\n{long_line}y\nend\n", "") is not None
    assert time.process_time() - begin < 60  # seconds of CPU; a quadratic search takes hours


@given(st.text("ab \n\t\\“é.", max_size=40), st.text("ab \n\t\\“é.", min_size=1, max_size=12))
def test_places_are_always_within_the_text_in_order(text: str, old: str) -> None:
    found = find(text, old, "new")
    assert (found is not None) >= (old in text)
    end = 0
    for place in found.places if found else ():
        assert end <= place.start <= place.end <= len(text)
        end = place.end
    if found and old in text:
        assert found.strategy == "exact"
