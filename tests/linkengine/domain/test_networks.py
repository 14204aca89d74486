"""Networks to which connections are allowed, in every spelling of an address."""

from __future__ import annotations

import pytest

from linkengine.domain.addresses import DENIED_BY_DEFAULT, EVERYWHERE, is_permitted, parse_address, parse_network


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fe80::1",
        "fe80::1%eth0",
        "0.0.0.0",
        "::",
        "::ffff:0.0.0.0",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "fd00:ec2::254",
        "100.100.100.200",
    ],
)
def test_link_local_metadata_and_multicast_addresses_are_denied_by_default(address: str) -> None:
    assert not is_permitted(address, allowed=EVERYWHERE, denied=DENIED_BY_DEFAULT)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "203.0.113.9", "fd12::1", "2001:db8::1"])
def test_loopback_private_and_public_addresses_are_allowed_by_default(address: str) -> None:
    assert is_permitted(address, allowed=EVERYWHERE, denied=DENIED_BY_DEFAULT)


def test_an_address_outside_of_the_allowed_networks_is_denied() -> None:
    allowed = ("10.1.0.0/16", "2001:db8::/32")

    assert is_permitted("10.1.2.3", allowed=allowed, denied=())
    assert is_permitted("::ffff:10.1.2.3", allowed=allowed, denied=())
    assert is_permitted("2001:db8::5", allowed=allowed, denied=())
    assert not is_permitted("10.2.0.1", allowed=allowed, denied=())
    assert not is_permitted("64:ff9b::a01:203", allowed=allowed, denied=())
    assert not is_permitted("10.1.2.3", allowed=allowed, denied=("10.1.2.0/24",))


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "localhost", "*"])
def test_text_that_is_not_a_network_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_network(text)


def test_an_address_loses_its_zone() -> None:
    assert str(parse_address("fe80::1%3")) == "fe80::1"
