"""Continuous verification on real topics: ranges are compared and stored, and a difference raises the alarm."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from django.utils import timezone

from console.models import LinkConfig, MirrorTopic, VerifyRun, VerifyWatch
from console.models.mirrors import RECORDS_DIFFER
from console.redis import locks, redis_client
from console.tasks.mirrors import SLOT, SLOTS, continue_coverage, verify_mirror, verify_next
from console.verification import queries as verification_queries
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW
from tests.topics import create_topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
Sent = list[tuple[str, dict[str, Any]]]
BASE_MS = 1_000 * int(timezone.now().timestamp())


def send(cluster: KafkaCluster, topic: str, values: list[str]) -> None:
    producer = Producer({**cluster.client("admin"), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0, timestamp=BASE_MS)
    assert producer.flush(30) == 0


@pytest.fixture
def both(
    link: Any, topic_name: str, source_admin: AdminClient, destination_admin: AdminClient, spark_connect_url: str
) -> MirrorTopic:
    """Create a mirror's row and a topic on each side. The tests write to both topics."""
    for admin in (source_admin, destination_admin):
        create_topics(admin, NewTopic(topic_name, 1, 1))
    mirror = MirrorTopic.objects.create(
        link=link, name=topic_name, source_topic=topic_name, state=MirrorState.ACTIVE, num_partitions=1, state_since=NOW,
        created_at=NOW,
    )  # fmt: skip
    mirror.partitions.create(partition=0, source_start=0, mirror_start=0, mirror_end=0)
    return mirror


def test_verified_ranges_follow_the_copy_and_a_difference_raises_the_alarm_until_a_run_finds_none(
    both: MirrorTopic, source_cluster: KafkaCluster, destination_cluster: KafkaCluster
) -> None:
    VerifyWatch.objects.create(mirror=both, next_at=NOW)
    LinkConfig.objects.create(link=both.link, name="verify.max.records.per.run", value="1000")
    for cluster in (source_cluster, destination_cluster):
        send(cluster, both.name, [f"value {number}" for number in range(1_500)])
    both.partitions.update(mirror_end=1_500)

    verify_next(mirror_id=both.pk)
    first = both.verified_ranges.get()
    assert (first.start, first.end, first.records, first.differences) == (0, 1_000, 1_000, 0)

    verify_next(mirror_id=both.pk)
    whole = both.verified_ranges.get()
    assert (whole.start, whole.end, whole.records) == (0, 1_500, 1_500)
    assert whole.hash != first.hash
    assert verification_queries.coverage(mirror=both)[0].unverified == 0
    MirrorTopic.objects.update(source_topic="not-there")
    verify_next(mirror_id=both.pk)  # nothing is left to compare, so no cluster is contacted
    assert VerifyWatch.objects.get().error_message == ""
    MirrorTopic.objects.update(source_topic=both.source_topic)

    send(source_cluster, both.name, ["good"])
    send(destination_cluster, both.name, ["evil"])
    both.partitions.update(mirror_end=1_501)
    verify_next(mirror_id=both.pk)
    verify_next(mirror_id=both.pk)
    error = both.transition_errors.get()
    assert error.code == RECORDS_DIFFER
    assert "partition 0, offset 1500: another value." in error.message
    assert not {"good", "evil"} & set(re.findall(r"\w+", error.message))
    assert [(checked.start, checked.end, checked.differences) for checked in both.verified_ranges.all()] == [
        (0, 1_500, 0),
        (1_500, 1_501, 1),
    ]
    assert VerifyWatch.objects.get().error_message == ""

    run = VerifyRun.objects.create(mirror=both, requested_by="owner", requested_at=NOW)
    verify_mirror(run_id=run.pk)
    assert both.transition_errors.get().code == RECORDS_DIFFER
    assert sum(checked.differences for checked in both.verified_ranges.all()) == 1


def test_a_failed_attempt_is_shown_and_retried_later(both: MirrorTopic, destination_admin: AdminClient) -> None:
    VerifyWatch.objects.create(mirror=both, next_at=NOW)
    MirrorTopic.objects.update(source_topic="not-there")
    both.partitions.update(mirror_end=1)

    verify_next(mirror_id=both.pk)

    watch = VerifyWatch.objects.get()
    assert "not-there" in watch.error_message
    assert watch.next_at > timezone.now() + timedelta(seconds=30)
    assert not both.transition_errors.exists()


def test_comparisons_run_one_at_a_time(both: MirrorTopic, sent: Sent) -> None:
    VerifyWatch.objects.create(mirror=both, next_at=NOW)
    redis_client().delete(f"console:claim:{SLOT}")

    with locks.lock(SLOT):
        verify_next(mirror_id=both.pk)
        continue_coverage(now=timezone.now())
    assert (sent, VerifyWatch.objects.get().finished_at) == ([], None)

    with locks.lock(SLOTS[0]), locks.lock(SLOTS[1]):  # runs that users requested do not delay it
        continue_coverage(now=timezone.now())
    continue_coverage(now=timezone.now())
    assert sent == [("verify_next", {"mirror_id": both.pk})]
