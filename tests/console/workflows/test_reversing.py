"""Reversals on real clusters: producers move to the other side, and every record is on both sides at the same offset."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from console.models import ClusterLink, LineageRange, MirrorTopic
from devcluster.kafka import KafkaCluster
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.kafka.admin import ClusterAdmin
from tests.console.workflows.reversal import Application, Drive, records, request_operation, states, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
S, E = MirrorState, MirrorEvent
Pair = tuple[ClusterLink, ClusterLink]


def other_of(mirror: MirrorTopic) -> MirrorTopic:
    return MirrorTopic.objects.exclude(link=mirror.link_id).get(name=mirror.source_topic)


def test_topic_is_reversed_twice_without_a_lost_record(
    twin: MirrorTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    there: ClusterAdmin,
    drive: Drive,
) -> None:
    topic = twin.name
    there.set_configs(topic, {"compression.type": "zstd"})
    request_operation(twin, E.REVERSE_AND_START)
    other = other_of(twin)

    drive(lambda: states(twin, other) == [S.STOPPED, S.ACTIVE])
    assert write(source_cluster, topic, "late") == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert write(destination_cluster, topic, "after the swap") == [None]
    drive(lambda: len(records(source_cluster, topic)) == 201)
    assert records(source_cluster, topic) == records(destination_cluster, topic)
    origins = LineageRange.objects.filter(mirror=other).values_list("partition", "start", "closed_at")
    assert sorted(origins) == [(0, 100, None), (1, 100, None)]
    assert there.describe(topic).configs["compression.type"] == "producer"

    request_operation(other, E.REVERSE_AND_PAUSE)
    drive(lambda: states(twin, other) == [S.PAUSED, S.STOPPED])
    assert there.describe(topic).configs["compression.type"] == "zstd"
    assert write(source_cluster, topic, "after the second swap") == [None]
    request_operation(twin, E.RESUME)
    drive(lambda: len(records(destination_cluster, topic)) == 202)
    assert records(source_cluster, topic) == records(destination_cluster, topic)


def test_continuous_producers_are_switched_without_lost_moved_or_duplicate_records(
    twin: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """Applications write to both partitions wherever they are allowed to, through two reversals."""
    topic, both = twin.name, (source_cluster, destination_cluster)
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    with Application(topic, both, partition=0) as first, Application(topic, both, partition=1) as second:
        writers = (first, second)
        drive(lambda: all(len(writer.acknowledged) >= 20 for writer in writers))
        request_operation(twin, E.REVERSE_AND_START)
        other = other_of(twin)
        drive(lambda: states(twin, other) == [S.STOPPED, S.ACTIVE] and all(writer.sides[-1:] == [1] for writer in writers))
        request_operation(other, E.REVERSE_AND_START)
        drive(lambda: states(twin, other) == [S.ACTIVE, S.STOPPED] and all(writer.sides[-1] == 0 for writer in writers))
    drive(lambda: records(source_cluster, topic) == records(destination_cluster, topic))

    found = records(source_cluster, topic)
    assert len(set(found.values())) == len(found), "a record exists twice"
    for partition, writer in enumerate(writers):
        assert writer.acknowledged, writer.unknown
        assert [found.get((partition, offset)) for offset in writer.acknowledged.values()] == list(writer.acknowledged)
        assert list(writer.acknowledged.values()) == sorted(writer.acknowledged.values())
        switches = sum(1 for before, after in zip(writer.sides, writer.sides[1:], strict=False) if before != after)
        assert switches == 2, "both sides accepted records at once"  # a switch per reversal


def test_failover_of_the_mirror_ends_the_reversal_with_the_source_closed(
    twin: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    """Records that were not copied are kept, and the closed source shows what can be done."""
    request_operation(twin, E.PAUSE)
    request_operation(twin, E.RESUME)
    request_operation(twin, E.REVERSE_AND_START)
    request_operation(twin, E.FAILOVER)
    other = other_of(twin)

    drive(lambda: states(twin) == [S.STOPPED])
    drive(lambda: other.transition_errors.filter(code="SIDES_DIVERGED").exists())

    assert write(destination_cluster, twin.name, "after the failover") == [None]
    assert write(source_cluster, twin.name, "refused") != [None]
    request_operation(other, E.FAILOVER)
    drive(lambda: states(other) == [S.STOPPED])
    assert write(source_cluster, twin.name, "after the failover of the source") == [None]


def test_reversal_with_aborted_records_is_paused_and_resumed_while_it_drains(
    twin: MirrorTopic,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    there: ClusterAdmin,
    drive: Drive,
) -> None:
    topic = twin.name
    drive(lambda: len(records(destination_cluster, topic)) == 200)
    producer = Producer({**source_cluster.client("app"), "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"never seen", partition=0)
    assert producer.flush(60) == 0
    producer.abort_transaction(60)
    producer.begin_transaction()  # while it is open, the reversal cannot complete
    producer.produce(topic, b"in doubt", partition=0)
    assert producer.flush(60) == 0

    request_operation(twin, E.REVERSE_AND_START)
    other = other_of(twin)
    drive(lambda: there.denies_writes(topic))
    assert states(twin, other) == [S.PENDING_SYNCHRONIZE, S.PENDING_MIRROR]
    request_operation(twin, E.PAUSE)
    drive(lambda: set(twin.partitions.values_list("phase", flat=True)) == {PartitionPhase.RELEASED})
    producer.commit_transaction(60)
    assert states(twin, other) == [S.PAUSED, S.PENDING_MIRROR]
    assert write(destination_cluster, topic, "too early") == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert len(records(destination_cluster, topic)) == 200

    request_operation(twin, E.RESUME)
    drive(lambda: states(twin, other) == [S.STOPPED, S.ACTIVE])
    assert write(destination_cluster, topic, "after the swap") == [None]
    drive(lambda: len(records(source_cluster, topic)) == 202)

    assert states(other) == [S.ACTIVE]
    assert records(source_cluster, topic) == records(destination_cluster, topic)
