from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devcluster.ports import free_port
from devcluster.tokens import TokenEndpoint
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties, parse_token_url
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import security
from linkengine.kafka.security import BearerTokens, NotPermittedError, bearer_token

ROOT = Path(__file__).resolve().parents[3]
numbers = count()


@pytest.fixture(autouse=True)
def _no_cached_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gives an endpoint the port of an earlier one from time to time: its token must not be found again."""
    monkeypatch.setattr(security, "_slots", {})


@pytest.fixture
def tokens() -> Iterator[TokenEndpoint]:
    with TokenEndpoint({"link:1": "p w/ü"}) as endpoint:
        yield endpoint


@pytest.fixture
def address(tokens: TokenEndpoint) -> ClusterAddress:
    properties = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL"}
    return address_from_properties(properties | tokens.client_properties("link:1"))


def test_a_token_is_fetched_once_while_it_is_valid(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    first = bearer_token(address)

    assert first.count(".") == 2
    assert BearerTokens(address).token() == first
    assert tokens.given == 1


def test_another_secret_is_another_token(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    bearer_token(address)
    tokens.clients["link:1"] = "rotated"

    bearer_token(replace(address, sasl_password="rotated"))

    assert tokens.given == 2


def test_an_aged_token_is_replaced(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    tokens.token = lambda client, *, scope: {"access_token": f"{client} {next(numbers)}", "expires_in": 1e-6}  # type: ignore[method-assign]

    assert bearer_token(address) != bearer_token(address)


LIFE_S = 600.0


def living(client: str, *, scope: str) -> dict[str, object]:
    return {"access_token": f"{client} {next(numbers)}", "expires_in": LIFE_S}


def age(address: ClusterAddress, seconds: float) -> None:
    """Move the times of the cached token back, as if it were older."""
    (slot,) = [slot for key, slot in security._slots.items() if key[0] == address.oauth_token_url]
    assert slot.token is not None
    slot.token = replace(slot.token, use_until=slot.token.use_until - seconds, ends_at=slot.token.ends_at - seconds)


def aged(address: ClusterAddress, tokens: TokenEndpoint, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a token that is due for renewal but has not expired."""
    monkeypatch.setattr(tokens, "token", living)
    token = bearer_token(address)
    age(address, LIFE_S * 0.8)
    return token


def test_an_aged_token_is_used_to_its_end_while_the_endpoint_returns_none(
    tokens: TokenEndpoint, address: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = aged(address, tokens, monkeypatch)
    monkeypatch.setattr(tokens, "token", lambda _client, *, scope: {"scope": scope})

    assert bearer_token(address) == token
    age(address, LIFE_S * 0.2)
    with pytest.raises(LinkEngineError, match="returned no token"):
        bearer_token(address)


def test_an_aged_token_is_not_used_when_the_endpoint_refuses_the_client(
    tokens: TokenEndpoint, address: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(address, tokens, monkeypatch)
    tokens.clients["link:1"] = "rotated"

    with pytest.raises(LinkEngineError, match="refused client"):
        bearer_token(address)


def test_a_slow_endpoint_delays_only_its_own_clients(
    tokens: TokenEndpoint, address: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "FETCH_TIMEOUT_S", 60.0)
    requested, resume = Event(), Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        requested.set()
        resume.wait(30)
        status(500)(handler)

    def request(url: str) -> None:
        with suppress(LinkEngineError):
            bearer_token(replace(address, oauth_token_url=url))

    with endpoint(slow) as (url, _):
        waiting = Thread(target=request, args=(url,))
        waiting.start()
        assert requested.wait(60)
        assert bearer_token(address)
        assert waiting.is_alive()  # the slow endpoint has not responded
        resume.set()
        waiting.join(60)


def test_sasl_extensions_are_returned(address: ClusterAddress) -> None:
    assert BearerTokens(replace(address, oauth_extensions=(("pool", "x"),))).extensions() == {"pool": "x"}


def test_a_refused_client_is_an_authentication_error_without_its_secret(address: ClusterAddress) -> None:
    with pytest.raises(LinkEngineError, match="refused client 'link:1'") as refused:
        bearer_token(replace(address, sasl_password="open-sesame"))

    assert refused.value.code is ErrorCode.AUTHENTICATION_ERROR
    assert "open-sesame" not in str(refused.value)


Respond = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def endpoint(respond: Respond, *, host: str = "127.0.0.1") -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of an endpoint with this response, and the list of requested paths."""
    requested: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requested.append(self.path)
            respond(self)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer((host, 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{host}:{server.server_port}/token", requested
        server.shutdown()


def status(code: int, body: bytes = b"", **headers: str) -> Respond:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return respond


NO_TOKEN: dict[str, Respond] = {
    "not found": status(404),
    "failed": status(500),
    "overloaded": status(503),
    "redirect": status(302, Location="http://127.0.0.1:1/"),
    "other success": status(204),
    "no token": status(200, b'{"token": 1}'),
    "a list": status(200, b"[]"),
    "not JSON": status(200, b"<html>"),
    "not UTF-8": status(200, b"\xff\xfe"),
    "deep": status(200, b"[" * 100_000),
    "not HTTP": lambda handler: handler.wfile.writelines([b"SSH-2.0-x\r\n"]),
    "closed": lambda handler: handler.connection.close(),
}


@pytest.mark.parametrize("kind", NO_TOKEN)
def test_the_message_does_not_depend_on_the_endpoints_response(address: ClusterAddress, kind: str) -> None:
    with endpoint(NO_TOKEN[kind]) as (url, requested), pytest.raises(LinkEngineError) as refused:
        bearer_token(replace(address, oauth_token_url=url))
    with pytest.raises(LinkEngineError) as away:
        bearer_token(replace(address, oauth_token_url=f"http://127.0.0.1:{free_port()}/token"))

    assert requested == ["/token"]
    assert (refused.value.code, away.value.code) == (ErrorCode.TIMEOUT_ERROR, ErrorCode.TIMEOUT_ERROR)
    ports = re.compile(r":\d+/")
    assert ports.sub("/", refused.value.message) == ports.sub("/", away.value.message)


COLLECTED_IN_A_CALLBACK = """
import gc, threading, time
from confluent_kafka.admin import AdminClient
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import security

called, dropped, ended = threading.Event(), threading.Event(), threading.Event()

def fetch(address):
    if not called.is_set() and not security._slots[next(iter(security._slots))].token:
        return security._Token(text="a.b.c", use_until=0.0, ends_at=time.monotonic() + 1.0)  # renewed in a second
    called.set()
    dropped.wait(60)
    gc.set_threshold(1, 1, 1)
    kept = [[] for _ in range(100_000)]
    gc.set_threshold(700, 10, 10)
    ended.set()
    raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, "no token")

security._fetch = fetch
login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId='a' clientSecret='b';"
address = address_from_properties({
    "bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": login, "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
})
client = security.make_client(AdminClient, address, {})
cycle = [client]
cycle.append(cycle)
assert called.wait(60)
del client, cycle
dropped.set()
assert ended.wait(60)
gc.collect()
assert gc.isenabled()
print("alive")
"""


@pytest.mark.network
def test_a_client_is_not_destroyed_by_its_own_callback() -> None:
    """librdkafka would abort the process: its thread must not destroy its own client."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECTED_IN_A_CALLBACK], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )

    assert done.stdout == "alive\n", done.stderr


@pytest.mark.parametrize("code", [400, 401, 403])
def test_a_refused_client_has_the_same_message_for_every_status(address: ClusterAddress, code: int) -> None:
    with endpoint(status(code)) as (url, _), pytest.raises(LinkEngineError, match="refused client") as refused:
        bearer_token(replace(address, oauth_token_url=url))

    assert refused.value.code is ErrorCode.AUTHENTICATION_ERROR
    assert str(code) not in refused.value.message.replace(url, "")


def test_a_redirect_is_not_followed(tokens: TokenEndpoint, address: ClusterAddress) -> None:
    with endpoint(status(302, Location=tokens.url)) as (url, _), pytest.raises(LinkEngineError, match="returned no token"):
        bearer_token(replace(address, oauth_token_url=url))

    assert tokens.given == 0


BAD_URLS = [
    "http://[::1", "http://[::1]x/token", "http://host:port/", "http://host:99999/", "http:///token", "https://",
    "ftp://host/token", "http://host/to ken", "http://host/token\r\nX-Evil: 1", "http://ho st/token", "http://host/\x00",
    "http://höst/token", "", "token",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_the_error_of_an_invalid_url_names_the_setting(address: ClusterAddress, url: str) -> None:
    with pytest.raises(LinkEngineError, match=r"^MISCONFIGURATION_ERROR: sasl.oauthbearer.token.endpoint.url is "):
        bearer_token(replace(address, oauth_token_url=url))


class Responding:
    """A server that sends the bytes that a test sets to every client, and closes the connection."""

    def __init__(self) -> None:
        self.response = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/token"
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                others = self._server.accept()[0]
            except OSError:
                return  # closed
            with others, suppress(OSError):  # a client resets its connection when it has seen enough
                others.recv(1 << 16)
                others.sendall(self.response)
                others.shutdown(socket.SHUT_WR)
                while others.recv(1 << 16):  # unread data would reset the connection
                    pass


@pytest.fixture(scope="module")
def responding() -> Iterator[Responding]:
    server = Responding()
    yield server
    server.close()


HONEST = b'HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n{"access_token": "abc", "expires_in": 3600}\r\n'


@pytest.mark.parametrize(
    "response",
    [
        b"", b"\0" * 100, b"SSH-2.0-OpenSSH", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n{}", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe", b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, b"HTTP/1.1 200 OK\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\n\r\n{"access_token": 5}', b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "a\\nb"}',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    ],
)  # fmt: skip
def test_an_invalid_response_raises_only_LinkEngineError(
    responding: Responding, address: ClusterAddress, response: bytes
) -> None:
    responding.response = response

    with pytest.raises(LinkEngineError) as refused:
        bearer_token(replace(address, oauth_token_url=responding.url))

    assert refused.value.code in (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.TIMEOUT_ERROR)
    assert responding.url in refused.value.message


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_response_is_a_token_or_raises_LinkEngineError(
    responding: Responding, address: ClusterAddress, data: st.DataObject
) -> None:
    changed = bytearray(HONEST)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    responding.response = bytes(changed[: data.draw(st.integers(len(changed) // 2, len(changed)))])

    with suppress(LinkEngineError):
        assert bearer_token(replace(address, oauth_token_url=responding.url, oauth_scope=str(next(numbers)))).isprintable()


@pytest.mark.parametrize("life", ["1e400", "-1", "true", "null", '"3600"', "1" * 400])
def test_a_token_with_an_invalid_lifetime_is_used(responding: Responding, address: ClusterAddress, life: str) -> None:
    responding.response = b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "abc", "expires_in": ' + life.encode() + b"}"

    assert bearer_token(replace(address, oauth_token_url=responding.url, oauth_scope=str(next(numbers)))) == "abc"


def test_no_proxy_of_the_environment_is_used(
    tokens: TokenEndpoint, address: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with endpoint(status(500)) as (proxy, requested):
        monkeypatch.setenv("http_proxy", proxy)
        assert bearer_token(address)

    assert requested == []


@pytest.mark.parametrize("denied", ["127.0.0.2/32", "127.0.0.0/8"])
def test_an_endpoint_in_a_denied_network_is_not_connected_to(address: ClusterAddress, denied: str) -> None:
    with endpoint(status(200), host="127.0.0.2") as (url, requested), pytest.raises(NotPermittedError):
        bearer_token(replace(address, oauth_token_url=url, denied_networks=(denied,)))

    assert requested == []


NO_URLS = ["", "ftp://x/", "http://", "http:///token", "http://[::1", "http://a:b/", "http://a:99999/", "http://a:0/"]
MALFORMED_URLS = [
    "http://a/\r\nX: y",
    "http://a/ b",
    "http://a b/",
    "http://user:pw@a/",
    "http://ä/",
    "http://a/ä",
    "//a/",
    "a",
]


@pytest.mark.parametrize("url", [*NO_URLS, *MALFORMED_URLS, "http://a/\x7f"])
def test_an_invalid_endpoint_url_is_a_misconfiguration(url: str) -> None:
    with pytest.raises(LinkEngineError, match=r"sasl\.oauthbearer\.token\.endpoint\.url") as refused:
        parse_token_url(url)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://tokens.test/oauth2/token", (True, "tokens.test", 443, "/oauth2/token")),
        ("HTTP://Tokens.test:8080", (False, "tokens.test", 8080, "/")),
        ("https://[2001:db8::1]:8443/t?tenant=1#x", (True, "2001:db8::1", 8443, "/t?tenant=1")),
    ],
)
def test_a_url_is_split_into_its_parts(url: str, parts: tuple[bool, str, int, str]) -> None:
    assert parse_token_url(url) == parts
