"""Compacted topics: which records either side may lack (ADR 0002). Gaps are where compaction would leave them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.verifyjob.job import run_verify
from tests.linkengine.verifyjob.recording import HOLE, Rec, create, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture
def pair(source_cluster: KafkaCluster, topic_name: str) -> VerifyPlan:
    admin = address_from_properties(source_cluster.client_properties("admin"))
    return VerifyPlan(
        source=admin,
        destination=admin,
        source_topic=f"{topic_name}-source",
        mirror_topic=f"{topic_name}-mirror",
        compacted=True,
    )


def at(key: str | None, value: str | None = "v") -> Rec:
    """Return a record that takes two offsets, like a gap, so that both sides keep the same offsets."""
    return Rec(key=key and key.encode(), value=value and value.encode(), transaction="commit")  # type: ignore[arg-type]


def places(report: VerifyReport) -> list[tuple[int, str]]:
    return [(difference.offset // 2, difference.kind) for difference in report.first_differences]


def test_only_differences_that_compaction_can_cause_are_accepted(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    # per place: the record of the source, the record of the mirror; the comment has the expected result
    both = at("both")
    cases = [
        (both, both),  # 0: equal
        (at("a", "old"), HOLE),  # 1: replaced at 2, which both have
        (at("a"), at("a")),
        (HOLE, at("b", "old")),  # 3: replaced at 4
        (at("b"), at("b")),
        (at("c"), HOLE),  # 5: missing; nothing replaces it
        (HOLE, at("d")),  # 6: extra
        (at("e", "old"), at("e", "old")),
        (at("e"), HOLE),  # 8: missing: the mirror still has the old value
        (at("f"), HOLE),  # 9: gone with its tombstone, which the mirror removed too
        (at("f", None), HOLE),
        (HOLE, at("g", None)),  # 11: a tombstone is equivalent to no record
        (HOLE, at("h")),  # 12: the source replaced it by a tombstone
        (at("h", None), HOLE),  # 13: missing: readers of the mirror still see h
        (at(None), HOLE),  # 14: either side's log cleaner removes records without a key
        (HOLE, at(None)),
        (at("i", "one"), at("i", "two")),  # 16: both have it, so it must be equal
        (at("j", "old"), HOLE),  # 17: replaced on the mirror by a record beyond the end
        (at("k"), HOLE),  # 18: missing: the source's own later record does not help readers of the mirror
        (HOLE, HOLE),
        (HOLE, at("j")),  # 20: beyond the end
        (at("k"), HOLE),
    ]
    for topic, side in ((pair.source_topic, 0), (pair.mirror_topic, 1)):
        create(source_cluster, topic)
        write(source_cluster, topic, [case[side] for case in cases])

    report = run_verify(replace(pair, ends=((0, 2 * 20),)), spark_url=spark_connect_url)

    assert places(report) == [
        (5, "missing"), (6, "extra"), (8, "missing"), (13, "missing"), (16, "value"), (18, "missing"),
    ]  # fmt: skip
    strict = run_verify(replace(pair, ends=((0, 2 * 20),), compacted=False), spark_url=spark_connect_url)
    assert strict.differences == 15


def test_records_before_and_behind_a_range_are_considered(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    cases = [
        (at("h"), at("h")),
        (at("before"), HOLE),  # not within the range
        (at("h", None), HOLE),  # 2: missing: readers of the mirror still see h, from before the range
        (at("n", None), HOLE),  # 3: removed on the mirror together with n
        (at("p", "old"), HOLE),  # 4: replaced on the mirror, behind the range
        (at("both"), at("both")),
        (at("p"), at("p")),
    ]
    for topic, side in ((pair.source_topic, 0), (pair.mirror_topic, 1)):
        create(source_cluster, topic)
        write(source_cluster, topic, [case[side] for case in cases])

    report = run_verify(replace(pair, starts=((0, 2 * 2),), ends=((0, 2 * 6),)), spark_url=spark_connect_url)

    assert places(report) == [(2, "missing")]
    assert [(checked.start, checked.end, checked.differences) for checked in report.checked] == [(4, 12, 1)]
    rest = run_verify(replace(pair, starts=((0, 2 * 3),), ends=((0, 2 * 6),)), spark_url=spark_connect_url)
    assert [(checked.start, checked.end, checked.records, checked.differences) for checked in rest.checked] == [(6, 12, 1, 0)]


def test_a_record_with_a_later_tombstone_may_be_missing_on_the_source(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    """The source's log cleaner has run, the mirror's has not. A later deletion on the source alone affects only its readers."""
    cases = [
        (at("both"), at("both")),
        (HOLE, at("l")),
        (at("m"), HOLE),  # 2: missing
        (HOLE, at("l", None)),  # 3: behind the end
        (at("m", None), HOLE),
    ]
    for topic, side in ((pair.source_topic, 0), (pair.mirror_topic, 1)):
        create(source_cluster, topic)
        write(source_cluster, topic, [case[side] for case in cases])

    assert places(run_verify(replace(pair, ends=((0, 2 * 3),)), spark_url=spark_connect_url)) == [(2, "missing")]
    rest = run_verify(replace(pair, starts=((0, 2 * 3),), ends=((0, 2 * 4),)), spark_url=spark_connect_url)
    assert rest.differences == 0


def test_a_topic_that_the_log_cleaner_has_compacted_is_read_without_loss(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    compacting = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    records = [Rec(key=str(number % 10).encode(), value=str(number).encode()) for number in range(500)]
    create(source_cluster, pair.source_topic, **compacting, **{"max.compaction.lag.ms": "100"})
    create(source_cluster, pair.mirror_topic)
    write(source_cluster, pair.source_topic, records)
    write(source_cluster, pair.mirror_topic, records)
    for topic in (pair.source_topic, pair.mirror_topic):
        write(source_cluster, topic, [Rec(key=b"last", after_ms=5_000)])  # rolls the segment: the old segment can be compacted
    wait_until_compacted(source_cluster, pair.source_topic)

    report = run_verify(replace(pair, ends=((0, 501),)), spark_url=spark_connect_url)

    assert report.differences == 0
    assert report.records_compared < 501


def wait_until_compacted(cluster: KafkaCluster, topic: str) -> None:
    deadline = time.monotonic() + 60
    while first_offset(cluster, topic) == 0:
        assert time.monotonic() < deadline, "the log cleaner has not compacted the topic"
        time.sleep(0.2)


def first_offset(cluster: KafkaCluster, topic: str) -> int:
    settings = {"group.id": "compaction", "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.client("admin"), **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(10)
        assert message is not None
        return int(message.offset() or 0)
    finally:
        consumer.close()
