"""Mirrors that begin at the end of their source, or at a time, on real brokers: offsets are preserved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind

pytestmark = pytest.mark.kafka
FIRST_MS = 1_600_000_000_000
Begin = Callable[[str], tuple[dict[int, int], dict[int, int]]]


@pytest.fixture
def begin(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    here: ClusterAdmin,
    there: ClusterAdmin,
    source_cluster: KafkaCluster,
    source_topic: str,
) -> Begin:
    """Return a function that sets up a mirror of partition 0 with 100 records, a second apart, and an empty partition 1."""
    there.set_configs(source_topic, {"retention.ms": "-1"})  # the records are years old
    producer = Producer({**source_cluster.client("admin"), "linger.ms": 5})
    for number in range(100):
        producer.produce(source_topic, b"v", partition=0, timestamp=FIRST_MS + number * 1000)
    assert producer.flush(30) == 0

    def start(spec: str) -> tuple[dict[int, int], dict[int, int]]:
        created = jobs.set_up_mirror_topic(replace(setup_plan, start=spec), assignments_factory=assignments)
        assert here.offsets(source_topic, OffsetKind.END) == here.offsets(source_topic, OffsetKind.START)
        return dict(created.seeded), here.offsets(source_topic, OffsetKind.START)

    return start


@pytest.mark.parametrize(
    ("spec", "start"),
    [
        ("latest", 100),
        (str(FIRST_MS + 41_500), 42),
        ("2020-09-13T12:26:50+00:00", 10),
        ("2019-01-01", 0),
        ("2099-01-01T00:00:00Z", 100),
    ],
)
def test_the_mirror_begins_at_the_sources_offset_for_its_start(begin: Begin, spec: str, start: int) -> None:
    seeded, starts = begin(spec)

    assert starts == {0: start, 1: 0}
    assert seeded == ({0: start} if start else {})


def test_latest_is_before_an_open_transaction_and_a_later_attempt_begins_later(
    begin: Begin, source_cluster: KafkaCluster, source_topic: str, there: ClusterAdmin
) -> None:
    producer = Producer({**source_cluster.client("admin"), "transactional.id": source_topic})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(source_topic, b"open", partition=0)
    producer.flush()

    _, while_open = begin("latest")
    producer.commit_transaction()
    _wait_for_stable_end(there, source_topic, 106)  # the coordinator responds before the markers are written
    _, afterwards = begin("latest")

    assert (while_open, afterwards) == ({0: 100, 1: 0}, {0: 106, 1: 0})


def _wait_for_stable_end(admin: ClusterAdmin, topic: str, offset: int) -> None:
    deadline = time.monotonic() + 60
    while admin.offsets(topic, OffsetKind.STABLE_END)[0] < offset:
        assert time.monotonic() < deadline
        time.sleep(0.05)
