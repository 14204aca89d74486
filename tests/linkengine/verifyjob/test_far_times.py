"""Timestamps that Kafka accepts and that are beyond the range of Spark's timestamp type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import VerifyPlan
from linkengine.jobs.verifying import read_far
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sparkclient import session
from linkengine.verifyjob.job import run_verify
from linkengine.verifyjob.reading import TopicPart
from tests.linkengine.verifyjob.recording import BASE_MS, Rec, create, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}


@pytest.fixture
def pair(source_cluster: KafkaCluster, topic_name: str) -> VerifyPlan:
    admin = address_from_properties(source_cluster.client_properties("admin"))
    plan = VerifyPlan(source=admin, destination=admin, source_topic=f"{topic_name}-source", mirror_topic=f"{topic_name}-mirror")
    for topic in (plan.source_topic, plan.mirror_topic):
        create(source_cluster, topic, partitions=2, configs=ANY_TIME)
    return replace(plan, ends=((0, 4), (1, 1)))


def test_records_with_timestamps_beyond_sparks_range_are_compared(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    far, headers = 2**62 - BASE_MS, (("h", b"\xff"), ("n", None), ("", b""))
    source = [Rec(), Rec(after_ms=far, headers=headers), Rec(after_ms=far, key=None), Rec(value=None)]
    mirror = [Rec(), Rec(after_ms=far, headers=headers), Rec(after_ms=far + 1, key=None), Rec(value=b"")]
    for topic, records in ((pair.source_topic, source), (pair.mirror_topic, mirror)):
        write(source_cluster, topic, records)
        write(source_cluster, topic, [Rec()], partition=1)

    report = run_verify(pair, spark_url=spark_connect_url, read_far=read_far)

    assert [(difference.offset, difference.kind) for difference in report.first_differences] == [(2, "timestamp"), (3, "value")]
    assert report.first_differences[0].mirror_value == f"{2**62 + 1} CreateTime"
    assert (report.records_compared, report.differences) == (5, 2)
    near = run_verify(replace(pair, ends=((1, 1),), gentle=True), spark_url=spark_connect_url)  # as Spark itself reads it
    assert near.checked == tuple(checked for checked in report.checked if checked.partition == 1)


def test_offsets_before_the_log_start_or_behind_the_log_end_are_not_read(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    """Retention may delete records, or the log may be truncated, while both topics are read."""
    write(source_cluster, pair.source_topic, [Rec(after_ms=number) for number in range(4)])
    ClusterAdmin(pair.source).trim(pair.source_topic, {0: 2})
    spark = session(spark_connect_url)
    whole = TopicPart(address=pair.source, topic=pair.source_topic, starts={}, ends={}, gentle=False)

    def read(start: int, end: int) -> list[int]:
        rows = read_far(spark, replace(whole, starts={0: start, 1: 0}, ends={0: end, 1: 0})).collect()
        return [row["offset"] for row in rows]

    assert [read(0, 4), read(3, 4), read(-2, -1), read(9, 12)] == [[2, 3], [3], [2, 3], []]


def test_without_a_reader_for_far_timestamps_the_error_has_the_cause(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    for topic in (pair.source_topic, pair.mirror_topic):
        write(source_cluster, topic, [Rec(after_ms=2**62 - BASE_MS)])

    with pytest.raises(LinkEngineError, match="has a time that Spark's own type does not hold"):
        run_verify(replace(pair, ends=((0, 1),), gentle=True), spark_url=spark_connect_url)
