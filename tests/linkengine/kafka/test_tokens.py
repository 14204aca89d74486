from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread

import pytest

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
