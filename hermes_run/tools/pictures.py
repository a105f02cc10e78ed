"""Pictures that a model names: an address, a data URL, a path in the sandbox."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from hermes_run.core.pictures import TYPES, picture_type
from hermes_run.errors import ToolError
from hermes_run.tools.stored import read_start
from hermes_run.tools.untrusted import outside_of

if TYPE_CHECKING:
    from hermes_run.core.contracts import ToolSession

MAX_BYTES = 15 * 2**20


async def load_picture(session: ToolSession, reference: str) -> tuple[bytes, str]:
    """The bytes of a picture and their media type. Raises ToolError with what is wrong and what to do."""
    reference = reference.strip()
    scheme = reference.partition(":")[0].lower()
    if scheme == "data":
        data = _of_data_url(reference)
    elif scheme in ("http", "https"):
        data = await _of_address(session, reference)
    else:
        path = reference.removeprefix("file://")
        data = await read_start(session.sandbox, path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ToolError(f"the picture is larger than {MAX_BYTES >> 20} MiB; make it smaller")
    media_type = picture_type(data)
    if not media_type:
        names = ", ".join(kind.partition("/")[2] for kind in TYPES)
        raise ToolError(f"that is no picture that can be looked at ({names}); give one of those")
    return data, media_type


async def _of_address(session: ToolSession, url: str) -> bytes:
    document = await outside_of(session).download(url, max_bytes=MAX_BYTES)
    if document.is_cut:
        raise ToolError(f"the picture is larger than {MAX_BYTES >> 20} MiB; give a smaller one")
    return document.body


def _of_data_url(url: str) -> bytes:
    head, comma, body = url.partition(",")
    try:
        if comma and head.endswith(";base64"):
            return base64.b64decode("".join(body.split()), validate=True)
        if comma:
            return unquote_to_bytes(body)
    except (binascii.Error, ValueError):
        pass
    raise ToolError("the data URL cannot be read; write data:image/png;base64,… or give a path")
