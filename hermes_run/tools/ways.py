"""Where addresses lead, and why one leads to no page: what the browser and the proxy say, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_run.errors import ToolError

if TYPE_CHECKING:
    from hermes_run.core.contracts import Outside

_ERROR = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_MEANINGS = {
    "ERR_ABORTED": "it answers without a page, or leads elsewhere at once",
    "ERR_TOO_MANY_REDIRECTS": "it redirects for ever",
    "ERR_EMPTY_RESPONSE": "it answers nothing",
    "ERR_INVALID_AUTH_CREDENTIALS": "it wants a login",
    "ERR_NAME_NOT_RESOLVED": "there is no such host",
    "ERR_INVALID_HTTP_RESPONSE": "it answers no HTTP",
    "ERR_SSL_PROTOCOL_ERROR": "its encryption does not work",
    "ERR_CERT_AUTHORITY_INVALID": "its certificate is not to be trusted",
}


def host_and_port(url: str) -> tuple[str, int]:
    """Where a URL leads. Raises ToolError for one that leads nowhere."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ToolError(f"{url[:200]!r} is no URL; write it as https://HOST/PATH") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ToolError(f"{url[:200]!r} is no http or https URL; write it as https://HOST/PATH")
    return parts.hostname, port or (443 if parts.scheme == "https" else 80)


def led_nowhere(outside: Outside, url: str, failed_url: str) -> str:
    """Why the page at `url` is none (a click, a refresh, a script led there), or "".

    `failed_url` is where the last page was to come from that did not come.
    """
    if url.startswith("chrome-error:"):
        return why_not_opened(outside, "", failed_url)
    return outside.refusal(*host_and_port(url)) if url.startswith(("http:", "https:")) else ""


def why_not_opened(outside: Outside, text: str, failed_url: str) -> str:
    """What a browser's error means, and what to do."""
    if failed_url.startswith(("http:", "https:")):
        refused = outside.refusal(*host_and_port(failed_url))
        if refused:
            return refused
    name = _ERROR.search(text)
    code = name[1] if name is not None else "no answer"
    return f"the page cannot be opened: {_MEANINGS.get(code, code)}; check the address or try another"
