"""read_file and write_file in real sandboxes, by every kind of shell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hermes_run.tools.file import MAX_CHARS, MAX_LINE_CHARS
from tests.tools.place import OtherShell

if TYPE_CHECKING:
    from tests.tools.place import Place

ODD_NAMES = [
    "plain.txt",
    "with space.txt",
    "-rf",
    "--help",
    "-n.txt",
    'it\'s "quoted".txt',
    "$HOME `id` $(id) \\n %s *?[a].txt",
    "new\nline.txt",
    "ends with newline\n",
    "umlaut ä € 😀.txt",
    "deep/er/and deeper/file.txt",
    "trailing space ",
    "tab\there.txt",
    "~tilde.txt",
    "#hash;semi&amp|pipe>redirect",
    "!bang",
    "=eq",
    "n" * 255,
    "\U0010dce9 private.txt",
    "caf\udce9.txt",
    "bell\x07.txt",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_is_written_and_read(place: Place, name: str) -> None:
    written = place.call("write_file", path=name, content="one\ntwo ä\n")
    assert written["bytes_written"] == 11
    assert written["dirs_created"] is ("/" in name)
    read = place.call("read_file", path=name)
    assert read["content"] == "1|one\n2|two ä"
    assert place.call("read_file", path=f"{place.cwd}/{name}") == read
    assert place.sh("find . -type f | wc -l").strip() == (b"2" if "\n" in name else b"1")


def test_odd_names_work_in_every_shell(any_shell: Place) -> None:
    for name in ODD_NAMES:
        any_shell.call("write_file", path=name, content=name + "\n")
    for name in ODD_NAMES:
        shown = any_shell.call("read_file", path=name)["content"]
        assert shown.split("|", 1)[1].split("\n")[0] == _clean(name.split("\n")[0])


def _clean(name: str) -> str:
    from hermes_run.core.text import clean, restore

    return clean(restore(name))


def test_name_that_is_no_utf8_can_be_given_back_as_it_was_shown(any_shell: Place) -> None:
    any_shell.sh("printf 'found me\\n' >\"$(printf 'caf\\351.txt')\"")
    name = any_shell.call("search_files", pattern="*.txt", target="files")["files"][0]
    assert name == "caf\U0010dce9.txt"
    assert any_shell.call("read_file", path=name)["content"] == "1|found me"
    any_shell.call("write_file", path=name, content="written\n")
    assert any_shell.sh("cat caf*.txt") == b"written\n"
    assert any_shell.call("search_files", pattern="*", target="files")["total_count"] == 1
    assert "written" in any_shell.call("terminal", command=f"cat '{name}'")["output"]


def test_content_that_is_no_utf8_comes_back_byte_for_byte(any_shell: Place) -> None:
    data = b"caf\xe9 \xff\xfe ok\n\xed\xa0\x80\n" + "\U0010dce9 \U0010d7ff 😀\n".encode()
    any_shell.put("odd.txt", data)
    content = any_shell.call("read_file", path="odd.txt")["content"]
    lines = [line.split("|", 1)[1] for line in content.split("\n")]
    any_shell.call("write_file", path="copy.txt", content="\n".join(lines) + "\n")
    assert any_shell.get("copy.txt") == data


def test_relative_path_counts_from_the_working_directory(any_shell: Place) -> None:
    any_shell.call("terminal", command="mkdir -p sub/dir && cd sub/dir")
    any_shell.call("write_file", path="a.txt", content="x")
    assert any_shell.call("read_file", path="../dir/a.txt")["content"] == "1|x"
    any_shell.call("terminal", command="cd ../..")
    assert any_shell.call("read_file", path="sub/dir/a.txt")["total_lines"] == 1


def test_tilde_is_the_home_of_the_sandbox(own_shell: Place) -> None:
    own_shell.call("terminal", command='export HOME=$PWD/my\\ home; mkdir "$HOME"')
    own_shell.call("write_file", path="~/notes.txt", content="x\n")
    assert own_shell.get("my home/notes.txt") == b"x\n"


@pytest.mark.parametrize(
    ("data", "shown", "lines"),
    [
        (b"", "", 0),
        (b"\n", "1|", 1),
        (b"a", "1|a", 1),
        (b"a\nb", "1|a\n2|b", 2),
        (b"a\n\n", "1|a\n2|", 2),
        (b"a\r\nb\r\n", "1|a\n2|b", 2),
        (b"\xef\xbb\xbfa\n", "1|a", 1),
        (b"a|b\n", "1|a|b", 1),
        ("ä\u2028ö\x0b\x0c\x85\n".encode(), "1|ä\u2028ö\x0b\x0c\x85", 1),
        (b"a\rb\n", "1|a\rb", 1),
    ],
)
def test_lines_are_numbered_whatever_ends_them(place: Place, data: bytes, shown: str, lines: int) -> None:
    place.put("f.txt", data)
    result = place.call("read_file", path="f.txt")
    assert result == {
        "content": shown,
        "total_lines": lines,
        "file_size": len(data),
        "truncated": False,
        "next_offset": None,
    }


def test_page_goes_on_where_the_last_one_ended(any_shell: Place) -> None:
    any_shell.put("f.txt", "".join(f"line {i}\n" for i in range(1, 1201)).encode())
    first = any_shell.call("read_file", path="f.txt")
    assert first["truncated"] is True
    assert first["next_offset"] == 501
    assert first["content"].endswith("\n500|line 500")
    rest = any_shell.call("read_file", path="f.txt", offset="501", limit=5000)
    assert rest["content"].startswith("501|line 501\n")
    assert rest["content"].endswith("\n1200|line 1200")
    assert rest["next_offset"] is None
    assert "offset 1201 is past the end: f.txt has 1200 lines" in any_shell.error(
        "read_file", path="f.txt", offset=1201
    )


def test_large_file_is_read_in_part_only(any_shell: Place) -> None:
    any_shell.sh("i=0; while [ $i -lt 200 ]; do i=$((i+1)); printf 'line %0500d\\n' $i; done >part")
    any_shell.sh("i=0; while [ $i -lt 50 ]; do cat part; i=$((i+1)); done >big; printf 'no newline' >>big")
    result = any_shell.call("read_file", path="big", offset=9_999, limit=5)
    assert result["total_lines"] == 10_001
    assert result["file_size"] == 50 * 200 * 506 + 10
    assert result["content"].startswith("9999|line 000")
    assert result["content"].endswith("\n10001|no newline")
    assert result["next_offset"] is None
    page = any_shell.call("read_file", path="big", limit=2_000)
    assert page["truncated"] is True
    assert MAX_CHARS - 600 < len(page["content"]) <= MAX_CHARS
    assert page["content"].count("\n") == page["next_offset"] - 2
    assert "past the end" in any_shell.error("read_file", path="big", offset=10_002)


def test_sparse_file_of_gigabytes_is_no_danger(place: Place) -> None:
    place.sh("printf 'text\\n' >huge && truncate -s 2G huge")
    assert "binary" in place.error("read_file", path="huge")
    assert "larger than 8 MiB" in place.error("patch", path="huge", old_string="a", new_string="b")


@pytest.mark.parametrize("char", ["x", "ä", "😀"])
def test_long_lines_are_cut_and_say_so(any_shell: Place, char: str) -> None:
    any_shell.put("f.txt", (char * 300_000 + "\nend\n").encode())
    content = any_shell.call("read_file", path="f.txt")["content"]
    first, second = content.split("\n")
    assert len(first) == len("1|") + MAX_LINE_CHARS
    assert first.endswith("[line cut at 2000 characters]")
    assert set(first[2:1900]) == {char}
    assert second == "2|end"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0", "is a binary file"),
        (b"a\0b", "is a binary file"),
        (bytes(range(1, 9)) * 50, "is a binary file"),
        ("text".encode("utf-16"), "is UTF-16 text; convert it first"),
    ],
)
def test_binary_file_is_refused(place: Place, data: bytes, said: str) -> None:
    place.put("f.bin", data)
    assert said in place.error("read_file", path="f.bin")


def test_text_with_colours_or_latin_letters_is_no_binary(place: Place) -> None:
    place.put("log", b"\x1b[31mred\x1b[0m\n" * 5)
    place.put("latin", "grüße\n".encode("latin-1"))
    assert "red" in place.call("read_file", path="log")["content"]
    assert place.call("read_file", path="latin")["content"] == "1|gr\U0010dcfc\U0010dcdfe"


def test_missing_file_names_up_to_five_similar_ones(any_shell: Place) -> None:
    for name in (
        "config.yaml",
        "Config.yml",
        "config_test.yaml",
        "confg.yaml",
        "config.yaml.bak",
        "config2.yaml",
    ):
        any_shell.put(name, b"")
    any_shell.put("unrelated.md", b"")
    error = any_shell.error("read_file", path="confi.yaml")
    assert error.startswith("there is no file confi.yaml. Similar names there: ")
    names = error.partition("there: ")[2].split(", ")
    assert len(names) == 5
    assert "config.yaml" in names
    assert "unrelated.md" not in names
    assert any_shell.error("read_file", path="zzz") == "there is no file zzz"
    any_shell.put(".hidden_settings", b"")
    assert ".hidden_settings" in any_shell.error("read_file", path="hidden_settings")


def test_missing_folder_is_named_with_similar_ones(any_shell: Place) -> None:
    any_shell.sh("mkdir -p source/app && : >source/app/main.py")
    error = any_shell.error("read_file", path="sources/app/main.py")
    assert error == 'there is no file sources/app/main.py (no "sources" in .). Similar names there: source'
    error = any_shell.error("read_file", path="source/app/main.py/x")
    assert error.startswith("there is no file source/app/main.py/x")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "path is empty"),
        ("a\0b", "NUL"),
        ("n" * 256, "more than 255 bytes"),
        ("folder", "folder is a directory"),
        ("folder/", "folder/ is a directory"),
        (".", ". is a directory"),
        ("/dev/zero", "no regular file"),
        ("fifo", "no regular file"),
        ("dangling", "broken symbolic link -> nowhere"),
        ("loop", "broken symbolic link"),
        ("/proc/self/mem", ""),
        ("d/" * 3000 + "x", ""),
    ],
)
def test_what_is_no_file_says_what_it_is(any_shell: Place, path: str, said: str) -> None:
    any_shell.sh("mkdir folder; mkfifo fifo; ln -s nowhere dangling; ln -s loop loop")
    assert said in any_shell.error("read_file", path=path)


def test_file_without_permission_is_refused(place: Place) -> None:
    place.sh("printf secret >locked; chmod 0 locked; mkdir closed; : >closed/f; chmod 0 closed")
    assert place.error("read_file", path="locked") == "permission denied: locked"
    assert place.error("write_file", path="locked", content="x") == "permission denied: locked"
    assert "permission denied" in place.error("read_file", path="closed/f").lower()
    # the same words each time: nothing of how it is written stands in them
    said = place.error("write_file", path="closed/g", content="x")
    assert said == "closed/g cannot be changed: Permission denied"
    said = place.error("write_file", path="/usr/share/x", content="x")
    assert said.lower() == "/usr/share/x cannot be changed: read-only file system"
    place.sh("printf old >fixed; chmod 444 fixed")
    assert place.error("write_file", path="fixed", content="x") == "permission denied: fixed"
    assert place.get("fixed") == b"old"


def test_proc_file_of_no_size_is_read(any_shell: Place) -> None:
    assert "Name:" in any_shell.call("read_file", path="/proc/self/status")["content"]


def test_write_keeps_the_mode_of_the_old_file(any_shell: Place) -> None:
    for mode in ("755", "600", "644"):
        any_shell.sh(f"printf old >run{mode}; chmod {mode} run{mode}")
        any_shell.call("write_file", path=f"run{mode}", content="#!/bin/sh\necho new\n")
        assert any_shell.sh(f"stat -c %a run{mode}").strip() == mode.encode()
    assert any_shell.sh("./run755") == b"new\n"
    any_shell.sh("umask 027; :")
    any_shell.call("write_file", path="fresh", content="")
    assert any_shell.sh("stat -c %a fresh").strip() in {b"644", b"600", b"664"}


@pytest.mark.parametrize(
    ("old", "content", "new"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\r\n"),
        (b"a\nb\n", "x\r\ny\r\n", b"x\ny\n"),
        (b"a\nb\n", "x", b"x"),
        (b"\xef\xbb\xbfa\n", "x\n", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\r\n", "x\ny", b"\xef\xbb\xbfx\r\ny"),
        (b"no line end", "x\r\n", b"x\r\n"),
        (b"", "x\r\ny\n", b"x\r\ny\n"),
        (b"a\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        (b"\0binary\0\n", "x\n", b"x\n"),
        (None, "x\r\ny\n", b"x\r\ny\n"),
        (None, "", b""),
        (None, "no end", b"no end"),
        (None, "a\x00b\u2028\ufeff", "a\x00b\u2028\ufeff".encode()),
    ],
)
def test_write_keeps_byte_order_mark_and_line_ends(
    any_shell: Place, old: bytes | None, content: str, new: bytes
) -> None:
    if old is not None:
        any_shell.put("f", old)
    result = any_shell.call("write_file", path="f", content=content)
    assert any_shell.get("f") == new
    assert result["bytes_written"] == len(new)
    assert any_shell.sh("ls -A") == b"f\n"


def test_write_goes_through_links_to_the_file_meant(any_shell: Place) -> None:
    any_shell.sh("mkdir real; printf old >real/f; ln -s real/f link; ln -s link 'link 2'; ln -s real dir")
    any_shell.call("write_file", path="link 2", content="new")
    any_shell.call("write_file", path="dir/g", content="g")
    assert any_shell.get("real/f") == b"new"
    assert any_shell.get("real/g") == b"g"
    assert any_shell.sh("readlink 'link 2'; readlink link") == b"link\nreal/f\n"
    any_shell.sh("ln -s real/made dangling")
    any_shell.call("write_file", path="dangling", content="made")
    assert any_shell.get("real/made") == b"made"
    any_shell.sh("ln -s loop loop")
    assert "broken symbolic link" in any_shell.error("write_file", path="loop", content="x")


def test_write_that_cannot_be_done_changes_nothing(any_shell: Place) -> None:
    any_shell.sh("mkdir folder; printf text >file")
    assert "is a directory" in any_shell.error("write_file", path="folder", content="x")
    assert "names a directory" in any_shell.error("write_file", path="new/", content="x")
    assert "file" in any_shell.error("write_file", path="file/below", content="x")
    assert "no regular file" in any_shell.error("write_file", path="/dev/null", content="x")
    assert any_shell.sh("ls -A") == b"file\nfolder\n"
    assert any_shell.get("file") == b"text"


def test_write_that_breaks_off_leaves_the_old_file(own_place: Place) -> None:
    own_place.sh("printf old >f")
    own_place.use(OtherShell(own_place.box, "/bin/sh", "ulimit -f 8; "))  # as if the disk were full
    assert "f: " in own_place.error("write_file", path="f", content="x" * 1_000_000)
    assert own_place.sh("ls -A; cat f") == b"f\nold"


def test_write_is_atomic_for_those_who_read(place: Place) -> None:
    place.call("write_file", path="f", content="a" * 500_000)
    place.sh(
        "(while [ ! -e stop ]; do s=$(wc -c <f); [ $s = 500000 ] || echo $s >>torn; done) >/dev/null 2>&1 &"
    )
    for _ in range(10):
        place.call("write_file", path="f", content="b" * 500_000)
    place.sh(": >stop; sleep 0.1")
    assert place.sh("cat torn 2>/dev/null; :") == b""


def test_large_content_is_written_whole(any_shell: Place) -> None:
    content = "0123456789abcde\n" * 200_000
    assert any_shell.call("write_file", path="f", content=content)["bytes_written"] == 3_200_000
    assert any_shell.sh("wc -c <f").strip() == b"3200000"


def test_result_of_a_write_has_the_syntax_check(place: Place) -> None:
    result = place.call("write_file", path="new/deep/a.py", content="def f(:\n")
    assert result["dirs_created"] is True
    assert result["files_modified"] == ["new/deep/a.py"]
    assert result["lint"]["status"] == "error"
    assert place.call("write_file", path="a.json", content="{}")["lint"] == {"status": "ok"}


def test_tools_work_whatever_the_shell_has_exported(own_shell: Place) -> None:
    exports = "PATH=/nowhere LC_ALL=xx_XX.bad IFS=0123456789abcdef/ CDPATH=/usr POSIXLY_CORRECT=1"
    own_shell.call("terminal", command=f"export {exports}")
    own_shell.call("write_file", path="d/f.txt", content="one\r\n")
    own_shell.call("write_file", path="d/f.txt", content="two\n")
    assert own_shell.call("read_file", path="d/f.txt")["content"] == "1|two"
    assert own_shell.call("search_files", pattern="two")["total_count"] == 1


def test_bad_numbers_are_refused_by_name(place: Place) -> None:
    place.put("f", b"x\n")
    for name in ("offset", "limit"):
        error = place.error("read_file", path="f", **{name: 0})
        assert f'parameter "{name}" must be at least 1, not 0' in error
    assert 'unknown parameter "file"' in place.error("read_file", file="f")
    assert 'missing parameter "path"' in json.loads(place.answer("read_file", "{}").text)["error"]
