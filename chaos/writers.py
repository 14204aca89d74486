"""Clients that write to the source through the storm and remember what they did: plain, transactional, keyed, archiving.

Each is a thread over confluent-kafka. Whatever becomes of a record is noted: acknowledged, aborted, or unknown where the answer
was lost. After an error that ends a producer a new one goes on, as an application would that is started again.
"""

from __future__ import annotations

import itertools
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.history import HEADER, Entry, Journal, Outcome

_log = structlog.get_logger(__name__)
INIT_TIMEOUT_S = 20.0
COMMIT_TIMEOUT_S = 20.0
FLUSH_TIMEOUT_S = 45.0
TRANSACTION_TIMEOUT_MS = 15_000
KEYS = 40  # of a compacted topic
ARCHIVED_MS = 1_500_000_000_000  # 2017: brokers take a producer for expired by the time of its records
NOW = 0  # librdkafka's word for it
_COMMON = {"linger.ms": 2, "acks": "all", "enable.idempotence": True}
# librdkafka raises its epoch where a message times out, or a request behind another one is refused, and may write again under
# the new one what the log already holds (ADR 0012). A history that is to be known needs a writer that does neither.
_ONCE = {"message.timeout.ms": 0, "max.in.flight.requests.per.connection": 1}

Topics = Mapping[str, int]  # name -> partitions


class Writer(ABC):
    """What all writers share: a thread, a count, a pause between rounds."""

    def __init__(
        self, name: str, *, client: Mapping[str, str], topics: Topics, journal: Journal, seed: int, pause_s: float
    ) -> None:
        """Write nothing yet."""
        self.name = name
        self._client = dict(client)
        self._topics = list(topics.items())
        self._journal = journal
        self._chance = random.Random(f"{seed}-{name}")
        self._pause_s = pause_s
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self.error = ""  # what ended it before its time
        self._thread = threading.Thread(target=self._run_and_tell, name=f"writer-{name}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the round at hand and end."""
        self._over.set()

    def join(self) -> None:
        """Wait until the writer has ended; its outcomes are final then."""
        self._thread.join(INIT_TIMEOUT_S + COMMIT_TIMEOUT_S + 2 * FLUSH_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"Writer {self.name} does not end.")

    def ended_early(self) -> bool:
        """Tell whether it writes no more though nobody has told it to end."""
        return bool(self.error) or (not self._over.is_set() and self._thread.ident is not None and not self._thread.is_alive())

    @abstractmethod
    def round(self, producer: Producer) -> None:
        """Write some records and note what became of them; raise KafkaException where the producer is of no use any more."""

    @abstractmethod
    def new_producer(self) -> Producer:
        """Answer a producer that is ready."""

    def _run_and_tell(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the storm is told
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

    def _produce(self, producer: Producer, entry: Entry, told: Callable[[KafkaError | None, Message], None]) -> None:
        producer.produce(
            entry.topic, key=entry.key, value=entry.value, partition=entry.partition, headers=[(HEADER, entry.name)],
            timestamp=self._time_of(entry), on_delivery=told,
        )  # fmt: skip

    def _time_of(self, entry: Entry) -> int:
        """Answer a record's time in milliseconds since 1970."""
        del entry
        return NOW


class PlainWriter(Writer):
    """An idempotent producer without transactions, which never gives a message up."""

    def new_producer(self) -> Producer:
        return Producer({**self._client, **_COMMON, **_ONCE})

    def round(self, producer: Producer) -> None:
        for entry in self._entries(20):
            self._journal.note([entry], Outcome.UNKNOWN)
            self._produce(producer, entry, self._teller(entry))
        producer.poll(0)
        if len(producer) > 5_000:  # the source is away: wait with it
            producer.flush(FLUSH_TIMEOUT_S)

    def _teller(self, entry: Entry) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                self._journal.note_acked(entry, -1 if offset is None else offset)
            elif error.fatal():
                raise KafkaException(error)

        return told


class KeyedWriter(PlainWriter):
    """Writes few keys again and again, and deletes some, to a compacted topic."""

    def _entries(self, most: int) -> Iterator[Entry]:
        for entry in super()._entries(most):
            key = f"key-{self._chance.randrange(KEYS)}".encode()
            yield Entry(
                writer=entry.writer, number=entry.number, topic=entry.topic, partition=entry.partition, key=key,
                deletes=self._chance.random() < 0.2,
            )  # fmt: skip


class TransactionalWriter(Writer):
    """Transactions over several topics, one in four aborted; small ones, as a streams application makes them."""

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
            self._produce(producer, entry, _untold)
        if abort:
            producer.flush(FLUSH_TIMEOUT_S)  # so that it is in the log
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
    """Brings in what happened years ago."""

    def _time_of(self, entry: Entry) -> int:
        return ARCHIVED_MS + entry.number


def _repeat(work: Callable[[], None], *, times: int = 4) -> None:
    for left in reversed(range(times)):
        try:
            work()
        except KafkaException as error:
            if not left or not error.args[0].retriable():
                raise
        else:
            return


def _untold(_error: KafkaError | None, _message: Message) -> None:
    """The commit tells."""
