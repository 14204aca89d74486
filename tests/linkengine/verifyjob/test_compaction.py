"""Compacted topics: what either side may lack, and what it may not (ADR 0002). Holes are where compaction would leave them."""

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
    """A record that takes two offsets like a hole, so that both sides stay in step."""
    return Rec(key=key and key.encode(), value=value and value.encode(), transaction="commit")  # type: ignore[arg-type]


def places(report: VerifyReport) -> list[tuple[int, str]]:
    return [(one.offset // 2, one.kind) for one in report.first_differences]


def test_compaction_explains_what_it_does_and_nothing_else(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    # per place: what the source has, what the mirror has; the comment says what the witness must think
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
        (at("e"), HOLE),  # 8: missing: the mirror is left with the old value
        (at("f"), HOLE),  # 9: gone with its tombstone, which the mirror removed too
        (at("f", None), HOLE),
        (HOLE, at("g", None)),  # 11: a tombstone and no record are the same
        (HOLE, at("h")),  # 12: the source replaced it by a tombstone
        (at("h", None), HOLE),  # 13: missing: the mirror still shows h to its readers
        (at(None), HOLE),  # 14: records without a key are removed by whichever cleaner comes first
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


def test_a_range_is_judged_by_what_lies_before_and_behind_it(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    cases = [
        (at("h"), at("h")),
        (at("before"), HOLE),  # not within the range
        (at("h", None), HOLE),  # 2: missing: the mirror still shows h, from before the range
        (at("n", None), HOLE),  # 3: gone on the mirror as n itself is
        (at("p", "old"), HOLE),  # 4: replaced on the mirror, behind the range
        (at("both"), at("both")),
        (at("p"), at("p")),
    ]
    for topic, side in ((pair.source_topic, 0), (pair.mirror_topic, 1)):
        create(source_cluster, topic)
        write(source_cluster, topic, [case[side] for case in cases])

    report = run_verify(replace(pair, starts=((0, 2 * 2),), ends=((0, 2 * 6),)), spark_url=spark_connect_url)

    assert places(report) == [(2, "missing")]
    assert [(one.start, one.end, one.differences) for one in report.checked] == [(4, 12, 1)]
    rest = run_verify(replace(pair, starts=((0, 2 * 3),), ends=((0, 2 * 6),)), spark_url=spark_connect_url)
    assert [(one.start, one.end, one.records, one.differences) for one in rest.checked] == [(6, 12, 1, 0)]


def test_what_a_tombstone_behind_the_end_deletes_may_be_gone_from_the_source_with_it(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    """The source's cleaner was there, the mirror's was not yet. What the source alone deletes later its readers alone miss."""
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


def test_a_topic_the_cleaner_has_been_through_is_read_without_loss(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    compacting = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    records = [Rec(key=str(number % 10).encode(), value=str(number).encode()) for number in range(500)]
    create(source_cluster, pair.source_topic, **compacting, **{"max.compaction.lag.ms": "100"})
    create(source_cluster, pair.mirror_topic)
    write(source_cluster, pair.source_topic, records)
    write(source_cluster, pair.mirror_topic, records)
    for topic in (pair.source_topic, pair.mirror_topic):
        write(source_cluster, topic, [Rec(key=b"last", after_ms=5_000)])  # rolls the segment: the cleaner may have the old one
    wait_until_compacted(source_cluster, pair.source_topic)

    report = run_verify(replace(pair, ends=((0, 501),)), spark_url=spark_connect_url)

    assert report.differences == 0
    assert report.records_compared < 501


def wait_until_compacted(cluster: KafkaCluster, topic: str) -> None:
    deadline = time.monotonic() + 60
    while first_offset(cluster, topic) == 0:
        assert time.monotonic() < deadline, "the cleaner has not come by"
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
