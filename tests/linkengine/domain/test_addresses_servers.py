"""``bootstrap.servers`` in every spelling that Kafka's Java clients accept (3.9 and 4.3 were tried with the same texts)."""

from __future__ import annotations

import pytest

from linkengine.domain.addresses import join_servers, parse_servers
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
