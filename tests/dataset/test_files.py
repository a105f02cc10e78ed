"""Dataset files as people have them: line ends, marks, compression, damage."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import xxhash
import zstandard

from hermes_run.dataset.files import is_plain, open_text, read_line_at, read_lines
from hermes_run.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BOM = b"\xef\xbb\xbf"
TEXT = b'{"prompt":"a"}\n\n{"prompt":"b"}\r\n{"prompt":"c\xe2\x80\xa8d"}\n  \t\n{"prompt":"e"}'
LINES = [
    (1, 0, b'{"prompt":"a"}'),
    (3, 16, b'{"prompt":"b"}'),
    (4, 32, b'{"prompt":"c\xe2\x80\xa8d"}'),
    (6, 55, b'{"prompt":"e"}'),
]


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def zst_with_sum(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def gzip_members(data: bytes) -> bytes:
    return b"".join(gzip.compress(data[start : start + 20]) for start in range(0, len(data), 20))


def zst_frames(data: bytes) -> bytes:
    """Many frames, with one in front and one between that says nothing, as parallel compressors write."""
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    frames = (zst(data[start : start + 20]) for start in range(0, len(data), 20))
    return skippable + skippable.join(frames)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "gz members": gzip_members,
    "zst": zst,
    "zst frames": zst_frames,
}


def written(folder: Path, data: bytes, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_lines_have_their_number_and_their_offset_in_the_text(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = written(tmp_path, pack(TEXT))
    assert list(read_lines(path)) == LINES
    assert is_plain(path) == (pack is bytes)


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_the_hash_is_of_every_byte_of_the_text(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    hasher = xxhash.xxh3_128()
    assert len(list(read_lines(written(tmp_path, pack(BOM + TEXT)), hasher))) == 4
    assert hasher.hexdigest() == xxhash.xxh3_128_hexdigest(BOM + TEXT)


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b"\n \t\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("start", [b"", BOM, BOM + b"\n", b"\r\n"])
def test_marks_line_ends_and_blank_lines_are_no_part_of_the_lines(
    tmp_path: Path, pack: Callable[[bytes], bytes], end: bytes, last: bool, start: bytes
) -> None:
    rows = [b'{"a":1}', b' {"b" : 2} ', b"{}"]
    path = written(tmp_path, pack(start + end.join(rows) + (end if last else b"")))
    found = list(read_lines(path))
    assert [text for _, _, text in found] == rows
    with open_text(path) as stream:
        whole = stream.read()
    assert all(whole[offset:].startswith(text) for _, offset, text in found)


def test_a_line_of_a_plain_file_is_read_by_its_offset(tmp_path: Path) -> None:
    path = written(tmp_path, BOM + TEXT)
    with open_text(path) as stream:
        for _, offset, text in reversed(list(read_lines(path))):
            assert read_line_at(stream, offset) == text


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
@pytest.mark.parametrize("data", [b"", b"\n", BOM, b" \r\n\t\n"])
def test_a_file_without_rows_has_no_lines(
    tmp_path: Path, pack: Callable[[bytes], bytes], data: bytes
) -> None:
    assert list(read_lines(written(tmp_path, pack(data)))) == []


def test_compression_is_judged_by_content_and_not_by_the_name(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, TEXT, "data.jsonl.gz"))) == LINES
    assert list(read_lines(written(tmp_path, gzip.compress(TEXT), "data.jsonl"))) == LINES


@pytest.mark.parametrize("pack", list(PACKERS.values())[1:], ids=list(PACKERS)[1:])
@pytest.mark.parametrize("part", [0.3, 0.5, 0.9, 0.999])
def test_a_compressed_file_that_was_cut_is_refused_and_never_read_as_a_shorter_one(
    tmp_path: Path, pack: Callable[[bytes], bytes], part: float
) -> None:
    whole = pack(b"".join(b'{"prompt":"%x"}\n' % (number * 2654435761 % 2**32) for number in range(2000)))
    path = written(tmp_path, whole[: int(len(whole) * part)])
    with pytest.raises(DatasetError, match=r"data.jsonl: cannot be read to its end: "):
        list(read_lines(path))


@pytest.mark.parametrize("pack", [gzip.compress, zst_with_sum], ids=["gz", "zst"])
def test_a_compressed_file_that_is_damaged_is_refused_wherever_the_damage_is(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """Either the damage is seen, or (in a header's time stamp or name) it changes nothing."""
    data = b"".join(b'{"prompt":"%x"}\n' % (number * 2654435761 % 2**32) for number in range(100))
    whole = pack(data)
    refused = 0
    for place in range(4, len(whole)):
        path = written(tmp_path, whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            text = b"\n".join(text for _, _, text in read_lines(path))
        except DatasetError as error:
            assert "cannot be read to its end" in str(error)  # noqa: PT017 - either way is right
            refused += 1
        else:
            assert text == data.rstrip(b"\n")
    assert refused > len(whole) * 0.6


def test_rubbish_after_the_end_is_refused(tmp_path: Path) -> None:
    for pack in (gzip.compress, zst):
        with pytest.raises(DatasetError):
            list(read_lines(written(tmp_path, pack(TEXT) + b"rubbish")))


def test_a_missing_file_a_folder_and_what_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("nowhere.jsonl", "No such file"),
        (".", "is a folder; name a JSONL file in it"),
        ("loop", "symbolic links"),
        ("x" * 300, "File name too long"),
        ("a\x00b", "null (byte|character)"),
        ("pipe", "is no regular file"),
    ):
        with pytest.raises(DatasetError, match=words):
            list(read_lines(tmp_path / name))
        with pytest.raises(DatasetError, match=words):
            is_plain(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    path.chmod(0)
    with pytest.raises(DatasetError, match="Permission denied"):
        list(read_lines(path))


def test_zstd_without_its_package_is_refused_with_the_pip_line(tmp_path: Path) -> None:
    path = written(tmp_path, zst(TEXT))
    program = (
        "import sys; sys.modules['zstandard'] = None\n"
        "from pathlib import Path\n"
        "from hermes_run.dataset.files import read_lines\n"
        "from hermes_run.errors import MissingExtra\n"
        "try:\n    list(read_lines(Path(sys.argv[1])))\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert "pip install zstandard" in done.stdout


def test_a_file_left_half_read_is_closed(tmp_path: Path) -> None:
    """An open file would be a ResourceWarning, which is an error here."""
    for pack in PACKERS.values():
        lines = read_lines(written(tmp_path, pack(TEXT)))
        next(lines)
        del lines
