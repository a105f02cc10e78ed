r"""Search patterns: one meaning, whether ripgrep or grep looks for it.

A pattern is a regular expression in the common form (`\d`, `\w`, `\s`, `\b`, `(?:...)`, `*?`, `[...]`,
`{n,m}`, a leading `(?i)`). It is read here once, so that what is wrong with it is said alike everywhere,
and written down for ripgrep (Rust regex) and for `grep -E` (POSIX). A `$` also stands before the `\r` of
a CRLF line end.
"""

from __future__ import annotations

import re

from msgspec import Struct

from hermes_run.errors import ToolError

_SPECIAL = set(".^$*+?()[]{}|\\")
_SPECIAL_IN_BRACKETS = set("\\[]^-&~")
_CLASSES = {"d": "[0-9]", "D": "[^0-9]", "s": "[[:space:]]", "S": "[^[:space:]]"}
_WORDS = {"w": "[[:alnum:]_]", "W": "[^[:alnum:]_]"}
_IN_BRACKETS = {"d": "0-9", "s": "[:space:]", "w": "[:alnum:]_"}
_CONTROLS = {"t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_BOUNDARIES = set("bB<>")
_COUNT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_GROUP = re.compile(r"\(\?(?::|P?<[A-Za-z_]\w*>)")
_POSIX = re.compile(r"\[:\^?[a-z]+:\]")
_BRACED = re.compile(r"\{[^{}]*\}")
_HEX = re.compile(r"x([0-9a-fA-F]{2})")


class Regex(Struct, frozen=True):
    """A pattern in both languages.

    Attributes:
        rust: for ripgrep.
        posix: for `grep -E`, or "" when it cannot say it.
        ignore_case: whether grep is to be called with -i.
        only_ripgrep: what grep cannot say.
    """

    rust: str
    posix: str
    ignore_case: bool = False
    only_ripgrep: str = ""


def read_regex(pattern: str) -> Regex:
    """A pattern, understood. Raises ToolError saying what is wrong and where."""
    if not pattern:
        raise ToolError("pattern is empty")
    if "\n" in pattern or "\0" in pattern:
        raise ToolError("pattern holds a newline or NUL; it is looked for in single lines of text")
    reader = _Reader(pattern)
    reader.read()
    return Regex(
        "".join(reader.rust),
        "" if reader.only_ripgrep else "".join(reader.posix),
        reader.ignore_case,
        reader.only_ripgrep,
    )


class _Reader:
    """Reads a pattern from left to right and writes it down twice."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.rust: list[str] = []
        self.posix: list[str] = []
        self.ignore_case = False
        self.only_ripgrep = ""
        self._open = 0
        self._can_repeat = False

    def fault(self, what: str) -> ToolError:
        return ToolError(f"invalid regular expression at character {self.at + 1}: {what}: {self.pattern}")

    def read(self) -> None:
        if self.pattern.startswith("(?i)"):
            self.ignore_case = True
            self._write("(?i)", "", length=4)
        while self.at < len(self.pattern):
            self._one(self.pattern[self.at])
        if self._open:
            raise self.fault("a ( is not closed")

    def _write(self, rust: str, posix: str, *, length: int = 1, can_repeat: bool = False) -> None:
        self.rust.append(rust)
        self.posix.append(posix)
        self.at += length
        self._can_repeat = can_repeat

    def _one(self, char: str) -> None:
        if char == "\\":
            self._escape()
        elif char == "[":
            self._brackets()
        elif char == "(":
            self._group()
        elif char == ")":
            if not self._open:
                raise self.fault("a ) closes nothing; write \\) for the character")
            self._open -= 1
            self._write(")", ")", can_repeat=True)
        elif char in "*+?":
            self._repeat(char, char)
        elif char == "{":
            self._count()
        elif char == "$":
            self._write(r"\r?$", "\r?$")
        elif char in "|^":
            self._write(char, char)
        else:
            literal = "\\" + char if char == "}" else char
            self._write(literal, "}" if char == "}" else char, can_repeat=True)

    def _repeat(self, rust: str, posix: str, length: int = 1) -> None:
        if not self._can_repeat:
            raise self.fault(f"{rust} repeats nothing; write \\{rust[0]} for the character")
        self._write(rust, posix, length=length, can_repeat=True)
        if self.pattern[self.at : self.at + 1] == "?":  # lazy: the same lines match
            self._write("?", "", can_repeat=True)

    def _count(self) -> None:
        match = _COUNT.match(self.pattern, self.at)
        if match is None or not (match[1] or match[3]):  # a brace that counts nothing is a character
            self._write(r"\{", r"\{", can_repeat=True)
            return
        low, high = match[1] or "0", match[3]
        if high and int(high) < int(low):
            raise self.fault(f"{match[0]} counts backwards")
        if max(int(low), int(high or 0)) > 1_000:
            raise self.fault(f"{match[0]} counts too far; 1000 is the most")
        count = "{" + low + (f",{high or ''}" if match[2] else "") + "}"
        self._repeat(count, count, len(match[0]))

    def _group(self) -> None:
        match = _GROUP.match(self.pattern, self.at)
        rest = self.pattern[self.at :]
        self._open += 1
        if match:
            self._write(match[0].replace("(?<", "(?P<"), "(", length=len(match[0]))
        elif rest.startswith(("(?=", "(?!", "(?<=", "(?<!")):
            raise self.fault("looking ahead or behind is not supported")
        elif rest.startswith("(?"):
            self.only_ripgrep = self.only_ripgrep or rest[:4]
            end = rest.find(")")
            colon = rest.find(":")
            if end < 0 and colon < 0:
                raise self.fault("a (? is not finished")
            if end > 0 and not 0 < colon < end:  # flags for what follows: no group
                self._open -= 1
                self._write(rest[: end + 1], "", length=end + 1)
            else:
                self._write(rest[: colon + 1], "(", length=colon + 1)
        else:
            self._write("(", "(")

    def _escape(self) -> None:
        char = self.pattern[self.at + 1 : self.at + 2]
        hexadecimal = _HEX.match(self.pattern, self.at + 1)
        if not char:
            raise self.fault("a backslash at the end; write \\\\ for the character")
        if char in _CLASSES or char in _WORDS:
            self._write("\\" + char, {**_CLASSES, **_WORDS}[char], length=2, can_repeat=True)
        elif char in _BOUNDARIES:  # older ripgreps have no \< and \>: a boundary is as good beside a word
            boundary = "\\B" if char == "B" else "\\b"
            self._write(boundary, boundary, length=2)
        elif char in _CONTROLS:
            self._write("\\" + char, _CONTROLS[char], length=2, can_repeat=True)
        elif char == "n":
            raise self.fault("\\n is in no line; one line at a time is searched")
        elif char in "123456789":
            raise self.fault("references to groups are not supported")
        elif hexadecimal:
            literal = chr(int(hexadecimal[1], 16))
            posix = "\\" + literal if literal in _SPECIAL else literal
            self._write(f"\\x{hexadecimal[1]}", posix, length=4, can_repeat=True)
        elif char.isalnum():
            self.only_ripgrep = self.only_ripgrep or f"\\{char}"
            braced = _BRACED.match(self.pattern, self.at + 2)
            rust = "\\" + char + (braced[0] if braced else "")
            self._write(rust, "", length=len(rust), can_repeat=True)
        else:
            rust = "\\" + char if char in _SPECIAL else char  # older ripgreps escape nothing else
            self._write(rust, "\\" + char if char in _SPECIAL else char, length=2, can_repeat=True)

    def _brackets(self) -> None:
        start = self.at
        self.at += 1
        negated = self.pattern[self.at : self.at + 1] == "^"
        self.at += negated
        rust: list[str] = []
        posix: list[str] = []
        first = True
        while True:
            char = self.pattern[self.at : self.at + 1]
            if not char:
                self.at = start
                raise self.fault("a [ is not closed; write \\[ for the character")
            if char == "]" and not first:
                break
            first = False
            self._bracket_item(char, rust, posix)
        for low, dash, high in zip(posix, posix[1:], posix[2:], strict=False):
            if dash == "-" and len(low) == len(high) == 1 and low > high:
                raise self.fault(f"the range {low}-{high} goes backwards")
        mark = "^" if negated else ""
        inside = _posix_set(posix)
        posix_set = "\\^" if inside == "^" and not negated else f"[{mark}{inside}]"
        self._write(f"[{mark}{''.join(rust)}]", posix_set, can_repeat=True)

    def _bracket_item(self, char: str, rust: list[str], posix: list[str]) -> None:
        named = _POSIX.match(self.pattern, self.at)
        if named:
            rust.append(named[0])
            posix.append(named[0])
            self.at += len(named[0])
            return
        if char != "\\":
            rust.append("\\" + char if char in "[]&~^" else char)
            posix.append(char)
            self.at += 1
            return
        escaped = self.pattern[self.at + 1 : self.at + 2]
        self.at += 2
        if escaped in _IN_BRACKETS:
            posix.append(_IN_BRACKETS[escaped])
        elif escaped in _CONTROLS:
            posix.append(_CONTROLS[escaped])
        elif escaped.isalnum():
            self.only_ripgrep = self.only_ripgrep or f"[\\{escaped}]"
        else:
            posix.append("\\" + escaped if escaped == "-" else escaped)
        rust.append("\\" + escaped if escaped.isalnum() or escaped in _SPECIAL_IN_BRACKETS else escaped)


def _posix_set(items: list[str]) -> str:
    r"""A POSIX bracket's inside: `]` first, `^` not first, a `-` that is a character last."""
    dash = bool(items) and (items[0] == "-" or items[-1] == "-" or "\\-" in items)
    body = items[1:] if items and items[0] == "-" else items
    body = body[:-1] if body and body[-1] == "-" else body
    inside = "".join(item for item in body if item not in {"]", "^", "\\-"})
    closing = "]" if "]" in items else ""
    caret = "^" if "^" in items else ""
    if not closing and not inside:
        return "-" * dash + caret
    return closing + inside + caret + "-" * dash
