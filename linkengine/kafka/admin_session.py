"""Admin clients of librdkafka, pooled by cluster and process, and calls through them with a time limit each.

Clients are expensive (threads, connections, a login) and calls are many and small, so clients are kept in a bounded pool and
dropped when idle. A forked worker never uses its parent's clients: librdkafka's threads do not survive a fork.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.admin_errors import NO_ANSWER, LocalCode, refused, translated
from linkengine.kafka.network_policy import check_names
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.settings import make_client

REQUEST_TIMEOUT_S = 10.0  # a request at the broker, including topic creation on a loaded controller
ANSWER_TIMEOUT_S = 15.0  # the same with the search for a responsive broker; after that the reason is determined
SILENCE_S = 2.0  # without a response for this long, check whether the cluster is reachable at all
POOL_SIZE = 16  # clusters that a worker uses at the same time; a client has two threads per broker
IDENTIFIED_S = 30.0  # interval of the check that the cluster id is still the same
IDLE_S = 300.0  # longer than the pause between two sync runs

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_silent = logging.getLogger("linkengine.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False  # librdkafka logs "connection refused" every second; the raised error states the reason once


@dataclass(slots=True)
class _PooledClient:
    client: AdminClient
    used_at_s: float
    identified_at_s: float = -inf


class ClientPool:
    """Admin clients by process and address, least recently used first."""

    def __init__(self, *, size: int = POOL_SIZE, idle_s: float = IDLE_S) -> None:
        self._size, self._idle_s = size, idle_s
        self._clients: OrderedDict[tuple[int, ClusterAddress], _PooledClient] = OrderedDict()
        self._lock = Lock()

    def take(self, address: ClusterAddress) -> AdminClient:
        """Return a client; a new client is created only after a plain connection to the cluster has been authenticated."""
        key = (os.getpid(), address)
        with self._lock:
            self._drop_idle()
            pooled = self._clients.get(key)
        if pooled is None:
            check_reachable(address)
            pooled = _PooledClient(_new_client(address), time.monotonic())
        if address.cluster_id and pooled.identified_at_s < time.monotonic() - IDENTIFIED_S:
            _identify(pooled.client, address)
            pooled.identified_at_s = time.monotonic()
        with self._lock:
            pooled = self._clients.setdefault(key, pooled)
            pooled.used_at_s = time.monotonic()
            self._clients.move_to_end(key)
            while len(self._clients) > self._size:
                self._clients.popitem(last=False)
        return pooled.client

    def drop(self, address: ClusterAddress) -> None:
        """Remove the client of ``address`` from the pool; it is closed when its last user drops it."""
        with self._lock:
            self._clients.pop((os.getpid(), address), None)

    def _drop_idle(self) -> None:
        oldest = time.monotonic() - self._idle_s
        for key in [key for key, pooled in self._clients.items() if pooled.used_at_s < oldest]:
            del self._clients[key]


_pool = ClientPool()


class AdminSession:
    """Calls to a cluster through a pooled client; return values and raise LinkEngineError."""

    def __init__(self, address: ClusterAddress, *, pool: ClientPool = _pool) -> None:
        self.address = address
        self._pool = pool

    def one(self, start: Callable[[AdminClient], Future[_Value]], *, what: str) -> _Value:
        """Start a request and return its value; ``what`` completes "Failed to …"."""
        return self.all(lambda client: {what: start(client)}, what=what)[what]

    def all(self, start: Callable[[AdminClient], Mapping[_Key, Future[_Value]]], *, what: str) -> dict[_Key, _Value]:
        """Start a batch and return every value; raise the first failure."""
        values, failures = self.settle(start, what=what)
        for error in failures.values():
            raise translated(error, what=what)
        return values

    def settle(
        self, start: Callable[[AdminClient], Mapping[_Key, Future[_Value]]], *, what: str
    ) -> tuple[dict[_Key, _Value], dict[_Key, KafkaError]]:
        """Start a batch; return values and the broker's errors by key; raise only if the cluster did not respond."""
        client = self._client(what)
        try:
            futures = start(client)
        except KafkaException as error:
            raise translated(error.args[0], what=what) from None
        if wait(futures.values(), timeout=SILENCE_S).not_done:
            self._check_cluster_reachable(what)
            wait(futures.values(), timeout=ANSWER_TIMEOUT_S - SILENCE_S)
        values, failures = _results(futures)
        for failure in failures.values():
            if failure.code() in NO_ANSWER:
                raise self._reason(failure, what=what)
        return values, failures

    def direct(self, call: Callable[[AdminClient], _Value], *, what: str) -> _Value:
        """Run a call that blocks inside librdkafka; it must have a timeout of its own."""
        try:
            return call(self._client(what))
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            raise (self._reason if failure.code() in NO_ANSWER else translated)(failure, what=what) from None

    def _client(self, what: str) -> AdminClient:
        try:
            return self._pool.take(self.address)
        except LinkEngineError as error:
            raise refused(error, what=what) from None

    def _check_cluster_reachable(self, what: str) -> None:
        try:
            check_reachable(self.address)
        except LinkEngineError as error:
            self._pool.drop(self.address)
            raise refused(error, what=what) from None

    def _reason(self, failure: KafkaError, *, what: str) -> LinkEngineError:
        self._check_cluster_reachable(what)
        self._pool.drop(self.address)  # the plain connection works, this client does not: the next call creates another client
        return translated(failure, what=what)


def _results(futures: Mapping[_Key, Future[_Value]]) -> tuple[dict[_Key, _Value], dict[_Key, KafkaError]]:
    values: dict[_Key, _Value] = {}
    failures: dict[_Key, KafkaError] = {}
    for key, future in futures.items():
        try:
            values[key] = future.result(timeout=0)
        except KafkaException as error:
            failures[key] = error.args[0]
        except TimeoutError:
            failures[key] = KafkaError(LocalCode.TIMED_OUT)
    return values, failures


def _identify(client: AdminClient, address: ClusterAddress) -> None:
    """Raise if the cluster id is different, or if a broker advertises an address that may not be connected to.

    Raises nothing if the cluster does not respond: the request that follows fails too.
    """
    try:
        found = client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result(ANSWER_TIMEOUT_S)
    except (KafkaException, TimeoutError):
        return
    address.check_identity(found.cluster_id)
    check_names([(node.host, node.port) for node in found.nodes], address=address)


def _new_client(address: ClusterAddress) -> AdminClient:
    settings: dict[str, Any] = {
        "client.id": "linkengine-admin",
        "allow.auto.create.topics": False,
        "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
        "reconnect.backoff.max.ms": 1000,
        "logger": _silent,
        "log_level": 0,
    }
    try:
        return make_client(AdminClient, address, settings)
    except KafkaException as error:
        raise translated(error.args[0], what="make a client of the cluster") from None
