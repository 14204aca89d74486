"""Compacted topics: which records either side may lack (ADR 0002). Gaps are where compaction would leave them.

A run takes seconds, however little it compares. Most cases are therefore partitions of the same topics, which one run compares.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.domain.ranges import CheckedRange
from linkengine.verifyjob.job import run_verify
from tests.linkengine.verifyjob.recording import GAP, Rec, create, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


def at(key: str | None, value: str | None = "v") -> Rec:
    """Return a record that takes two offsets, like a gap, so that both sides keep the same offsets."""
    return Rec(key=key and key.encode(), value=value and value.encode(), transaction="commit")  # type: ignore[arg-type]


# Per place: the record of the source, the record of the mirror; the comment has the expected result.
RULES = [
    (at("both"), at("both")),  # 0: equal
    (at("a", "old"), GAP),  # 1: replaced at 2, which both have
    (at("a"), at("a")),
    (GAP, at("b", "old")),  # 3: replaced at 4
    (at("b"), at("b")),
    (at("c"), GAP),  # 5: missing; nothing replaces it
    (GAP, at("d")),  # 6: extra
    (at("e", "old"), at("e", "old")),
    (at("e"), GAP),  # 8: missing: the mirror still has the old value
    (at("f"), GAP),  # 9: gone with its tombstone, which the mirror removed too
    (at("f", None), GAP),
    (GAP, at("g", None)),  # 11: a tombstone is equivalent to no record
    (GAP, at("h")),  # 12: the source replaced it by a tombstone
    (at("h", None), GAP),  # 13: missing: readers of the mirror still see h
    (at(None), GAP),  # 14: either side's log cleaner removes records without a key
    (GAP, at(None)),
    (at("i", "one"), at("i", "two")),  # 16: both have it, so it must be equal
    (at("j", "old"), GAP),  # 17: replaced on the mirror by a record beyond the end
    (at("k"), GAP),  # 18: missing: the source's own later record does not help readers of the mirror
    (GAP, GAP),
    (GAP, at("j")),  # 20: beyond the end
    (at("k"), GAP),
]
AROUND = [
    (at("h"), at("h")),
    (at("before"), GAP),  # not within the range
    (at("h", None), GAP),  # 2: missing: readers of the mirror still see h, from before the range
    (at("n", None), GAP),  # 3: removed on the mirror together with n
    (at("p", "old"), GAP),  # 4: replaced on the mirror, behind the range
    (at("both"), at("both")),
    (at("p"), at("p")),
]
TOMBSTONES = [
    (at("both"), at("both")),
    (GAP, at("l")),
    (at("m"), GAP),  # 2: missing
    (GAP, at("l", None)),  # 3: behind the end
    (at("m", None), GAP),
]
# The partitions of both topics, and the places that are compared there. One run compares all of them.
CASES = ((RULES, 0, 20), (AROUND, 2, 6), (AROUND, 3, 6), (TOMBSTONES, 0, 3), (TOMBSTONES, 3, 4))


@pytest.fixture(scope="module")
def admin(source_cluster: KafkaCluster) -> ClusterAddress:
    return address_from_properties(source_cluster.client_properties("admin"))


def plan_of(admin: ClusterAddress, topic: str) -> VerifyPlan:
    return VerifyPlan(
        source=admin, destination=admin, source_topic=f"{topic}-source", mirror_topic=f"{topic}-mirror", compacted=True
    )


@pytest.fixture(scope="module")
def cases(source_cluster: KafkaCluster, admin: ClusterAddress) -> VerifyPlan:
    """Write all cases and return the plan that compares them."""
    plan = plan_of(admin, f"topic-{secrets.token_hex(6)}")
    for topic, side in ((plan.source_topic, 0), (plan.mirror_topic, 1)):
        create(source_cluster, topic, partitions=len(CASES))
        for partition, (places, *_) in enumerate(CASES):
            write(source_cluster, topic, [place[side] for place in places], partition=partition)
    starts = tuple((number, 2 * start) for number, (_, start, _) in enumerate(CASES))
    ends = tuple((number, 2 * end) for number, (_, _, end) in enumerate(CASES))
    return replace(plan, starts=starts, ends=ends)


@pytest.fixture(scope="module")
def report(cases: VerifyPlan, spark_connect_url: str) -> VerifyReport:
    """The result of the run that compares all cases."""
    return run_verify(cases, spark_url=spark_connect_url)


def places(report: VerifyReport, partition: int) -> list[tuple[int, str]]:
    found = (difference for difference in report.first_differences if difference.partition == partition)
    return [(difference.offset // 2, difference.kind) for difference in found]


def checked(report: VerifyReport, partition: int) -> list[CheckedRange]:
    return [checked for checked in report.checked if checked.partition == partition]


def test_only_differences_that_compaction_can_cause_are_accepted(
    report: VerifyReport, cases: VerifyPlan, spark_connect_url: str
) -> None:
    assert places(report, 0) == [(5, "missing"), (6, "extra"), (8, "missing"), (13, "missing"), (16, "value"), (18, "missing")]

    strict = run_verify(replace(cases, starts=(), ends=((0, 2 * 20),), compacted=False), spark_url=spark_connect_url)
    assert strict.differences == 15


def test_records_before_and_behind_a_range_are_considered(report: VerifyReport) -> None:
    [range_] = checked(report, 1)
    assert places(report, 1) == [(2, "missing")]
    assert (range_.start, range_.end, range_.differences) == (4, 12, 1)

    [rest] = checked(report, 2)
    assert (rest.start, rest.end, rest.records, rest.differences) == (6, 12, 1, 0)


def test_a_record_with_a_later_tombstone_may_be_missing_on_the_source(report: VerifyReport) -> None:
    """The source's log cleaner has run, the mirror's has not. A later deletion on the source alone affects only its readers."""
    assert places(report, 3) == [(2, "missing")]
    assert [range_.differences for range_ in checked(report, 4)] == [0]


def test_a_topic_that_the_log_cleaner_has_compacted_is_read_without_loss(
    spark_connect_url: str, source_cluster: KafkaCluster, admin: ClusterAddress, topic_name: str
) -> None:
    pair = plan_of(admin, topic_name)
    compacting = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    records = [Rec(key=str(number % 10).encode(), value=str(number).encode()) for number in range(500)]
    create(source_cluster, pair.source_topic, configs={**compacting, "max.compaction.lag.ms": "100"})
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
