"""Write given records as an ordinary, idempotent producer does, and answer how many the cluster has acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from linkengine.batches.exact import Record
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.oddrecords import OddWriter
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.settings import make_client

DELIVERY_TIMEOUT_S = 120.0
_ROOM_WAIT_S = 0.2
_MOST_BYTES = 100 << 20  # of a message; the topic's own limit decides

Header = tuple[str, bytes | None]  # a name that is not UTF-8 carries surrogate escapes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRecord:
    """One record as an application sees it."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def is_odd(self) -> bool:
        """Tell whether librdkafka's binding would change the record, or die of it.

        It dies of header names that are not UTF-8, ends them at a NUL, and takes the timestamp 0 for "now".
        """
        odd_names = any(letter == "\0" or "\udc80" <= letter <= "\udcff" for name, _ in self.headers for letter in name)
        return odd_names or self.timestamp_ms == 0


class _Tally:
    """What became of the records that were handed over."""

    def __init__(self) -> None:
        self.written = 0
        self.refusal = ""

    def note(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.written += 1
        else:
            self.refusal = self.refusal or error.str()


def write_records(address: ClusterAddress, topic: str, records: Iterable[PlainRecord]) -> int:
    """Append the records in their order, per partition; answer their number. Every one is acknowledged, or it raises."""
    check_reachable(address)
    tally = _Tally()
    producer = make_client(
        Producer,
        address,
        {
            "enable.idempotence": True,
            "message.max.bytes": _MOST_BYTES,
            "delivery.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
        },
    )
    odd = OddWriter(address, topic)
    try:
        for record in records:
            if record.is_odd:
                _append_odd(producer, odd, record, tally)
            else:
                _hand_over(producer, topic, record, tally)
            if tally.refusal:
                break
    finally:
        odd.close()
    left = producer.flush(DELIVERY_TIMEOUT_S)
    if left or tally.refusal:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR if left else ErrorCode.INTERNAL_ERROR,
            f"{tally.written} records were written to {topic!r}, then: {tally.refusal or 'no answer of the brokers in time'}. "
            "Mend the cause, and replay to an empty topic: what was written would be written twice.",
        )
    return tally.written


def _append_odd(producer: Producer, odd: OddWriter, record: PlainRecord, tally: _Tally) -> None:
    """Write what was handed over before first, for the order's sake."""
    if producer.flush(DELIVERY_TIMEOUT_S):
        tally.refusal = tally.refusal or "no answer of the brokers in time"
    if tally.refusal:
        return
    plain = Record(offset=0, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers))
    try:
        odd.append(record.partition, plain)
    except LinkEngineError as error:
        tally.refusal = error.message
    else:
        tally.written += 1


def _hand_over(producer: Producer, topic: str, record: PlainRecord, tally: _Tally) -> None:
    while not tally.refusal:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=tally.note,
            )
        except BufferError:  # the queue is full
            producer.poll(_ROOM_WAIT_S)
        else:
            producer.poll(0)
            return
