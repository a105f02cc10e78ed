"""search_files in real sandboxes: with ripgrep, with GNU grep, with busybox; the answers are equal."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_run.errors import ToolError
from hermes_run.tools.globs import read_glob
from hermes_run.tools.patterns import read_regex

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.tools.place import Place

_RIPGREP = shutil.which("rg") or shutil.which("rg", path=str(Path(sys.executable).parent))
_BUSYBOX = shutil.which("busybox")
_KINDS = [
    pytest.param("ripgrep", marks=pytest.mark.skipif(_RIPGREP is None, reason="there is no ripgrep here")),
    "bash",
    pytest.param(
        "busybox",
        marks=[pytest.mark.skipif(_BUSYBOX is None, reason="there is no busybox here"), pytest.mark.slow],
    ),
]

TREE = {
    "readme.md": b"# Tea shop\n\nPrices of tea.\n",
    "src/shop.py": b"import tea\n\ndef price(tea):\n    return tea.price * 2  # twice\n\n\n"
    b"def name():\n    pass\n",
    "src/deep/er/tea.py": b"class Tea:\r\n    price = 3\r\n",
    "src-old/shop.py": b"price = 1\n",
    "src.txt": b"price\n",
    ".hidden/notes.txt": b"the price is secret\n",
    "odd/new\nline.txt": b"price in an odd place\n",
    "odd/colon:12:x.txt": b"one\nprice\n",
    "odd/ -lead": b"price\n",
    "odd/caf\udce9.txt": b"price\n",
    "odd/\xe4\xf6.txt": "preis: 5 €\n".encode(),
    "odd/latin.txt": b"caf\xe9 price\n",
    "bin/early.bin": b"price\0price\n",
    "bin/late.bin": b"price\n" * 3_000 + b"\0",
    "node_modules/x/index.js": b"price\n",
    ".git/config": b"price\n",
    "empty.txt": b"",
    "no_end.txt": b"price",
    "long.txt": b"x" * 3_000 + b"price" + b"y" * 3_000 + b"\nprice\n",
}


def engine(kind: str, shared: Callable[[str], Place]) -> Place:
    place = shared("bash" if kind == "ripgrep" else kind)
    path = "/tmp/with_rg:/usr/bin:/bin" if kind == "ripgrep" else "/usr/bin:/bin"
    if kind == "ripgrep" and b"yes" not in place.sh("[ -x /tmp/with_rg/rg ] && echo yes; :"):
        assert _RIPGREP is not None
        binary = Path(_RIPGREP).read_bytes()
        place.sh("mkdir /tmp/with_rg && cat >/tmp/with_rg/rg && chmod +x /tmp/with_rg/rg", binary)
    place.sh(f"export PATH={path}", keep=True)
    return place


def plant(place: Place) -> Place:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", encoding="utf-8", errors="surrogateescape") as tar:
        for name, content in TREE.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    place.sh("tar xf -", data.getvalue())
    return place


@pytest.fixture(params=_KINDS)
def tree(request: pytest.FixtureRequest, shared: Callable[[str], Place], planted: dict[str, str]) -> Place:
    """The tree by each engine. It is the same for all tests, which leave it as it is."""
    place = engine(request.param, shared)
    if request.param in planted:
        place.cwd = planted[request.param]
        place.sh(f"cd {place.cwd}", keep=True)
    else:
        planted[request.param] = plant(place).cwd
    return place


@pytest.fixture(scope="session")
def planted() -> dict[str, str]:
    """Where the tree of an engine is."""
    return {}


@pytest.fixture(params=_KINDS)
def own_tree(request: pytest.FixtureRequest, shared: Callable[[str], Place]) -> Place:
    """A tree for this test alone."""
    return plant(engine(request.param, shared))


def lines(result: dict[str, Any]) -> list[tuple[str, int]]:
    return [(match["path"], match["line"]) for match in result["matches"]]


def test_content_is_found_in_text_files_in_order(tree: Place) -> None:
    result = tree.call("search_files", pattern="price")
    assert lines(result) == [
        (".hidden/notes.txt", 1),
        ("long.txt", 1),
        ("long.txt", 2),
        ("no_end.txt", 1),
        ("odd/ -lead", 1),
        ("odd/caf\U0010dce9.txt", 1),
        ("odd/colon:12:x.txt", 2),
        ("odd/latin.txt", 1),
        ("odd/new\nline.txt", 1),
        ("src/deep/er/tea.py", 2),
        ("src/shop.py", 3),
        ("src/shop.py", 4),
        ("src-old/shop.py", 1),
        ("src.txt", 1),
    ]
    assert result["total_count"] == 14
    assert result["truncated"] is False
    assert result["next_offset"] is None
    contents = {match["path"]: match["content"] for match in result["matches"]}
    assert contents["src/deep/er/tea.py"] == "    price = 3"
    assert contents["odd/latin.txt"] == "caf\U0010dce9 price"
    long_line = result["matches"][1]["content"]
    assert len(long_line) == 500
    assert long_line.endswith(" … [line cut]")


def test_files_and_counts_are_those_of_the_lines(tree: Place) -> None:
    found = tree.call("search_files", pattern="price", limit=100)
    counts: dict[str, int] = {}
    for path, _ in lines(found):
        counts[path] = counts.get(path, 0) + 1
    files = tree.call("search_files", pattern="price", output_mode="files_only")
    assert files == {"files": list(counts), "total_count": 12, "truncated": False, "next_offset": None}
    counted = tree.call("search_files", pattern="price", output_mode="count")
    assert counted["counts"] == counts
    assert list(counted["counts"]) == list(counts)


def test_context_is_given_with_line_numbers(tree: Place) -> None:
    result = tree.call("search_files", pattern="^def|twice", path="src/shop.py", context=2)
    assert result["matches"] == [
        {
            "path": "src/shop.py",
            "line": 3,
            "content": "def price(tea):",
            "before": ["1|import tea", "2|"],
            "after": ["4|    return tea.price * 2  # twice", "5|"],
        },
        {
            "path": "src/shop.py",
            "line": 4,
            "content": "    return tea.price * 2  # twice",
            "before": ["2|", "3|def price(tea):"],
            "after": ["5|", "6|"],
        },
        {
            "path": "src/shop.py",
            "line": 7,
            "content": "def name():",
            "before": ["5|", "6|"],
            "after": ["8|    pass"],
        },
    ]


def test_pages_follow_each_other(tree: Place) -> None:
    everything = lines(tree.call("search_files", pattern="price"))
    seen: list[tuple[str, int]] = []
    offset = 0
    while True:
        page = tree.call("search_files", pattern="price", limit="4", offset=offset)
        seen += lines(page)
        assert page["total_count"] == 14
        assert page["truncated"] is (page["next_offset"] is not None)
        if page["next_offset"] is None:
            break
        offset = page["next_offset"]
    assert seen == everything
    assert tree.call("search_files", pattern="price", offset=99)["matches"] == []
    page = tree.call("search_files", pattern="price", output_mode="count", limit=1, offset=1)
    assert page["counts"] == {"long.txt": 2}
    assert page["next_offset"] == 2


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("src", ["src/deep/er/tea.py", "src/shop.py"]),
        ("src/", ["src/deep/er/tea.py", "src/shop.py"]),
        ("./src", ["src/deep/er/tea.py", "src/shop.py"]),
        ("src/shop.py", ["src/shop.py"]),
        ("no_end.txt", ["no_end.txt"]),
        ("odd/ -lead", ["odd/ -lead"]),
        ("odd/new\nline.txt", ["odd/new\nline.txt"]),
        ("odd/colon:12:x.txt", ["odd/colon:12:x.txt"]),
        ("bin", []),
        ("bin/early.bin", []),
        ("node_modules", ["node_modules/x/index.js"]),
        (".git", [".git/config"]),
        ("empty.txt", []),
    ],
)
def test_path_is_a_folder_or_a_file(tree: Place, path: str, found: list[str]) -> None:
    result = tree.call("search_files", pattern="price", path=path, output_mode="files_only")
    assert result["files"] == found
    assert [match["path"] for match in tree.call("search_files", pattern="price", path=path)["matches"]] == [
        name for name in found for _ in range(2 if name == "src/shop.py" else 1)
    ]


def test_absolute_path_and_links_are_followed_where_given(own_tree: Place) -> None:
    result = own_tree.call("search_files", pattern="price", path=f"{own_tree.cwd}/src-old")
    assert lines(result) == [(f"{own_tree.cwd}/src-old/shop.py", 1)]
    own_tree.sh("ln -s src-old link; ln -s src-old/shop.py file_link; ln -s nowhere broken")
    assert lines(own_tree.call("search_files", pattern="price", path="link")) == [("link/shop.py", 1)]
    assert lines(own_tree.call("search_files", pattern="price", path="file_link")) == [("file_link", 1)]
    assert "broken symbolic link" in own_tree.error("search_files", pattern="x", path="broken")
    assert own_tree.call("search_files", pattern="price")["total_count"] == 14


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["src/deep/er/tea.py", "src/shop.py", "src-old/shop.py"]),
        ("**/*.py", ["src/deep/er/tea.py", "src/shop.py", "src-old/shop.py"]),
        ("src/*.py", ["src/shop.py"]),
        ("src/**/*.py", ["src/deep/er/tea.py", "src/shop.py"]),
        ("src/**", ["src/deep/er/tea.py", "src/shop.py"]),
        ("*.{md,txt}", [".hidden/notes.txt", "long.txt", "no_end.txt"]),
        ("[st]*.py", ["src/deep/er/tea.py", "src/shop.py", "src-old/shop.py"]),
        ("[!s]*.py", ["src/deep/er/tea.py"]),
        ("?ea.py", ["src/deep/er/tea.py"]),
        ("caf?.txt", ["odd/caf\U0010dce9.txt"]),
        ("shop", []),
        ("!shop.py", []),
        ("-*", []),
        (" -*", ["odd/ -lead"]),
    ],
)
def test_glob_chooses_the_files(tree: Place, glob: str, found: list[str]) -> None:
    result = tree.call("search_files", pattern="price", file_glob=glob, output_mode="files_only")
    assert result["files"][: len(found)] == found
    if "txt" not in glob:
        assert result["files"] == found


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["src/deep/er/tea.py", "src/shop.py", "src-old/shop.py"]),
        ("*.bin", ["bin/early.bin", "bin/late.bin"]),
        ("src/*", ["src/shop.py"]),
        ("new*", ["odd/new\nline.txt"]),
        ("*.TXT", []),
        ("\udce4*", []),
        ("ä*", ["odd/äö.txt"]),
        ("e*y.txt", ["empty.txt"]),
        ("**/er/**", ["src/deep/er/tea.py"]),
    ],
)
def test_files_are_found_by_name(tree: Place, glob: str, found: list[str]) -> None:
    result = tree.call("search_files", pattern=glob, target="files")
    assert result == {"files": found, "total_count": len(found), "truncated": False, "next_offset": None}


REGEXES = [
    r"price$",
    r"^price",
    r"\bprice\b",
    r"\bpri",
    r"pr[a-i]ce",
    r"[^ ]price",
    r"(?i)PRICE IN",
    r"p.*?e$",
    r"tea|Tea",
    r"(?:te)+a",
    r"\d+",
    r"\w+\(\w+\)",
    r"\s{4}return",
    r"\Stea",
    r"tea\.price \* 2",
    r"price\(",
    r"[]:]",
    r"[\]\-:]",
    r"[\w.]+\.price",
    r"x{3,}price",
    r"price {0,1}=",
    r"{",
    r"€",
    r"[€$]",
    r"5.€",
    r"\x70rice",
    r"\ttab|#",
    r"\<tea\>",
    r"'|\"",
    r"\#|\-|\/|\ tea",
    r"[\"\/\.\#]",
    r"-e",
    r"--help",
    r"\\",
    r"(?P<name>pri)(ce)",
    r"^$",
    r"^\s*$",
    r"é|\.",
]


@pytest.mark.slow
def test_engines_say_the_same(shared: Callable[[str], Place]) -> None:
    """Every pattern, every mode, every engine that is here."""
    answers: dict[str, dict[str, str]] = {}
    for kind, is_here in (("ripgrep", _RIPGREP), ("bash", "bash"), ("sh", "sh"), ("busybox", _BUSYBOX)):
        if not is_here:
            continue
        place = plant(engine(kind, shared))
        answers[kind] = {
            regex: place.answer(
                "search_files", json.dumps({"pattern": regex, "limit": 200, "context": i % 3})
            ).text
            for i, regex in enumerate(REGEXES)
        }
    first = answers.pop("bash")
    assert len(answers) >= 1
    assert sum('"total_count": 0' not in text for text in first.values()) > len(first) * 0.75
    for kind, texts in answers.items():
        for question, text in texts.items():
            assert json.loads(text) == json.loads(first[question]), (kind, question)


@pytest.mark.parametrize(
    ("regex", "said"),
    [
        ("(", "a ( is not closed"),
        ("a)", "a ) closes nothing"),
        ("[a", "a [ is not closed"),
        ("[]", "a [ is not closed"),
        ("*a", "* repeats nothing"),
        ("a|+", "+ repeats nothing"),
        ("a{3,1}", "counts backwards"),
        ("a{9999}", "counts too far"),
        ("\\", "a backslash at the end"),
        ("(?=a)", "looking ahead or behind is not supported"),
        ("(?<!a)b", "looking ahead or behind is not supported"),
        (r"(a)\1", "references to groups are not supported"),
        (r"a\nb", "\\n is in no line"),
        ("a\nb", "holds a newline"),
        ("a\0b", "holds a newline or NUL"),
        ("", "pattern is empty"),
    ],
)
def test_wrong_pattern_is_an_error_that_says_where(tree: Place, regex: str, said: str) -> None:
    error = tree.error("search_files", pattern=regex)
    assert said in error


def test_range_that_goes_backwards_is_an_error(tree: Place) -> None:
    assert "the range z-a goes backwards" in tree.error("search_files", pattern="[z-a]")


def test_what_only_ripgrep_understands_is_said(shared: Callable[[str], Place]) -> None:
    if Path("/usr/bin/rg").exists():
        pytest.skip("every sandbox finds this system's ripgrep")
    place = plant(engine("bash", shared))
    assert r"\p in a pattern needs ripgrep" in place.error("search_files", pattern=r"\p{Lu}rice")
    if _RIPGREP is None:
        pytest.skip("there is no ripgrep here")
    place = plant(engine("ripgrep", shared))
    assert lines(place.call("search_files", pattern=r"\p{Lu}ea:")) == [("src/deep/er/tea.py", 1)]
    assert "regex" in place.error("search_files", pattern=r"\p{Nonsense}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": "x", "path": "nowhere"}, "there is no file nowhere"),
        ({"pattern": "x", "path": "read.md"}, "Similar names there: readme.md"),
        ({"pattern": "x", "path": "/dev/null"}, "no regular file"),
        ({"pattern": "x", "limit": 0}, 'parameter "limit" must be at least 1'),
        ({"pattern": "x", "offset": -1}, 'parameter "offset" must be at least 0'),
        ({"pattern": "x", "context": "many"}, 'parameter "context" must be a whole number'),
        ({"pattern": "x", "target": "dirs"}, 'parameter "target" must be one of "content", "files"'),
        ({"pattern": "x", "output_mode": "json"}, 'parameter "output_mode" must be one of'),
        ({"pattern": "", "target": "files"}, "the glob is empty"),
        ({"pattern": "{a,b}" * 12, "target": "files"}, "stands for more than 100 patterns"),
        ({}, 'missing parameter "pattern"'),
    ],
)
def test_bad_arguments_are_named(tree: Place, arguments: dict[str, Any], said: str) -> None:
    assert said in tree.error("search_files", **arguments)


def test_more_than_can_be_fetched_is_the_same_every_time(own_tree: Place) -> None:
    own_tree.sh(
        "mkdir many; i=0; while [ $i -lt 300 ]; do i=$((i+1));"
        " printf 'needle %08000d\\nneedle b\\n' $i >many/$i.txt; done"
    )
    first = own_tree.call("search_files", pattern="needle", path="many", limit=1000)
    again = own_tree.call("search_files", pattern="needle", path="many", limit=1000)
    assert first == again
    assert first["truncated"] is True
    assert lines(first)[:4] == [("many/1.txt", 1), ("many/1.txt", 2), ("many/10.txt", 1), ("many/10.txt", 2)]
    assert first["total_count"] == 600
    assert first["next_offset"] == len(first["matches"])
    assert len(json.dumps(first)) < 150_000


def test_too_many_names_are_the_same_every_time(place: Place) -> None:
    place.sh(
        "mkdir many; cd many; n=$(printf '%0200d' 0); i=0;"
        " while [ $i -lt 6000 ]; do i=$((i+1)); : >$i.$n; done"
    )
    first = place.call("search_files", pattern="*", target="files", limit=1000)
    assert first == place.call("search_files", pattern="*", target="files", limit=1000)
    assert first["files"][:2] == ["many/1." + "0" * 200, "many/10." + "0" * 200]
    assert first["total_count"] > 4_000
    assert first["truncated"] is True


def test_lines_of_megabytes_and_late_binary_data_are_bounded(own_tree: Place) -> None:
    own_tree.sh(
        "mkdir big; head -c 3000000 /dev/zero | tr '\\0' x >big/line; printf 'price\nprice\n' >>big/line"
    )
    own_tree.sh(
        "i=0; while [ $i -lt 14 ]; do cat big/line; i=$((i+1)); done >big/late;"
        " head -c 9 /dev/zero >>big/late"
    )
    result = own_tree.call("search_files", pattern="price", path="big", file_glob="line", context=1)
    assert lines(result) == [("big/line", 1), ("big/line", 2)]
    assert len(json.dumps(result)) < 3_000
    assert set(own_tree.call("search_files", pattern="price", output_mode="count", path="big")["counts"]) <= {
        "big/line",
        "big/late",
    }


def test_folder_without_permission_is_left_out(shared: Callable[[str], Place]) -> None:
    place = plant(engine("bash", shared))
    place.sh("mkdir closed; printf price >closed/f; chmod 0 closed; printf price >locked; chmod 0 locked")
    assert place.call("search_files", pattern="price")["total_count"] == 14
    assert place.error("search_files", pattern="price", path="closed") == "permission denied: closed"
    place.sh("chmod 755 closed")


@pytest.mark.parametrize("pattern", ["(?", "(?i", "a(?", "(?i)(?", "(?P<", "(?<a", "(?-"])
def test_a_group_that_breaks_off_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError, match="invalid regular expression"):
        read_regex(pattern)


@given(st.text("(?:i)<P=!ab|*{}[]\\^$", max_size=8))
@settings(max_examples=500)
def test_any_pattern_of_special_characters_is_read_or_refused(pattern: str) -> None:
    with suppress(ToolError):
        read_regex(pattern)


@given(st.text(max_size=8), st.sampled_from(["rust", "posix"]))
@settings(max_examples=300)
def test_any_pattern_is_read_or_refused(pattern: str, language: str) -> None:
    try:
        regex = read_regex(pattern)
    except ToolError:
        return
    assert regex.only_ripgrep or getattr(regex, language)


@pytest.mark.parametrize(
    ("glob", "meant", "not_meant"),
    [("[]", "[]", "x"), ("[!]", "[!]", "a"), ("[^]x", "[^]x", "ax"), ("[]]", "]", "["), ("[!]]", "a", "]")],
)
def test_brackets_around_nothing_are_characters(glob: str, meant: str, not_meant: str) -> None:
    path = read_glob(glob).path
    assert path.fullmatch(meant)
    assert not path.fullmatch(not_meant)


def test_a_range_that_goes_backwards_is_refused() -> None:
    with pytest.raises(ToolError, match="bad character range z-a"):
        read_glob("[z-a]*.py")


@given(st.text("[]!^-ab/", max_size=8), st.text("[]!^-a/", max_size=4))
@settings(max_examples=500)
def test_any_brackets_are_read(glob: str, name: str) -> None:
    with suppress(ToolError):
        read_glob(glob).path.fullmatch(name)


@given(st.text("ab*?[]{},!/\\.^-", min_size=1, max_size=10))
def test_any_glob_is_read_or_refused(glob: str) -> None:
    try:
        read = read_glob(glob)
    except ToolError:
        return
    assert read.names


@given(st.text("(){}[]|*+?^$.-\\abdw1, ", min_size=1, max_size=10))
@settings(max_examples=40)
def test_result_is_valid_json_whatever_is_searched(pattern: str) -> None:
    place = _kept(pattern)
    answer = place.answer("search_files", json.dumps({"pattern": pattern, "context": 1}))
    result = json.loads(answer.text)
    assert answer.text.encode()
    assert ("error" in result) is answer.failed
    assert answer.valid


_places: list[Place] = []


@pytest.fixture(autouse=True)
def _keep(shared: Callable[[str], Place], request: pytest.FixtureRequest) -> None:
    if "valid_json" in request.node.name:
        _places[:] = [plant(shared("bash"))]


def _kept(_: str) -> Place:
    return _places[0]
