"""Compare single records of a mirror with the source's: at an offset, and the newest record as a canary."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.domain.record_views import Presence, RecordComparison, SideView
from linkengine.domain.times import utc_words
from linkengine.jobs.verifying import StoredBatches, check_responses
from linkengine.kafka import single_reads
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.committed import CheckedTopic, ReadRefusedError, read_canaries, write_canaries
from linkengine.kafka.single_record import Digests, SideRead, read_record
from linkengine.sync.topics import missing_mirror

# --- record at an offset -------------------------------------------------------------------------------------------------
# For users with the permission to read records.


LOOKUP_S = 8.0  # budget of a lookup by time; the caller's request times out after 30 s


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSide:
    """A topic on one side; ``topic_id`` is that of the topic that is mirrored, "" if it is not known."""

    address: Callable[[], ClusterAddress]  # raises LinkEngineError if the link cannot reach its source now
    topic: str
    topic_id: str


def compare_record(
    source: RecordSide, mirror: RecordSide, *, partition: int, offset: int | None = None, timestamp_ms: int | None = None
) -> RecordComparison:
    """Return the records of both sides at an offset, or at the mirror's first record that is not older than a timestamp.

    A side that cannot be read has the reason. The mirror is read first: the source had each of its records before. Raises
    LinkEngineError if there is no such record, or if the lookup takes too long.
    """
    at = offset if offset is not None else _offset_for_time(mirror, partition=partition, timestamp_ms=timestamp_ms or 0)
    mirrored = _read(mirror, partition=partition, offset=at)
    original = _read(source, partition=partition, offset=at)
    return RecordComparison(
        partition=partition,
        offset=at,
        source=original.view,
        mirror=mirrored.view,
        differing=_differing(original.digests, mirrored.digests),
    )


def _offset_for_time(side: RecordSide, *, partition: int, timestamp_ms: int) -> int:
    place = f"partition {partition} of topic {side.topic!r}"
    found = single_reads.offsets_for_time(
        side.address(), side.topic, timestamp_ms, positions={}, budget_s=LOOKUP_S, partition=partition
    )
    if not found:
        raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, f"There is no {place}.")
    (row,) = found
    if row.offset is not None and row.record_timestamp_ms is not None:
        return row.offset
    if row.offset is not None:  # of the first record that was not searched
        raise LinkEngineError(
            ErrorCode.RECORDS_TOO_LARGE,
            f"The lookup in {place} ended at offset {row.offset}, because the batch there is too large to search. Choose an "
            "offset from there on.",
        )
    if row.is_complete:
        raise LinkEngineError(
            ErrorCode.INVALID_REQUEST_ERROR,
            f"There is no record in {place} since {utc_words(timestamp_ms)}. Its records end at offset {row.log_end_offset}. "
            "Choose an earlier time, or an offset.",
        )
    raise LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"The lookup in {place} found no record up to offset {row.searched_to} within {LOOKUP_S:.0f} s. Choose an offset from "
        "there on.",
    )


def _read(side: RecordSide, *, partition: int, offset: int) -> SideRead:
    try:
        return read_record(side.address(), side.topic, topic_id=side.topic_id, partition=partition, offset=offset)
    except LinkEngineError as error:
        return SideRead(view=SideView(presence=Presence.UNREADABLE, code=error.code, message=error.message))


def _differing(source: Digests | None, mirror: Digests | None) -> tuple[str, ...]:
    """Return the parts that differ. The timestamp type is not compared: a mirror cannot have LogAppendTime."""
    if source is None or mirror is None:
        return ()
    pairs = {
        "key": (source.key, mirror.key),
        "value": (source.value, mirror.value),
        "headers": (source.headers, mirror.headers),
        "timestamp": (source.timestamp_ms, mirror.timestamp_ms),
    }
    return tuple(name for name, (there, here) in pairs.items() if there != here)


# --- canary --------------------------------------------------------------------------------------------------------------
# For the migration gate: what an ordinary consumer reads from a mirror.


LARGEST = 128 << 20  # decompressed bytes of a response; messages of 100 MB are read


def read_canary(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, compacted: bool
) -> list[CanaryRead]:
    """Compare the newest record of every partition; raise LinkEngineError if a cluster or a topic cannot be read at all."""
    mirror = ClusterAdmin(destination).find(mirror_topic)
    if mirror is None:
        raise missing_mirror(mirror_topic)
    with (
        closing(StoredBatches(source, source_topic)) as source_batches,
        closing(StoredBatches(destination, mirror_topic)) as mirror_batches,
    ):
        return read_canaries(
            source=CheckedTopic(source, source_topic, partial(_check, source_batches)),
            mirror=CheckedTopic(destination, mirror_topic, partial(_check, mirror_batches)),
            partitions=range(mirror.partitions),
            compacted=compacted,
        )


def _check(stored: StoredBatches, partition: int, start: int, end: int) -> None:
    """Raise ReadRefusedError if the consumer would hold too much memory: it decompresses all batches of a response at once."""
    try:
        offset = check_responses(stored, partition, start=start, end=end, most=LARGEST)
    except LinkEngineError as error:
        raise ReadRefusedError(f"the size of its newest records cannot be measured: {error.message}") from error
    if offset is not None:
        raise ReadRefusedError(
            f"the batch at offset {offset}, with those fetched together with it, has more than {LARGEST:,} bytes decompressed, "
            "which is too large to be read"
        )


def try_writing(destination: ClusterAddress, topic: str) -> list[CanaryRead]:
    """Write a record to every partition of a scratch topic and read it back; partitions that deny writes have a problem."""
    admin = ClusterAdmin(destination)
    found = admin.find(topic)
    if found is None:
        raise missing_mirror(topic)
    if admin.has_authorizer() and admin.denies_writes(topic):  # DENY would not stop a super user's test write
        return [CanaryRead(partition=0, offset=None, problem="producers are still denied by an ACL")]
    return write_canaries(destination, topic, partitions=found.partitions)
