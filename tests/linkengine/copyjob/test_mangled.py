"""A connection that changes what a broker answers, while a copy runs: it says so, goes on afterwards, and copies no damage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.proxy import Proxy
from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from tests.linkengine.copyjob.copying import (
    Copier,
    address,
    assert_equal_topics,
    assignments_for,
    create_pair,
    ends_of,
    plan_for,
    producer_for,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(290)]
PARTITIONS = 3
MANGLED_S = 25.0


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[KafkaCluster, Proxy]]:
    """A cluster whose answers come through a proxy."""
    cluster = KafkaCluster("proxied", directory=tmp_path / "proxied").behind_proxy()
    proxy = Proxy(cluster.routes)
    try:
        with cluster:
            yield cluster, proxy
    finally:
        proxy.close()


def mangle_for(seconds: float, proxy: Proxy, copier: Copier, *, seed: int) -> int:
    """Change answers in bursts of a second, between which they come as they are; how many bits were flipped."""
    ends_at, number, flipped = time.monotonic() + seconds, 0, 0
    while time.monotonic() < ends_at:
        proxy.mangle(every_bytes=(50_000, 2_000, 400)[number % 3], seed=seed * 1000 + number)
        time.sleep(1.0)
        flipped += proxy.mangled
        proxy.heal()
        time.sleep(0.2)
        assert copier.error is None
        number += 1
    return flipped


@pytest.mark.parametrize("seed", [1, 2])
def test_a_mangled_source_is_named_and_recovered_from_without_a_changed_record(
    proxied: tuple[KafkaCluster, Proxy], destination_cluster: KafkaCluster, topic_name: str, seed: int
) -> None:
    source, proxy = proxied
    create_pair((source, destination_cluster), topic_name, partitions=PARTITIONS)
    through = address_from_properties(source.proxied_properties("link"))
    assignments = assignments_for(source, topic_name, topic_name, partitions=PARTITIONS)
    over = threading.Event()
    writer = threading.Thread(target=write_until, args=(source, topic_name, over))
    with Copier(plan_for(through, address(destination_cluster), assignments)) as copier:
        writer.start()
        copier.wait_until(lambda one: (one.mirror_end or 0) > 0)
        flipped = mangle_for(MANGLED_S, proxy, copier, seed=seed)
        over.set()
        writer.join(60)
        copier.wait_for_ends(ends_of(source, topic_name, partitions=PARTITIONS), deadline_s=90)
        copier.wait_until(lambda one: one.phase is PartitionPhase.COPYING and not one.error_code)
    results = copier.join()

    said = {(phase, code) for _, phase, code in copier.progress.history}
    assert flipped > 100
    assert PartitionPhase.FAILED not in {phase for phase, _ in said}, said
    assert {code for _, code in said} & {ErrorCode.MALFORMED_RESPONSE_ERROR, ErrorCode.CORRUPT_RECORDS}, said
    assert [one.gaps for one in results] == [()] * PARTITIONS
    assert copier.progress.lost == []
    assert assert_equal_topics(source, topic_name, destination_cluster, topic_name, partitions=PARTITIONS) > 1000


def write_until(cluster: KafkaCluster, topic: str, over: threading.Event) -> None:
    producer, number = producer_for(cluster), 0
    while not over.is_set():
        for _ in range(50):
            number += 1
            producer.produce(topic, value=b"%d " % number * 20, key=b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(0.02)
    assert producer.flush(60) == 0
