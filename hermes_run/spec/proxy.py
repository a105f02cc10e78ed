"""The HTTP proxy that the environment names: HTTPS_PROXY, HTTP_PROXY, NO_PROXY, in capitals or not."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from hermes_run.errors import EndpointUnreachable
from hermes_run.spec.keys_and_hosts import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMES = ("http", "https")
_SHORTEST_PASSWORD = 6
"""A shorter one may be any word of a text."""


def proxy_for(url: str) -> str:
    """The proxy on the way to a URL, with its scheme; "" for none, and on loopback.

    Raises EndpointUnreachable for one that requests cannot go through.
    """
    from urllib.request import getproxies_environment, proxy_bypass

    address = parse_url(url)
    if isinstance(address, str) or address.is_loopback or proxy_bypass(address.host):
        return ""
    given = getproxies_environment().get(address.scheme, "").strip()
    proxy = given if "://" in given or not given else f"http://{given}"
    if proxy and not _is_http(proxy):
        raise EndpointUnreachable(
            f"{address.scheme.upper()}_PROXY names no HTTP proxy: {where(proxy)}. Cure: write http://HOST:PORT,"
            f" or go past it: NO_PROXY={address.host}; then run the same command again."
        )
    return proxy


def where(proxy: str) -> str:
    """A proxy for messages: no user and no password."""
    scheme, mark, rest = proxy.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def proxy_passwords() -> Iterator[str]:
    """What must never be written: the passwords of the environment's proxies, as they are and as written."""
    from urllib.request import getproxies_environment

    for scheme in _SCHEMES:
        try:
            written = urlsplit(getproxies_environment().get(scheme, "")).password or ""
        except ValueError:
            continue
        yield from (each for each in {written, unquote(written)} if len(each) >= _SHORTEST_PASSWORD)


def _is_http(proxy: str) -> bool:
    if not proxy.isprintable() or " " in proxy:
        return False
    try:
        parts = urlsplit(proxy)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
