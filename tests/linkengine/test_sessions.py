"""Brokers that limit how long a connection may be used: by its token's end, or by connections.max.reauth.ms (KIP-368)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
import structlog
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from devcluster.tokens import TokenEndpoint
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import admin_session
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from tests.linkengine.copyjob.copying import (
    Copier,
    address,
    assert_equal_topics,
    assignments_for,
    create_topic,
    ends_of,
    plan_for,
    wait_for,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(290)]
PARTITIONS = 2
TOKEN_LIFE_S = 8
SESSION_MS = 4_000
COPIED_S = 30.0  # several lives of tokens and sessions


@dataclass(frozen=True, kw_only=True)
class Limited:
    cluster: KafkaCluster
    tokens: TokenEndpoint

    @property
    def ways_in(self) -> dict[str, ClusterAddress]:
        listener = self.cluster.listener_properties("TOKENS")
        return {
            "token": address_from_properties(self.tokens.client_properties() | listener),
            "password": address(self.cluster),
        }


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """A broker whose sessions with SCRAM end after four seconds, and with tokens when these end, after eight."""
    extra = {"listener.name.client.scram-sha-512.connections.max.reauth.ms": SESSION_MS}
    cluster = KafkaCluster("limited", directory=tmp_path_factory.mktemp("limited"), extra=extra)
    with TokenEndpoint(life_s=TOKEN_LIFE_S) as tokens, cluster.with_listeners(jwks_url=tokens.jwks_url):
        yield Limited(cluster=cluster, tokens=tokens)


def test_the_copy_loop_loses_no_connection_when_sessions_end(limited: Limited, topic_name: str) -> None:
    """Two copy workers at once, one per way in: most of the test is waiting."""
    cluster, given, over = limited.cluster, limited.tokens.given, threading.Event()
    pairs = {way: (f"{topic_name}-{way}", f"{topic_name}-{way}-mirror") for way in limited.ways_in}
    with structlog.testing.capture_logs() as logs, ExitStack() as stack:
        copiers = {way: stack.enter_context(copier_for(limited, way, *pair)) for way, pair in pairs.items()}
        writers = [threading.Thread(target=write_until, args=(cluster, topic, over)) for topic, _ in pairs.values()]
        for writer in writers:
            writer.start()
        over.wait(COPIED_S)
        over.set()
        for writer in writers:
            writer.join(60)
        for way, (topic, _) in pairs.items():
            copiers[way].wait_for_ends(ends_of(cluster, topic, partitions=PARTITIONS))

    assert {(way, phase, code) for way in pairs for _, phase, code in copiers[way].progress.history if code} == set()
    assert [line for line in logs if line["event"] in ("connection.lost", "connection.not_renewed")] == []
    renewed = Counter(line["broker"] for line in logs if line["event"] == "connection.renewed")
    assert len(renewed) == len(pairs)  # each way in has a listener of its own
    assert min(renewed.values()) >= 6
    for topic, mirror in pairs.values():
        assert assert_equal_topics(cluster, topic, cluster, mirror, partitions=PARTITIONS) > 500
    assert limited.tokens.given - given >= COPIED_S // TOKEN_LIFE_S


def copier_for(limited: Limited, way: str, topic: str, mirror: str) -> Copier:
    for name in (topic, mirror):
        create_topic(limited.cluster, name, partitions=PARTITIONS)
    through = limited.ways_in[way]
    return Copier(plan_for(through, through, assignments_for(limited.cluster, topic, mirror, partitions=PARTITIONS)))


def write_until(cluster: KafkaCluster, topic: str, over: threading.Event) -> None:
    """Write transactions, every third of which is aborted, so that the mirror needs fillers as well."""
    producer = Producer({**cluster.client("admin", mechanism="PLAIN"), "transactional.id": f"writer-{topic}"})
    producer.init_transactions()
    number = 0
    while not over.is_set():
        producer.begin_transaction()
        for _ in range(20):
            number += 1
            producer.produce(topic, value=b"%d" % number, partition=number % PARTITIONS)
        producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction()
        time.sleep(0.1)


def test_an_admin_client_works_across_the_ends_of_sessions(limited: Limited, topic_name: str) -> None:
    """A busy connection, and a connection that is idle for longer than a token is valid, with both ways to sign in: at once."""
    given = limited.tokens.given

    def use(address: ClusterAddress, pause_s: float) -> bool:
        """Return whether the same client was used to the end."""
        admin = ClusterAdmin(address)
        client = admin_session._pool.take(address)
        ends_at = time.monotonic() + TOKEN_LIFE_S * 3
        while time.monotonic() < ends_at:
            assert topic_name not in admin.topic_names()
            time.sleep(pause_s)
        return admin_session._pool.take(address) is client

    busy = [(address, 0.5) for address in limited.ways_in.values()]
    idle = [(replace(address, ssl_key_password="unused"), TOKEN_LIFE_S * 1.5) for address, _ in busy]  # other clients
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda client: use(*client), [*busy, *idle])) == [True] * 4
    assert limited.tokens.given - given >= 2


def test_an_admin_client_works_again_after_its_token_endpoint_was_away(limited: Limited) -> None:
    admin, client_secret = ClusterAdmin(limited.ways_in["token"]), limited.tokens.clients["link"]
    admin.topic_names()
    limited.tokens.clients["link"] = "rotated"
    try:
        wait_for(lambda: error_of(admin) is ErrorCode.AUTHENTICATION_ERROR)
    finally:
        limited.tokens.clients["link"] = client_secret

    wait_for(lambda: error_of(admin) is None)


def error_of(admin: ClusterAdmin) -> ErrorCode | None:
    """Return what a request of the client raises, if it does."""
    try:
        admin.topic_names()
    except LinkEngineError as error:
        return error.code
    return None


def test_a_kept_connection_is_replaced_before_its_session_ends(limited: Limited) -> None:
    """An idle connection that the broker is about to close would lose a request that must not be sent twice."""
    clusters = {way: Cluster(address) for way, address in limited.ways_in.items()}
    kept = {way: idle_connection(cluster) for way, cluster in clusters.items()}
    time.sleep(TOKEN_LIFE_S)

    fresh = {way: idle_connection(cluster) for way, cluster in clusters.items()}
    for cluster in clusters.values():
        cluster.close()

    for way in clusters:
        assert fresh[way] is not kept[way]
        assert kept[way].fileno() < 0
        assert kept[way].renew_at < time.monotonic() < fresh[way].renew_at


def idle_connection(cluster: Cluster) -> Connection:
    """Send a request; return the only connection that is kept."""
    cluster.topics([])
    ((connection,),) = cluster._idle.values()
    return connection
