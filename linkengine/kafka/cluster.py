"""One cluster as the data path sees it: its brokers, the leaders of partitions, and a pool of connections per broker.

Blocking, for worker threads; safe to share between them. Topics and partitions are names and numbers here; what is done
with them is decided elsewhere.
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

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import SOMEBODY_HAS_TO_ACT, ErrorCode, LinkEngineError
from linkengine.domain.servers import parse_servers
from linkengine.kafka.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Connection, as_it_is, connect
from linkengine.kafka.topicviews import Survey, TopicView, newest, topic_ids, view_of

ASK_ALL_TIMEOUT_S = 2.0  # one look at every broker; whoever is slower is not asked this time
SHUN_S = 5.0  # a broker that did not answer is left alone for this long when others can tell the same
IDLE_CONNECTIONS = 4  # kept per broker
_ASKERS = 8
_METADATA_VERSION = 12  # topic ids (10) and queries by id (12); 13 adds nothing we need


T = TypeVar("T")
Seen = tuple[set[int], dict[str, TopicView]]  # by one broker: who is alive, and the topics asked for


class Cluster:
    """Connections and metadata of one cluster."""

    def __init__(self, address: ClusterAddress, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = request_timeout_s
        self._bootstrap = [(host, port) for host, port, _ in parse_servers(address.bootstrap_servers)]
        self._brokers: dict[int, tuple[str, int]] = {}
        self._idle: dict[tuple[str, int], list[Connection]] = {}
        self._shunned: dict[tuple[str, int], float] = {}
        self._mute: set[tuple[str, int]] = set()  # took the last connection and answered nothing
        self._lock, self._closed = Lock(), False
        self._askers = ThreadPoolExecutor(_ASKERS, thread_name_prefix="ask-broker")

    def close(self) -> None:
        """Close all idle connections. Those that another thread uses now are closed when it has its answer."""
        self._askers.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def brokers(self) -> list[int]:
        """Ids of the brokers seen in the latest metadata."""
        return list(self._brokers)

    def endpoint(self, broker: int) -> tuple[str, int]:
        """Answer host and port of a broker; raise DESTINATION-neutral TIMEOUT_ERROR where metadata does not name it."""
        try:
            return self._brokers[broker]
        except KeyError:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR, f"Broker {broker} is not in the cluster's metadata; it may be down. Retrying."
            ) from None

    def open(self, broker: int, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
        """Open a connection of its own to a broker, for the data path."""
        host, port = self.endpoint(broker)
        return connect(host, port, address=self.address, timeout_s=timeout_s)

    def supports(self, broker: int, api_key: int) -> bool:
        """Return whether a broker knows an API at all."""
        with self._borrowed(self.endpoint(broker), timeout_s=self._timeout_s) as (connection, _):
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
        """Send the request that ``build`` makes for the connection's versions; one more try where an idle one had died.

        Returns what ``read`` makes of the response (``Connection.request``).

        It may have died after the broker had done what was asked. What must not be done twice is not ``repeatable``.
        """
        timeout_s = timeout_s or self._timeout_s
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
        """Send the request to the first broker that answers, to those in ``last`` last; raise what the first one said."""
        if not self._brokers:
            self.topics([])
        failure: LinkEngineError | None = None
        for broker in sorted(self.brokers(), key=last.__contains__):
            try:
                return self.call(broker, build, response=response, read=read)
            except LinkEngineError as error:
                failure = failure or error
        assert failure is not None  # metadata names at least the broker that answered it
        raise failure

    def topics(self, names: Iterable[str]) -> dict[str, TopicView]:
        """Ask one broker that answers for its view of the topics."""
        failure: LinkEngineError | None = None
        for endpoint in self._candidates():
            try:
                return self._topics_at(endpoint, list(names), timeout_s=self._timeout_s)
            except LinkEngineError as error:
                if error.code in SOMEBODY_HAS_TO_ACT:
                    raise
                failure = failure or error
        raise failure or LinkEngineError(ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, "There is no bootstrap server to ask.")

    def newest_topics(self, names: Iterable[str]) -> dict[str, TopicView]:
        """Ask all brokers at the same time and answer, per partition, the leader with the newest leader epoch.

        A broker that was cut off goes on naming an old leader, even itself; the highest epoch is the truth.
        """
        return self.survey(names).topics

    def survey(self, names: Iterable[str] = ()) -> Survey:
        """Ask the same, and whom the brokers take for alive; one that is silent is left out."""
        wanted = list(names)
        if not self._brokers:
            self.topics([])
        strangers = self._meet_strangers()
        mute = tuple(f"{host}:{port}" for host, port in self._unmet() if strangers and (host, port) in self._mute)
        seen = self._ask_all(wanted)
        views = [topics for _, (_, topics) in seen] or [self.topics(wanted)]
        return Survey(
            topics={name: newest([view[name] for view in views if name in view]) for name in wanted},
            complete=len(self._brokers) <= max(1, len(seen)),
            given_up={one for one in self.brokers() for asked, (alive, _) in seen if asked != one and one not in alive},
            topic_ids={name: topic_ids([view[name] for view in views if name in view]) for name in wanted},
            strangers=strangers,
            mute=mute,
        )

    def _meet_strangers(self) -> bool:
        """Learn of brokers that nobody asked so far names; answer whether silent bootstrap servers may be the majority.

        One that was cut off while all others were down goes on naming itself only. A broker that is down, and given up by most,
        is in nobody's way.
        """
        unmet = self._unmet()
        asked = {
            one: self._askers.submit(self._seen_by, one, [], timeout_s=ASK_ALL_TIMEOUT_S)
            for one in unmet
            if not self._is_shunned(one)
        }
        met = 0
        for one, answer in asked.items():
            try:
                met += bool(answer.result(ASK_ALL_TIMEOUT_S + CONNECT_TIMEOUT_S))
            except TimeoutError:  # where nobody listens, that would be known by now
                self._mute.add(one)
            except LinkEngineError:
                continue
        return bool(unmet) and len(unmet) - met >= len(self._brokers)

    def _unmet(self) -> list[tuple[str, int]]:
        """List the bootstrap servers that no broker goes by, where they may be more than the brokers.

        None where nobody knows which cluster it is: a name may have come to belong to another one.
        """
        known = set(self._brokers.values())
        unmet = [one for one in self._bootstrap if one not in known and self.address.cluster_id]
        return unmet if len(self._bootstrap) > len(known) and len(unmet) >= len(known) else []

    def _ask_all(self, names: list[str]) -> list[tuple[int, Seen]]:
        """Answer, by broker, what each that answers soon enough sees; nothing where there is one broker only.

        Where a view is missing, the others' newest is what counts.
        """
        others = {broker: endpoint for broker, endpoint in dict(self._brokers).items() if not self._is_shunned(endpoint)}
        if len(self._brokers) < 2:
            return []
        asked = {
            broker: self._askers.submit(self._seen_by, endpoint, names, timeout_s=ASK_ALL_TIMEOUT_S)
            for broker, endpoint in others.items()
        }
        found = []
        for broker, answer in asked.items():
            with suppress(LinkEngineError, TimeoutError):
                found.append((broker, answer.result(ASK_ALL_TIMEOUT_S + CONNECT_TIMEOUT_S)))
        return found

    def _candidates(self) -> list[tuple[str, int]]:
        known = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        return sorted(known, key=self._is_shunned)

    def _is_shunned(self, endpoint: tuple[str, int]) -> bool:
        return self._shunned.get(endpoint, 0.0) > time.monotonic()

    def _topics_at(self, endpoint: tuple[str, int], names: list[str], *, timeout_s: float) -> dict[str, TopicView]:
        return self._seen_by(endpoint, names, timeout_s=timeout_s)[1]

    def _seen_by(self, endpoint: tuple[str, int], names: list[str], *, timeout_s: float) -> Seen:
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
            self._shunned[endpoint] = time.monotonic() + SHUN_S
            self._note_silence(endpoint, error)
            if connection is not None:
                connection.close()
            raise
        self._mute.discard(endpoint)
        if connection.fileno() >= 0:
            self._give_back(endpoint, connection)

    def _take_idle(self, endpoint: tuple[str, int]) -> Connection | None:
        """Return a kept connection whose session has not ended, closing those that the broker is about to close."""
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
            self._mute.add(endpoint)
        else:
            self._mute.discard(endpoint)

    def _give_back(self, endpoint: tuple[str, int], connection: Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(endpoint, [])
            if len(idle) < IDLE_CONNECTIONS and not self._closed:
                idle.append(connection)
                return
        connection.close()


def _read_metadata(answer: Any, *, names: Iterable[str]) -> tuple[str | None, dict[int, tuple[str, int]], dict[str, TopicView]]:
    """Return the cluster's id, its brokers' addresses, and the topics by name, all of ``names`` among them."""
    brokers = {one.node_id: (_host(one.host), _port(one.port)) for one in answer.brokers}
    topics = {topic.name: view_of(topic) for topic in answer.topics}
    for name in names:
        if name not in topics:  # a broker names an error for a topic that it does not have
            raise ValueError(f"it leaves out topic {name!r}")
    return answer.cluster_id, brokers, topics


def _host(name: str | None) -> str:
    if not name:
        raise ValueError("a broker without a host name")
    return name


def _port(number: int) -> int:
    if not 0 < number < 1 << 16:
        raise ValueError(f"a broker with the port {number}")
    return number
