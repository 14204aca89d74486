"""While a transaction is open at the source, its mirror ends before it and its lag counts what lies behind."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.pacing import SystemClock
from linkengine.copyjob.partition_counters import PartitionCounters
from linkengine.copyjob.source.data_loss import _bounds
from linkengine.copyjob.source.fetch_planner import FetchEvents
from linkengine.copyjob.source.fetch_session import FetchInFlight, Reading
from linkengine.copyjob.source.fetcher import BrokerFetcher
from linkengine.copyjob.values import Stage
from linkengine.domain.plans import CopyTuning, PartitionPhase, PartitionProgress
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.requests import FetchedPartition, FetchPosition, FetchResponse
from tests.linkengine.copyjob.copying import Copier, Pair, address, create_pair, plan_of, producer_for, topic_id
from tests.linkengine.copyjob.partitions import NOWHERE, partition, unexpected

AT_REST_S = 2.0  # four times a long poll
pytestmark = pytest.mark.kafka


@pytest.fixture
def open_transaction_of(clusters: Pair, topic_name: str) -> Producer:
    """A producer with an open transaction behind ten records; ten records of another producer follow."""
    create_pair(clusters, topic_name)
    send(clusters, topic_name)
    producer = producer_for(clusters[0], transactional_id=topic_name, linger_ms=0)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, "in doubt")
    assert producer.flush(30) == 0
    send(clusters, topic_name)
    return producer


def send(clusters: Pair, topic: str, count: int = 10) -> None:
    producer = producer_for(clusters[0], acks="all")
    for number in range(count):
        producer.produce(topic, f"{number}")
    assert producer.flush(30) == 0


def stands_at(progress: PartitionProgress, end: int, *, high_watermark: int) -> bool:
    return (progress.mirror_end, progress.source_end, progress.source_high_watermark) == (end, end, high_watermark)


def test_mirror_at_the_last_stable_offset_is_not_in_sync_while_a_transaction_is_open(
    clusters: Pair, topic_name: str, open_transaction_of: Producer
) -> None:
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_until(lambda progress: stands_at(progress, 10, high_watermark=21))
        time.sleep(AT_REST_S)
        copier.wait_until(lambda progress: progress.caught_up_at_ms is None and progress.phase is PartitionPhase.COPYING)

        send(clusters, topic_name)  # the last stable offset does not move; the high watermark has to be reported nevertheless
        copier.wait_until(lambda progress: stands_at(progress, 10, high_watermark=31))

        open_transaction_of.commit_transaction(30)
        copier.wait_until(lambda progress: stands_at(progress, 32, high_watermark=32))
        copier.wait_until(lambda progress: progress.caught_up_at_ms is not None)


def test_phase_is_copying_when_only_an_open_transaction_is_left(
    clusters: Pair, topic_name: str, open_transaction_of: Producer
) -> None:
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as first:
        first.wait_for_ends({0: 10})

    with Copier(plan, lease=first.lease) as second:
        second.wait_until(lambda progress: progress.phase is PartitionPhase.COPYING and progress.bytes_copied == 0)
        assert next(iter(second.progress.latest.values())).caught_up_at_ms is None


def test_observed_source_reports_last_stable_offset_and_high_watermark(
    clusters: Pair, topic_name: str, open_transaction_of: Producer
) -> None:
    cluster, place = Cluster(address(clusters[0])), (topic_name, 0)
    try:
        broker = cluster.newest_topics([topic_name])[topic_name].partitions[0].broker
        assert _bounds(cluster, broker, {place: topic_id(clusters[0], topic_name)}) == {place: (0, 0, 10, 21)}
    finally:
        cluster.close()


def test_time_lag_counts_from_when_the_mirror_last_had_all_below_the_high_watermark() -> None:
    counters = PartitionCounters()
    counters.observed_mirror(start=0, end=1_000)
    counters.observed_source(start=0, end=1_000, high_watermark=1_000, now_ms=5_000)
    for now_ms in (6_000, 7_000):
        counters.observed_source(start=0, end=1_000, high_watermark=50_000, now_ms=now_ms)
    counters.unchanged(8_000)
    assert counters.caught_up_at_ms == 5_000

    counters.observed_source(start=0, end=50_001, high_watermark=50_001, now_ms=9_000)
    counters.observed_mirror(start=0, end=50_000)
    assert counters.caught_up_at_ms == 8_000


def test_response_too_late_to_be_planned_still_updates_the_end_of_the_source() -> None:
    """A fetch session does not return it again, since the high watermark does not change."""
    mirror = partition()
    mirror.stage, mirror.position = Stage.COPYING, 10
    services: Any = SimpleNamespace(clock=SystemClock(), tuning=CopyTuning(), bandwidth=None)
    events = FetchEvents(planned=unexpected, refused=unexpected, emptied=unexpected, lost=unexpected)
    broker = BrokerFetcher(services, NOWHERE, 0, events=events)
    broker._session.want((b"t", 0), Reading(mirror, mirror.attempt, FetchPosition(0, 0, 10, 1 << 20)))
    requested = FetchInFlight(1, 13, 0.0, 0.0, 1, None)
    part = FetchedPartition(b"t", 0, 0, 50_000, 10, 0, (), memoryview(b""))

    mirror.interrupt(retry_at=0.0)
    broker._take_partitions(requested, FetchResponse(0, 0, 7, [part]), Buffer(), responded_ms=0)
    mirror.counters.observed_mirror(start=0, end=10)

    assert (mirror.counters.source_end, mirror.counters.source_high_watermark) == (10, 50_000)
    assert mirror.counters.caught_up_at_ms is None
