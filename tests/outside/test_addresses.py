# ruff: noqa: E501 - tables of addresses
"""Which addresses a model may reach."""

from __future__ import annotations

import pytest

from hermes_run.outside.addresses import why_refused

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "64:ff9b::808:808",
]
REFUSED = {
    "127.0.0.1": "loopback", "127.255.0.9": "loopback", "0.0.0.0": "loopback", "::1": "loopback", "::": "loopback",
    "10.0.0.1": "private", "172.16.0.1": "private", "192.168.1.1": "private", "fd00:ec2::254": "private",
    "fc00::1": "private", "fec0::1": "private", "169.254.169.254": "link-local", "fe80::1": "link-local",
    "fe80::1%eth0": "link-local", "224.0.0.1": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast",
    "100.64.0.1": "not public", "100.100.100.200": "not public", "192.0.0.192": "private", "198.18.0.1": "private",
    "168.63.129.16": "metadata", "240.0.0.1": "private", "255.255.255.255": "private", "192.88.99.1": "6to4",
    "::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:a9fe:a9fe": "link-local",
    "2002:7f00:1::": "loopback", "2002:a00:1::1": "private", "2002:a9fe:a9fe::": "link-local",
    "64:ff9b::7f00:1": "loopback", "64:ff9b::a9fe:a9fe": "link-local", "64:ff9b:1::a00:1": "private",
    "::127.0.0.1": "loopback", "::ffff:0:10.0.0.1": "private", "2001:0:7f00:1::": "loopback",
    "2001:db8::1": "private", "2001:470:1:1:0:5efe:10.0.0.1": "private", "2001:470:1:1:200:5efe:127.0.0.1": "loopback",
    "localhost": "no address", "": "no address", "1.2.3": "no address", "0x7f.1": "no address",
}  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_is_let_through(address: str) -> None:
    assert why_refused(address) == ""


@pytest.mark.parametrize("address", REFUSED)
def test_every_other_address_is_refused_by_its_kind(address: str) -> None:
    why = why_refused(address)
    assert why
    said = REFUSED[address]
    assert said in why or said == "private"
