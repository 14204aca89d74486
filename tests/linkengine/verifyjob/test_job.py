"""Verification runs on real topics: no difference for equal topics, exact differences otherwise.

A run takes seconds, however little it compares. Most cases are therefore partitions of the same topics, which one run compares.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.domain.ranges import CheckedRange, RecordDifference, combine
from linkengine.sparkclient import SparkUnavailableError
from linkengine.verifyjob import job, reading
from linkengine.verifyjob.job import run_verify
from tests.linkengine.verifyjob.recording import BASE_MS, GAP, Rec, create, denied_read, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
LONG = b"a" * 5_000
OLD = [Rec()] * 10
TEN = [Rec(value=str(number).encode()) for number in range(10)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A partition of both topics, compared within ``[start, end)``; ``records``: how many records the run has to compare."""

    source: Sequence[Rec]
    mirror: Sequence[Rec]
    end: int
    records: int
    start: int = 0
    deleted: int = 0  # the source's log start

    @property
    def partition(self) -> int:
        return list(CASES.values()).index(self)


CASES = {
    "every kind": Case(
        source=[
            Rec(), Rec(key=b"one"), Rec(value=b"right"), Rec(headers=(("h", b"1"),)), Rec(after_ms=5),
            Rec(value=b"lost", transaction="commit"), GAP,
            Rec(value=None), Rec(headers=(("h", None),)), Rec(value=LONG + b"end"), Rec(),
        ],
        mirror=[
            Rec(), Rec(key=b"two"), Rec(value=b"wrong"), Rec(headers=(("h", b"2"),)), Rec(after_ms=6),
            GAP, Rec(value=b"foreign\x00", transaction="commit"),
            Rec(value=b""), Rec(headers=(("h", b""),)), Rec(value=LONG + b"END"), Rec(),
        ],
        end=13,
        records=11,
    ),
    "aborted": Case(
        source=[GAP, Rec(), GAP, Rec(value=b"kept", transaction="commit"), GAP, GAP],
        mirror=[
            replace(GAP, value=b"other garbage"), Rec(), replace(GAP, value=b"other garbage"),
            Rec(value=b"kept", transaction="commit"), replace(GAP, value=b"other garbage"),
            replace(GAP, value=b"other garbage"),
        ],
        end=11,
        records=2,
    ),
    "live": Case(source=[Rec()] * 5 + [Rec(value=b"not copied yet")] * 5, mirror=[Rec()] * 5, end=5, records=5),
    "log start": Case(
        source=[*OLD, Rec(value=b"good")], mirror=[*OLD, Rec(value=b"bad")], start=4, deleted=4, end=11, records=7
    ),
    "all deleted": Case(source=OLD, mirror=OLD, start=10, deleted=10, end=10, records=0),
    "short source": Case(source=[Rec()] * 3, mirror=[Rec()] * 5, end=5, records=5),
    "empty source": Case(source=[], mirror=[Rec()], end=1, records=1),
    "concatenated": Case(
        source=[Rec(key=b"ab", value=b"c"), Rec(key=None, value=b"x"), Rec(headers=(("h", None), ("x", b"a")))],
        mirror=[Rec(key=b"a", value=b"bc"), Rec(key=b"", value=b"x"), Rec(headers=(("h", b"x"), ("a", None)))],
        end=3,
        records=3,
    ),
    "ten": Case(source=TEN, mirror=TEN, end=10, records=10),
}  # fmt: skip


@pytest.fixture(scope="module")
def cases(source_cluster: KafkaCluster) -> VerifyPlan:
    """Write all cases and return the plan that compares them."""
    admin, name = address_from_properties(source_cluster.client_properties("admin")), f"topic-{secrets.token_hex(6)}"
    plan = VerifyPlan(
        source=admin,
        destination=admin,
        source_topic=f"{name}-source",
        mirror_topic=f"{name}-mirror",
        starts=tuple((case.partition, case.start) for case in CASES.values()),
        ends=tuple((case.partition, case.end) for case in CASES.values()),
    )
    for topic in (plan.source_topic, plan.mirror_topic):
        create(source_cluster, topic, partitions=len(CASES))
        for case in CASES.values():
            records = case.source if topic == plan.source_topic else case.mirror
            write(source_cluster, topic, records, partition=case.partition)
    doomed = [TopicPartition(plan.source_topic, case.partition, case.deleted) for case in CASES.values() if case.deleted]
    client = AdminClient(source_cluster.client("admin"))
    for deleted in client.delete_records(doomed).values():
        deleted.result(30)
    return plan


@pytest.fixture(scope="module")
def report(cases: VerifyPlan, spark_connect_url: str) -> VerifyReport:
    """The result of the run that compares all cases."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(reading.LIMITS, "kafkaConsumer.pollTimeoutMs", "2000")  # the wait for missing records, per pass
        return run_verify(cases, spark_url=spark_connect_url)


def found_in(report: VerifyReport, name: str) -> tuple[RecordDifference, ...]:
    """Return the differences that were found in a case, as if it were partition 0."""
    partition = CASES[name].partition
    return tuple(replace(found, partition=0) for found in report.first_differences if found.partition == partition)


def places_in(report: VerifyReport, name: str) -> list[tuple[int, str]]:
    return [(found.offset, found.kind) for found in found_in(report, name)]


def checked_in(report: VerifyReport, name: str) -> list[CheckedRange]:
    return [checked for checked in report.checked if checked.partition == CASES[name].partition]


@pytest.fixture
def admin(source_cluster: KafkaCluster) -> ClusterAddress:
    return address_from_properties(source_cluster.client_properties("admin"))


@pytest.fixture
def pair(admin: ClusterAddress, topic_name: str) -> VerifyPlan:
    """Return a plan for two topics of a cluster: the run does not depend on which program wrote the second."""
    return VerifyPlan(source=admin, destination=admin, source_topic=f"{topic_name}-source", mirror_topic=f"{topic_name}-mirror")


def verify(
    spark_url: str,
    cluster: KafkaCluster,
    pair: VerifyPlan,
    *,
    source: list[Rec],
    mirror: list[Rec],
    ends: tuple[tuple[int, int], ...],
) -> VerifyReport:
    for topic, records in ((pair.source_topic, source), (pair.mirror_topic, mirror)):
        create(cluster, topic)
        write(cluster, topic, records)
    return run_verify(replace(pair, ends=ends), spark_url=spark_url)


def difference(offset: int, kind: str, source: str | None = None, mirror: str | None = None) -> RecordDifference:
    return RecordDifference(partition=0, offset=offset, kind=kind, source_value=source, mirror_value=mirror)


def places(report: VerifyReport) -> list[tuple[int, str]]:
    return [(difference.offset, difference.kind) for difference in report.first_differences]


def test_equal_topics_have_no_difference_and_the_right_count(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    headers = (("h", b"1"), ("h", None), ("", b""))
    records = [Rec(key=str(number).encode(), value=b"x" * number, after_ms=number) for number in range(200)]
    odd = [Rec(key=None), Rec(value=None), Rec(value=b"", key=b""), Rec(headers=headers), Rec(value=bytes(range(256)))]
    for topic in (pair.source_topic, pair.mirror_topic):
        create(source_cluster, topic, partitions=3)
        write(source_cluster, topic, records, partition=0)
        write(source_cluster, topic, odd, partition=2)

    report = run_verify(replace(pair, ends=((0, 200), (1, 0), (2, 5))), spark_url=spark_connect_url)

    assert (report.records_compared, report.differences, report.first_differences) == (205, 0, ())
    assert report.partitions == ((0, 0, 200), (1, 0, 0), (2, 0, 5))
    sizes = sum(len(record.key or b"") + len(record.value or b"") for record in records + odd)
    assert report.bytes_compared == sizes
    assert report.duration_ms > 0


def test_every_kind_of_difference_is_reported_with_its_offset(report: VerifyReport) -> None:
    assert found_in(report, "every kind") == (
        difference(1, "key", "one", "two"),
        difference(2, "value", "right", "wrong"),
        difference(3, "headers", "h=1", "h=2"),
        difference(4, "timestamp", f"{BASE_MS + 5} CreateTime", f"{BASE_MS + 6} CreateTime"),
        difference(5, "missing", "lost", None),
        difference(7, "extra", None, "foreign\\x00"),
        difference(9, "value", "null", ""),
        difference(10, "headers", "h=null", "h="),
        difference(11, "value", "(from byte 4988) …aaaaaaaaaaaaend", "(from byte 4988) …aaaaaaaaaaaaEND"),
    )
    assert [checked.differences for checked in checked_in(report, "every kind")] == [9]


def test_records_and_differences_of_all_partitions_are_counted(report: VerifyReport) -> None:
    assert report.records_compared == sum(case.records for case in CASES.values())
    assert report.differences == len(report.first_differences) == 16


def test_aborted_records_are_not_compared(report: VerifyReport) -> None:
    [checked] = checked_in(report, "aborted")

    assert (checked.records, checked.differences, found_in(report, "aborted")) == (2, 0, ())


def test_a_live_topic_is_compared_up_to_the_given_ends(report: VerifyReport) -> None:
    [checked] = checked_in(report, "live")

    assert (checked.start, checked.end, checked.records, checked.differences) == (0, 5, 5, 0)
    assert report.partitions[checked.partition] == (checked.partition, 0, 5)


def test_offsets_below_the_sources_log_start_are_not_compared(report: VerifyReport) -> None:
    some, none = (CASES[name].partition for name in ("log start", "all deleted"))

    assert places_in(report, "log start") == [(10, "value")]
    assert [checked.records for checked in checked_in(report, "log start")] == [7]
    assert checked_in(report, "all deleted") == []
    assert [report.partitions[some], report.partitions[none]] == [(some, 4, 11), (none, 10, 10)]


def test_a_source_that_ends_before_the_mirror_shows_the_rest_as_extra(report: VerifyReport) -> None:
    assert places_in(report, "short source") == [(3, "extra"), (4, "extra")]


def test_a_record_that_an_empty_source_lacks_is_extra(report: VerifyReport) -> None:
    assert places_in(report, "empty source") == [(0, "extra")]


def test_records_whose_concatenated_fields_are_equal_differ(report: VerifyReport) -> None:
    assert places_in(report, "concatenated") == [(0, "key"), (1, "key"), (2, "headers")]


def test_hashes_of_adjacent_ranges_combine_to_the_hash_of_the_whole(
    report: VerifyReport, cases: VerifyPlan, spark_connect_url: str
) -> None:
    partition = CASES["ten"].partition
    first, second = (
        run_verify(
            replace(cases, starts=((partition, start),), ends=((partition, end),), gentle=True), spark_url=spark_connect_url
        )
        for start, end in ((0, 4), (4, 10))
    )

    [low], [high], [both] = first.checked, second.checked, checked_in(report, "ten")
    assert both.hash == combine(low.hash, high.hash) != low.hash != high.hash
    assert (low.records, high.records, both.records) == (4, 6, 10)


def test_all_differences_are_counted_and_the_first_20_are_shown(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    source = [Rec(value=bytes(500))] * 4_000
    mirror = [Rec(value=bytes(500))] * 2_000 + [Rec(value=b"1" * 500)] * 2_000

    report = verify(spark_connect_url, source_cluster, pair, source=source, mirror=mirror, ends=((0, 4_000),))

    assert report.differences == 2_000
    assert places(report) == [(offset, "value") for offset in range(2_000, 2_020)]


@pytest.mark.parametrize("heals_at", [2, 3], ids=["before it is found", "before it is shown"])
def test_a_difference_that_disappears_after_it_was_counted_is_not_shown(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan, monkeypatch: pytest.MonkeyPatch, heals_at: int
) -> None:
    """The mirror gets its last record between two of the reads."""
    monkeypatch.setitem(reading.LIMITS, "kafkaConsumer.pollTimeoutMs", "2000")
    read, reads = job._joined, []

    def healing(*arguments: Any) -> Any:
        reads.append(arguments)
        if len(reads) == heals_at:
            write(source_cluster, pair.mirror_topic, [Rec()])
        return read(*arguments)

    monkeypatch.setattr(job, "_joined", healing)
    pair = replace(pair, gentle=True)
    report = verify(spark_connect_url, source_cluster, pair, source=[Rec()] * 3, mirror=[Rec()] * 2, ends=((0, 3),))

    assert (report.differences, report.first_differences) == (1, ())


def test_log_append_time_is_kept_as_create_time(spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan) -> None:
    create(source_cluster, pair.source_topic, configs={"message.timestamp.type": "LogAppendTime"})
    create(source_cluster, pair.mirror_topic)
    write(source_cluster, pair.source_topic, [Rec()])
    write(source_cluster, pair.mirror_topic, [Rec(after_ms=append_time_of(source_cluster, pair.source_topic) - BASE_MS)])

    report = run_verify(replace(pair, ends=((0, 1),), gentle=True), spark_url=spark_connect_url)

    assert (report.records_compared, report.differences) == (1, 0)


def test_after_a_reversal_timestamps_of_a_mirror_with_log_append_time_are_compared(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    """Partition 0 has the same time on both sides, partition 1 has not."""
    create(source_cluster, pair.mirror_topic, partitions=2, configs={"message.timestamp.type": "LogAppendTime"})
    create(source_cluster, pair.source_topic, partitions=2)
    for partition, later_ms in ((0, 0), (1, 1)):
        write(source_cluster, pair.mirror_topic, [Rec()], partition=partition)
        copied = append_time_of(source_cluster, pair.mirror_topic, partition=partition) - BASE_MS + later_ms
        write(source_cluster, pair.source_topic, [Rec(after_ms=copied)], partition=partition)

    report = run_verify(replace(pair, ends=((0, 1), (1, 1)), gentle=True), spark_url=spark_connect_url)

    assert report.records_compared == 2
    assert [(difference.partition, difference.kind) for difference in report.first_differences] == [(1, "timestamp")]


def append_time_of(cluster: KafkaCluster, topic: str, *, partition: int = 0) -> int:
    consumer = Consumer({**cluster.client("admin"), "group.id": "append-time"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (message := consumer.poll(1)) is not None and not message.error():
            consumer.close()
            return int(message.timestamp()[1])
    raise AssertionError("the record was not received")


def test_a_plan_without_ends_is_refused(admin: ClusterAddress) -> None:
    plan = VerifyPlan(source=admin, destination=admin, source_topic="a", mirror_topic="b")

    with pytest.raises(LinkEngineError, match="has no end offsets") as refused:
        run_verify(plan, spark_url="sc://127.0.0.1:1")
    assert refused.value.code is ErrorCode.INVALID_REQUEST_ERROR


def test_error_without_spark_names_spark(pair: VerifyPlan) -> None:
    with pytest.raises(SparkUnavailableError, match="No Spark Connect server responds"):
        run_verify(replace(pair, ends=((0, 1),)), spark_url="sc://127.0.0.1:1")


def test_a_topic_that_does_not_exist_is_named_as_the_cause(spark_connect_url: str, pair: VerifyPlan) -> None:
    with pytest.raises(LinkEngineError) as failed:
        run_verify(replace(pair, ends=((0, 1),)), spark_url=spark_connect_url)

    assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR


def test_a_wrong_password_is_an_authentication_error_that_does_not_repeat_it(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    create(source_cluster, pair.source_topic)
    wrong = replace(pair.source, sasl_password="open sesame")

    with pytest.raises(LinkEngineError) as failed:
        run_verify(replace(pair, source=wrong, ends=((0, 1),)), spark_url=spark_connect_url)

    assert failed.value.code is ErrorCode.AUTHENTICATION_ERROR
    assert "sesame" not in str(failed.value)


def test_a_reader_without_rights_is_an_authorization_error(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    create(source_cluster, pair.source_topic)
    create(source_cluster, pair.mirror_topic)
    app = address_from_properties(source_cluster.client_properties("app"))

    with denied_read(source_cluster, pair.mirror_topic), pytest.raises(LinkEngineError) as failed:
        run_verify(replace(pair, destination=app, ends=((0, 1),)), spark_url=spark_connect_url)

    assert failed.value.code is ErrorCode.AUTHORIZATION_ERROR
