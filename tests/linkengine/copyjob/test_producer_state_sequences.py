"""Sequences wrap to 0 after 2^31-1, also within a batch, on real brokers: a mirror gets there after two billion records."""

import pytest

from devcluster.kafka import NEWEST, OLDEST, KafkaCluster
from linkengine.batches.patch import SEQUENCES, patch_for_append
from tests.conftest import MakeCluster
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    assert_equal_topics,
    create_pair,
    ends_of,
    plan_of,
    producer_for,
    producer_state,
)
from tests.linkengine.copyjob.memory import MemoryLease
from tests.linkengine.copyjob.rawwriter import read_batches_of, send_batches


def write(clusters: Pair, topic: str, count: int, *, commit: bool = False) -> None:
    """Write records as one batch; ``commit``: as a transaction, with a marker behind it."""
    producer = producer_for(clusters[0], linger_ms=200, **({"transactional_id": topic} if commit else {}))
    if commit:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, value=f"{number}" * 100, partition=0)
    assert producer.flush(60) == 0
    if commit:
        producer.commit_transaction(30)


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_sequences_wrap_within_a_batch_and_across_resumes(
    make_cluster: MakeCluster,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    topic_name: str,
    version: str,
) -> None:
    clusters = (source_cluster, destination_cluster if version == NEWEST else make_cluster(version=version))
    create_pair(clusters, topic_name)
    plan, lease = plan_of(clusters, topic_name), MemoryLease()
    write(clusters, topic_name, 1)
    ((_, first),) = read_batches_of(clusters[0], topic_name)
    copied = bytearray(first)
    last = SEQUENCES - 4
    patch_for_append(copied, producer_id=plan.assignments[0].producer_id, producer_epoch=0, base_sequence=last)
    assert [response.error for response in send_batches(clusters[1], topic_name, [bytes(copied)])] == [0]

    for count in (10, 3):
        write(clusters, topic_name, count)
        with Copier(plan, lease=lease) as copier:
            copier.wait_for_ends(ends_of(clusters[0], topic_name))
        last = (last + count) % SEQUENCES
        assert producer_state(clusters[1], plan).last_sequence == last
    write(clusters, topic_name, 5, commit=True)
    lease.seen.clear()
    with Copier(plan, lease=lease) as copier:
        copier.wait_for_ends({0: 20})

    assert last == 9
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 19
