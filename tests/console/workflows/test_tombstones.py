"""A key is deleted on a compacted source while its mirror is paused, and its tombstone is removed before the mirror resumes."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from django.utils import timezone

from console.mirrors import progress
from console.models import ClusterLink, LinkConfig, MirrorPartition, MirrorTopic, VerifyRun
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.reconciling import plans
from console.tasks.mirrors import verify_mirror, verify_next
from console.verification import queries as verification_queries
from devcluster.kafka import KafkaCluster
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.reversal import Drive, request_operation
from tests.linkengine.copyjob.copying import ends_of, read_topic

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
CLEANED_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "delete.retention.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


@pytest.fixture
def users(link: Any, topic_name: str, source_cluster: KafkaCluster, source_admin: AdminClient) -> MirrorTopic:
    """Create a compacted topic with a key that is to be deleted and two that stay, and a mirror of it that is to be set up."""
    source_admin.create_topics([NewTopic(topic_name, 1, 1, config=CLEANED_SOON)])[topic_name].result(30)
    send(source_cluster, topic_name, doomed="v1", first="1", second="2")
    LinkConfig.objects.create(link=link, name="verify.continuous.enable", value="false")  # the test runs each comparison
    dated = {"state_since": NOW, "created_at": NOW}
    return MirrorTopic.objects.create(
        link=link, name=topic_name, source_topic=topic_name, state=MirrorState.PENDING_SETUP, **dated
    )


def send(cluster: KafkaCluster, topic: str, **values: str | None) -> None:
    producer = Producer({**cluster.client("admin"), "linger.ms": 0})
    for key, value in values.items():
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def values_of(cluster: KafkaCluster, topic: str, key: bytes) -> list[bytes | None]:
    return [value for _, _, found, value, *_ in read_topic(cluster, topic) if found == key]


def forget(cluster: KafkaCluster, topic: str) -> None:
    """Delete the key, and wait until the cleaner has removed its record, then the tombstone."""
    send(cluster, topic, doomed=None)
    deadline = time.monotonic() + 120
    while values_of(cluster, topic, b"doomed"):
        assert time.monotonic() < deadline, "The log cleaner has not removed the record and its tombstone."
        send(cluster, topic, roll="on")  # a new segment, so that the previous segment can be cleaned
        time.sleep(0.3)


def newest(mirror: MirrorTopic) -> MirrorTopic:
    """Return the mirror with its partitions as last reported."""
    found = plans.load(mirror.pk)
    assert found is not None
    return found


def is_noted(mirror: MirrorTopic, *, since: datetime) -> bool:
    """Return whether a reconcile pass has read a report with all records since then, and all lateness has been judged.

    The next reading of the source's configs judges the stored lateness once more. If no pass has read a report for ten seconds,
    the next pass takes the mirror for late again. Both discard the result of a verification run that is in progress.
    """
    is_judged = not MirrorPartition.objects.filter(mirror=mirror).exclude(late_until=None).exists()
    return is_judged and ClusterLink.objects.filter(pk=mirror.link_id, in_sync_at__gt=since).exists()


def codes(mirror: MirrorTopic) -> set[str]:
    return set(mirror.transition_errors.values_list("code", flat=True))


def test_a_missed_deletion_raises_the_alarm_is_found_by_verification_and_can_be_repeated(
    users: MirrorTopic, drive: Drive, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, spark_connect_url: str
) -> None:
    def is_copied() -> bool:
        (mirror,) = progress.current(MirrorTopic.objects.filter(pk=users.pk), now=timezone.now())
        ends = [(row.missing, row.mirror_end) for row in mirror.partitions]
        return ends == [(0, ends_of(source_cluster, users.name)[0])]

    drive(is_copied)
    verify_next(mirror_id=users.pk)
    assert users.verified_ranges.get().start == 0
    request_operation(users, MirrorEvent.PAUSE)
    drive(lambda: MirrorPartition.objects.get(mirror=users).phase == "RELEASED")
    forget(source_cluster, users.name)
    long_ago = timezone.now() - timedelta(days=3)
    MirrorPartition.objects.filter(mirror=users).update(complete_at=long_ago, caught_up_at=long_ago)

    request_operation(users, MirrorEvent.RESUME)
    drive(lambda: is_copied() and bool(codes(users)))  # the reconcile pass that reads the report raises the alarm

    assert values_of(destination_cluster, users.name, b"doomed") == [b"v1"]
    assert codes(users) == {TOMBSTONES_MISSED}
    while verification_queries.coverage(mirror=newest(users))[0].unverified and RECORDS_DIFFER not in codes(users):
        verify_next(mirror_id=users.pk)
    assert "offset 0: not on the source" in users.transition_errors.get(code=RECORDS_DIFFER).message

    sent_at = timezone.now()
    send(source_cluster, users.name, doomed=None)
    drive(lambda: is_copied() and is_noted(users, since=sent_at))
    run = VerifyRun.objects.create(mirror=users, requested_by="owner", requested_at=NOW)
    verify_mirror(run_id=run.pk)

    finished = VerifyRun.objects.get()
    assert (finished.status, finished.error_message, codes(users)) == (VerifyRun.Status.EQUAL, "", set())
