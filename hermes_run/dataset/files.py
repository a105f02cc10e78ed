"""Lines of a JSONL file, plain or compressed, one at a time."""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hermes_run.errors import DatasetError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import xxhash

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Bytes 1 to 3 of a frame without text, with which parallel compressors begin."""
_PACKED_BYTES = 1 << 10
"""How much is decompressed at once: little, since a little may become a lot."""


def is_plain(path: Path) -> bool:
    """Whether offsets of the text are offsets of the file. Judged by content, not by name."""
    with _opened(path) as raw:
        head = raw.read(4)
    return not (head.startswith(_GZIP) or _is_zstd(head))


def _is_zstd(head: bytes) -> bool:
    return head == _ZSTD or (head[1:] == _ZSTD_SKIPPABLE and head[0] & 0xF0 == 0x50)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DatasetError(f"{path}: the dataset is a folder; name a JSONL file in it")
        if not stat.S_ISREG(mode):
            raise DatasetError(f"{path}: the dataset is no regular file, and it is read more than once")
        raw = path.open("rb")
    except OSError as error:
        raise DatasetError(f"{path}: the dataset cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DatasetError(f"{str(path)!r}: the dataset cannot be read: {error}") from None
    with raw:
        yield raw


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """The decompressed bytes of a dataset. Raises DatasetError, MissingExtra (zstd)."""
    with _opened(path) as raw:
        head = cast("io.BufferedReader", raw).peek(4)[:4]
        if head.startswith(_GZIP):
            with gzip.GzipFile(fileobj=raw) as stream:
                yield cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", stream), 1 << 20))
        elif _is_zstd(head):
            try:
                import zstandard
            except ModuleNotFoundError:
                raise MissingExtra(
                    f"{path} is compressed with zstd, which needs: pip install zstandard"
                ) from None
            with io.BufferedReader(_ZstdFrames(raw, zstandard), 1 << 20) as text:
                yield cast("BinaryIO", text)
        else:
            yield raw


class _ZstdFrames(io.RawIOBase):
    """The text of all frames of a file.

    The library's own reader takes a file that was cut for a shorter one, without a word.
    """

    def __init__(self, packed: BinaryIO, zstandard: Any) -> None:
        self._packed = packed
        self._zstandard = zstandard
        self._frame: Any = None
        self._ahead = b""
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            packed = self._ahead or self._packed.read(_PACKED_BYTES)
            if not packed:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a zstd frame")
                return 0
            self._text = memoryview(self._unpack(packed))
        length = min(len(buffer), len(self._text))
        buffer[:length] = self._text[:length]
        self._text = self._text[length:]
        return length

    def _unpack(self, packed: bytes) -> bytes:
        self._frame = self._frame or self._zstandard.ZstdDecompressor().decompressobj()
        try:
            text: bytes = self._frame.decompress(packed)
        except self._zstandard.ZstdError as error:
            raise OSError(f"it is damaged: {error}") from error
        self._ahead = b""
        if self._frame.eof:
            self._ahead, self._frame = self._frame.unused_data, None
        return text


def read_lines(path: Path, hasher: xxhash.xxh3_128 | None = None) -> Iterator[tuple[int, int, bytes]]:
    r"""(line number from 1, offset in the decompressed text, line) of every line that is not blank.

    Lines end at `\n` alone (U+2028 is text); a byte order mark and a `\r` before the end are no part
    of them. `hasher` is fed every byte, blank lines too. Raises DatasetError when the file cannot be
    read to its end.
    """
    with open_text(path) as stream:
        offset = 0
        try:
            for number, line in enumerate(stream, 1):
                if hasher is not None:
                    hasher.update(line)
                start, text = offset, line
                offset += len(line)
                if number == 1 and text.startswith(_BOM):
                    start, text = start + len(_BOM), text[len(_BOM) :]
                text = text.rstrip(b"\r\n")
                if text and not text.isspace():
                    yield number, start, text
        except (OSError, EOFError, zlib.error) as error:
            raise DatasetError(f"{path}: cannot be read to its end: {error}") from error


def read_line_at(stream: BinaryIO, offset: int) -> bytes:
    """The line that begins at `offset` of a plain file."""
    stream.seek(offset)
    return stream.readline().rstrip(b"\r\n")
