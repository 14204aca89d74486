from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devcluster.ports import free_port
from devcluster.tokens import TokenEndpoint
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.tokens import BearerTokens, bearer_token

numbers = count()


@pytest.fixture
def tokens() -> Iterator[TokenEndpoint]:
    with TokenEndpoint({"link:1": "p w/ü"}) as endpoint:
        yield endpoint


@pytest.fixture
def address(tokens: TokenEndpoint) -> ClusterAddress:
    properties = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL"}
    return address_from_properties(properties | tokens.client_properties("link:1"))


def test_a_token_is_fetched_once_while_it_is_good(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    first = bearer_token(address)

    assert first.count(".") == 2
    assert BearerTokens(address).token() == first
    assert tokens.given == 1


def test_another_secret_is_another_token(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    bearer_token(address)
    tokens.clients["link:1"] = "rotated"

    bearer_token(replace(address, sasl_password="rotated"))

    assert tokens.given == 2


def test_an_aged_token_is_fetched_anew(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    tokens.token = lambda client, *, scope: {"access_token": f"{client} {next(numbers)}", "expires_in": 1e-6}  # type: ignore[method-assign]

    assert bearer_token(address) != bearer_token(address)


def test_extensions_go_along(address: ClusterAddress) -> None:
    assert BearerTokens(replace(address, oauth_extensions=(("pool", "x"),))).extensions() == {"pool": "x"}


def test_a_refused_client_is_an_authentication_error_without_its_secret(address: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError, match="it answered 401") as refused:
        bearer_token(replace(address, sasl_password="open-sesame"))

    assert refused.value.code is ErrorCode.AUTHENTICATION_ERROR
    assert "open-sesame" not in str(refused.value)


def test_an_answer_without_a_token_is_said_so(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    tokens.token = lambda client, *, scope: {"token": client, "scope": scope}  # type: ignore[method-assign]

    with pytest.raises(LinkEngineError, match="holds no access_token"):
        bearer_token(address)


def test_an_endpoint_that_is_away_is_a_timeout(address: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError, match="does not answer") as away:
        bearer_token(replace(address, oauth_token_url=f"http://127.0.0.1:{free_port()}/token"))

    assert away.value.code is ErrorCode.TIMEOUT_ERROR


def test_a_redirect_is_not_followed(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(302)
            self.send_header("Location", tokens.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(LinkEngineError, match="it answered 302"):
            bearer_token(replace(address, oauth_token_url=f"http://127.0.0.1:{server.server_port}/"))
        server.shutdown()
    assert tokens.given == 0


BAD_URLS = [
    "http://[::1", "http://[::1]x/token", "http://host:port/", "http://host:99999/", "http:///token", "https://",
    "ftp://host/token", "http://host/to ken", "http://host/token\r\nX-Evil: 1", "http://ho st/token", "http://host/\x00",
    "http://höst/token", "", "token",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_that_no_request_can_be_sent_to_is_refused_by_name(address: ClusterAddress, url: str) -> None:
    with pytest.raises(LinkEngineError, match=r"^MISCONFIGURATION_ERROR: sasl.oauthbearer.token.endpoint.url is "):
        bearer_token(replace(address, oauth_token_url=url))


class Answering:
    """A server that answers every request with the bytes a test gives it, and closes."""

    def __init__(self) -> None:
        self.answer = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/token"
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                with self._server.accept()[0] as theirs:
                    theirs.recv(1 << 16)
                    theirs.sendall(self.answer)
                    theirs.shutdown(socket.SHUT_WR)
                    while theirs.recv(1 << 16):  # what is not read would reset the connection
                        pass


@pytest.fixture(scope="module")
def answering() -> Iterator[Answering]:
    server = Answering()
    yield server
    server.close()


HONEST = b'HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n{"access_token": "abc", "expires_in": 3600}\r\n'


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\0" * 100, b"SSH-2.0-OpenSSH", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n{}", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe", b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, b"HTTP/1.1 200 OK\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\n\r\n{"access_token": 5}', b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "a\\nb"}',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_one_kind_of_error(answering: Answering, address: ClusterAddress, answer: bytes) -> None:
    answering.answer = answer

    with pytest.raises(LinkEngineError) as refused:
        bearer_token(replace(address, oauth_token_url=answering.url))

    assert refused.value.code in (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.TIMEOUT_ERROR)
    assert answering.url in refused.value.message


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_answer_is_a_token_or_one_kind_of_error(
    answering: Answering, address: ClusterAddress, data: st.DataObject
) -> None:
    changed = bytearray(HONEST)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    answering.answer = bytes(changed[: data.draw(st.integers(len(changed) // 2, len(changed)))])

    with suppress(LinkEngineError):
        assert bearer_token(replace(address, oauth_token_url=answering.url, oauth_scope=str(next(numbers)))).isprintable()


@pytest.mark.parametrize("life", ["1e400", "-1", "true", "null", '"3600"', "1" * 400])
def test_a_life_that_is_none_does_not_keep_a_token(answering: Answering, address: ClusterAddress, life: str) -> None:
    answering.answer = b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "abc", "expires_in": ' + life.encode() + b"}"

    assert bearer_token(replace(address, oauth_token_url=answering.url, oauth_scope=str(next(numbers)))) == "abc"
