"""Open sockets to hosts that a user or a broker names; the only module that does.

A name is resolved once. All of its addresses must be in the networks that the ``ClusterAddress`` permits, and the connection
is opened to one of the checked addresses: a second lookup could return another address (DNS rebinding). TLS still verifies the
name.

librdkafka and Kafka's Java clients resolve names themselves, so their names are checked before (``check_names``). A name can
change between that check and their own lookup; see ADR 32.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError

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
