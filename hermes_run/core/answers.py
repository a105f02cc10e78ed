"""What comes of tool calls, those of a turn and those that tools make of one another; what the web says."""

from __future__ import annotations

from msgspec import Struct

from hermes_run.core.messages import Usage


class InnerCall(Struct, frozen=True):
    """A call that a tool made of another one: no turn shows it, and it counts in `tool_stats`."""

    name: str
    failed: bool
    known: bool = True


class Aside(Struct):
    """What happened beside the conversation: calls made by tools, and what helper models used."""

    calls: list[InnerCall] = []
    usage: Usage = Usage()


class Seen(Struct, frozen=True):
    """What a model that sees said of a picture, and what that used."""

    text: str
    usage: Usage = Usage()


class Made(Struct, frozen=True):
    """A picture or speech that was made: its bytes, its media type, and who made it."""

    data: bytes
    media_type: str
    provider: str
    usage: Usage = Usage()


class ToolAnswer(Struct, frozen=True):
    """What came of one call.

    Attributes:
        text: the JSON text that the model reads; valid UTF-8.
        failed: whether the tool said that it failed, or was not run.
        valid: whether the name was offered and the arguments fit.
        known: whether the name was offered.
    """

    text: str
    failed: bool
    valid: bool = True
    known: bool = True


class Hit(Struct, frozen=True):
    """A result of a search. All of it is text of strangers."""

    title: str
    url: str
    description: str = ""


class Page(Struct, frozen=True):
    """A document of the web as markdown. All of it is text of strangers."""

    url: str
    title: str
    content: str
