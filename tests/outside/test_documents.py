# ruff: noqa: E501 - whole documents
"""Documents as text: what servers say of them, and what they are."""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest

pytest.importorskip("trafilatura")
pytest.importorskip("pypdf")

from hermes_run.outside.documents import NoText, decode, read
from hermes_run.outside.downloads import Document
from hermes_run.outside.gate import Refused
from hermes_run.outside.reader import Readers

PARAGRAPH = "The heron stands in the shallow water and waits for fish. " * 5
PAGE = f"""<!doctype html><html><head><title>Herons &amp; fish</title><script>alert(1)</script></head><body>
<nav><a href="/">Home</a></nav><article><h1>Herons</h1><p>{PARAGRAPH}<a href="/more">More</a></p>
<ul><li>grey</li><li>white</li></ul><table><tr><td>legs</td><td>2</td></tr></table></article></body></html>"""


def pdf(text: str) -> bytes:
    """A PDF of one page, by hand."""
    stream = zlib.compress(f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET".encode())
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (
        body
        + b"xref\n0 6\n0000000000 65535 f \n%strailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF"
        % (table, len(body))
    )


def text_of(body: bytes, kind: str = "text/html") -> tuple[str, str]:
    return read(body, kind, "http://example.org/a", is_cut=False)


def test_html_becomes_markdown_without_its_furniture() -> None:
    title, content = text_of(PAGE.encode())
    assert title == "Herons & fish"
    assert content.startswith("# Herons")
    assert "[More](http://example.org/more)" in content
    assert "- grey" in content
    assert "alert" not in content


@pytest.mark.parametrize("kind", ["application/pdf", "text/html", "application/octet-stream", ""])
def test_pdf_is_read_whatever_it_is_called(kind: str) -> None:
    assert text_of(pdf("Hello herons"), kind)[1] == "Hello herons"


def test_plain_text_stays_as_it_is() -> None:
    assert text_of(b"a < b\n  c\n", "text/plain") == ("", "a < b\n  c")
    assert text_of(b'{"a": "<p>"}', "application/json") == ("", '{"a": "<p>"}')


@pytest.mark.parametrize(
    ("body", "kind", "wanted"),
    [
        ("Grüße €".encode(), "text/html; charset=iso-8859-1", "Grüße €"),
        ("Grüße €".encode("cp1252"), "text/html; charset=utf-8", "Grüße €"),
        ("Grüße".encode("latin-1"), "text/html; charset=nonsense", "Grüße"),
        ("Привет".encode("koi8-r"), "text/html; charset=koi8-r", "Привет"),
        (
            b'<meta charset="windows-1251">' + "Привет".encode("cp1251"),
            "text/html",
            '<meta charset="windows-1251">Привет',
        ),
        ("日本".encode("iso-2022-jp"), "text/html; charset=iso-2022-jp", "日本"),
        ("日本".encode("shift_jis"), "text/html; charset=Shift_JIS", "日本"),
        ("\ufeffab".encode("utf-16-le"), "text/html; charset=utf-8", "ab"),
        (b"\xef\xbb\xbfab", "text/html; charset=latin-1", "ab"),
        (b"plain", "text/html; charset=zip", "plain"),
        # labels mean what browsers take them for
        (b"\x93Hi\x94 \x96 it\x92s", "text/plain; charset=iso-8859-1", "\u201cHi\u201d \u2013 it\u2019s"),
        (b"caf\xe9 \x80", "text/plain; charset=us-ascii", "café €"),
        ("朱镕基 €".encode("gb18030"), "text/html; charset=gb2312", "朱镕基 €"),
        ("①㈱".encode("cp932"), "text/html; charset=x-sjis", "①㈱"),
        ("뷁".encode("cp949"), "text/html; charset=euc-kr", "뷁"),
        ("\u0131\u2026".encode("cp1254"), "text/html; charset=iso-8859-9", "\u0131\u2026"),
        ("กขค".encode("cp874"), "text/html; charset=windows-874", "กขค"),
        # encodings that are declared and cannot be meant
        (b"hello", "text/html; charset=utf-16", "hello"),
        (b'<meta charset="utf-16">hello', "text/html", '<meta charset="utf-16">hello'),
        (b"hello +ADw-", "text/html; charset=utf-7", "hello +ADw-"),
        (b"hello \\n", "text/html; charset=unicode_escape", "hello \\n"),
        (b"hello", "text/html; charset=cp037", "hello"),
        # UTF-16 without a byte order mark
        ("hello".encode("utf-16-le"), "text/html; charset=utf-16", "hello"),
        ("hello".encode("utf-16-be"), "text/html", "hello"),
        ("日本の朝".encode("utf-16-le"), "text/html; charset=utf-16le", "日本の朝"),
        (b"", "", ""),
    ],
)
def test_charset_is_found_whatever_the_header_says(body: bytes, kind: str, wanted: str) -> None:
    assert decode(body, kind) == wanted


def test_character_that_the_limit_cut_does_not_spoil_the_rest() -> None:
    assert decode("aä€".encode()[:-1], "", is_cut=True) == "aä"


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"\x00\x01\x02" * 2000, "text/html", "binary file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "text/html", "vision_analyze"),
        (b"x", "image/jpeg", "vision_analyze"),
        (b"PK\x03\x04" + bytes(99), "text/html", "an archive"),
        (b"\x7fELF" + bytes(99), "text/plain", "a program"),
        (b"x", "video/mp4", "a media file"),
        (b" \n ", "text/html", "the page is empty"),
        (b"<html><body><script>x()</script></body></html>", "text/html", "no text on that page"),
        (b"%PDF-1.4 nothing of a PDF", "application/pdf", "PDF is damaged"),
    ],
)
def test_what_holds_no_text_says_what_to_do(body: bytes, kind: str, said: str) -> None:
    with pytest.raises(NoText, match=said):
        text_of(body, kind)


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_that_are_called_html_are_no_text(seed: int) -> None:
    with pytest.raises(NoText, match="binary file"):
        text_of(random.Random(seed).randbytes(20_000), "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 50_000 + b"deep heron" + b"</div>" * 50_000,
        b"<p>heron<b><i><table><tr></p></b>" * 200,
        b"<html><body>heron &#0; &#xD800; &notanentity; <![CDATA[ x ]]> <!-- --",
        "<html><body><p>heron \u202e \udcff</p>".encode("utf-8", "surrogatepass"),
        b"<?xml version='1.0'?><rss><channel><title>heron</title></channel></rss>",
    ],
)
def test_odd_html_still_gives_its_text(body: bytes) -> None:
    assert "heron" in text_of(body)[1]


def test_document_that_takes_too_long_ends_its_reader_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go() -> tuple[str, str]:
        readers = Readers()
        try:
            small = Document("http://x/", 200, "text/html", PAGE.encode())
            huge = Document("http://x/", 200, "text/html", b"<table><tr><td>" * 1_300_000)
            await readers.read(small)
            with pytest.raises(Refused, match="no text"):
                await readers.read(huge)
            with monkeypatch.context() as patched:
                patched.setattr("hermes_run.outside.reader.TIMEOUT_S", 0.001)
                with pytest.raises(Refused, match="too large or too odd"):
                    await readers.read(huge)
            with pytest.raises(Refused, match="binary"):
                await readers.read(Document("http://x/", 200, "text/html", bytes(99)))
            return await readers.read(small)
        finally:
            await readers.aclose()

    assert asyncio.run(go())[0] == "Herons & fish"
