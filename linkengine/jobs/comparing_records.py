"""Compare single records of a mirror with the source's: at an offset, and the newest record as a canary."""

from __future__ import annotations

import hashlib
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from linkengine.batches.compression import NAMES
from linkengine.batches.large import DIGEST_BYTES, LargeRecord, read_large
from linkengine.batches.planning import AbortedTransaction, AbortedTransactions, gap_reason
from linkengine.batches.records import RecordLike, control_type, decode_legacy
from linkengine.batches.view import CURRENT_MAGIC, NO_TIMESTAMP, BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.domain.record_views import (
    BatchInfo,
    FieldView,
    HeaderView,
    Presence,
    RecordComparison,
    RecordContents,
    SideView,
)
from linkengine.domain.states import GapReason
from linkengine.domain.times import utc_words
from linkengine.jobs.verifying import StoredBatches, check_responses
from linkengine.kafka import single_reads
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.committed import CheckedTopic, ReadRefusedError, read_canaries, write_canaries
from linkengine.kafka.offsets import EARLIEST, LATEST, list_offsets
from linkengine.kafka.protocol import BrokerError
from linkengine.kafka.single_reads import FEW_BYTES, read_committed
from linkengine.kafka.topicviews import Leader, locate
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


# --- reading a record ----------------------------------------------------------------------------------------------------
# At an offset of a partition, or why consumers see none. The record is read as a stream: a batch of a few kilobytes may
# decompress to gigabytes, and a record may have 100 MB. So only the first bytes of each field are kept, all bytes are hashed
# for the comparison, and decompression stops after MOST_READ bytes or when the time is up
# (``docs/adr/0031-bounded-decoding.md``).


MOST_READ = 256 << 20  # decompressed bytes of a batch, up to and including the record
BUDGET_S = 8.0  # for decompressing them
FIELD_BYTES = 16 << 10  # kept of a key or value
HEADER_BYTES = 512  # kept of the value of a header
NAME_BYTES = 256  # kept of the name of a header
MOST_HEADERS = 32  # kept of a record
_PRESENCES = {
    GapReason.TRANSACTION_MARKER: Presence.TRANSACTION_MARKER,
    GapReason.ABORTED: Presence.ABORTED,
    GapReason.COMPACTED: Presence.NO_RECORD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Hashes of the whole fields of a record; None for a field that is null."""

    key: bytes | None
    value: bytes | None
    headers: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRead:
    """The record of a side at an offset, and its digests; None without a record."""

    view: SideView
    digests: Digests | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The offsets of a log: its start, its last stable offset and its high watermark."""

    start: int
    stable: int
    end: int


def read_record(address: ClusterAddress, topic: str, *, topic_id: str, partition: int, offset: int) -> SideRead:
    """Return the record at an offset of a partition, or why there is none, from the newest leader that any broker reports.

    Raises LinkEngineError if that cannot be read, or if the topic has another id than ``topic_id`` ("": not checked).
    """
    place = (topic, partition)
    with closing(Cluster(address)) as cluster:
        views = cluster.newest_topics([topic])
        leader, id_bytes = locate(views, topic, partition)
        found_id = views[topic].topic_id_text
        if topic_id and found_id and found_id != topic_id:
            raise LinkEngineError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
                f"Topic {topic!r} was deleted and created again, so its records are not those of the mirroring.",
            )
        ends = _ends(cluster, leader, place)
        absent = _outside(offset, ends)
        if absent is not None:
            return SideRead(view=absent)
        with closing(cluster.open(leader.broker)) as connection:
            error, aborted, data = read_committed(
                connection, topic=(topic, id_bytes, partition), leader_epoch=leader.epoch, offset=offset, max_bytes=FEW_BYTES
            )
    if error:
        raise BrokerError(error, f"Offset {offset} of {topic}-{partition} cannot be read")
    return search_batches(data, [AbortedTransaction(*fields) for fields in aborted], place, offset=offset, ends=ends)


def _ends(cluster: Cluster, leader: Leader, place: tuple[str, int]) -> LogEnds:
    found = []
    for timestamp, committed in ((EARLIEST, False), (LATEST, True), (LATEST, False)):
        error, offset = list_offsets(cluster, leader.broker, [place], timestamp=timestamp, read_committed=committed)[place]
        if error:
            raise BrokerError(error, f"The offsets of {place[0]}-{place[1]} cannot be read")
        found.append(offset)
    return LogEnds(start=found[0], stable=found[1], end=found[2])


def _outside(offset: int, ends: LogEnds) -> SideView | None:
    """Return the view of an offset that consumers cannot read now, None for others."""
    if offset < ends.start:
        return _view(Presence.BEFORE_START, ends, next_offset=ends.start if ends.start < ends.end else None)
    if offset >= ends.end:
        return _view(Presence.BEYOND_END, ends, next_offset=None)
    if offset >= ends.stable:
        return _view(Presence.UNCOMMITTED, ends, next_offset=offset + 1)
    return None


def _view(
    presence: Presence,
    ends: LogEnds,
    *,
    next_offset: int | None,
    batch: BatchInfo | None = None,
    marker: str = "",
    record: RecordContents | None = None,
) -> SideView:
    if next_offset is not None and next_offset >= ends.end:
        next_offset = None
    return SideView(
        presence=presence,
        marker=marker,
        record=record,
        batch=batch,
        log_start_offset=ends.start,
        last_stable_offset=ends.stable,
        log_end_offset=ends.end,
        next_offset=next_offset,
    )


def search_batches(
    data: memoryview, aborted: list[AbortedTransaction], place: tuple[str, int], *, offset: int, ends: LogEnds
) -> SideRead:
    """Return what the batches of a response, which begin at or around the offset, have there.

    Raises LinkEngineError if none covers it, or if its batch is damaged or too large.
    """
    transactions = AbortedTransactions(aborted)
    for at, view in iter_batches(data):
        batch = data[at : at + view.size]
        hidden = gap_reason(view, aborted=transactions.contain(view, batch))
        if view.next_offset <= offset:
            continue
        if view.magic == CURRENT_MAGIC and view.base_offset > offset:  # an older wrapper does not show where it begins
            return SideRead(view=_view(Presence.NO_RECORD, ends, next_offset=view.base_offset))
        if hidden is not None:
            marker = control_type(view, batch).name if view.is_control else ""
            presence = _PRESENCES[hidden]
            return SideRead(view=_view(presence, ends, next_offset=view.next_offset, batch=_batch(view), marker=marker))
        return _find(view, batch, offset=offset, ends=ends)
    raise LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"The broker returned no data for offset {offset} of {place[0]}-{place[1]}. Either compaction has removed all records "
        "from there on, or its remote storage is slow. Try again.",
    )


def _batch(view: BatchView) -> BatchInfo:
    return BatchInfo(
        base_offset=view.base_offset,
        next_offset=view.next_offset,
        record_count=view.record_count,
        size=view.size,
        compression=NAMES[view.codec],
        leader_epoch=view.leader_epoch if view.leader_epoch >= 0 else None,
        is_transactional=view.is_transactional,
    )


def _find(view: BatchView, batch: memoryview, *, offset: int, ends: LogEnds) -> SideRead:
    """Return the record at an offset of a batch, or that it has none there."""
    records: Iterable[LargeRecord | RecordLike]
    records = _bounded(view, batch) if view.magic == CURRENT_MAGIC else decode_legacy(view, batch)
    for record in records:
        if record.offset > offset:
            return SideRead(view=_view(Presence.NO_RECORD, ends, next_offset=record.offset, batch=_batch(view)))
        if record.offset == offset:
            contents, digests = _read_large(view, record) if isinstance(record, LargeRecord) else _read_legacy(view, record)
            found = _view(Presence.RECORD, ends, next_offset=offset + 1, batch=_batch(view), record=contents)
            return SideRead(view=found, digests=digests)
    return SideRead(view=_view(Presence.NO_RECORD, ends, next_offset=view.next_offset, batch=_batch(view)))


def _bounded(view: BatchView, batch: memoryview) -> Iterator[LargeRecord]:
    """Yield the records of a batch; raise RECORDS_TOO_LARGE before more than MOST_READ bytes are decompressed."""
    deadline, read = time.monotonic() + BUDGET_S, 0
    for record in read_large(view, batch):
        read += record.rest_bytes
        if read > MOST_READ:
            raise LinkEngineError(
                ErrorCode.RECORDS_TOO_LARGE,
                f"The record at offset {record.offset} is not shown: its batch decompresses to more than {MOST_READ >> 20} MiB "
                "up to there. Read it with a consumer.",
            )
        if time.monotonic() > deadline:
            raise LinkEngineError(
                ErrorCode.RECORDS_TOO_LARGE,
                f"The batch at offset {view.base_offset} was not read to the record within {BUDGET_S:.0f} s. Read it with a "
                "consumer.",
            )
        yield record


def _read_large(view: BatchView, record: LargeRecord) -> tuple[RecordContents, Digests]:
    """Read the fields of a record of magic 2 from its batch."""
    size = record.rest_bytes

    def field(most: int) -> tuple[FieldView | None, bytes | None]:
        length = record.field()
        return (None, None) if length is None else _cut(record.take(length), most)

    return _contents(view, field, record.count, timestamp_ms=record.timestamp, size=size)


def _read_legacy(view: BatchView, record: RecordLike) -> tuple[RecordContents, Digests]:
    """Read the fields of a message of magic 0 or 1, which is in memory as a whole and has no headers."""
    fields = iter((record.key, record.value))

    def field(most: int) -> tuple[FieldView | None, bytes | None]:
        data = next(fields)
        return (None, None) if data is None else _cut([data], most)

    size = len(record.key or b"") + len(record.value or b"")
    return _contents(view, field, lambda: 0, timestamp_ms=record.timestamp, size=size)


def _contents(
    view: BatchView,
    field: Callable[[int], tuple[FieldView | None, bytes | None]],
    count_headers: Callable[[], int],
    *,
    timestamp_ms: int,
    size: int,
) -> tuple[RecordContents, Digests]:
    """Read key, value and headers in their order in the batch; ``field`` returns the next of them."""
    (key, key_digest), (value, value_digest) = field(FIELD_BYTES), field(FIELD_BYTES)
    headers: list[HeaderView] = []
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    count = count_headers()
    for number in range(count):
        (name, name_digest), (content, digest) = field(NAME_BYTES), field(HEADER_BYTES)
        hasher.update((name_digest or b"") + (b"\0" if digest is None else b"\1" + digest))
        if number < MOST_HEADERS:
            headers.append(HeaderView(name=_name(name), value=content))
    contents = RecordContents(
        key=key,
        value=value,
        headers=tuple(headers),
        header_count=count,
        timestamp_ms=timestamp_ms,
        timestamp_type=_timestamp_type(view, timestamp_ms),
        size=size,
    )
    return contents, Digests(key=key_digest, value=value_digest, headers=hasher.digest(), timestamp_ms=timestamp_ms)


def _timestamp_type(view: BatchView, timestamp_ms: int) -> str:
    if timestamp_ms == NO_TIMESTAMP:
        return "none"
    return "LogAppendTime" if view.log_append_time else "CreateTime"


def _cut(pieces: Iterable[bytes], most: int) -> tuple[FieldView, bytes]:
    """Return the first bytes of a field and the digest of all its bytes."""
    hasher, head, size = hashlib.blake2b(digest_size=DIGEST_BYTES), bytearray(), 0
    for piece in pieces:
        hasher.update(piece)
        size += len(piece)
        if len(head) < most:
            head += piece[: most - len(head)]
    return FieldView(size=size, base64=b64encode(head).decode(), is_cut=size > len(head)), hasher.digest()


def _name(name: FieldView | None) -> str:
    if name is None:
        return ""
    text = b64decode(name.base64).decode(errors="backslashreplace")
    return f"{text}…" if name.is_cut else text


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
