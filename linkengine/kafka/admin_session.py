"""Admin clients of librdkafka: calls with time limits, and errors as LinkEngineError."""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.security import check_names, make_client

# --- errors --------------------------------------------------------------------------------------------------------------
# Each has a stable code, what failed, why, and what to do. A code above 0 is the broker's. A code below 0 is librdkafka's own
# and means that no broker responded; the caller then finds the reason with ``preflight``.


class LocalCode(IntEnum):
    """librdkafka's own errors (``rd_kafka_resp_err_t`` below 0) that admin calls can end with."""

    TRANSPORT = -195
    RESOLVE = -193
    ALL_BROKERS_DOWN = -187
    INVALID_ARG = -186
    TIMED_OUT = -185
    SSL = -181
    AUTHENTICATION = -169
    TIMED_OUT_QUEUE = -166
    UNSUPPORTED_FEATURE = -165
    DESTROY_BROKER = -137  # the cluster dropped the broker during the request


NO_RESPONSE: frozenset[int] = frozenset(LocalCode) - {LocalCode.INVALID_ARG, LocalCode.UNSUPPORTED_FEATURE}
_RIGHTS = "Give the link's principal on this cluster the right (ACL) or make it a super user."
_CODES: Mapping[int, tuple[ErrorCode, str]] = MappingProxyType(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART: (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
            "Check the name, and that the principal may DESCRIBE the topic.",
        ),
        KafkaError.UNKNOWN_TOPIC_ID: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "The topic was deleted or created again."),
        KafkaError.TOPIC_ALREADY_EXISTS: (ErrorCode.TOPIC_EXISTS_ERROR, "Delete it or choose another name."),
        KafkaError.TOPIC_EXCEPTION: (ErrorCode.INVALID_TOPIC, ""),
        KafkaError.TOPIC_AUTHORIZATION_FAILED: (ErrorCode.AUTHORIZATION_ERROR, _RIGHTS),
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: (ErrorCode.AUTHORIZATION_ERROR, _RIGHTS),
        KafkaError.GROUP_AUTHORIZATION_FAILED: (ErrorCode.AUTHORIZATION_ERROR, _RIGHTS),
        KafkaError.SECURITY_DISABLED: (ErrorCode.SECURITY_DISABLED_ERROR, "Set authorizer.class.name on the brokers."),
        KafkaError.SASL_AUTHENTICATION_FAILED: (ErrorCode.AUTHENTICATION_ERROR, "Correct sasl.jaas.config of the link."),
        KafkaError.POLICY_VIOLATION: (ErrorCode.POLICY_VIOLATION_ERROR, "A policy of the cluster forbids it."),
        KafkaError.TOPIC_DELETION_DISABLED: (
            ErrorCode.TOPIC_DELETION_DISABLED,
            "Set delete.topic.enable=true on the brokers and controllers, then delete it again.",
        ),
        KafkaError.INVALID_CONFIG: (ErrorCode.INVALID_REQUEST_ERROR, "Correct the configs."),
        KafkaError.INVALID_REQUEST: (ErrorCode.INVALID_REQUEST_ERROR, ""),
        KafkaError.INVALID_PARTITIONS: (ErrorCode.INVALID_REQUEST_ERROR, ""),
        KafkaError.INVALID_REPLICATION_FACTOR: (
            ErrorCode.INVALID_REQUEST_ERROR,
            "Choose a replication factor the number of brokers allows.",
        ),
        KafkaError.UNSUPPORTED_VERSION: (ErrorCode.UNSUPPORTED_VERSION_ERROR, "The brokers are too old for this request."),
        LocalCode.UNSUPPORTED_FEATURE: (ErrorCode.UNSUPPORTED_VERSION_ERROR, "The brokers are too old for this request."),
        LocalCode.INVALID_ARG: (ErrorCode.MISCONFIGURATION_ERROR, "Correct the link's settings."),
        KafkaError.LEADER_NOT_AVAILABLE: (ErrorCode.TIMEOUT_ERROR, "A partition has no leader at present; try again."),
        KafkaError.NOT_LEADER_FOR_PARTITION: (ErrorCode.TIMEOUT_ERROR, "A leader has moved; try again."),
        KafkaError.NOT_COORDINATOR: (ErrorCode.TIMEOUT_ERROR, "The group's coordinator has moved; try again."),
        KafkaError.COORDINATOR_NOT_AVAILABLE: (ErrorCode.TIMEOUT_ERROR, "The group has no coordinator at present; try again."),
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS: (ErrorCode.TIMEOUT_ERROR, "The group's coordinator is starting; try again."),
        KafkaError.NOT_CONTROLLER: (ErrorCode.TIMEOUT_ERROR, "The controller has moved; try again."),
        KafkaError.REQUEST_TIMED_OUT: (ErrorCode.TIMEOUT_ERROR, "The brokers are slow or lack replicas; try again."),
    }
)


def kafka_error(error: KafkaError, *, what: str) -> LinkEngineError:
    """Return the LinkEngineError for a broker's refusal of ``what`` (such as "describe topic 'x'")."""
    code, advice = _CODES.get(error.code(), (ErrorCode.INTERNAL_ERROR, ""))
    if error.code() in NO_RESPONSE:
        code, advice = (
            ErrorCode.TIMEOUT_ERROR,
            "The brokers accepted a connection but did not respond to this request; try again.",
        )
    reason = str(error.str()).removeprefix("Broker: ").rstrip(".")
    return LinkEngineError(code, f"Failed to {what}: {reason}. {advice}".rstrip())


def login_error(error: LinkEngineError, *, what: str) -> LinkEngineError:
    """Return the error of a failed login to a cluster, worded as the failure of ``what``."""
    cause = " due to authentication issues" if error.code is ErrorCode.AUTHENTICATION_ERROR else ""
    return LinkEngineError(error.code, f"Failed to {what}{cause}. {error.message}")


# --- clients -------------------------------------------------------------------------------------------------------------
# Clients are expensive (threads, connections, a login) and calls are many and small, so clients are kept in a bounded pool per
# cluster and process and dropped when idle. A forked worker never uses its parent's clients: librdkafka's threads do not
# survive a fork.


REQUEST_TIMEOUT_S = 10.0  # a request at the broker, including topic creation on a loaded controller
RESPONSE_TIMEOUT_S = 15.0  # the same with the search for a responsive broker; after that the reason is determined
UNRESPONSIVE_AFTER_S = 2.0  # without a response for this long, check whether the cluster is reachable at all
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

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address

    def call(self, start: Callable[[AdminClient], Future[_Value]], *, what: str) -> _Value:
        """Start a request and return its value; ``what`` completes "Failed to …"."""
        return self.all(lambda client: {what: start(client)}, what=what)[what]

    def all(self, start: Callable[[AdminClient], Mapping[_Key, Future[_Value]]], *, what: str) -> dict[_Key, _Value]:
        """Start a batch and return every value; raise the first failure."""
        values, failures = self.settle(start, what=what)
        for error in failures.values():
            raise kafka_error(error, what=what)
        return values

    def settle(
        self, start: Callable[[AdminClient], Mapping[_Key, Future[_Value]]], *, what: str
    ) -> tuple[dict[_Key, _Value], dict[_Key, KafkaError]]:
        """Start a batch; return values and the broker's errors by key; raise only if the cluster did not respond."""
        client = self._client(what)
        try:
            futures = start(client)
        except KafkaException as error:
            raise kafka_error(error.args[0], what=what) from None
        if wait(futures.values(), timeout=UNRESPONSIVE_AFTER_S).not_done:
            self._check_cluster_reachable(what)
            wait(futures.values(), timeout=RESPONSE_TIMEOUT_S - UNRESPONSIVE_AFTER_S)
        values, failures = _results(futures)
        for failure in failures.values():
            if failure.code() in NO_RESPONSE:
                raise self._reason(failure, what=what)
        return values, failures

    def direct(self, call: Callable[[AdminClient], _Value], *, what: str) -> _Value:
        """Run a call that blocks inside librdkafka; it must have a timeout of its own."""
        try:
            return call(self._client(what))
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            raise (self._reason if failure.code() in NO_RESPONSE else kafka_error)(failure, what=what) from None

    def _client(self, what: str) -> AdminClient:
        try:
            return _pool.take(self.address)
        except LinkEngineError as error:
            raise login_error(error, what=what) from None

    def _check_cluster_reachable(self, what: str) -> None:
        try:
            check_reachable(self.address)
        except LinkEngineError as error:
            _pool.drop(self.address)
            raise login_error(error, what=what) from None

    def _reason(self, failure: KafkaError, *, what: str) -> LinkEngineError:
        self._check_cluster_reachable(what)
        _pool.drop(self.address)  # the plain connection works, this client does not: the next call creates another client
        return kafka_error(failure, what=what)


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
        found = client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result(RESPONSE_TIMEOUT_S)
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
        raise kafka_error(error.args[0], what="make a client of the cluster") from None
