"""Which IP addresses a model may reach: public ones alone, whatever they are wrapped in. Pure."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")
_SPECIAL = ipaddress.IPv4Network("192.0.0.0/24")
"""Protocol assignments (RFC 6890); Oracle's cloud answers there."""
_RELAYS = ipaddress.IPv4Network("192.88.99.0/24")
"""6to4 relays (RFC 7526): they lead to wherever the relay thinks."""
_METADATA = frozenset({ipaddress.IPv4Address("168.63.129.16")})
"""Public addresses that a cloud answers on with what only its machines should know (Azure's host)."""


def why_refused(text: str) -> str:
    """What kind of address it is that may not be reached, such as "a private address"; "" for a public one.

    An IPv6 address that carries an IPv4 one (mapped, 6to4, NAT64, Teredo, ISATAP, ...) is judged by that too.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "no address"
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return "a link-local address"
    inside = _embedded(address)
    judged: list[Address] = [*inside, *([] if address in _NAT64[0] else [address])]
    return next((why for each in judged if (why := _kind(each))), "")


def _embedded(address: Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses inside of an IPv6 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    found = [part for part in (address.ipv4_mapped, address.sixtofour) if part is not None]
    found += list(address.teredo or ())
    is_compatible = address in _COMPATIBLE and int(address) > 0xFFFF
    if is_compatible or any(address in network for network in (*_NAT64, _TRANSLATED)):
        found.append(last)
    if (int(address) >> 32) & 0xFCFFFFFF == 0x00005EFE:  # ISATAP (RFC 5214)
        found.append(last)
    return found


def _kind(address: Address) -> str:
    kinds = (
        (address.is_loopback, "this machine's loopback"),
        (address.is_unspecified, "this machine's loopback"),
        (address.is_link_local, "a link-local address (cloud metadata among them)"),
        (address.is_multicast, "a multicast address"),
        (address in _METADATA, "a cloud metadata address"),
        (address.is_private, "a private address"),
        (isinstance(address, ipaddress.IPv6Address) and address in _SITE_LOCAL, "a private address"),
        (isinstance(address, ipaddress.IPv4Address) and address in _RELAYS, "a 6to4 relay"),
        (address.is_reserved, "a reserved address"),
        (isinstance(address, ipaddress.IPv4Address) and address in _SPECIAL, "a private address"),
        (not address.is_global, "an address that is not public"),
    )
    return next((why for is_so, why in kinds if is_so), "")
