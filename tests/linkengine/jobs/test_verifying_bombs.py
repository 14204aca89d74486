"""Records that are too large for Spark end the comparison that reads them, with their offset, and nothing else."""

from __future__ import annotations

import pickle
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from devcluster.kafka import KafkaCluster
from devcluster.spark import SparkConnectServer
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan
from linkengine.jobs.verifying import heaviest_of, read_far, verify
from linkengine.sparkclient import close_session, session
from linkengine.verifyjob.job import failure_of
from linkengine.verifyjob.reading import LARGEST_RECORD, POLL_RECORDS, Heaviest, TopicPart, limited_to_memory
from tests.linkengine.batches.batchlog import Rec, dense
from tests.linkengine.copyjob.bombs import MEGABYTE, NOW, bomb, two_and_three
from tests.linkengine.copyjob.copying import create_pair, ends_of, plan_of, producer_for, wait_for
from tests.linkengine.copyjob.rawwriter import send_batches
from tests.linkengine.jobs.copyworkers import copy_worker
from tests.linkengine.verifyjob.recording import create
from tests.signing import SECRETS

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(290)]
HEAP = "1g"  # as in the demo


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkConnectServer]:
    """A separate server, which a defect would end."""
    with SparkConnectServer(heap=HEAP) as server:
        yield server
        close_session(server.url)


@pytest.fixture(scope="module")
def admin(source_cluster: KafkaCluster) -> ClusterAddress:
    return address_from_properties(source_cluster.client_properties("admin"))


def pair_of(cluster: KafkaCluster, admin: ClusterAddress, batches: list[bytes]) -> VerifyPlan:
    """Return a plan for two equal topics of a cluster."""
    topics = [f"topic-{secrets.token_hex(6)}" for _ in range(2)]
    for topic in topics:
        create(cluster, topic, configs={"max.message.bytes": "110000000"})
        assert {result.error for result in send_batches(cluster, topic, batches)} == {0}
    return VerifyPlan(source=admin, destination=admin, source_topic=topics[0], mirror_topic=topics[1])


def is_alive(server: SparkConnectServer) -> bool:
    return session(server.url).range(5).count() == 5


def test_too_large_records_end_their_comparison_with_their_offset_while_another_mirror_is_copied(
    spark: SparkConnectServer,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    admin: ClusterAddress,
    redis_url: str,
) -> None:
    small = dense(0, [Rec(NOW)] * 3, codec=4).encode()
    plan = pair_of(source_cluster, admin, [small, *two_and_three()])
    clusters, other = (source_cluster, destination_cluster), f"topic-{secrets.token_hex(6)}"
    create_pair(clusters, other)
    producer = producer_for(source_cluster)
    pid = spark.pid
    copied = replace(plan_of(clusters, other), link_id=secrets.token_hex(6))
    with copy_worker(redis_url=redis_url, spark_url=spark.url) as worker_id:
        jobs.write_assignments(redis_url, copied.link_id, {worker_id: copied}, secrets=SECRETS)

        with pytest.raises(LinkEngineError) as refused:
            verify(plan, spark_url=spark.url)

        producer.produce(other, b"after the bombs")
        assert producer.flush(30) == 0
        wait_for(lambda: ends_of(destination_cluster, other) == {0: 1})
        alive = is_alive(spark)
    assert refused.value.code is ErrorCode.RECORDS_TOO_LARGE
    assert f"Topic {plan.mirror_topic!r}" in refused.value.message
    assert "partition 0 has a record of 250,000" in refused.value.message
    assert "in the batch at offset 3" in refused.value.message
    assert alive
    assert spark.pid == pid


def test_batches_with_many_large_records_are_compared(
    spark: SparkConnectServer, source_cluster: KafkaCluster, admin: ClusterAddress
) -> None:
    plan = pair_of(source_cluster, admin, [bomb(*[MEGABYTE] * 500), bomb(*[15 * MEGABYTE] * 4)])

    report = verify(_to_the_end(plan, 504), spark_url=spark.url)

    assert (report.records_compared, report.differences) == (504, 0)
    assert is_alive(spark)


def test_a_large_record_among_many_tiny_ones_ends_its_comparison(
    spark: SparkConnectServer, source_cluster: KafkaCluster, admin: ClusterAddress
) -> None:
    plan = pair_of(source_cluster, admin, [dense(0, [Rec(NOW)]).encode(), bomb(*[1] * 10_000, 300 * MEGABYTE)])
    pid = spark.pid

    with pytest.raises(LinkEngineError, match="partition 0 has a record of 300,000,0") as refused:
        verify(_to_the_end(plan, 10_002), spark_url=spark.url)

    assert refused.value.code is ErrorCode.RECORDS_TOO_LARGE
    assert "in the batch at offset 1;" in refused.value.message
    assert is_alive(spark)
    assert spark.pid == pid


def read_measured(admin: ClusterAddress, topic: str, end: int, directory: Path) -> tuple[int, int, list[int]]:
    """Read a topic as ``read_far`` does, in a process of its own.

    Return the memory in MB that it took besides its imports, the largest Arrow batch in MB, and the rows of each.
    """
    part = TopicPart(address=admin, topic=topic, starts={}, ends={}, gentle=True)
    (directory / "part").write_bytes(pickle.dumps((part, 0, (0, end))))
    command = [sys.executable, "-m", "tests.linkengine.jobs.measured_reader", str(directory / "part")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    before, peak, largest, *rows = map(int, done.stdout.split())
    print(f"{before} MB before, {peak} MB at the peak, Arrow batches of up to {largest} MB")  # noqa: T201 - for the documentation
    return peak - before, largest, rows


@pytest.mark.parametrize("per_batch", [1, 2, 4])
def test_topics_with_far_timestamps_are_read_in_little_memory(
    source_cluster: KafkaCluster, admin: ClusterAddress, topic_name: str, tmp_path: Path, per_batch: int
) -> None:
    create(source_cluster, topic_name, configs={"max.message.bytes": "110000000"})
    send_batches(source_cluster, topic_name, [bomb(*[15 * MEGABYTE] * per_batch)] * (60 // per_batch))

    memory, largest, rows = read_measured(admin, topic_name, 60, tmp_path)

    assert rows == [1] * 60
    assert largest == 14  # MiB
    assert memory < 300


def test_small_records_with_far_timestamps_are_read_in_batches_of_a_poll(
    source_cluster: KafkaCluster, admin: ClusterAddress, topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name)
    send_batches(source_cluster, topic_name, [bomb(*[1000] * 100)] * 100)

    _, _, rows = read_measured(admin, topic_name, 10_000, tmp_path)

    assert rows == [POLL_RECORDS] * (10_000 // POLL_RECORDS)


def test_a_batch_that_is_too_large_for_the_reader_of_far_timestamps_ends_the_comparison(
    spark: SparkConnectServer, source_cluster: KafkaCluster, admin: ClusterAddress
) -> None:
    """Spark could read it, record by record. librdkafka decompresses it as a whole."""
    plan = pair_of(source_cluster, admin, [bomb(1), bomb(*[15 * MEGABYTE] * 30)])
    part = TopicPart(address=admin, topic=plan.mirror_topic, starts={0: 0}, ends={0: 31}, gentle=True)

    with pytest.raises(PySparkException) as refused:
        read_far(session(spark.url), part).count()

    assert "RECORDS_TOO_LARGE: the batch at offset 1 of partition 0" in str(refused.value)
    assert failure_of(refused.value, plan=plan).code is ErrorCode.RECORDS_TOO_LARGE


def _to_the_end(plan: VerifyPlan, end: int) -> VerifyPlan:
    return VerifyPlan(
        source=plan.source,
        destination=plan.destination,
        source_topic=plan.source_topic,
        mirror_topic=plan.mirror_topic,
        ends=((0, end),),
    )


def test_the_largest_record_is_searched_within_the_bounds(source_cluster: KafkaCluster, admin: ClusterAddress) -> None:
    plan = pair_of(source_cluster, admin, [bomb(5 * MEGABYTE), bomb(3 * MEGABYTE), bomb(9 * MEGABYTE)])

    found = {
        bounds: heaviest_of(admin, plan.mirror_topic, {0: bounds}) for bounds in ((0, 2), (1, 2), (1, 3), (-2, -1), (3, 3))
    }

    sizes = {bounds: [(row["offset"], round(row["bytes"], -6)) for row in rows] for bounds, rows in found.items()}
    assert sizes == {
        (0, 2): [(0, 5 * MEGABYTE)],
        (1, 2): [(1, 3 * MEGABYTE)],
        (1, 3): [(2, 9 * MEGABYTE)],
        (-2, -1): [(2, 9 * MEGABYTE)],
        (3, 3): [],
    }


@pytest.mark.parametrize(
    ("size", "poll_records", "gentle"),
    [
        (0, POLL_RECORDS, False),
        (1_000, POLL_RECORDS, False),
        (1 << 20, 16, False),
        (3 << 20, 5, True),
        (LARGEST_RECORD, 1, True),
    ],
)
def test_larger_records_are_read_in_smaller_polls_and_by_fewer_readers(size: int, poll_records: int, gentle: bool) -> None:
    part = TopicPart(address=ClusterAddress(bootstrap_servers="b:1"), topic="t", starts={}, ends={}, gentle=False)

    found = limited_to_memory(part, Heaviest(partition=0, offset=0, bytes=size) if size else None)

    assert (found.poll_records, found.gentle) == (poll_records, gentle)
