"""Reads where mirrors end, and what their leader remembers of the writer, until two readings agree. Blocking.

A log that moves between all of them is being written to, and not by who reads: what came between two is told, so that it can be
looked at whose that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.offsets import TopicPartition, log_ends
from linkengine.kafka.producers import ProducerState, describe_producers

READINGS = 5  # beside the first one; two in a row must agree
REQUEST_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a mirror partition, and its producer as the leader remembers it."""

    end: int
    producer: ProducerState
    came: tuple[int, int] | None = None  # offsets that came between two readings, of which none agreed; None: they did


Reading = Ending | LinkEngineError


def agreed_readings(
    cluster: Cluster,
    broker: int,
    epochs: Mapping[TopicPartition, int],
    producer_ids: Mapping[TopicPartition, int],
    *,
    once: bool,
) -> dict[TopicPartition, Reading]:
    """Answer where partitions end that ``broker`` leads in these ``epochs``; ``once``: one reading is enough."""
    readings = [_reading(cluster, broker, epochs, producer_ids)]
    if once:
        return readings[0]
    agreed: dict[TopicPartition, Reading] = {}
    while len(agreed) < len(epochs) and len(readings) <= READINGS:
        readings.append(_reading(cluster, broker, epochs, producer_ids))
        agreed = _agreeing(readings[-2], readings[-1]) | agreed
    return {place: _moving([reading[place] for reading in readings]) for place in epochs} | agreed


def _agreeing(before: Mapping[TopicPartition, Reading], now: Mapping[TopicPartition, Reading]) -> dict[TopicPartition, Reading]:
    return {
        place: reading for place, reading in now.items() if reading == before[place] or isinstance(reading, LinkEngineError)
    }


def _moving(readings: Sequence[Reading]) -> Reading:
    """The first step of the end is told: what came last may not be replicated yet, and cannot be read then."""
    seen = [reading for reading in readings if isinstance(reading, Ending)]
    if not seen:
        return readings[-1]
    start = seen[0].end
    return replace(seen[-1], came=(start, next((reading.end for reading in seen if reading.end > start), start)))


def _reading(
    cluster: Cluster, broker: int, epochs: Mapping[TopicPartition, int], producer_ids: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Reading]:
    # sequences first: data that comes in between then makes ours a repetition, which is noticed; never one at a wrong place
    producers = describe_producers(cluster, broker, producer_ids, timeout_s=REQUEST_TIMEOUT_S)
    ends = log_ends(cluster, broker, epochs, timeout_s=REQUEST_TIMEOUT_S)
    readings: dict[TopicPartition, Reading] = {}
    for place in epochs:
        (end_error, end), (producer_error, producer) = ends.get(place, (3, -1)), producers.get(place, (3, ProducerState()))
        error = end_error or producer_error
        refused = BrokerError(error, f"The end of {place[0]}-{place[1]} cannot be read") if error else None
        readings[place] = refused or Ending(end=end, producer=producer)
    return readings
