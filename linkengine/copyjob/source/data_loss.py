"""Lost records: persists losses before markers fill them, and observes the log bounds of partitions that are not fetched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import TopicPartition
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import GapReason
from linkengine.domain.workers import CoordinationUnavailableError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import EARLIEST, LATEST, list_offsets
from linkengine.kafka.protocol import BrokerError, KafkaCode

# --- losses --------------------------------------------------------------------------------------------------------------
# A loss is persisted before markers fill its offsets. Afterwards the log alone does not distinguish it from other gaps, and a
# copy worker that crashes could no longer report it.


RETRY_S = 1.0  # while Redis is not available


class LossRecorder:
    """Persists losses in the background.

    If the attempt or the source's leader has changed by then, the result is dropped and the source is examined again.
    """

    def __init__(
        self,
        services: Services,
        *,
        keep: Callable[[tuple[str, OffsetRange]], None],
        persisted: Callable[[PartitionState, int, GapReason], None],
        counts: Callable[[PartitionState, int, SourceOrigin | None], bool],
    ) -> None:
        """``keep`` persists a loss and may raise CoordinationUnavailableError.

        ``persisted`` is called with the partition, the end of the persisted loss and LOST. ``counts`` ends the wait; it returns
        whether attempt and leader are still the same, since another leader may have more records.
        """
        self._services, self._keep, self._on_kept, self._counts = services, keep, persisted, counts

    def record(self, partition: PartitionState, lost: OffsetRange) -> None:
        """Persist the loss of offsets that are gone from the source; nothing is fetched until that is done."""
        attempt, origin, partition.examining = partition.attempt, partition.origin, True
        self._services.background.submit(
            lambda: self._persist(partition.key, lost),
            done=lambda kept: (
                self._on_persisted(partition, lost, kept=kept) if self._counts(partition, attempt, origin) else None
            ),
            failed=_raise,
        )

    def _persist(self, key: str, lost: OffsetRange) -> bool:
        try:
            self._keep((key, lost))
        except CoordinationUnavailableError:
            return False
        return True

    def _on_persisted(self, partition: PartitionState, lost: OffsetRange, *, kept: bool) -> None:
        if kept:
            self._on_kept(partition, lost.end, GapReason.LOST)
        else:
            partition.source_retry_at = self._services.clock.monotonic() + RETRY_S


def _raise(error: Exception) -> None:
    raise error


# --- bounds of partitions that are not fetched ---------------------------------------------------------------------------
# While the destination is down or slow, a partition is not fetched, but its source keeps growing. The same holds for partitions
# that wait for a slow Fetch response. Without a reading their lag would be shown too small. ListOffsets requests to each source
# broker every few seconds, in the background, show where they end.


EVERY_S = 2.0  # interval of requests; also the age at which the last observation of an unfetched partition is renewed
LEFT_OUT_S = 6.0  # the same age for a fetched partition: reports update its observation at least every two seconds
_HELD_UP = frozenset({Stage.RESUMING, Stage.COPYING})
Bounds = dict[TopicPartition, tuple[int, int, int, int]]  # error, log start, last stable offset, high watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvents:
    """Outcomes of the observations, as callbacks of the source side."""

    seen: Callable[[PartitionState, int, int, int], None]  # log start, last stable offset, high watermark
    refused: Callable[[PartitionState, LinkEngineError], None]


class SourceWatch:
    """Observes the partitions of each source broker."""

    def __init__(self, services: Services, cluster: Cluster, events: WatchEvents) -> None:
        self._services, self._cluster, self._events = services, cluster, events
        self._due: dict[tuple[int, int], float] = {}

    def tick(self, now: float, groups: Mapping[tuple[int, int], Collection[PartitionState]]) -> None:
        """Send requests for partitions that have not been observed for long enough.

        A group is (broker id, connection number); no source partition occurs twice in it.
        """
        for group, partitions in groups.items():
            if self._due.setdefault(group, self._services.first_due(now, every_s=EVERY_S)) <= now:
                self._due[group] = now + EVERY_S
                held_up = {
                    _place(partition): (partition, partition.attempt)
                    for partition in partitions
                    if self._is_held_up(partition, now)
                }
                if held_up:
                    self._request(group[0], held_up)

    def _is_held_up(self, partition: PartitionState, now: float) -> bool:
        if partition.stage not in _HELD_UP or partition.examining or partition.source_retry_at > now:
            return False
        if partition.source_trouble is not None and partition.may_fetch(now):
            return False  # a Fetch is under way, whose result counts: ListOffsets can succeed where Fetch is not authorized
        oldest_ms = self._services.clock.now_ms() - int((LEFT_OUT_S if partition.may_fetch(now) else EVERY_S) * 1000)
        return (partition.counters.source_seen_ms or 0) < oldest_ms

    def _request(self, broker: int, held_up: Mapping[TopicPartition, tuple[PartitionState, int]]) -> None:
        places = {place: partition.assignment.source_topic_id for place, (partition, _) in held_up.items()}
        self._services.background.submit(
            lambda: _bounds(self._cluster, broker, places),
            done=lambda bounds: self._observed(held_up, bounds),
            failed=lambda error: self._observed(held_up, error),
        )

    def _observed(
        self, observed: Mapping[TopicPartition, tuple[PartitionState, int]], bounds: Bounds | LinkEngineError
    ) -> None:
        for place, (partition, attempt) in observed.items():
            if partition.attempt != attempt or partition.stage not in _HELD_UP:
                continue
            error, *seen = (0, 0, 0, 0) if isinstance(bounds, LinkEngineError) else bounds[place]
            if isinstance(bounds, LinkEngineError):
                self._events.refused(partition, bounds)
            elif error:
                self._events.refused(
                    partition, BrokerError(error, f"The log end of source {place[0]}-{place[1]} cannot be read")
                )
            else:
                self._events.seen(partition, *seen)


def _bounds(cluster: Cluster, broker: int, places: Mapping[TopicPartition, str]) -> Bounds:
    """Return the bounds of source partitions; ``places`` has the topic ids, since ListOffsets takes names only.

    A recreated topic yields INCONSISTENT_TOPIC_ID: with its bounds the mirror would look in sync, or be trimmed at its start.
    """
    views = cluster.topics({topic for topic, _ in places})
    starts = list_offsets(cluster, broker, places, timestamp=EARLIEST)
    ends = list_offsets(cluster, broker, places, timestamp=LATEST, read_committed=True)
    highs = list_offsets(
        cluster, broker, places, timestamp=LATEST
    )  # read last, so that no stable offset is above its high watermark
    found: Bounds = {}
    for place, topic_id in places.items():
        view = views.get(place[0])
        if topic_id and view is not None and view.topic_id_text not in ("", topic_id):
            found[place] = (KafkaCode.INCONSISTENT_TOPIC_ID, 0, 0, 0)
            continue
        responses = [offsets.get(place, (KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, -1)) for offsets in (starts, ends, highs)]
        error = next((error for error, _ in responses if error), 0)
        (_, start), (_, end), (_, high_watermark) = responses
        found[place] = (error, start, end, high_watermark)
    return found


def _place(partition: PartitionState) -> TopicPartition:
    return partition.assignment.source_topic, partition.assignment.partition
