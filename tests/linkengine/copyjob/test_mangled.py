"""A proxy that damages responses during a copy: the error is shown, the copy recovers, and no damage is copied."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from itertools import count

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from chaos.proxy import Proxy
from devcluster.kafka import KafkaCluster
from linkengine.copyjob.destination import gap_filler
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka import connection, requests
from linkengine.kafka.protocol import KafkaCode
from linkengine.kafka.requests import ProducedPartition
from tests.effort import tries
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    address,
    assert_equal_topics,
    assignments_for,
    create_pair,
    ends_of,
    plan_for,
    plan_of,
    producer_for,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(290)]
Change = Callable[[int], int]
PARTITIONS = 3
MANGLED_S = 12.0
BURSTS, BURST = 10, 10  # a burst has BURST records for each partition


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaCluster, Proxy]]:
    """Yield a cluster whose responses pass through a proxy; each test leaves the proxy healed."""
    cluster = KafkaCluster("proxied", directory=tmp_path_factory.mktemp("proxied")).behind_proxy()
    proxy = Proxy(cluster.routes)
    try:
        with cluster:
            yield cluster, proxy
    finally:
        proxy.close()


def mangle_for(
    seconds: float,
    proxy: Proxy,
    copier: Copier,
    *,
    seed: int,
    shown: Collection[ErrorCode],
    mean_bytes: tuple[int, ...] = (50_000, 2_000, 400),
    least: int = 101,
) -> int:
    """Damage responses in bursts of a second with pauses between; return the number of flipped bits.

    Continues beyond ``seconds`` for up to a minute until ``least`` bits are flipped and the copier has reported an error of
    ``shown``: a busy machine sends fewer responses.
    """
    ends_at, number, flipped = time.monotonic() + seconds, 0, 0

    def is_enough() -> bool:
        return flipped >= least and any(code in shown for _, _, code in list(copier.progress.history))

    while time.monotonic() < ends_at or (not is_enough() and time.monotonic() < ends_at + 60.0):
        proxy.mangle(every_bytes=mean_bytes[number % len(mean_bytes)], seed=seed * 1000 + number)
        time.sleep(1.0)
        flipped += proxy.mangled
        proxy.heal()
        time.sleep(0.2)
        assert copier.error is None
        number += 1
    return flipped


@pytest.mark.parametrize("seed", range(tries(1)))
def test_damaged_source_responses_are_shown_and_change_no_record(
    proxied: tuple[KafkaCluster, Proxy], destination_cluster: KafkaCluster, topic_name: str, seed: int
) -> None:
    (source, proxy), shown = proxied, {ErrorCode.MALFORMED_RESPONSE_ERROR, ErrorCode.CORRUPT_RECORDS}
    create_pair((source, destination_cluster), topic_name, partitions=PARTITIONS)
    through = address_from_properties(source.proxied_properties("link"))
    assignments = assignments_for(source, topic_name, topic_name, partitions=PARTITIONS)
    over = threading.Event()
    writer = threading.Thread(target=write_until, args=(source, topic_name, over))
    with Copier(plan_for(through, address(destination_cluster), assignments)) as copier:
        writer.start()
        copier.wait_until(lambda progress: (progress.mirror_end or 0) > 0)
        flipped = mangle_for(MANGLED_S, proxy, copier, seed=seed, shown=shown)
        over.set()
        writer.join(60)
        copier.wait_for_ends(ends_of(source, topic_name, partitions=PARTITIONS), deadline_s=90)
        copier.wait_until(lambda progress: progress.phase is PartitionPhase.COPYING and not progress.error_code)
    results = copier.join()

    reported = {(phase, code) for _, phase, code in copier.progress.history}
    assert flipped > 100
    assert PartitionPhase.FAILED not in {phase for phase, _ in reported}, reported
    assert {code for _, code in reported} & shown, reported
    assert [result.gaps for result in results] == [()] * PARTITIONS
    assert copier.progress.lost == []
    assert assert_equal_topics(source, topic_name, destination_cluster, topic_name, partitions=PARTITIONS) > 1000


@pytest.mark.parametrize("seed", range(tries(2)))
def test_damaged_destination_responses_are_shown_and_records_stay_equal(
    proxied: tuple[KafkaCluster, Proxy], source_cluster: KafkaCluster, topic_name: str, seed: int
) -> None:
    """Responses to Produce, WriteTxnMarkers, OffsetForLeaderEpoch, DescribeProducers, ListOffsets, Metadata and Fetch."""
    (destination, proxy), shown = proxied, ErrorCode.MALFORMED_RESPONSE_ERROR
    create_pair((source_cluster, destination), topic_name, partitions=PARTITIONS)
    through = address_from_properties(destination.proxied_properties("link"))
    assignments = assignments_for(source_cluster, topic_name, topic_name, partitions=PARTITIONS)
    over = threading.Event()
    writers = [threading.Thread(target=write, args=(source_cluster, topic_name, over)) for write in (write_until, write_txns)]
    with Copier(plan_for(address(source_cluster), through, assignments)) as copier:
        for writer in writers:
            writer.start()
        copier.wait_until(lambda progress: (progress.mirror_end or 0) > 0)
        flipped = mangle_for(MANGLED_S, proxy, copier, seed=seed, shown={shown}, mean_bytes=(2_000, 400, 100), least=21)
        over.set()
        for writer in writers:
            writer.join(60)
        copier.wait_for_ends(ends_of(source_cluster, topic_name, partitions=PARTITIONS), deadline_s=90)
        copier.wait_until(lambda progress: progress.phase is PartitionPhase.COPYING and not progress.error_code)
    copier.join()

    reported = {(phase, code) for _, phase, code in copier.progress.history}
    assert flipped > 20
    assert PartitionPhase.FAILED not in {phase for phase, _ in reported}, reported
    assert shown in {code for _, code in reported}, reported
    assert copier.progress.lost == []
    assert assert_equal_topics(source_cluster, topic_name, destination, topic_name, partitions=PARTITIONS) > 1000


PRODUCED: dict[str, Callable[[ProducedPartition], ProducedPartition]] = {  # changes of a field of a Produce response
    "base offset too high": lambda part: part._replace(base_offset=part.base_offset | 1 << 40),
    "base offset too low": lambda part: part._replace(base_offset=part.base_offset - 1),
    "log append time": lambda part: part._replace(log_append_time=(1 << 63) - 1),
    "error": lambda part: part._replace(error=KafkaCode.NOT_LEADER_OR_FOLLOWER),
    "error of the batch": lambda part: part._replace(error=KafkaCode.CORRUPT_MESSAGE),
    "other partition": lambda part: part._replace(partition=part.partition ^ 1 << 20),
}


def test_wrong_fields_in_produce_responses_do_no_harm(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log decides: a response alone never ends a mirror. Each partition has one wrong field, each in another burst."""
    create_pair(clusters, topic_name, partitions=len(PRODUCED))
    decode, waiting = requests.decode_produce, dict(enumerate(PRODUCED))

    def change(part: ProducedPartition) -> ProducedPartition:
        if part.partition in waiting and part.base_offset >= BURST * (2 + part.partition):
            return PRODUCED[waiting.pop(part.partition)](part)
        return part

    def decoded(body: memoryview, *, version: int) -> tuple[int, list[ProducedPartition]]:
        throttle_ms, parts = decode(body, version=version)
        return throttle_ms, [change(part) for part in parts]

    monkeypatch.setattr(requests, "decode_produce", decoded)

    copy_in_bursts(clusters, topic_name, partitions=len(PRODUCED))

    assert waiting == {}


def test_wrong_throttle_time_does_not_stop_the_copy(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_pair(clusters, topic_name)
    decode, times = requests.decode_produce, iter([0, 1 << 30])
    monkeypatch.setattr(requests, "decode_produce", lambda body, *, version: (next(times, 0), decode(body, version=version)[1]))

    copy_in_bursts(clusters, topic_name)


APIS = {"Produce": 0, "Fetch": 1, "ListOffsets": 2, "Metadata": 3, "OffsetForLeaderEpoch": 23, "WriteTxnMarkers": 27}


@pytest.mark.parametrize(("api", "versions"), [*((api, None) for api in APIS), ("Produce", (64, 64)), ("Fetch", (0, 0))])
def test_wrong_versions_of_an_api_do_no_harm(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch, api: str, versions: tuple[int, int] | None
) -> None:
    """Every second connection of the first ones got a damaged ApiVersions response."""
    create_pair(clusters, topic_name)
    read, opened = connection._read_versions, count()

    def damaged(response: ApiVersionsResponse) -> tuple[int, dict[int, tuple[int, int]]]:
        error, supported = read(response)
        number = next(opened) if threading.current_thread().name.startswith("copy-background") else 1  # not the test's own
        if number < 12 and number % 2 == 0:
            supported = {key: value for key, value in supported.items() if key != APIS[api]}
            if versions is not None:
                supported[APIS[api]] = versions
        return error, supported

    monkeypatch.setattr(connection, "_read_versions", damaged)

    copy_in_bursts(clusters, topic_name, transactions=True)

    assert next(opened) > 4


def test_wrong_log_ends_after_fills_do_no_harm(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition has another wrong end."""
    waiting: dict[int, Change] = dict(enumerate([lambda end: end | 1 << 40, lambda end: end + 1, lambda end: end - 1]))
    partitions = len(waiting)
    create_pair(clusters, topic_name, partitions=partitions)

    def decoded(body: memoryview) -> dict[tuple[str, int], tuple[int, int]]:
        ends = requests.decode_log_ends(body)
        return {
            (topic, partition): (error, waiting.pop(partition)(end) if partition in waiting else end)
            for (topic, partition), (error, end) in ends.items()
        }

    monkeypatch.setattr(gap_filler, "decode_log_ends", decoded)

    copy_in_bursts(clusters, topic_name, partitions=partitions, transactions=True)

    assert waiting == {}


def copy_in_bursts(clusters: Pair, topic: str, *, partitions: int = 1, transactions: bool = False) -> None:
    """Copy BURSTS bursts of BURST records to each partition; check that no partition fails and that the topics are equal."""
    source = clusters[0]
    producer = producer_for(source, **({"transactional_id": f"writer-{topic}"} if transactions else {}))
    if transactions:
        producer.init_transactions()
    size = BURST + transactions  # the marker of a commit takes an offset
    with Copier(plan_of(clusters, topic, partitions=partitions)) as copier:
        for number in range(BURSTS):
            if transactions:
                producer.begin_transaction()
            for _ in range(BURST):
                for partition in range(partitions):
                    producer.produce(topic, value=b"%d" % number, partition=partition)
            if transactions:
                producer.commit_transaction()
            assert producer.flush(30) == 0
            copier.wait_for_ends(dict.fromkeys(range(partitions), size * (number + 1)))
    copier.join()
    assert assert_equal_topics(source, topic, clusters[1], topic, partitions=partitions) == BURSTS * BURST * partitions
    assert [entry for entry in copier.progress.history if entry[1] is PartitionPhase.FAILED] == []


def write_txns(cluster: KafkaCluster, topic: str, over: threading.Event) -> None:
    """Write small transactions, so that gaps are filled all the time."""
    producer, number = producer_for(cluster, transactional_id=f"writer-{topic}"), 0
    producer.init_transactions()
    while not over.is_set():
        number += 1
        producer.begin_transaction()
        producer.produce(topic, value=b"transaction %d" % number, partition=number % PARTITIONS)
        producer.abort_transaction() if number % 4 == 0 else producer.commit_transaction()
        time.sleep(0.05)


def write_until(cluster: KafkaCluster, topic: str, over: threading.Event) -> None:
    producer, number = producer_for(cluster), 0
    while not over.is_set():
        for _ in range(50):
            number += 1
            producer.produce(topic, value=b"%d " % number * 20, key=b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(0.02)
    assert producer.flush(60) == 0
