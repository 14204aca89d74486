"""Read offsets of many partitions in a single call, and advance log starts; functions over an AdminSession."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from enum import StrEnum

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined]  # its own type hints leave it out

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from linkengine.kafka.admin_topics import LAG_POLL_S, LAG_S, names

NO_SUCH_RECORD = -1  # by timestamp; librdkafka's OFFSET_INVALID, for a partition without a response, is far below


class OffsetKind(StrEnum):
    """The kind of offset to read."""

    START = "start"  # log start
    END = "end"  # high watermark: after the last replicated record
    STABLE_END = "stable-end"  # before the first open transaction


def offsets(session: AdminSession, partitions: Iterable[tuple[str, int]], kind: OffsetKind) -> dict[tuple[str, int], int]:
    """Return an offset for each of many partitions, in a single call; partitions without a result now are left out."""
    wanted = list(partitions)
    found = _offsets(session, wanted, kind)
    missing = [place for place in wanted if place not in found]
    if missing:  # librdkafka uses metadata that it caches for minutes and does not know topics or partitions created since
        names(session)
        found |= _offsets(session, missing, kind)
    return found


def patient_offsets(
    session: AdminSession, partitions: Iterable[tuple[str, int]], kind: OffsetKind
) -> dict[tuple[str, int], int]:
    """Return the same as ``offsets``, but retry for LAG_S: the leader of a new partition may not have applied it yet."""
    wanted, deadline = list(partitions), time.monotonic() + LAG_S
    found = offsets(session, wanted, kind)
    while len(found) < len(wanted) and time.monotonic() < deadline:
        time.sleep(LAG_POLL_S)
        found = offsets(session, wanted, kind)
    return found


def _offsets(session: AdminSession, partitions: Iterable[tuple[str, int]], kind: OffsetKind) -> dict[tuple[str, int], int]:
    spec = OffsetSpec.earliest() if kind is OffsetKind.START else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not wanted:
        return {}
    stable = IsolationLevel.READ_COMMITTED if kind is OffsetKind.STABLE_END else IsolationLevel.READ_UNCOMMITTED
    found, _ = session.settle(
        lambda client: client.list_offsets(wanted, isolation_level=stable, request_timeout=REQUEST_TIMEOUT_S),
        what="read offsets",
    )
    # a success without an offset was observed: -1001
    return {place: offset for place, offset in _by_place(found).items() if offset >= 0}


def offsets_at(session: AdminSession, partitions: Iterable[tuple[str, int]], timestamp_ms: int) -> dict[tuple[str, int], int]:
    """Return the offset of the first stable record of each partition at or after a timestamp; -1 if there is none."""
    names(session)  # as in ``offsets``
    spec = OffsetSpec.for_timestamp(timestamp_ms)
    wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    found = session.all(
        lambda client: client.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_TIMEOUT_S
        ),
        what="read offsets by time",
    )
    found_offsets = _by_place(found)
    for (topic, partition), offset in found_offsets.items():
        if offset < NO_SUCH_RECORD:
            message = f"Partition {partition} of topic {topic!r} returns no offsets by time at present. Try again."
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, message)
    return found_offsets


def trim(session: AdminSession, starts: Mapping[tuple[str, int], int]) -> None:
    """Advance the log start of partitions to the given offsets (DeleteRecords)."""
    wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in starts.items()]
    if wanted:
        names(session)  # as in ``offsets``
        session.all(
            lambda client: client.delete_records(wanted, request_timeout=REQUEST_TIMEOUT_S), what="delete records of a topic"
        )


def _by_place(found: Mapping[TopicPartition, ListOffsetsResultInfo]) -> dict[tuple[str, int], int]:
    return {(place.topic, place.partition): result.offset for place, result in found.items()}
