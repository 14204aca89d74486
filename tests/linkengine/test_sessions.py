"""Brokers that limit how long a connection may be used: by its token's end, or by connections.max.reauth.ms (KIP-368)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import structlog
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from devcluster.tokens import TokenEndpoint
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import admin_session
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
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


@pytest.mark.parametrize("way", ["token", "password"])
def test_the_copy_loop_loses_no_connection_when_sessions_end(limited: Limited, topic_name: str, way: str) -> None:
    cluster, given, mirror = limited.cluster, limited.tokens.given, f"{topic_name}-mirror"
    for name in (topic_name, mirror):
        create_topic(cluster, name, partitions=PARTITIONS)
    through = limited.ways_in[way]
    assignments = assignments_for(cluster, topic_name, mirror, partitions=PARTITIONS)
    over = threading.Event()
    writer = threading.Thread(target=write_until, args=(cluster, topic_name, over))
    with structlog.testing.capture_logs() as logs, Copier(plan_for(through, through, assignments)) as copier:
        writer.start()
        over.wait(COPIED_S)
        over.set()
        writer.join(60)
        copier.wait_for_ends(ends_of(cluster, topic_name, partitions=PARTITIONS))
    copier.join()

    said = {(phase, code) for _, phase, code in copier.progress.history if code}
    assert said == set()
    assert [line for line in logs if line["event"] in ("connection.lost", "connection.not_renewed")] == []
    assert sum(line["event"] == "connection.renewed" for line in logs) >= 6
    assert assert_equal_topics(cluster, topic_name, cluster, mirror, partitions=PARTITIONS) > 500
    if way == "token":
        assert limited.tokens.given - given >= COPIED_S // TOKEN_LIFE_S


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


@pytest.mark.parametrize("way", ["token", "password"])
@pytest.mark.parametrize("pause_s", [0.5, TOKEN_LIFE_S * 1.5])
def test_an_admin_client_works_across_the_ends_of_sessions(limited: Limited, topic_name: str, way: str, pause_s: float) -> None:
    """One that is used all the time, and one that is idle for longer than a token lives."""
    admin, given = ClusterAdmin(limited.ways_in[way]), limited.tokens.given
    client = admin_session._pool.take(admin.address)
    ends_at = time.monotonic() + TOKEN_LIFE_S * 3

    while time.monotonic() < ends_at:
        assert topic_name not in admin.topic_names()
        time.sleep(pause_s)

    assert admin_session._pool.take(admin.address) is client
    if way == "token":
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


@pytest.mark.parametrize("way", ["token", "password"])
def test_a_kept_connection_is_replaced_before_its_session_ends(limited: Limited, way: str) -> None:
    """An idle one that the broker is about to close would lose a request that must not be sent twice."""
    cluster = Cluster(limited.ways_in[way])
    cluster.topics([])
    (endpoint,) = cluster._idle
    (kept,) = cluster._idle[endpoint]
    time.sleep(TOKEN_LIFE_S)

    cluster.topics([])
    (fresh,) = cluster._idle[endpoint]
    cluster.close()

    assert fresh is not kept
    assert kept.fileno() < 0
    assert kept.renew_at < time.monotonic() < fresh.renew_at
