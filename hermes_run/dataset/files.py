"""Lines of a JSONL file, plain or compressed, one at a time."""

from __future__ import annotations

import gzip
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from hermes_run.errors import DatasetError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import xxhash

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def is_plain(path: Path) -> bool:
    """Whether offsets of the text are offsets of the file. Judged by content, not by name."""
    with _opened(path) as raw:
        head = raw.read(4)
    return not (head.startswith(_GZIP) or head == _ZSTD)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        raw = path.open("rb")
    except IsADirectoryError:
        raise DatasetError(f"{path}: the dataset is a folder; name a JSONL file in it") from None
    except OSError as error:
        raise DatasetError(f"{path}: the dataset cannot be read: {error.strerror}") from None
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
        elif head == _ZSTD:
            try:
                import zstandard
            except ModuleNotFoundError:
                raise MissingExtra(
                    f'{path} is compressed with zstd, which needs: pip install "hermes-run[zstd]"'
                ) from None
            with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
                yield cast("BinaryIO", io.BufferedReader(stream, 1 << 20))
        else:
            yield raw


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
        except (OSError, EOFError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read to its end: {error}") from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "zstandard":
                raise
            raise DatasetError(f"{path}: cannot be read to its end: {error}") from error


def read_line_at(stream: BinaryIO, offset: int) -> bytes:
    """The line that begins at `offset` of a plain file."""
    stream.seek(offset)
    return stream.readline().rstrip(b"\r\n")
