"""Verification runs on real topics: no difference for equal topics, exact differences otherwise."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress, address_from_properties
from linkengine.domain.coverage import RecordDifference, combine
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.sparkclient import SparkUnavailableError
from linkengine.verifyjob import job, reading
from linkengine.verifyjob.job import run_verify
from tests.linkengine.verifyjob.recording import BASE_MS, HOLE, Rec, create, deny_read, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


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
    compacted: bool = False,
) -> VerifyReport:
    for topic, records in ((pair.source_topic, source), (pair.mirror_topic, mirror)):
        create(cluster, topic)
        write(cluster, topic, records)
    return run_verify(replace(pair, ends=ends, compacted=compacted), spark_url=spark_url)


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


def test_every_kind_of_difference_is_reported_with_its_offset(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    long = b"a" * 5_000
    source = [
        Rec(), Rec(key=b"one"), Rec(value=b"right"), Rec(headers=(("h", b"1"),)), Rec(after_ms=5),
        Rec(value=b"lost", transaction="commit"), HOLE,
        Rec(value=None), Rec(headers=(("h", None),)), Rec(value=long + b"end"), Rec(),
    ]  # fmt: skip
    mirror = [
        Rec(), Rec(key=b"two"), Rec(value=b"wrong"), Rec(headers=(("h", b"2"),)), Rec(after_ms=6),
        HOLE, Rec(value=b"foreign\x00", transaction="commit"),
        Rec(value=b""), Rec(headers=(("h", b""),)), Rec(value=long + b"END"), Rec(),
    ]  # fmt: skip

    report = verify(spark_connect_url, source_cluster, pair, source=source, mirror=mirror, ends=((0, 13),))

    assert report.first_differences == (
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
    assert (report.records_compared, report.differences) == (11, 9)


def test_aborted_records_are_not_compared(spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan) -> None:
    committed = Rec(value=b"kept", transaction="commit")
    source = [HOLE, Rec(), HOLE, committed, HOLE, HOLE]
    mirror = [replace(record, value=b"other garbage") if record is HOLE else record for record in source]

    report = verify(spark_connect_url, source_cluster, pair, source=source, mirror=mirror, ends=((0, 11),))

    assert (report.records_compared, report.differences) == (2, 0)


def test_a_live_topic_is_compared_up_to_the_given_ends(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    source = [Rec()] * 5 + [Rec(value=b"not copied yet")] * 5

    report = verify(spark_connect_url, source_cluster, pair, source=source, mirror=[Rec()] * 5, ends=((0, 5),))

    assert (report.records_compared, report.differences, report.partitions) == (5, 0, ((0, 0, 5),))


def test_offsets_below_the_sources_log_start_are_not_compared(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    for topic in (pair.source_topic, pair.mirror_topic):
        create(source_cluster, topic, partitions=2)
        for partition in range(2):
            write(source_cluster, topic, [Rec()] * 10, partition=partition)
    write(source_cluster, pair.source_topic, [Rec(value=b"good")])
    write(source_cluster, pair.mirror_topic, [Rec(value=b"bad")])
    doomed = [TopicPartition(pair.source_topic, 0, 4), TopicPartition(pair.source_topic, 1, 10)]
    admin = AdminClient(source_cluster.client("admin"))
    for deleted in admin.delete_records(doomed).values():
        deleted.result(30)

    report = run_verify(replace(pair, starts=((0, 4), (1, 10)), ends=((0, 11), (1, 10))), spark_url=spark_connect_url)

    assert places(report) == [(10, "value")]
    assert report.records_compared == 7
    assert report.partitions == ((0, 4, 11), (1, 10, 10))


def test_a_source_that_ends_before_the_mirror_shows_the_rest_as_extra(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reading.LIMITS, "kafkaConsumer.pollTimeoutMs", "2000")  # the wait for missing records, per pass
    report = verify(spark_connect_url, source_cluster, pair, source=[Rec()] * 3, mirror=[Rec()] * 5, ends=((0, 5),))

    assert places(report) == [(3, "extra"), (4, "extra")]


def test_a_record_that_an_empty_source_lacks_is_extra(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reading.LIMITS, "kafkaConsumer.pollTimeoutMs", "2000")
    report = verify(spark_connect_url, source_cluster, pair, source=[], mirror=[Rec()], ends=((0, 1),))

    assert places(report) == [(0, "extra")]


def test_records_whose_concatenated_fields_are_equal_differ(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    source = [Rec(key=b"ab", value=b"c"), Rec(key=None, value=b"x"), Rec(headers=(("h", None), ("x", b"a")))]
    mirror = [Rec(key=b"a", value=b"bc"), Rec(key=b"", value=b"x"), Rec(headers=(("h", b"x"), ("a", None)))]

    report = verify(spark_connect_url, source_cluster, pair, source=source, mirror=mirror, ends=((0, 3),))

    assert places(report) == [(0, "key"), (1, "key"), (2, "headers")]


def test_hashes_of_adjacent_ranges_combine_to_the_hash_of_the_whole(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan
) -> None:
    records = [Rec(value=str(number).encode()) for number in range(10)]
    whole = verify(spark_connect_url, source_cluster, pair, source=records, mirror=records, ends=((0, 10),))
    first, second = (
        run_verify(replace(pair, starts=((0, start),), ends=((0, end),)), spark_url=spark_connect_url)
        for start, end in ((0, 4), (4, 10))
    )

    [low], [high], [both] = first.checked, second.checked, whole.checked
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
    report = verify(spark_connect_url, source_cluster, pair, source=[Rec()] * 3, mirror=[Rec()] * 2, ends=((0, 3),))

    assert (report.differences, report.first_differences) == (1, ())


def test_log_append_time_is_kept_as_create_time(spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan) -> None:
    create(source_cluster, pair.source_topic, **{"message.timestamp.type": "LogAppendTime"})
    create(source_cluster, pair.mirror_topic)
    write(source_cluster, pair.source_topic, [Rec()])
    write(source_cluster, pair.mirror_topic, [Rec(after_ms=append_time_of(source_cluster, pair.source_topic) - BASE_MS)])

    report = run_verify(replace(pair, ends=((0, 1),)), spark_url=spark_connect_url)

    assert (report.records_compared, report.differences) == (1, 0)


@pytest.mark.parametrize(("later_ms", "kinds"), [(0, []), (1, ["timestamp"])], ids=["the same time", "another time"])
def test_after_a_reversal_timestamps_of_a_mirror_with_log_append_time_are_compared(
    spark_connect_url: str, source_cluster: KafkaCluster, pair: VerifyPlan, later_ms: int, kinds: list[str]
) -> None:
    create(source_cluster, pair.mirror_topic, **{"message.timestamp.type": "LogAppendTime"})
    create(source_cluster, pair.source_topic)
    write(source_cluster, pair.mirror_topic, [Rec()])
    copied = append_time_of(source_cluster, pair.mirror_topic) - BASE_MS + later_ms
    write(source_cluster, pair.source_topic, [Rec(after_ms=copied)])

    report = run_verify(replace(pair, ends=((0, 1),)), spark_url=spark_connect_url)

    assert report.records_compared == 1
    assert [difference.kind for difference in report.first_differences] == kinds


def append_time_of(cluster: KafkaCluster, topic: str) -> int:
    consumer = Consumer({**cluster.client("admin"), "group.id": "append-time"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + 30
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


def test_without_spark_the_error_says_so(pair: VerifyPlan) -> None:
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
    deny_read(source_cluster, pair.mirror_topic)
    app = address_from_properties(source_cluster.client_properties("app"))

    with pytest.raises(LinkEngineError) as failed:
        run_verify(replace(pair, destination=app, ends=((0, 1),)), spark_url=spark_connect_url)

    assert failed.value.code is ErrorCode.AUTHORIZATION_ERROR
