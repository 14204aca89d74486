import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Timer
from typing import Any

import pytest

from devcluster.kafka import KafkaCluster
from devcluster.spark import SparkConnectServer
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import VerifyPlan
from linkengine.domain.ranges import OffsetRange
from linkengine.jobs import verifying
from linkengine.jobs.verifying import _source_ends, complete, read_far, verify, verify_next
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sparkclient import session
from linkengine.verifyjob import job, reading
from linkengine.verifyjob.reading import TopicPart
from tests.linkengine.copyjob.copying import wait_for
from tests.linkengine.verifyjob.recording import GAP, Rec, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(290)]
Send = Callable[..., None]


@pytest.fixture
def send_there(source_cluster: KafkaCluster) -> Send:
    """Return a function that writes to the source."""
    return partial(write_equal, source_cluster)


@pytest.fixture
def send_here(destination_cluster: KafkaCluster) -> Send:
    """Return a function that writes the same to the destination: where records differ, Spark compares two more times."""
    return partial(write_equal, destination_cluster)


def write_equal(cluster: KafkaCluster, topic: str, *, partition: int, count: int) -> None:
    write(cluster, topic, [Rec()] * count, partition=partition)


@pytest.fixture
def plan(source: ClusterAddress, destination: ClusterAddress, here: ClusterAdmin, source_topic: str) -> VerifyPlan:
    """A comparison of two topics with two partitions, up to the mirror's ends."""
    here.create_topic(source_topic, partitions=2)
    return VerifyPlan(source=source, destination=destination, source_topic=source_topic, mirror_topic=source_topic)


def test_a_plan_without_ends_gets_the_mirrors_current_ends(plan: VerifyPlan, send_here: Send) -> None:
    send_here(plan.mirror_topic, partition=1, count=3)

    completed = complete(plan)

    assert (completed.ends, completed.compacted) == (((0, 0), (1, 3)), False)
    assert complete(completed) == completed


@pytest.mark.parametrize("side", ["there", "here"])
def test_a_plan_is_compacted_if_either_side_is(plan: VerifyPlan, side: str, request: pytest.FixtureRequest) -> None:
    admin: ClusterAdmin = request.getfixturevalue(side)
    admin.set_configs(plan.source_topic, {"cleanup.policy": "compact,delete"})

    assert complete(plan).compacted


def test_a_comparison_begins_at_the_higher_of_both_log_starts(
    plan: VerifyPlan, send_here: Send, send_there: Send, here: ClusterAdmin, there: ClusterAdmin
) -> None:
    for send in (send_here, send_there):
        send(plan.mirror_topic, partition=0, count=10)
        send(plan.mirror_topic, partition=1, count=10)
    here.trim(plan.mirror_topic, {0: 4})
    there.trim(plan.source_topic, {0: 2, 1: 7})

    assert complete(plan).starts == ((0, 4), (1, 7))
    assert complete(replace(plan, starts=((0, 5),), ends=((0, 9), (1, 3)))).starts == ((0, 5), (1, 3))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mirrored", "later", "lacking"), [(8, 0, 0), (5, 0, 3), (0, 8, 0)], ids=["there", "behind", "in time"]
)
def test_verify_waits_for_the_sources_records_and_reports_what_is_missing(
    plan: VerifyPlan,
    send_here: Send,
    send_there: Send,
    spark_connect_url: str,
    monkeypatch: pytest.MonkeyPatch,
    mirrored: int,
    later: int,
    lacking: int,
) -> None:
    send_there(plan.source_topic, partition=1, count=8)
    send_here(plan.mirror_topic, partition=1, count=mirrored)
    monkeypatch.setattr(verifying, "CATCH_UP_S", 5.0 if later else 1.0)
    copier = Timer(1.0, send_here, args=(plan.mirror_topic,), kwargs={"partition": 1, "count": later})
    copier.start()

    report = verify(plan, spark_url=spark_connect_url)

    copier.join()
    assert (report.partitions, report.not_copied) == (((0, 0, 0), (1, 0, 8 - lacking)), lacking)
    assert report.differences == 0


@pytest.mark.spark
def test_verify_up_to_given_ends_does_not_count_what_is_missing(
    plan: VerifyPlan, send_here: Send, send_there: Send, spark_connect_url: str
) -> None:
    send_there(plan.source_topic, partition=1, count=8)
    send_here(plan.mirror_topic, partition=1, count=5)

    assert verify(replace(plan, ends=((1, 5),), gentle=True), spark_url=spark_connect_url).not_copied is None


@pytest.fixture
def unlike(plan: VerifyPlan, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, source_topic: str) -> VerifyPlan:
    """Two topics with twelve records; the first six and the tenth differ on the mirror. One task reads each."""
    write(source_cluster, plan.source_topic, [Rec()] * 12)
    write(destination_cluster, plan.mirror_topic, [Rec(value=b"other")] * 6 + [Rec()] * 3 + [Rec(value=b"bad")] + [Rec()] * 2)
    return replace(plan, gentle=True)


@pytest.mark.spark
def test_a_moving_log_start_neither_causes_nor_hides_differences(
    unlike: VerifyPlan, here: ClusterAdmin, spark_connect_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes two records during each run. The last run compares blocks of four and leaves out the block it is in."""
    monkeypatch.setattr(reading, "LEAST_OFFSETS", 4)
    starts, compare = count(2, 2), job._compare

    def trimming(*arguments: Any) -> Any:
        seen = compare(*arguments)
        here.trim(unlike.mirror_topic, {0: next(starts)})
        return seen

    monkeypatch.setattr(job, "_compare", trimming)
    report = verify(unlike, spark_url=spark_connect_url)

    assert (report.partitions, report.records_compared, report.differences) == (((0, 8, 12), (1, 0, 0)), 4, 1)
    assert [(checked.start, checked.end, checked.differences) for checked in report.checked] == [(8, 12, 1)]
    assert [checked.offset for checked in report.first_differences] == [9]


@pytest.mark.spark
def test_a_topic_that_becomes_compacted_during_a_comparison_is_compared_again(
    plan: VerifyPlan,
    here: ClusterAdmin,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    spark_connect_url: str,
    monkeypatch: pytest.MonkeyPatch,
    source_topic: str,
) -> None:
    """An older record of the key is gone from one side, where a gap is filled."""
    write(source_cluster, plan.source_topic, [Rec(transaction="commit"), Rec()])
    write(destination_cluster, plan.mirror_topic, [GAP, Rec()])
    compare = job._compare

    def changing(*arguments: Any) -> Any:
        seen = compare(*arguments)
        here.set_configs(plan.mirror_topic, {"cleanup.policy": "compact"})
        return seen

    monkeypatch.setattr(job, "_compare", changing)

    assert verify(replace(plan, gentle=True), spark_url=spark_connect_url).differences == 0


def test_a_source_whose_end_cannot_be_read_has_unknown_ends(plan: VerifyPlan) -> None:
    assert _source_ends(replace(plan, source_topic="not there")) is None


@pytest.mark.spark
def test_sparks_python_workers_log_the_request_id_of_the_comparison(
    plan: VerifyPlan, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, spark_server: SparkConnectServer
) -> None:
    for cluster in (source_cluster, destination_cluster):
        write(cluster, plan.source_topic, [Rec()] * 3)
    request_id = f"request-{secrets.token_hex(6)}"
    far = TopicPart(
        address=plan.source, topic=plan.source_topic, starts={0: 0}, ends={0: 3}, gentle=True, request_id=f"{request_id}-far"
    )

    assert verify(replace(plan, request_id=request_id), spark_url=spark_server.url).differences == 0
    assert read_far(session(spark_server.url), far).count() == 3

    for event, request in (("verify.measuring_records", request_id), ("verify.reading_records", far.request_id)):
        wait_for(partial(_is_logged, spark_server, event, f"request_id={request} ", f"topic={plan.mirror_topic} "))


def _is_logged(server: SparkConnectServer, *words: str) -> bool:
    """Return whether a line of Spark's log has all these words."""
    lines = server.log.read_text(errors="replace").splitlines()
    return any(all(word in f"{line} " for word in words) for line in lines)


@pytest.mark.spark
def test_verify_next_compares_the_offsets_that_were_not_compared_yet(
    plan: VerifyPlan, send_here: Send, send_there: Send, spark_connect_url: str
) -> None:
    for send in (send_here, send_there):
        send(plan.mirror_topic, partition=1, count=8)

    def following(*covered: OffsetRange) -> tuple[tuple[int, int, int], ...] | None:
        report = verify_next(replace(plan, gentle=True), covered={1: covered}, most=5, spark_url=spark_connect_url)
        return None if report is None else report.partitions

    assert following() == ((1, 0, 5),)
    assert following(OffsetRange(0, 5)) == ((1, 5, 8),)
    assert following(OffsetRange(0, 8)) is None
