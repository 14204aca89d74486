"""Load the demo's source topics: `flights`, `planes` and `weather`, each with properties that make an exact mirror difficult.

* `flights`: 6 partitions, keyed by tail number, lz4. September is written in a transaction per day; the first attempt of one
  day is aborted and repeated, so that every partition has markers and aborted data.
* `planes`: compacted, with updates and tombstones. Record timestamps are hours apart, so segments are rolled by `segment.ms`
  and the log cleaner leaves gaps within a second or two.
* `weather`: zstd, with headers.

Writes as the ordinary client. Must not know links.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from devcluster.access import admin_client
from devcluster.demo import dataset
from devcluster.kafka import KafkaCluster

FLIGHTS, PLANES, WEATHER = "flights", "planes", "weather"
TOPICS = (FLIGHTS, PLANES, WEATHER)
TIMEOUT_S = 60.0
IN_TRANSACTIONS = "9"  # the last month of the file
ABORTED_ONCE = "15"  # the day whose first attempt is aborted
HOUR_MS = 3_600_000
STEP = 20_000  # records between two lines of progress
# Quiet: failed writes raise an error; librdkafka would also print a line per attempt to reach a stopped broker.
PRODUCER = {"enable.idempotence": True, "linger.ms": 50, "batch.size": 131_072}

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record to write."""

    key: str | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]] | None = None
    timestamp_ms: int = 0  # 0: now


def create_topics(cluster: KafkaCluster) -> None:
    """Create the three topics."""
    compacted = {"cleanup.policy": "compact", "segment.ms": str(HOUR_MS // 6), "min.cleanable.dirty.ratio": "0.01"}
    topics = [
        NewTopic(FLIGHTS, num_partitions=6, replication_factor=1),
        NewTopic(PLANES, num_partitions=1, replication_factor=1, config=compacted),
        NewTopic(WEATHER, num_partitions=2, replication_factor=1),
    ]
    admin = admin_client(cluster)
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)


def load(cluster: KafkaCluster, *, log: Log, now_ms: int) -> None:
    """Create and fill all topics; `now_ms` dates the newest state of the planes. About 12 s."""
    create_topics(cluster)
    load_planes(cluster, now_ms=now_ms)
    load_weather(cluster)
    load_flights(cluster, log=log)
    wait_compacted(cluster, PLANES)


def load_flights(cluster: KafkaCluster, *, log: Log, rows: Iterable[dataset.Row] | None = None) -> None:
    """Write all flights (or these), September in a transaction per day."""
    plain = _producer(cluster, **{"compression.type": "lz4"})
    days: dict[str, list[Message]] = {}
    for count, row in enumerate(dataset.flights() if rows is None else rows, start=1):
        message = flight_message(row)
        if row["month"] == IN_TRANSACTIONS:
            days.setdefault(row["day"], []).append(message)
        else:
            send(plain, FLIGHTS, message)
        if count % STEP == 0:
            log(f"flights: {count:,} of {dataset.FLIGHTS:,} records")
    flush(plain)
    _load_in_transactions(cluster, days)


def flight_message(row: dataset.Row) -> Message:
    """Return a flight as a record; flights without a tail number have no key."""
    tail = row["tailnum"]
    return Message(key=None if tail == dataset.MISSING else tail, value=dataset.document(row))


def _load_in_transactions(cluster: KafkaCluster, days: Mapping[str, list[Message]]) -> None:
    producer = _producer(cluster, **{"compression.type": "lz4", "transactional.id": "flights-loader"})
    producer.init_transactions(TIMEOUT_S)
    for day, messages in days.items():
        attempts = ("abort", "commit") if day == ABORTED_ONCE else ("commit",)
        for outcome in attempts:
            producer.begin_transaction()
            for message in messages:
                send(producer, FLIGHTS, message)
            flush(producer)  # before the end of the transaction, since an aborted record would otherwise never be sent
            (producer.abort_transaction if outcome == "abort" else producer.commit_transaction)(TIMEOUT_S)


def load_planes(cluster: KafkaCluster, *, now_ms: int) -> None:
    """Write every plane, then update every third and delete every tenth with timestamps hours later."""
    producer = _producer(cluster)
    rows = list(dataset.planes())
    for row in rows:
        send(producer, PLANES, plane_message(row, timestamp_ms=now_ms - 2 * HOUR_MS))
    flush(producer)
    for index, row in enumerate(rows):
        if index % 10 == 0:
            send(producer, PLANES, Message(key=row["tailnum"], value=None, timestamp_ms=now_ms - HOUR_MS))
        elif index % 3 == 0:
            send(producer, PLANES, plane_message(row, timestamp_ms=now_ms - HOUR_MS, status="repainted"))
    flush(producer)
    for row in rows[1:20:2]:  # they open a new segment; the log cleaner never compacts the active one
        send(producer, PLANES, plane_message(row, timestamp_ms=now_ms, status="in service"))
    flush(producer)


def plane_message(row: dataset.Row, *, timestamp_ms: int, **more: str) -> Message:
    """Return a plane as a record."""
    return Message(key=row["tailnum"], value=dataset.document(row, **more), timestamp_ms=timestamp_ms)


def load_weather(cluster: KafkaCluster) -> None:
    """Write the weather, keyed by airport, with headers."""
    producer = _producer(cluster, **{"compression.type": "zstd"})
    for row in dataset.weather():
        headers: list[tuple[str, str | bytes | None]] = [
            ("station", row["origin"]),
            ("observed-at", row["time_hour"]),
            ("gusts", None if row["wind_gust"] == dataset.MISSING else row["wind_gust"]),
        ]
        send(producer, WEATHER, Message(key=row["origin"], value=dataset.document(row), headers=headers))
    flush(producer)


def wait_compacted(cluster: KafkaCluster, topic: str, *, timeout_s: float = TIMEOUT_S) -> int:
    """Wait until compaction has left gaps in partition 0; return the number of offsets without a record."""
    deadline = time.monotonic() + timeout_s
    while not (gaps := count_gaps(cluster, topic)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"The broker has not compacted {topic} within {timeout_s:.0f} s; see its log.")
        time.sleep(0.2)
    return gaps


def count_gaps(cluster: KafkaCluster, topic: str) -> int:
    """Return the number of offsets of partition 0 without a record that consumers see."""
    consumer = Consumer({**cluster.client("app"), "group.id": "compaction-watch", "enable.partition.eof": True})
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, start)])
        return end - start - sum(_records_until_end(consumer))
    finally:
        consumer.close()


def _records_until_end(consumer: Consumer) -> Iterable[int]:
    while (record := consumer.poll(TIMEOUT_S)) is not None and record.error() is None:  # the end is reported as an error
        yield 1


def send(producer: Producer, topic: str, message: Message) -> None:
    """Queue a record, waiting while the queue is full."""
    while True:
        try:
            producer.produce(
                topic, message.value, key=message.key, headers=message.headers or [], timestamp=message.timestamp_ms,
                on_delivery=_check_delivered,
            )  # fmt: skip
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _check_delivered(error: KafkaError | None, _record: object) -> None:
    """Raise KafkaException from `poll` or `flush` for a record that was not written."""
    if error is not None:
        raise KafkaException(error)


def flush(producer: Producer) -> None:
    """Wait until all queued records are written."""
    left = producer.flush(TIMEOUT_S)
    if left:
        raise TimeoutError(f"{left} records were not written within {TIMEOUT_S:.0f} s; is the source cluster up?")


def _producer(cluster: KafkaCluster, **more: str) -> Producer:
    return Producer({**cluster.client("app"), **PRODUCER, **more})
