"""``bootstrap.servers`` in every spelling that Kafka's Java clients accept, and networks in every spelling of an address.

The Java clients 3.9 and 4.3 were tried with the same texts.
"""

from __future__ import annotations

import pytest

from linkengine.domain.addresses import (
    DENIED_BY_DEFAULT,
    EVERYWHERE,
    is_permitted,
    join_servers,
    parse_address,
    parse_network,
    parse_servers,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("a:1", "a:1"),
        ("SASL_SSL://a:9092,SASL_SSL://b:9092", "a:9092,b:9092"),
        ("sasl_ssl://a:9092,Ssl://b:9092", "a:9092,b:9092"),
        (" a:1 ,\tb:2 ", "a:1,b:2"),
        ("a:1,", "a:1"),
        ("a:1,,b:2", "a:1,b:2"),
        (",a:1", "a:1"),
        ("[::1]:9092", "[::1]:9092"),
        ("::1:9092", "[::1]:9092"),
        ("PLAINTEXT://[2001:db8::1]:9092", "[2001:db8::1]:9092"),
        ("[fe80::1%eth0]:9092", "[fe80::1%eth0]:9092"),
        ("my-listener://a:1", "a:1"),
        ("://a:1", "a:1"),
        ("https://a:1", "a:1"),
        ("a:09092", "a:9092"),
        ("LOCALHOST:1,local_host:2,localhost.:3", "LOCALHOST:1,local_host:2,localhost.:3"),
        ("a:1,a:1,SSL://a:1", "a:1"),
        ("10.0.0.1:1,xn--hst-sna.example:2", "10.0.0.1:1,xn--hst-sna.example:2"),
    ],
)
def test_every_spelling_of_kafkas_clients_is_accepted(text: str, joined: str) -> None:
    assert join_servers(parse_servers(text)) == joined
    assert join_servers(parse_servers(joined)) == joined


NOT_SERVERS = ["a", "a:", ":1", "[]:1", "a:b", "a:0", "a:65536", "a:99999999999", "a:1x", "a: 1", "a:+1", "a:-1", "a:1/path"]
OLDER_CLIENTS_GUESS = ["a:1;b:2", "a:1 b:2", "u@a:1", "höst:1", "*:1", "a b://c:1", "my+x://a:1", "SSL:/a:1", "SSL://SSL://a:1"]


@pytest.mark.parametrize("part", [*NOT_SERVERS, *OLDER_CLIENTS_GUESS, "a:٩٠٩٢", "a\0:1"])
def test_text_that_is_not_a_server_is_refused_by_name(part: str) -> None:
    with pytest.raises(LinkEngineError, match=r"bootstrap\.servers") as refused:
        parse_servers(f"good:1, {part}")

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert repr(part) in refused.value.message


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_an_empty_list_is_refused(text: str) -> None:
    with pytest.raises(LinkEngineError, match=r"bootstrap\.servers is empty"):
        parse_servers(text)


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
