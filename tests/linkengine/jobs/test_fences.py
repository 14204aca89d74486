"""Whether a stopped mirror still has its fence, on real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.kafka import offsets
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.protocol import KafkaCode
from tests.linkengine.copyjob.copying import read_topic

pytestmark = pytest.mark.kafka


def write(cluster: KafkaCluster, topic: str, *, commit: bool) -> None:
    """Write a transaction of two records, which ends with a marker."""
    producer = Producer({**cluster.client("admin"), "transactional.id": f"{topic}-fence"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(topic, "value", partition=0)
    producer.flush(60)
    (producer.commit_transaction if commit else producer.abort_transaction)(60)


def test_a_fence_is_not_lost_while_it_exists_or_was_deleted_with_all_before_it(
    setup_plan: MirrorSetup, source_topic: str, source_cluster: KafkaCluster, there: ClusterAdmin
) -> None:
    write(source_cluster, source_topic, commit=True)
    write(source_cluster, source_topic, commit=False)

    def lost(offset: int, *, by_markers: bool = False) -> list[int]:
        fences = {0: offset, 99: offset}
        return jobs.lost_fences(setup_plan.source, source_topic, fences=fences, epochs={}, by_markers=by_markers)

    assert lost(2) == []
    assert lost(2, by_markers=True) == [0]  # an application's commit marker
    assert lost(1) == [0]  # a record
    assert lost(5) == [0]  # an abort marker: a fence is a commit
    assert lost(6) == [0]  # beyond the log's end
    there.trim(source_topic, {0: 4})
    assert lost(1) == lost(2) == []


CLEANED_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


def test_a_compacted_fence_is_not_lost_if_the_epoch_history_confirms_it(
    setup_plan: MirrorSetup, source_topic: str, source_cluster: KafkaCluster, there: ClusterAdmin
) -> None:
    """Writes records with the same key, the third of which stands for the fence, until the cleaner has removed it."""
    there.set_configs(source_topic, CLEANED_SOON)

    def lost(epochs: dict[int, int]) -> list[int]:
        return jobs.lost_fences(setup_plan.source, source_topic, fences={0: 2}, epochs=epochs, by_markers=True)

    send_until(source_cluster, source_topic, lambda: is_removed(source_cluster, source_topic, offset=2))

    assert lost({}) == [0]  # the epoch of an old stop is unknown
    assert lost({0: 0}) == []
    assert lost({0: 7}) == [0]  # the cluster was restored: its leaders have no such epoch


@pytest.mark.parametrize(("end", "lost"), [(2, [0]), (3, [])], ids=["began at the fence", "began behind it"])
def test_a_fence_is_lost_if_a_newer_leader_epoch_begins_at_its_offset(
    setup_plan: MirrorSetup,
    source_topic: str,
    source_cluster: KafkaCluster,
    there: ClusterAdmin,
    monkeypatch: pytest.MonkeyPatch,
    end: int,
    lost: list[int],
) -> None:
    """If transactions fill gaps, an application's COMMIT may be at the offset of the fence."""
    write(source_cluster, source_topic, commit=True)
    while there.offsets(source_topic, OffsetKind.END)[0] < 3:  # a coordinator responds before it writes its marker
        time.sleep(0.1)
    epoch_ends = {(source_topic, 0): (KafkaCode.NONE, 0, end)}
    monkeypatch.setattr(offsets, "epoch_ends", lambda _cluster, _broker, _epochs: epoch_ends)

    assert jobs.lost_fences(setup_plan.source, source_topic, fences={0: 2}, epochs={0: 0}, by_markers=False) == lost


def send_until(cluster: KafkaCluster, topic: str, is_over: Callable[[], bool]) -> None:
    producer, deadline = Producer({**cluster.client("admin"), "linger.ms": 0}), time.monotonic() + 120
    for number in range(1_000_000):
        producer.produce(topic, str(number), "key", partition=0)
        assert producer.flush(30) == 0
        if number >= 4 and is_over():
            return
        assert time.monotonic() < deadline, "the log cleaner has not removed the record"
        time.sleep(0.2)


def is_removed(cluster: KafkaCluster, topic: str, *, offset: int) -> bool:
    return offset not in {found for _, found, *_ in read_topic(cluster, topic)}
