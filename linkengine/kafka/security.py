"""Network policy, TLS contexts, tokens and librdkafka settings of a cluster address. All but the policy contain secrets."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct
import tempfile
import time
import weakref
from base64 import b64encode
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache, lru_cache
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import structlog
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from linkengine.domain.addresses import OAUTH, ClusterAddress
from linkengine.domain.client_properties import TokenUrl, parse_token_url
from linkengine.domain.errors import ErrorCode, LinkEngineError

# --- network policy ------------------------------------------------------------------------------------------------------
# Only ``open_socket`` opens sockets to hosts that a user or a broker names. A name is resolved once. All of its addresses must
# be in the networks that the ``ClusterAddress`` permits, and the connection is opened to one of the checked addresses: a second
# lookup could return another address (DNS rebinding). TLS still verifies the name.
#
# librdkafka and Kafka's Java clients resolve names themselves, so their names are checked before (``check_names``). A name can
# change between that check and their own lookup; see ADR 32.


NAMES_TIMEOUT_S = 3.0  # for all lookups of a check; a name that takes longer cannot be connected to either
_RESOLVERS = 8
# Closing the socket, also when the process dies, drops unsent data (RST); otherwise the kernel would send it for minutes.
_NO_LINGER = struct.pack("ii", 1, 0)


class NotPermittedError(LinkEngineError):
    """An address is outside the permitted networks. The message does not depend on what listens there."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"{host}:{port} is not in a network that this installation may connect to. Use another address, or ask its "
            "operator to change CLUSTERLINK_ALLOWED_NETWORKS and CLUSTERLINK_DENIED_NETWORKS.",
        )


def open_socket(host: str, port: int, *, address: ClusterAddress, timeout_s: float) -> socket.socket:
    """Connect to the first address of a name that accepts the connection; return the socket.

    Raise NotPermittedError before anything is sent; socket.gaierror, ValueError or OverflowError for an invalid name or port;
    OSError if no address accepts the connection.
    """
    failure = OSError("no address")
    for family, kind, protocol, _, target in _resolve(host, port, address=address):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            sock.settimeout(timeout_s)
            sock.connect(target)
        except OSError as error:
            failure = error
            sock.close()
        else:
            return sock
    raise failure


def check_names(places: Iterable[tuple[str, int]], *, address: ClusterAddress) -> None:
    """Raise NotPermittedError if any of the hosts may not be connected to. Names that do not resolve are ignored."""
    pool = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")
    lookups = [pool.submit(_resolve, host, port, address=address) for host, port in dict.fromkeys(places)]
    done = wait(lookups, timeout=NAMES_TIMEOUT_S).done
    pool.shutdown(wait=False, cancel_futures=True)
    for lookup in lookups:
        if lookup in done and isinstance(error := lookup.exception(), NotPermittedError):
            raise error


def _resolve(host: str, port: int, *, address: ClusterAddress) -> list[Any]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not all(address.permits(str(target[0])) for *_, target in found):
        raise NotPermittedError(host, port)
    return found


# --- TLS -----------------------------------------------------------------------------------------------------------------
# A Python ``ssl`` context. Keys pass through a private temporary file.


@lru_cache(maxsize=32)
def client_context(address: ClusterAddress) -> ssl.SSLContext:
    """Return the TLS context of ``address``; raise MISCONFIGURATION_ERROR if a PEM cannot be read."""
    try:
        context = ssl.create_default_context(cadata=address.ssl_ca_pem or None)
        context.check_hostname = address.ssl_check_hostname
        if address.ssl_certificate_pem or address.ssl_key_pem:
            _load_identity(context, address)
    except (ssl.SSLError, ValueError) as error:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"The TLS settings cannot be used ({error}). Set ssl.truststore.certificates, ssl.keystore.certificate.chain "
            "and ssl.keystore.key to PEM text.",
        ) from error
    return context


def _load_identity(context: ssl.SSLContext, address: ClusterAddress) -> None:
    # The ssl module reads client certificates from files only; the file is readable by this user only and deleted at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{address.ssl_key_pem}\n{address.ssl_certificate_pem}\n")
        file.flush()
        context.load_cert_chain(file.name, password=address.ssl_key_password or None)


# --- bearer tokens -------------------------------------------------------------------------------------------------------
# For SASL OAUTHBEARER, fetched with client id and secret (RFC 6749 section 4.4, KIP-768) and cached. All connections of a
# process share a token per endpoint and client. Messages never contain a secret or a token.


FETCH_TIMEOUT_S = 5.0
MAX_RESPONSE = 1 << 20  # bytes of a response; a token has a few thousand
USED_SHARE = 0.75  # of a token's lifetime; less than of a session (connection.py), so that the next session has a new token
LONGEST_LIFETIME_S = 30 * 86_400.0
UNKNOWN_LIFETIME_S = 60.0  # if the endpoint does not return expires_in
_REFUSALS = frozenset({http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN})  # RFC 6749, 5.2
_log = structlog.get_logger(__name__)
_slots: dict[tuple[str, str, str, str], _Slot] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    text: str
    use_until: float  # monotonic clock
    ends_at: float


@dataclass(slots=True)
class _Slot:
    """The token of an endpoint, client and scope. A slow endpoint delays only its own clients."""

    lock: Lock = field(default_factory=Lock)  # the second of two connections waits for the token of the first
    token: _Token | None = None


class BearerTokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types here
    """The token provider for kafka-python's OAUTHBEARER exchange."""

    def __init__(self, address: ClusterAddress) -> None:
        super().__init__()
        self._address = address

    def token(self) -> str:
        """Return a valid token; raise AUTHENTICATION_ERROR or TIMEOUT_ERROR if there is none."""
        return bearer_token(self._address)

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions."""
        return dict(self._address.oauth_extensions)


class _Connection(http.client.HTTPConnection):
    """A connection to a token endpoint; only to permitted addresses, and without following redirects."""

    def __init__(self, url: TokenUrl, *, address: ClusterAddress) -> None:
        super().__init__(url.host, url.port, timeout=FETCH_TIMEOUT_S)
        self._address, self._tls = address, url.tls

    def connect(self) -> None:
        """Open the socket; proxies of the environment are ignored, since a proxy would resolve the name itself."""
        self.sock = open_socket(self.host, self.port, address=self._address, timeout_s=FETCH_TIMEOUT_S)
        if self._tls:
            self.sock = client_context(self._address).wrap_socket(self.sock, server_hostname=self.host)


def bearer_token(address: ClusterAddress) -> str:
    """Return a token of ``address``'s client, from the cache while it is valid."""
    return _token(address).text


def _token(address: ClusterAddress) -> _Token:
    key = (address.oauth_token_url, address.sasl_username, address.sasl_password, address.oauth_scope)
    slot = _slots.setdefault(key, _Slot())
    with slot.lock:
        cached = slot.token
        if cached is None or cached.use_until <= time.monotonic():
            cached = slot.token = _renewed(cached, address)
        return cached


def _renewed(known: _Token | None, address: ClusterAddress) -> _Token:
    """Return a new token; if the endpoint returns none but does not refuse the client, the cached token while it is valid."""
    try:
        return _fetch(address)
    except LinkEngineError as error:
        if known is None or error.code is not ErrorCode.TIMEOUT_ERROR or known.ends_at <= time.monotonic():
            raise
        return known


def librdkafka_token(address: ClusterAddress) -> tuple[str, float, str, dict[str, str]]:
    """Return what librdkafka's ``oauth_cb`` returns: token, its end (seconds since 1970), principal, extensions."""
    token = _token(address)
    left_s = max(1.0, token.ends_at - time.monotonic())
    return token.text, time.time() + left_s, address.sasl_username, dict(address.oauth_extensions)


def _fetch(address: ClusterAddress) -> _Token:
    requested_at = time.monotonic()
    response_json = _request_token(address)
    text = response_json.get("access_token")
    if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()):
        raise _no_token(address, "the response has no access_token")
    lifetime = response_json.get("expires_in")
    lifetime_s = (
        min(float(lifetime), LONGEST_LIFETIME_S)
        if isinstance(lifetime, int | float) and 0 < lifetime < 1 << 53
        else UNKNOWN_LIFETIME_S
    )
    return _Token(text=text, use_until=requested_at + lifetime_s * USED_SHARE, ends_at=requested_at + lifetime_s)


def _request_token(address: ClusterAddress) -> dict[str, Any]:
    """Return the endpoint's response as a JSON object.

    The error text distinguishes two cases: the endpoint refused the client, or there was no token for another reason. A user
    may enter any URL, so the status of other services must not be readable through the text; the log has the reason.
    """
    url = parse_token_url(address.oauth_token_url)
    connection = _Connection(url, address=address)
    try:
        connection.request("POST", url.path, body=_body(address), headers=_headers(address))
        with connection.getresponse() as response:  # closes the socket, which the response has taken over
            if response.status in _REFUSALS:
                raise _refused(address, response.status)
            if response.status != http.HTTPStatus.OK:
                raise _no_token(address, f"status {response.status}")
            response_json = json.loads(response.read(MAX_RESPONSE))
    except (OSError, http.client.HTTPException, ValueError, RecursionError, OverflowError) as error:
        raise _no_token(address, f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    return response_json if isinstance(response_json, dict) else {}


def _body(address: ClusterAddress) -> bytes:
    fields = {"grant_type": "client_credentials"} | ({"scope": address.oauth_scope} if address.oauth_scope else {})
    return urlencode(fields).encode()


def _headers(address: ClusterAddress) -> dict[str, str]:
    login = f"{quote(address.sasl_username, safe='')}:{quote(address.sasl_password, safe='')}"
    return {
        "Authorization": "Basic " + b64encode(login.encode()).decode(),
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _refused(address: ClusterAddress, status: int) -> LinkEngineError:
    advice = (
        f"refused client {address.sasl_username!r}. Correct clientId, clientSecret and scope in sasl.jaas.config; copying then "
        "continues automatically."
    )
    return _failed(address, ErrorCode.AUTHENTICATION_ERROR, advice, reason=f"status {status}")


def _no_token(address: ClusterAddress, reason: str) -> LinkEngineError:
    advice = (
        "returned no token. Check the URL, that it can be reached from the machines that copy, and their log for the reason."
    )
    return _failed(address, ErrorCode.TIMEOUT_ERROR, advice, reason=reason)


def _failed(address: ClusterAddress, code: ErrorCode, advice: str, *, reason: str) -> LinkEngineError:
    _log.warning("token.missing", endpoint=address.oauth_token_url, client=address.sasl_username, code=code, reason=reason)
    return LinkEngineError(code, f"The token endpoint {address.oauth_token_url} {advice}")


# --- librdkafka ----------------------------------------------------------------------------------------------------------
# Names of settings follow its CONFIGURATION.md.


_Client = TypeVar("_Client", AdminClient, Consumer, Producer)
_TRIMMED = tuple(" \t\n\v\f\r")


def make_client(kind: type[_Client], address: ClusterAddress, settings: Mapping[str, Any]) -> _Client:
    """Return a librdkafka client; ``settings`` are added to those of the address."""
    client: Any = kind.__new__(_referable(kind))  # type: ignore[arg-type] # a class is hashable
    known = _known_to_callbacks(client, librdkafka_settings(address) | dict(settings))
    try:
        client.__init__(known)  # separately, as it may wait for a callback
    except KafkaException as error:
        del client  # the frames of the traceback would keep it, and so its threads, which continue to request tokens
        raise error.with_traceback(None) from None
    if address.sasl_username.startswith(_TRIMMED) or address.sasl_password.startswith(_TRIMMED):
        # librdkafka strips leading white space of a setting, but not of credentials that are set like this
        client.set_sasl_credentials(address.sasl_username, address.sasl_password)
    return cast("_Client", client)


# librdkafka calls ``oauth_cb`` in a thread of the client. If the last reference to the client were dropped there, or if garbage
# with the client were collected there, the thread would have to end itself, and librdkafka aborts the process. So the client is
# referenced during its callback, and that reference is dropped by another thread.


_called: SimpleQueue[list[object]] = SimpleQueue()


@cache
def _referable(kind: type[Any]) -> type[Any]:
    """Return a subclass that weak references can refer to; Consumer and Producer are written in C without."""
    return type(kind.__name__, (kind,), {})


def _known_to_callbacks(client: object, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with a callback that keeps the client alive while it runs."""
    callback = settings.get("oauth_cb")
    if callback is None:
        return settings
    _start_dropping()
    reference = weakref.ref(client)

    def keep_and_call(config: str) -> object:
        kept = [reference()]  # this frame has only the list, which is emptied elsewhere
        try:
            return callback(config)
        finally:
            _called.put(kept)

    return settings | {"oauth_cb": keep_and_call}


@cache
def _start_dropping() -> None:
    Thread(target=_drop_references, name="drop-clients", daemon=True).start()


def _drop_references() -> None:
    while True:
        _called.get().clear()


def librdkafka_settings(address: ClusterAddress) -> dict[str, Any]:
    """Return the settings with which a confluent-kafka client reaches ``address``."""
    settings: dict[str, Any] = {"bootstrap.servers": address.bootstrap_servers, "security.protocol": address.security_protocol}
    if address.uses_sasl:
        settings["sasl.mechanism"] = address.sasl_mechanism
        settings |= _login_settings(address)
    if address.uses_tls:
        settings |= _tls_settings(address)
    return settings


def _login_settings(address: ClusterAddress) -> dict[str, Any]:
    if address.sasl_mechanism != OAUTH:
        return {"sasl.username": address.sasl_username, "sasl.password": address.sasl_password}
    # librdkafka's own OIDC client would connect to the token endpoint without a check of its network address
    return {"oauth_cb": lambda _config: librdkafka_token(address)}


def _tls_settings(address: ClusterAddress) -> dict[str, str]:
    optional = {
        "ssl.ca.pem": address.ssl_ca_pem,
        "ssl.certificate.pem": address.ssl_certificate_pem,
        "ssl.key.pem": address.ssl_key_pem,
        "ssl.key.password": address.ssl_key_password,
    }
    settings = {name: value for name, value in optional.items() if value}
    authorities = ssl.get_default_verify_paths().cafile  # with SSL_CERT_FILE, which librdkafka does not read
    if authorities and not address.ssl_ca_pem:  # otherwise copy workers and librdkafka would trust different authorities
        settings["ssl.ca.location"] = authorities
    settings["ssl.endpoint.identification.algorithm"] = "https" if address.ssl_check_hostname else "none"
    return settings
