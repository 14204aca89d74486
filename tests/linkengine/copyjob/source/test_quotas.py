"""Brokers with quotas for the link's principal (KIP-13, KIP-219): the copy waits as long as requested, without an error."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import AlterClientQuotasRequest, AlterClientQuotasResponse

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.destination import producer
from linkengine.copyjob.source import fetcher
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka import requests
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.single_reads import read_batches
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    address,
    assert_equal_topics,
    create_pair,
    fence,
    plan_of,
    producer_for,
    wait_for,
)

RECORD_BYTES = 320_000
# Brokers average over ten seconds, so the first record alone leads to a pause of 320,000 B / quota - 10 s.
PRODUCED_PER_S = 20_000.0  # a pause of 6 s: longer than a broker may be silent
FETCHED_PER_S = 70_000.0  # the third record exceeds it: pauses of 3.7 s until the quota is removed


class Broker:
    """The times of a broker's requests of a kind, and the pauses that the broker requested."""

    def __init__(self, encode: Callable[..., Any], decode: Callable[..., Any], pause_ms: Callable[[Any], int]) -> None:
        self.sent: list[float] = []
        self.pauses: list[tuple[float, float]] = []  # from, until
        self._encode, self._decode, self._pause_ms = encode, decode, pause_ms

    def encode(self, *args: Any, **rest: Any) -> Any:
        self.sent.append(time.monotonic())
        return self._encode(*args, **rest)

    def decode(self, body: memoryview, *, version: int) -> Any:
        response = self._decode(body, version=version)
        if pause_ms := self._pause_ms(response):
            now = time.monotonic()
            self.pauses.append((now, now + pause_ms / 1000))
        return response

    @property
    def disturbed(self) -> list[float]:
        """The times of requests within a pause."""
        return [at for at in self.sent if any(began < at < until for began, until in self.pauses)]


def test_quotas_of_both_clusters_are_respected_without_an_error(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Broker(requests.encode_fetch, requests.decode_fetch, lambda response: response.throttle_ms)
    writing = Broker(requests.encode_produce, requests.decode_produce, lambda response: response[0])
    monkeypatch.setattr(fetcher, "encode_fetch", reading.encode)
    monkeypatch.setattr(fetcher, "decode_fetch", reading.decode)
    names = vars(requests) | {"encode_produce": writing.encode, "decode_produce": writing.decode}
    monkeypatch.setattr(producer, "requests", SimpleNamespace(**names))
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, 2)  # both are in flight when the first response arrives

    with quotas(clusters), Copier(plan_of(clusters, topic_name, request_timeout_ms=5_500)) as copier:
        wait_for(lambda: writing.pauses)
        write(clusters[0], topic_name, 1)
        wait_for(lambda: reading.pauses)
        lift(clusters)
        copier.wait_for_ends({0: 3})

    copier.join()
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 3
    assert max(until - began for began, until in writing.pauses) > producer.UNRESPONSIVE_AFTER_S
    assert reading.disturbed == writing.disturbed == []
    assert {(phase, code) for _, phase, code in copier.progress.history} <= {
        (PartitionPhase.WAITING, ""),
        (PartitionPhase.COPYING, ""),
        (PartitionPhase.RELEASED, ""),
    }


def test_fence_waits_for_the_quota_when_it_reads_the_log_end(clusters: Pair, topic_name: str) -> None:
    """It does after an earlier attempt, whose fence may be the last batch."""
    create_pair(clusters, topic_name)
    mirror = clusters[1]
    write(mirror, topic_name, 2)
    plan = plan_of(clusters, topic_name)
    assert fence(plan) == {0: 2}
    session = Cluster(plan.destination)
    try:
        with quotas(clusters):
            limit(mirror, "consumer_byte_rate", FETCHED_PER_S)
            read_twice(session, topic_name)
            limit(mirror, "consumer_byte_rate", FETCHED_PER_S / 2.5)
            began = time.monotonic()
            assert fence(plan) == {0: 2}
            assert time.monotonic() - began > 5.0
    finally:
        limit(mirror, "consumer_byte_rate", None)
        session.close()


def read_twice(session: Cluster, topic: str) -> None:
    """Read twice, to use up most of a quota."""
    view = session.newest_topics([topic])[topic]
    connection = session.open(view.partitions[0].broker)
    try:
        for offset in range(2):
            place = (topic, view.topic_id, 0)
            assert read_batches(connection, topic=place, leader_epoch=0, offset=offset, max_bytes=1)[1]
    finally:
        connection.close()


def write(cluster: KafkaCluster, topic: str, count: int) -> None:
    producer = producer_for(cluster, batch_size=1_000)
    for _ in range(count):
        producer.produce(topic, value=secrets.token_bytes(RECORD_BYTES))
    assert producer.flush(60) == 0


@contextmanager
def quotas(clusters: Pair) -> Iterator[None]:
    """Set quotas for the link's principal on both clusters within the block."""
    limit(clusters[0], "consumer_byte_rate", FETCHED_PER_S)
    limit(clusters[1], "producer_byte_rate", PRODUCED_PER_S)
    try:
        yield
    finally:
        lift(clusters)


def lift(clusters: Pair) -> None:
    for cluster, name in zip(clusters, ("consumer_byte_rate", "producer_byte_rate"), strict=True):
        limit(cluster, name, None)


def limit(cluster: KafkaCluster, name: str, bytes_per_s: float | None) -> None:
    """Set or remove a quota of the user `link`."""
    entry = AlterClientQuotasRequest.EntryData
    change = entry(
        entity=[entry.EntityData(entity_type="user", entity_name="link")],
        ops=[entry.OpData(key=name, value=bytes_per_s or 0.0, remove=bytes_per_s is None)],
    )
    session = Cluster(address(cluster, "admin"))
    try:
        session.topics([])
        response: Any = session.call(
            session.brokers()[0],
            lambda _: AlterClientQuotasRequest(version=0, entries=[change], validate_only=False),
            response=AlterClientQuotasResponse,
        )
        assert [found.error_code for found in response.entries] == [0]
    finally:
        session.close()
