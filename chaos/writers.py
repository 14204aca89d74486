"""Producers that write to the source during a storm and record the outcomes: plain, transactional, keyed, archive.

Each is a thread with confluent-kafka. The outcome of every record is recorded: acknowledged, aborted, or unknown if the
response was lost. After an error that ends a producer, a new producer continues, as in an application that is restarted.
"""

from __future__ import annotations

import itertools
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.history import HEADER, Entry, Journal, Outcome

_log = structlog.get_logger(__name__)
INIT_TIMEOUT_S = 20.0
COMMIT_TIMEOUT_S = 20.0
FLUSH_TIMEOUT_S = 45.0
TRANSACTION_TIMEOUT_MS = 15_000
OPEN_TIMEOUT_MS = 60_000  # of a transaction that is kept open
KEYS = 40  # of a compacted topic
ARCHIVED_MS = 1_500_000_000_000  # 2017: brokers expire a producer's state by the timestamps of its records
NOW = 0  # librdkafka then uses the current time
_COMMON = {"linger.ms": 2, "acks": "all", "enable.idempotence": True}
# librdkafka raises its epoch when a message times out, or when a request behind another request is refused, and may then write
# records again that the log already has (ADR 0012). A history with known outcomes needs a writer that does neither.
_ONCE = {"message.timeout.ms": 0, "max.in.flight.requests.per.connection": 1}

Topics = Mapping[str, int]  # name -> partitions


class Writer(ABC):
    """Base class of the writers: a thread, a counter, a pause between rounds."""

    def __init__(
        self, name: str, *, client: Mapping[str, str], topics: Topics, journal: Journal, seed: int, pause_s: float
    ) -> None:
        """Prepare the writer; ``start`` begins to write."""
        self.name = name
        self._client = dict(client)
        self._topics = list(topics.items())
        self._journal = journal
        self._chance = random.Random(f"{seed}-{name}")
        self._pause_s = pause_s
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self.error = ""  # the exception that ended it
        self._thread = threading.Thread(target=self._run_and_report, name=f"writer-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Order the writer to end after its current round."""
        self._over.set()

    def join(self) -> None:
        """Wait until the writer has ended; its outcomes are then final."""
        self._thread.join(INIT_TIMEOUT_S + COMMIT_TIMEOUT_S + 2 * FLUSH_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"Writer {self.name} does not end.")

    def ended_early(self) -> bool:
        """Return whether the writer has ended without being stopped."""
        return bool(self.error) or (not self._over.is_set() and self._thread.ident is not None and not self._thread.is_alive())

    @abstractmethod
    def round(self, producer: Producer) -> None:
        """Write some records and record their outcomes; raise KafkaException if the producer can no longer be used."""

    @abstractmethod
    def new_producer(self) -> Producer:
        """Return a producer that is ready."""

    def _run_and_report(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - any error is reported to the storm
            self.error = f"{type(error).__name__}: {error}"
            _log.exception("writer.died", writer=self.name)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                producer = self.new_producer()
                while not self._over.is_set():
                    self.round(producer)
                    self._over.wait(self._pause_s)
                producer.flush(FLUSH_TIMEOUT_S)
            except KafkaException as error:
                _log.info("writer.begins_anew", writer=self.name, reason=str(error))
                self._over.wait(0.5)

    def _entries(self, most: int) -> Iterator[Entry]:
        for _ in range(self._chance.randint(1, most)):
            topic, partitions = self._chance.choice(self._topics)
            number = next(self._numbers)
            yield Entry(
                writer=self.name, number=number, topic=topic, partition=self._chance.randrange(partitions),
                key=str(number).encode(),
            )  # fmt: skip

    def _produce(self, producer: Producer, entry: Entry, on_delivery: Callable[[KafkaError | None, Message], None]) -> None:
        producer.produce(
            entry.topic, key=entry.key, value=entry.value, partition=entry.partition, headers=[(HEADER, entry.name)],
            timestamp=self._time_of(entry), on_delivery=on_delivery,
        )  # fmt: skip

    def _time_of(self, entry: Entry) -> int:
        """Return a record's timestamp in milliseconds since 1970."""
        del entry
        return NOW


class PlainWriter(Writer):
    """An idempotent producer without transactions, which retries a message without limit."""

    def new_producer(self) -> Producer:
        return Producer({**self._client, **_COMMON, **_ONCE})

    def round(self, producer: Producer) -> None:
        for entry in self._entries(20):
            self._journal.note([entry], Outcome.UNKNOWN)
            self._produce(producer, entry, self._on_delivery(entry))
        producer.poll(0)
        if len(producer) > 5_000:  # the source is down: wait
            producer.flush(FLUSH_TIMEOUT_S)

    def _on_delivery(self, entry: Entry) -> Callable[[KafkaError | None, Message], None]:
        def record_outcome(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                self._journal.note_acked(entry, -1 if offset is None else offset)
            elif error.fatal():
                raise KafkaException(error)

        return record_outcome


class KeyedWriter(PlainWriter):
    """Writes few keys repeatedly, with some tombstones, to a compacted topic."""

    def _entries(self, most: int) -> Iterator[Entry]:
        for entry in super()._entries(most):
            key = f"key-{self._chance.randrange(KEYS)}".encode()
            yield Entry(
                writer=entry.writer, number=entry.number, topic=entry.topic, partition=entry.partition, key=key,
                deletes=self._chance.random() < 0.2,
            )  # fmt: skip


class TransactionalWriter(Writer):
    """Transactions over several topics, a quarter of them aborted; small ones, as of a Kafka Streams application."""

    def new_producer(self) -> Producer:
        extra = {"transactional.id": f"chaos-{self.name}", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        producer = Producer({**self._client, **_COMMON, **extra})
        while not self._over.is_set():
            try:
                producer.init_transactions(INIT_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                break
        return producer

    def round(self, producer: Producer) -> None:
        entries = list(self._entries(12))
        abort = self._chance.random() < 0.25
        self._journal.note(entries, Outcome.UNKNOWN)
        producer.begin_transaction()
        for entry in entries:
            self._produce(producer, entry, _ignore_delivery)
        if abort:
            producer.flush(FLUSH_TIMEOUT_S)  # so that the records are in the log
            self._abort(producer, entries)
        else:
            self._commit(producer, entries)

    def _commit(self, producer: Producer, entries: list[Entry]) -> None:
        try:
            _repeat(lambda: producer.commit_transaction(COMMIT_TIMEOUT_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(producer, entries)
        else:
            self._journal.note(entries, Outcome.ACKED)

    def _abort(self, producer: Producer, entries: list[Entry]) -> None:
        _repeat(lambda: producer.abort_transaction(COMMIT_TIMEOUT_S))
        self._journal.note(entries, Outcome.ABORTED)


class ArchiveWriter(TransactionalWriter):
    """Writes records with timestamps that are years old."""

    def _time_of(self, entry: Entry) -> int:
        return ARCHIVED_MS + entry.number


@contextmanager
def open_transaction(client: Mapping[str, str], topic: str, *, records: int = 1) -> Iterator[None]:
    """Write records to a topic that are aborted when the block ends: until then its last stable offset stays where it is.

    Raises KafkaException if that cannot be done now.
    """
    extra = {"transactional.id": f"chaos-open-{topic}", "transaction.timeout.ms": OPEN_TIMEOUT_MS}
    producer = Producer({**client, **_COMMON, **extra})
    producer.init_transactions(INIT_TIMEOUT_S)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, value=f"aborted {number}", on_delivery=_ignore_delivery)
    producer.flush(INIT_TIMEOUT_S)
    yield
    producer.abort_transaction(COMMIT_TIMEOUT_S)


def _repeat(work: Callable[[], None], *, times: int = 4) -> None:
    for left in reversed(range(times)):
        try:
            work()
        except KafkaException as error:
            if not left or not error.args[0].retriable():
                raise
        else:
            return


def _ignore_delivery(_error: KafkaError | None, _message: Message) -> None:
    """The commit decides about the outcome."""
