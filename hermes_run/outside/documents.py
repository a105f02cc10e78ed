"""Bytes of the web -> title and markdown. Pure, slow and careless: `reader.py` gives it a process of its own.

What a server says of its documents is often wrong, so their first bytes are believed before the header.
"""

from __future__ import annotations

import codecs
import io
import re

MAX_CHARS = 500_000
"""Of a document's text."""
_MAX_HTML_CHARS = 3_000_000
_MAX_PAGES = 300
_HEAD = 4096

_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_HTML = re.compile(
    r"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body|meta|title|div|p|h1|table)\b",
    re.IGNORECASE | re.DOTALL,
)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_DROPPED = re.compile(r"<(script|style|noscript|template|svg)\b.*?(</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_BLOCK = re.compile(r"<(?:br|/p|/div|/li|/tr|/h[1-6]|/table|/section)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ASCII = rb"<p>+AGE- \x41 xn--a</p>"
"""What any encoding of a page leaves as it is, and others (UTF-7, EBCDIC, escapes) do not."""
_MEANT = {  # what is declared -> the larger one that is meant (WHATWG Encoding)
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "tis-620": "cp874",
}
_MEDIA = ("image/", "audio/", "video/", "font/")
_SIGNATURES = (
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"PK\x03\x04", "an archive"),
    (b"\x1f\x8b", "an archive"),
    (b"\x7fELF", "a program"),
)


class NoText(Exception):
    """There is no text to be had from a document; why, and what to do."""


def read(body: bytes, content_type: str, url: str, *, is_cut: bool) -> tuple[str, str]:
    """Title and text of a document. Raises NoText.

    Args:
        body: its bytes, or their beginning.
        content_type: the header.
        url: where it is from, for its links.
        is_cut: whether there was more of it.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if body[:1024].lstrip().startswith(b"%PDF-"):
        if is_cut:
            raise NoText("the PDF is too large to be read here; look for another version of it")
        return _read_pdf(body)
    if not body.strip():
        raise NoText("the page is empty; try another one")
    _refuse_binary(body, kind)
    text = decode(body, content_type, is_cut=is_cut)
    is_feed = text.startswith("<?xml") and "<html" not in text[:_HEAD].lower()
    is_plain = is_feed or kind in {"text/plain", "application/json"}
    is_html = not is_plain and ("html" in kind or _HTML.match(text[:_HEAD]) is not None)
    title, content = _read_html(text[:_MAX_HTML_CHARS], url) if is_html else ("", text.strip())
    if not content:
        raise NoText(
            "there is no text on that page (it may need a browser); try browser_navigate or another page"
        )
    return title, content[:MAX_CHARS]


def _refuse_binary(body: bytes, kind: str) -> None:
    what = next((name for start, name in _SIGNATURES if body.startswith(start)), "")
    if what == "a picture" or (kind.startswith("image/") and "svg" not in kind):
        raise NoText("it is a picture; vision_analyze looks at pictures")
    if what or kind.startswith(_MEDIA):
        raise NoText(f"it is {what or 'a media file'} and no text; look for a page about it")
    head = body[:_HEAD]
    has_bom = any(body.startswith(bom) for bom, _ in _BOMS) or _wide(head)
    controls = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head)
    if not has_bom and (head.count(0) > len(head) // 100 or controls * 20 > len(head)):
        raise NoText("it is a binary file and no text; look for a page about it")


def decode(body: bytes, content_type: str, *, is_cut: bool = False) -> str:
    """Bytes as text: by byte order mark, as UTF-8 when it is that, else as declared, else as Windows-1252."""
    for bom, name in _BOMS:
        if body.startswith(bom):
            return body.decode(name, "replace")
    wide = _wide(body[:_HEAD])
    if wide:
        return body.decode(wide, "replace")
    if not body.isascii():
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(body, final=not is_cut)
        except UnicodeDecodeError:
            pass
    for declared in (_CHARSET.search(content_type.encode()), _CHARSET.search(body[:_HEAD])):
        text = _as_declared(body, declared[1].decode() if declared else "")
        if text is not None:
            return text
    return body.decode("utf-8" if body.isascii() else "cp1252", "replace")


def _wide(head: bytes) -> str:
    """The kind of UTF-16 that text without a byte order mark is: every other byte of it is 0, or ""."""
    half = len(head) // 2
    odd, even = head[1::2].count(0), head[::2].count(0)
    if half < 2 or abs(odd - even) * 2 < half:
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _as_declared(body: bytes, label: str) -> str | None:
    """The text in the encoding of that label, read as browsers read it; None when it cannot be meant."""
    try:
        name = codecs.lookup(label.lower().removeprefix("x-").replace("windows-874", "cp874")).name
        if name.startswith("utf-16") and not body.isascii():
            return body.decode(name)
        cannot_be = name.startswith("utf-8") or _ASCII.decode(name) != _ASCII.decode("ascii")
        return None if cannot_be else body.decode(_MEANT.get(name, name), "replace")
    except (LookupError, TypeError, ValueError):
        return None


def _read_html(text: str, url: str) -> tuple[str, str]:
    """The main text as markdown; where none is found, all the text there is."""
    import trafilatura

    found = _TITLE.search(text)
    title = _plain(found[1]) if found else ""
    try:
        content = trafilatura.extract(
            text,
            url=url,
            output_format="markdown",
            include_links=True,
            include_tables=True,
            include_comments=False,
            favor_recall=True,
        )
    except (RecursionError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        content = None  # it stumbles over pages that no browser minds
    return title, (content or "").strip() or _all_text(text)


def _all_text(text: str) -> str:
    text = _BLOCK.sub("\n", _DROPPED.sub(" ", _TITLE.sub(" ", text)))
    lines = (_plain(line) for line in _TAG.sub(" ", text).split("\n"))
    return "\n".join(line for line in lines if line)


def _plain(text: str) -> str:
    from html import unescape

    return " ".join(unescape(text).split())


def _read_pdf(body: bytes) -> tuple[str, str]:
    import pypdf
    from pypdf.errors import PyPdfError

    try:
        reader = pypdf.PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise NoText("the PDF is locked by a password; look for another version of it")
        pages: list[str] = []
        for page in reader.pages[:_MAX_PAGES]:
            pages.append((page.extract_text() or "").strip())
            if sum(map(len, pages)) > MAX_CHARS:
                break
        title = str(reader.metadata.title or "") if reader.metadata is not None else ""
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OSError):
        raise NoText("the PDF is damaged; look for another version of it") from None
    text = "\n\n".join(page for page in pages if page)
    if not text:
        raise NoText("the PDF holds pictures of text only; look for another version of it")
    return title, text[:MAX_CHARS]
