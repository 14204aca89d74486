"""The demo's topics have the documented contents: transactions with an aborted one, compaction gaps, zstd with headers."""

import time
from collections.abc import Iterator
from itertools import groupby, islice

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.demo import dataset, flights
from devcluster.demo.live import LiveFlights
from devcluster.kafka import KafkaCluster
from tests.watermarks import watermarks

pytestmark = pytest.mark.kafka
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Start a separate cluster, since the demo's topics have fixed names."""
    with KafkaCluster("demo", directory=tmp_path_factory.mktemp("demo")) as cluster:
        flights.create_topics(cluster)
        flights.load_planes(cluster, now_ms=time.time_ns() // 1_000_000)
        flights.load_weather(cluster)
        flights.load_flights(cluster, log=lambda _: None, rows=list(some_flights()))
        yield cluster


def some_flights() -> Iterator[dict[str, str]]:
    """Yield twenty flights of each of the file's last 20 days, and as many of January."""
    yield from islice(dataset.flights(), 400)
    september = (row for row in dataset.flights() if row["month"] == flights.IN_TRANSACTIONS and int(row["day"]) > 10)
    for _, day in groupby(september, key=lambda row: row["day"]):
        yield from islice(day, 20)


def read(cluster: KafkaCluster, topic: str, partition: int, **settings: str) -> list[Message]:
    consumer = Consumer(
        {**cluster.client("app"), "group.id": "test", "enable.partition.eof": True, "enable.auto.commit": False, **settings}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    records = []
    while (record := consumer.poll(TIMEOUT_S)) is not None and record.error() is None:
        records.append(record)
    consumer.close()
    return records


def count_flights(cluster: KafkaCluster, isolation: str) -> int:
    return sum(len(read(cluster, "flights", number, **{"isolation.level": isolation})) for number in range(6))


def test_read_committed_consumers_see_each_flight_once(loaded: KafkaCluster) -> None:
    assert count_flights(loaded, "read_committed") == 800


def test_read_uncommitted_consumers_also_see_an_aborted_transaction(loaded: KafkaCluster) -> None:
    assert count_flights(loaded, "read_uncommitted") == 820


def test_planes_have_compaction_gaps_updates_and_tombstones(loaded: KafkaCluster) -> None:
    gaps = flights.wait_compacted(loaded, "planes")

    records = read(loaded, "planes", 0)
    keys = [record.key() for record in records]
    offsets = [record.offset() or 0 for record in records]

    assert gaps > 1000
    assert any(record.value() is None for record in records)
    assert len(set(keys)) == 3322
    assert offsets[-1] - offsets[0] + 1 > len(records)


def test_weather_has_headers(loaded: KafkaCluster) -> None:
    record = read(loaded, "weather", 0)[0]

    headers = dict(record.headers() or ())

    assert headers["station"] == record.key()
    assert set(headers) == {"station", "observed-at", "gusts"}


def ends(cluster: KafkaCluster) -> int:
    """Return the sum of the end offsets of all partitions; a stream cannot be read to an end."""
    consumer = Consumer({**cluster.client("app"), "group.id": "test"})
    total = sum(watermarks(consumer, TopicPartition("live", number))[1] for number in range(2))
    consumer.close()
    return total


def test_the_live_stream_runs_until_it_is_stopped(loaded: KafkaCluster) -> None:
    admin = AdminClient(loaded.client("admin"))
    admin.create_topics([NewTopic("live", num_partitions=2, replication_factor=1)])["live"].result(TIMEOUT_S)
    live = LiveFlights(loaded, topic="live", per_second=100)

    live.start()
    deadline = time.monotonic() + TIMEOUT_S
    while ends(loaded) < 10:
        assert time.monotonic() < deadline, "no flights arrive"
    live.stop()

    after = ends(loaded)
    assert ends(loaded) == after


def test_documents_hold_numbers_as_numbers_and_no_missing_values() -> None:
    row = {"year": "2013", "dep_delay": "-4", "temp": "39.02", "model": "150", "tailnum": "NA"}

    assert dataset.document(row, status="new") == b'{"year":2013,"dep_delay":-4,"temp":39.02,"model":"150","status":"new"}'


def test_the_dataset_has_all_flights_of_2013() -> None:
    assert sum(1 for _ in dataset.flights()) == dataset.FLIGHTS
