"""A cluster as the data path sees it: its brokers, the leaders of partitions, and a pool of connections per broker.

Blocking, for worker threads; thread-safe. Topics and partitions are only names and numbers here.

Metadata of a broker can be stale: a broker that is cut off from the controllers keeps naming old leaders, even itself. So
``survey`` queries every broker and takes the leader with the highest leader epoch of each partition. Bootstrap servers that no
broker lists in its metadata count too: they may be the majority of which the responding broker is cut off.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from linkengine.domain.addresses import ClusterAddress, parse_servers
from linkengine.domain.errors import NEEDS_OPERATOR, ErrorCode, LinkEngineError
from linkengine.kafka.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Connection, as_it_is, connect
from linkengine.kafka.topicviews import Survey, TopicMetadata, newest, topic_ids, view_of

SURVEY_TIMEOUT_S = 2.0  # for the metadata of every broker; slower brokers are left out
AVOID_S = 5.0  # how long a broker that did not respond is tried last
IDLE_CONNECTIONS = 4  # kept per broker
_THREADS = 8
_METADATA_VERSION = 12  # topic ids (10) and queries by id (12); 13 adds nothing that is used here


T = TypeVar("T")
BrokerMetadata = tuple[set[int], dict[str, TopicMetadata]]  # of a broker: the brokers it lists, and the requested topics


class Cluster:
    """Connections to a cluster, and its metadata."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._bootstrap = [(host, port) for host, port, _ in parse_servers(address.bootstrap_servers)]
        self._brokers: dict[int, tuple[str, int]] = {}
        self._idle: dict[tuple[str, int], list[Connection]] = {}
        self._avoided: dict[tuple[str, int], float] = {}
        self._unresponsive: set[tuple[str, int]] = set()  # accepted the last connection but did not respond
        self._lock, self._closed = Lock(), False
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ask-broker")

    def close(self) -> None:
        """Close all idle connections. A connection that another thread uses is closed after its response."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def brokers(self) -> list[int]:
        """Return the ids of all brokers that metadata has named so far."""
        return list(self._brokers)

    def endpoint(self, broker: int) -> tuple[str, int]:
        """Return host and port of a broker; raise TIMEOUT_ERROR if metadata does not name it."""
        try:
            return self._brokers[broker]
        except KeyError:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR, f"Broker {broker} is not in the cluster's metadata; it may be down. Retrying."
            ) from None

    def open(self, broker: int, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
        """Open a new connection to a broker, for the data path."""
        host, port = self.endpoint(broker)
        return connect(host, port, address=self.address, timeout_s=timeout_s)

    def supports(self, broker: int, api_key: int) -> bool:
        """Return whether a broker supports an API."""
        with self._borrowed(self.endpoint(broker), timeout_s=REQUEST_TIMEOUT_S) as (connection, _):
            return api_key in connection.versions

    def call(
        self,
        broker: int,
        build: Callable[[Connection], Any],
        *,
        response: Any,
        read: Callable[[Any], T] = as_it_is,
        timeout_s: float | None = None,
        repeatable: bool = True,
    ) -> T:
        """Send the request that ``build`` makes for the connection's versions; return what ``read`` makes of the response.

        If an idle connection turns out to be closed, the request is sent once more over another connection. The broker may have
        executed the first request, so requests that must not be executed twice are not ``repeatable``.
        """
        timeout_s = timeout_s or REQUEST_TIMEOUT_S
        return self._call_at(
            self.endpoint(broker), build, response=response, read=read, timeout_s=timeout_s, repeatable=repeatable
        )

    def call_any(
        self,
        build: Callable[[Connection], Any],
        *,
        response: Any,
        read: Callable[[Any], T] = as_it_is,
        last: Collection[int] = (),
    ) -> T:
        """Send the request to the first broker that responds; raise the first error if none does.

        Brokers that did not respond recently are tried after the others, and those in ``last`` after them.
        """
        if not self._brokers:
            self.topics([])
        failure: LinkEngineError | None = None
        endpoints = dict(self._brokers)
        for broker in sorted(endpoints, key=lambda broker: (broker in last, self._is_avoided(endpoints[broker]))):
            try:
                return self.call(broker, build, response=response, read=read)
            except LinkEngineError as error:
                failure = failure or error
        assert failure is not None  # metadata names at least the broker that returned it
        raise failure

    def topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return the topics as the first responding broker describes them."""
        failure: LinkEngineError | None = None
        for endpoint in self._candidates():
            try:
                return self._topics_at(endpoint, list(names), timeout_s=REQUEST_TIMEOUT_S)
            except LinkEngineError as error:
                if error.code in NEEDS_OPERATOR:
                    raise
                failure = failure or error
        raise failure or LinkEngineError(
            ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, "The link has no bootstrap servers. Set bootstrap.servers of the cluster."
        )

    def newest_topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Query all brokers at the same time; return, per partition, the leader with the highest leader epoch.

        A broker that was cut off keeps naming an old leader, even itself.
        """
        return self.survey(names).topics

    def survey(self, names: Iterable[str] = ()) -> Survey:
        """Query all brokers for the topics and for the brokers they list; silent brokers are left out."""
        wanted = list(names)
        if not self._brokers:
            self.topics([])
        may_be_majority = self._query_unlisted_servers()
        unresponsive = tuple(
            f"{host}:{port}"
            for host, port in self._unlisted_servers()
            if may_be_majority and (host, port) in self._unresponsive
        )
        seen = self._query_all(wanted)
        views = [topics for _, (_, topics) in seen] or [self.topics(wanted)]
        return Survey(
            topics={name: newest([view[name] for view in views if name in view]) for name in wanted},
            complete=len(self._brokers) <= max(1, len(seen)),
            unlisted_brokers={
                broker
                for broker in self.brokers()
                for queried, (listed, _) in seen
                if queried != broker and broker not in listed
            },
            topic_ids={name: topic_ids([view[name] for view in views if name in view]) for name in wanted},
            unlisted_may_be_majority=may_be_majority,
            unresponsive_servers=unresponsive,
        )

    def _query_unlisted_servers(self) -> bool:
        """Learn brokers from bootstrap servers that no broker lists; return whether unresponsive servers may be the majority.

        A broker that was cut off while all others were down keeps listing itself only. A broker that is down, and dropped from
        the metadata of most others, does not matter.
        """
        unlisted = self._unlisted_servers()
        queries = {
            server: self._threads.submit(self._metadata_from, server, [], timeout_s=SURVEY_TIMEOUT_S)
            for server in unlisted
            if not self._is_avoided(server)
        }
        responsive = 0
        for server, future in queries.items():
            try:
                responsive += bool(future.result(SURVEY_TIMEOUT_S + CONNECT_TIMEOUT_S))
            except TimeoutError:  # a refused connection would have failed by now, so the server accepts and stays silent
                self._unresponsive.add(server)
            except LinkEngineError:
                continue
        return bool(unlisted) and len(unlisted) - responsive >= len(self._brokers)

    def _unlisted_servers(self) -> list[tuple[str, int]]:
        """Return the bootstrap servers whose addresses no broker advertises, if they may outnumber the brokers.

        None without a known cluster id: a host name may have been reassigned to another cluster.
        """
        known = set(self._brokers.values())
        unlisted = [server for server in self._bootstrap if server not in known and self.address.cluster_id]
        return unlisted if len(self._bootstrap) > len(known) and len(unlisted) >= len(known) else []

    def _query_all(self, names: list[str]) -> list[tuple[int, BrokerMetadata]]:
        """Return the metadata of each broker that responds in time; nothing for a single-broker cluster.

        If a broker is missing, the newest metadata of the others counts.
        """
        others = {broker: endpoint for broker, endpoint in dict(self._brokers).items() if not self._is_avoided(endpoint)}
        if len(self._brokers) < 2:
            return []
        queries = {
            broker: self._threads.submit(self._metadata_from, endpoint, names, timeout_s=SURVEY_TIMEOUT_S)
            for broker, endpoint in others.items()
        }
        found = []
        for broker, future in queries.items():
            with suppress(LinkEngineError, TimeoutError):
                found.append((broker, future.result(SURVEY_TIMEOUT_S + CONNECT_TIMEOUT_S)))
        return found

    def _candidates(self) -> list[tuple[str, int]]:
        known = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        return sorted(known, key=self._is_avoided)

    def _is_avoided(self, endpoint: tuple[str, int]) -> bool:
        return self._avoided.get(endpoint, 0.0) > time.monotonic()

    def _topics_at(self, endpoint: tuple[str, int], names: list[str], *, timeout_s: float) -> dict[str, TopicMetadata]:
        return self._metadata_from(endpoint, names, timeout_s=timeout_s)[1]

    def _metadata_from(self, endpoint: tuple[str, int], names: list[str], *, timeout_s: float) -> BrokerMetadata:
        def build(connection: Connection) -> Any:
            version = connection.version_for(MetadataRequest.API_KEY, highest=_METADATA_VERSION, lowest=4)
            topics = [MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=name) for name in names]
            return MetadataRequest(version=version, topics=topics, allow_auto_topic_creation=False)

        cluster_id, brokers, topics = self._call_at(
            endpoint, build, response=MetadataResponse, read=partial(_read_metadata, names=names), timeout_s=timeout_s
        )
        self.address.check_identity(cluster_id)
        self._brokers |= brokers
        return set(brokers), topics

    def _call_at(
        self,
        endpoint: tuple[str, int],
        build: Callable[[Connection], Any],
        *,
        response: Any,
        read: Callable[[Any], T],
        timeout_s: float,
        repeatable: bool = True,
    ) -> T:
        while True:
            with self._borrowed(endpoint, timeout_s=timeout_s) as (connection, reused):
                try:
                    return connection.request(build(connection), response=response, read=read, timeout_s=timeout_s)
                except LinkEngineError as error:
                    if not repeatable or not reused or error.code != ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR:
                        raise
                    connection.close()

    @contextmanager
    def _borrowed(self, endpoint: tuple[str, int], *, timeout_s: float) -> Iterator[tuple[Connection, bool]]:
        connection = self._take_idle(endpoint)
        reused = connection is not None
        try:
            if connection is None:
                wait_s = min(timeout_s, CONNECT_TIMEOUT_S)
                connection = connect(*endpoint, address=self.address, timeout_s=wait_s)
            yield connection, reused
        except BaseException as error:
            self._avoided[endpoint] = time.monotonic() + AVOID_S
            self._note_silence(endpoint, error)
            if connection is not None:
                connection.close()
            raise
        self._unresponsive.discard(endpoint)
        if connection.fileno() >= 0:
            self._return_idle(endpoint, connection)

    def _take_idle(self, endpoint: tuple[str, int]) -> Connection | None:
        """Return an idle connection with a valid session; close those whose session is about to end."""
        now = time.monotonic()
        while True:
            with self._lock:
                idle = self._idle.get(endpoint)
                connection = idle.pop() if idle else None
            if connection is None or now < connection.renew_at:
                return connection
            connection.close()

    def _note_silence(self, endpoint: tuple[str, int], error: BaseException) -> None:
        if isinstance(error, LinkEngineError) and error.code is ErrorCode.TIMEOUT_ERROR:
            self._unresponsive.add(endpoint)
        else:
            self._unresponsive.discard(endpoint)

    def _return_idle(self, endpoint: tuple[str, int], connection: Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(endpoint, [])
            if len(idle) < IDLE_CONNECTIONS and not self._closed:
                idle.append(connection)
                return
        connection.close()


def _read_metadata(
    response: Any, *, names: Iterable[str]
) -> tuple[str | None, dict[int, tuple[str, int]], dict[str, TopicMetadata]]:
    """Return the cluster's id, its brokers' addresses, and the topics by name, which include all of ``names``."""
    brokers = {broker.node_id: (_host(broker.host), _port(broker.port)) for broker in response.brokers}
    topics = {topic.name: view_of(topic) for topic in response.topics}
    for name in names:
        if name not in topics:  # for a topic that does not exist, a broker returns an error code
            raise ValueError(f"topic {name!r} is missing from it")
    return response.cluster_id, brokers, topics


def _host(name: str | None) -> str:
    if not name:
        raise ValueError("a broker without a host name")
    return name


def _port(number: int) -> int:
    if not 0 < number < 1 << 16:
        raise ValueError(f"a broker with the port {number}")
    return number
