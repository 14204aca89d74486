"""An authenticated connection to a broker: TCP, TLS, SASL, and small requests in sequence.

Small requests and SASL exchanges are encoded by kafka-python's protocol layer; its transport is not used. The data path takes
over the socket of an open connection (``channel.py``). Independent of topics and partitions.
Every call has a timeout. Messages contain the broker and the user, never a password.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

from linkengine.domain.addresses import OAUTH, ClusterAddress
from linkengine.domain.connectionchecks import ConnectStep
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.protocol import CLIENT_ID, INT32, UNREADABLE, KafkaCode, MalformedResponseError, decoding_response
from linkengine.kafka.security import BearerTokens, client_context, open_socket

CONNECT_TIMEOUT_S = 3.0  # a broker that does not respond must not delay the others
REQUEST_TIMEOUT_S = 5.0  # small requests: metadata, offsets, producer state
MAX_SMALL_RESPONSE = 64 << 20  # metadata of a huge cluster; more means that the peer is not a broker
SLOWEST_BYTES_PER_S = 256 << 10  # slowest accepted rate of a large response
MAX_HANDSHAKE_RESPONSE = 1 << 20  # from a peer that has not proven to be a broker yet
MOST_SASL_STEPS = 8  # SCRAM has two
RENEWED_SHARE, USED_SHARE = 0.8, 0.95  # of a session's lifetime; a broker closes a connection used after its end (KIP-368)
SHORTEST_SESSION_S = 1.0  # minimum, whatever the broker returns: a connection is not replaced more often
_FLEXIBLE_API_VERSIONS = 3
T = TypeVar("T")


def _emit_varint(_: type[UnsignedVarInt32], ctx: Any, var_name: str, indent: str) -> None:
    """Emit kafka-python's code that reads a varint, with a limit of five bytes: more bytes would take quadratic time."""
    byte, shift = ctx.next_var("b"), ctx.next_var("sh")
    for line in (
        f"{var_name} = {shift} = 0",
        "while True:",
        f"    {byte} = data[pos]",
        "    pos += 1",
        f"    {var_name} |= ({byte} & 0x7f) << {shift}",
        f"    if not ({byte} & 0x80): break",
        f"    {shift} += 7",
        f"    if {shift} > 28: raise ValueError('a number of more than five bytes')",
    ):
        ctx.emit(indent, line)


UnsignedVarInt32.emit_decode_from = classmethod(_emit_varint)


def as_it_is(response: Any) -> Any:
    """Return the whole response. It may be incomplete: later reads of missing parts are not guarded."""
    return response


class Connection:
    """A blocking connection; created by ``connect``. Not thread-safe."""

    def __init__(self, sock: socket.socket, *, host: str, port: int) -> None:
        self.sock = sock
        self.host, self.port = host, port
        self._correlation = 0
        self.versions: dict[int, tuple[int, int]] = {}  # api key -> lowest and highest version that the broker supports
        self.round_trip_s: float | None = None  # of the fastest request so far; the handshake includes a request
        self.renew_at = self.ends_at = math.inf  # monotonic: when to open a successor, and when the session must not be used

    @property
    def peer(self) -> str:
        """Host and port of the broker, for messages."""
        return f"{self.host}:{self.port}"

    def supports(self, api_key: int, version: int) -> bool:
        """Return whether the broker announced this version. A damaged response may announce anything, or leave out any API."""
        low, high = self.versions.get(api_key, (0, -1))
        return low <= version <= high

    def version_for(self, api_key: int, *, highest: int, lowest: int = 0) -> int:
        """Return the highest version that both sides support; raise MISCONFIGURATION_ERROR if there is none."""
        low, high = self.versions.get(api_key, (0, -1))
        version = min(high, highest)
        if version < max(low, lowest):
            raise LinkEngineError(
                ErrorCode.MISCONFIGURATION_ERROR,
                f"Broker {self.peer} supports versions {low} to {high} of API {api_key}; {lowest} to {highest} are needed. "
                "Use brokers of Kafka 3.1 or newer.",
            )
        return version

    def request(
        self,
        request: Any,
        *,
        response: Any,
        read: Callable[[Any], T] = as_it_is,
        timeout_s: float = REQUEST_TIMEOUT_S,
        most_bytes: int = MAX_SMALL_RESPONSE,
    ) -> T:
        """Send a request of kafka-python's protocol layer; return what ``read`` makes of the decoded response.

        ``timeout_s`` limits the wait for its first bytes; the time for the rest depends on its size, which ``most_bytes``
        limits. Raises MalformedResponseError if the response cannot be decoded, or if ``read`` does not find what was
        requested; the connection must not be used after that.
        """
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=CLIENT_ID.decode())
        sent_at = time.monotonic()
        encoded = request.encode(header=True, framed=True)
        frame = self._exchange(encoded, deadline=sent_at + timeout_s, most_bytes=most_bytes)
        took_s = time.monotonic() - sent_at
        self.round_trip_s = took_s if self.round_trip_s is None else min(took_s, self.round_trip_s)
        with decoding_response(request.name.removesuffix("Request"), peer=self.peer):
            decoded = response.decode(frame, version=request.API_VERSION, header=True)
            if decoded.header.correlation_id != self._correlation:
                raise ValueError(f"it responds to request {decoded.header.correlation_id}, not {self._correlation}")
            return read(decoded)

    def close(self) -> None:
        """Close the socket; safe to repeat."""
        self.sock.close()

    def fileno(self) -> int:
        return self.sock.fileno()

    def _exchange(self, frame: bytes | bytearray, *, deadline: float, most_bytes: int) -> bytes:
        try:
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
            self.sock.sendall(frame)
            (size,) = INT32.unpack(self._receive(INT32.size, deadline=deadline))
            return self._receive(_check_size(size, most_bytes), deadline=deadline + size / SLOWEST_BYTES_PER_S)
        except TimeoutError:
            raise _timed_out(self.peer) from None
        except OSError as error:
            raise _lost(self.peer, error) from error

    def _receive(self, size: int, *, deadline: float) -> bytes:
        buffer = bytearray(size)
        view, got = memoryview(buffer), 0
        while got < size:
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
            count = self.sock.recv_into(view[got:])
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            got += count
        return bytes(buffer)


def connect(
    host: str,
    port: int,
    *,
    address: ClusterAddress,
    timeout_s: float = CONNECT_TIMEOUT_S,
    passed: Callable[[ConnectStep], object] = lambda _step: None,
) -> Connection:
    """Open a connection and authenticate. Raises LinkEngineError with a specific code.

    ``passed`` is called after each step, also after a step that the security protocol does not need.
    """
    sock = _tcp(host, port, address=address, timeout_s=timeout_s)
    passed(ConnectStep.TCP)
    try:
        if address.uses_tls:
            sock = _tls(sock, host, port, address=address)
        passed(ConnectStep.TLS)
        connection = Connection(sock, host=host, port=port)
        connection.versions = _api_versions(connection)
        passed(ConnectStep.PROTOCOL)
        if address.uses_sasl:
            _authenticate(connection, address)
        passed(ConnectStep.AUTHENTICATION)
    except BaseException:
        sock.close()
        raise
    return connection


def _tcp(host: str, port: int, *, address: ClusterAddress, timeout_s: float) -> socket.socket:
    try:
        return open_socket(host, port, address=address, timeout_s=timeout_s)
    except (socket.gaierror, ValueError, OverflowError):  # the latter two for invalid names or ports
        raise LinkEngineError(
            ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
            f"The name {host!r} cannot be resolved. Check bootstrap.servers and the DNS of the machines that copy.",
        ) from None
    except OSError as failure:
        raise LinkEngineError(
            ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
            f"Broker {host}:{port} accepts no connection ({failure}). Check that it runs and that the network permits access.",
        ) from failure


def _tls(sock: socket.socket, host: str, port: int, *, address: ClusterAddress) -> ssl.SSLSocket:
    try:
        return client_context(address).wrap_socket(sock, server_hostname=host)
    except ssl.SSLError as error:
        raise LinkEngineError(
            ErrorCode.AUTHENTICATION_ERROR,
            f"TLS with broker {host}:{port} failed: {error.reason or error}. Check ssl.truststore.certificates, the broker's "
            "host name in its certificate, and the client certificate if the broker requires one.",
        ) from error
    except TimeoutError:
        raise _timed_out(f"{host}:{port}") from None
    except OSError as error:
        raise _lost(f"{host}:{port}", error) from error


def _api_versions(connection: Connection) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(
        version=_FLEXIBLE_API_VERSIONS, client_software_name=CLIENT_ID.decode(), client_software_version="1"
    )
    error_code, versions = connection.request(
        request, response=ApiVersionsResponse, read=_read_versions, most_bytes=MAX_HANDSHAKE_RESPONSE
    )
    if error_code:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"Broker {connection.peer} refused the version handshake (error {error_code}). Use Kafka 3.1 or newer.",
        )
    return versions


def _read_versions(response: Any) -> tuple[int, dict[int, tuple[int, int]]]:
    return response.error_code, {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}


def _authenticate(connection: Connection, address: ClusterAddress) -> None:
    error_code, mechanisms = connection.request(
        SaslHandshakeRequest(version=1, mechanism=address.sasl_mechanism),
        response=SaslHandshakeResponse,
        read=lambda response: (response.error_code, [str(mechanism_name) for mechanism_name in response.mechanisms or ()]),
        most_bytes=MAX_HANDSHAKE_RESPONSE,
    )
    if error_code:
        offered = ", ".join(mechanisms) or "none"
        raise LinkEngineError(
            ErrorCode.AUTHENTICATION_ERROR,
            f"Broker {connection.peer} does not offer sasl.mechanism {address.sasl_mechanism}; it offers {offered}.",
        )
    mechanism = get_sasl_mechanism(address.sasl_mechanism)(
        sasl_plain_username=_sasl_name(address),
        sasl_plain_password=address.sasl_password,
        sasl_mechanism=address.sasl_mechanism,
        sasl_oauth_token_provider=BearerTokens(address),
        host=connection.host,
    )
    for _ in range(MOST_SASL_STEPS):
        if mechanism.is_done():
            return
        _sasl_step(connection, mechanism, address=address)
    raise MalformedResponseError("SaslAuthenticate", peer=connection.peer)


def _sasl_name(address: ClusterAddress) -> str:
    """Return the user name as the mechanism sends it. SCRAM separates fields with commas and equals signs (RFC 5802, 5.1).

    SASLprep (RFC 4013) is not applied: neither brokers nor Kafka's own clients and tools apply it, so a prepared password would
    be another password.
    """
    name = address.sasl_username
    return name.replace("=", "=3D").replace(",", "=2C") if address.sasl_mechanism.startswith("SCRAM") else name


def _sasl_step(connection: Connection, mechanism: Any, *, address: ClusterAddress) -> None:
    user = address.sasl_username
    queried_at = time.monotonic()
    request = SaslAuthenticateRequest(version=1, auth_bytes=mechanism.auth_bytes())
    error_code, challenge, lifetime_ms = connection.request(
        request,
        response=SaslAuthenticateResponse,
        read=lambda response: (response.error_code, bytes(response.auth_bytes or b""), response.session_lifetime_ms),
        most_bytes=MAX_HANDSHAKE_RESPONSE,
    )
    if lifetime_ms > 0:  # from the token's expiry or connections.max.reauth.ms
        connection.renew_at = queried_at + max(SHORTEST_SESSION_S, lifetime_ms / 1000 * RENEWED_SHARE)
        connection.ends_at = max(connection.renew_at, queried_at + lifetime_ms / 1000 * USED_SHARE)
    if error_code:
        wrong = error_code == KafkaCode.SASL_AUTHENTICATION_FAILED
        raise LinkEngineError(
            ErrorCode.AUTHENTICATION_ERROR,
            f"Broker {connection.peer} refused user {user!r}"
            + (f": {_refusal_reason(address)}. " if wrong else f" (error {error_code}). ")
            + "Correct the credentials (sasl.jaas.config) or sasl.mechanism.",
        )
    try:
        mechanism.receive(challenge)
    except UNREADABLE as error:  # SCRAM: the broker did not prove that it knows the password
        raise LinkEngineError(
            ErrorCode.AUTHENTICATION_ERROR, f"Broker {connection.peer} could not prove its identity to user {user!r}."
        ) from error


def _refusal_reason(address: ClusterAddress) -> str:
    if address.sasl_mechanism == OAUTH:
        return "it does not accept the token of the token endpoint"
    return "wrong user name or password"


def _check_size(size: int, most_bytes: int) -> int:
    if not 0 < size <= most_bytes:
        raise OSError(f"a frame of {size} bytes is not a response of a Kafka broker")
    return size


def _timed_out(peer: str) -> LinkEngineError:
    return LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"Broker {peer} did not respond in time. Check its load and the network.")


def _lost(peer: str, error: OSError) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        f"The connection to broker {peer} broke ({error}). It may be restarting, or use another security.protocol.",
    )
