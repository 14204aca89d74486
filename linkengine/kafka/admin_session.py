"""The only place that makes admin clients: one per cluster and process, kept while it is used, with every wait bounded.

Clients are expensive (threads, connections, a login) and calls are many and small, so they are kept in a bounded pool and
dropped when idle. A forked worker never uses its parent's: librdkafka's threads do not survive a fork.
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
from linkengine.kafka.outbound import check_names
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.settings import make_client

REQUEST_TIMEOUT_S = 10.0  # one request at the broker, creation of topics on a loaded controller included
ANSWER_TIMEOUT_S = 15.0  # the same with the search for a broker that answers; then the reason is looked for
SILENCE_S = 2.0  # without an answer for this long, we look whether the cluster is there at all
POOL_SIZE = 16  # clusters one worker talks to at the same time; a client is two threads per broker
IDENTIFIED_S = 30.0  # then we look again which cluster it is that answers
IDLE_S = 300.0  # longer than the pause between two rounds of synchronisation

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_silent = logging.getLogger("linkengine.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False  # it repeats "connection refused" every second; we tell the reason once, in the raised error


@dataclass(slots=True)
class _Kept:
    client: AdminClient
    used_at_s: float
    identified_at_s: float = -inf


class ClientPool:
    """Admin clients by process and address, least recently used first."""

    def __init__(self, *, size: int = POOL_SIZE, idle_s: float = IDLE_S) -> None:
        self._size, self._idle_s = size, idle_s
        self._kept: OrderedDict[tuple[int, ClusterAddress], _Kept] = OrderedDict()
        self._lock = Lock()

    def take(self, address: ClusterAddress) -> AdminClient:
        """Answer a client; a new one is made only after a plain connection has proven that the cluster lets us in."""
        key = (os.getpid(), address)
        with self._lock:
            self._drop_idle()
            kept = self._kept.get(key)
        if kept is None:
            check_reachable(address)
            kept = _Kept(_new_client(address), time.monotonic())
        if address.cluster_id and kept.identified_at_s < time.monotonic() - IDENTIFIED_S:
            _identify(kept.client, address)
            kept.identified_at_s = time.monotonic()
        with self._lock:
            kept = self._kept.setdefault(key, kept)
            kept.used_at_s = time.monotonic()
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return kept.client

    def drop(self, address: ClusterAddress) -> None:
        """Forget the client of ``address``; it ends when nobody holds it any more."""
        with self._lock:
            self._kept.pop((os.getpid(), address), None)

    def _drop_idle(self) -> None:
        oldest = time.monotonic() - self._idle_s
        for key in [key for key, kept in self._kept.items() if kept.used_at_s < oldest]:
            del self._kept[key]


_pool = ClientPool()


class AdminSession:
    """Calls to one cluster through a pooled client; answers values, raises LinkEngineError."""

    def __init__(self, address: ClusterAddress, *, pool: ClientPool = _pool) -> None:
        self.address = address
        self._pool = pool

    def one(self, start: Callable[[AdminClient], Future[_Value]], *, what: str) -> _Value:
        """Start one request and answer its value; ``what`` completes "Failed to …"."""
        return self.all(lambda client: {what: start(client)}, what=what)[what]

    def all(self, start: Callable[[AdminClient], Mapping[_Key, Future[_Value]]], *, what: str) -> dict[_Key, _Value]:
        """Start a batch and answer every value; raise the first failure."""
        values, failures = self.settle(start, what=what)
        for error in failures.values():
            raise translated(error, what=what)
        return values

    def settle(
        self, start: Callable[[AdminClient], Mapping[_Key, Future[_Value]]], *, what: str
    ) -> tuple[dict[_Key, _Value], dict[_Key, KafkaError]]:
        """Start a batch and answer values and the broker's refusals by key; raise only if the cluster did not answer."""
        client = self._client(what)
        try:
            futures = start(client)
        except KafkaException as error:
            raise translated(error.args[0], what=what) from None
        if wait(futures.values(), timeout=SILENCE_S).not_done:
            self._check_alive(what)
            wait(futures.values(), timeout=ANSWER_TIMEOUT_S - SILENCE_S)
        values, failures = _sorted_out(futures)
        for failure in failures.values():
            if failure.code() in NO_ANSWER:
                raise self._reason(failure, what=what)
        return values, failures

    def direct(self, call: Callable[[AdminClient], _Value], *, what: str) -> _Value:
        """Run a call that blocks inside librdkafka; it must carry its own timeout."""
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

    def _check_alive(self, what: str) -> None:
        try:
            check_reachable(self.address)
        except LinkEngineError as error:
            self._pool.drop(self.address)
            raise refused(error, what=what) from None

    def _reason(self, failure: KafkaError, *, what: str) -> LinkEngineError:
        self._check_alive(what)
        self._pool.drop(self.address)  # it answers us but not its client: the next call makes a new one
        return translated(failure, what=what)


def _sorted_out(futures: Mapping[_Key, Future[_Value]]) -> tuple[dict[_Key, _Value], dict[_Key, KafkaError]]:
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
    """Raise if another cluster answers, or if it advertises a broker that may not be connected to.

    A cluster that does not answer raises nothing here: the request that follows fails too.
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
