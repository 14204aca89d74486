"""Reads log end and producer state of mirror partitions until two consecutive readings agree. Blocking.

A log end that differs between all readings means that another process is writing, since the reader sends nothing. The offsets
that were appended between readings are returned (``LogEnd.came``), so that the caller can check which producer wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.offsets import TopicPartition, log_ends
from linkengine.kafka.producers import ProducerState, describe_producers

READINGS = 5  # after the first; two consecutive readings must agree
REQUEST_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The log end of a mirror partition and the leader's state of its producer."""

    end: int
    producer: ProducerState
    came: tuple[int, int] | None = None  # offsets appended between readings, if no two agreed; None: two agreed


ReadingOrError = LogEnd | LinkEngineError


def agreed_readings(
    cluster: Cluster,
    broker: int,
    epochs: Mapping[TopicPartition, int],
    producer_ids: Mapping[TopicPartition, int],
    *,
    once: bool,
) -> dict[TopicPartition, ReadingOrError]:
    """Return log end and producer state of partitions that ``broker`` leads in these leader ``epochs``.

    ``once``: return the first reading.
    """
    readings = [_reading(cluster, broker, epochs, producer_ids)]
    if once:
        return readings[0]
    agreed: dict[TopicPartition, ReadingOrError] = {}
    while len(agreed) < len(epochs) and len(readings) <= READINGS:
        readings.append(_reading(cluster, broker, epochs, producer_ids))
        agreed = _agreeing(readings[-2], readings[-1]) | agreed
    return {place: _moving([reading[place] for reading in readings]) for place in epochs} | agreed


def _agreeing(
    before: Mapping[TopicPartition, ReadingOrError], now: Mapping[TopicPartition, ReadingOrError]
) -> dict[TopicPartition, ReadingOrError]:
    return {
        place: reading for place, reading in now.items() if reading == before[place] or isinstance(reading, LinkEngineError)
    }


def _moving(readings: Sequence[ReadingOrError]) -> ReadingOrError:
    """Return the last reading, with the first range of appended offsets: later ones may not be replicated, hence unreadable."""
    seen = [reading for reading in readings if isinstance(reading, LogEnd)]
    if not seen:
        return readings[-1]
    start = seen[0].end
    return replace(seen[-1], came=(start, next((reading.end for reading in seen if reading.end > start), start)))


def _reading(
    cluster: Cluster, broker: int, epochs: Mapping[TopicPartition, int], producer_ids: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ReadingOrError]:
    # sequences first: after an append in between our next batch is a duplicate, which is detected, not at a wrong offset
    producers = describe_producers(cluster, broker, producer_ids, timeout_s=REQUEST_TIMEOUT_S)
    ends = log_ends(cluster, broker, epochs, timeout_s=REQUEST_TIMEOUT_S)
    readings: dict[TopicPartition, ReadingOrError] = {}
    for place in epochs:
        (end_error, end), (producer_error, producer) = ends.get(place, (3, -1)), producers.get(place, (3, ProducerState()))
        error = end_error or producer_error
        refused = BrokerError(error, f"The end of {place[0]}-{place[1]} cannot be read") if error else None
        readings[place] = refused or LogEnd(end=end, producer=producer)
    return readings
