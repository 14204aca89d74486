"""Seeds the head of a new mirror partition, so that its first record gets the source's offset. Blocking.

A Kafka log can only start above offset 0 if earlier records were appended and deleted. So dense batches of empty records
("fillers") are appended up to the source's log start offset and then deleted with DeleteRecords.

The caller has to keep consumers from reading the topic until that is done. Resumable: the log end shows how far an earlier
attempt came. Appends are conditional like those of the copy (producer id, epoch, sequences).
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from functools import cache, lru_cache

import cramjam

from linkengine.batches.compression import ZSTD
from linkengine.batches.patch import patch_for_append, write_checksum
from linkengine.batches.records import varint
from linkengine.batches.view import CURRENT_MAGIC, HEADER, LOG_OVERHEAD, RECORDS_AT
from linkengine.copyjob.errors import foreign_write
from linkengine.copyjob.producer_state import FencedError, OwnProducerState, is_fence
from linkengine.copyjob.resume.log_end import read_log_ends
from linkengine.copyjob.values import LogEnd, LogEndQuery
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka import requests
from linkengine.kafka.channel import Channel, SmallFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import delete_records
from linkengine.kafka.protocol import BrokerError

IN_FLIGHT = 3  # a filler takes a broker about 0.2 s
TRIM_EVERY = 64  # fillers (50 MB), then they are deleted, so that a head of a billion offsets does not need 0.7 GB
RESPONSE_TIMEOUT_S = 60.0  # for a filler on a loaded broker
ATTEMPTS = 20  # for lost connections and moved leaders, half a second apart
PAUSE_S = 0.5
_FINAL = frozenset({ErrorCode.FOREIGN_WRITE, ErrorCode.AUTHENTICATION_ERROR, ErrorCode.AUTHORIZATION_ERROR})


def seed_head(
    address: ClusterAddress, assignment: PartitionAssignment, *, start: int, check_owner: Callable[[], None] = lambda: None
) -> None:
    """Make the partition start at offset ``start``. Safe to repeat: it continues where an earlier run ended.

    ``check_owner`` is called before writes and deletions; it raises if the mirror has been stopped, and then nothing more is
    written or deleted. The fence of a stop in the partition's log has the same effect (FencedError). Raises LinkEngineError.
    """
    cluster = Cluster(address)
    try:
        _retry(lambda: _append_fillers(cluster, assignment, start=start, check_owner=check_owner))
        _retry(lambda: _trim(cluster, assignment, start=start, check_owner=check_owner))
    finally:
        cluster.close()


def _retry(work: Callable[[], None]) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            work()
        except LinkEngineError as error:
            if attempt == ATTEMPTS or error.code in _FINAL or isinstance(error, FencedError):
                raise
            time.sleep(PAUSE_S)
        else:
            return


def _read_log_end(cluster: Cluster, assignment: PartitionAssignment) -> LogEnd:
    log_end = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=False)])[assignment.key]
    if isinstance(log_end, LinkEngineError):
        raise log_end
    return log_end


def _append_fillers(cluster: Cluster, assignment: PartitionAssignment, *, start: int, check_owner: Callable[[], None]) -> None:
    check_owner()
    log_end = _read_log_end(cluster, assignment)
    if log_end.end >= start:
        return
    channel = Channel(cluster.open(log_end.leader.broker))
    try:
        appender = _FillerAppender(channel, assignment, log_end)
        while not appender.run(start, most=TRIM_EVERY, check_owner=check_owner):
            _move_start(cluster, assignment, log_end, start=appender.end)
    finally:
        channel.close()


def _trim(cluster: Cluster, assignment: PartitionAssignment, *, start: int, check_owner: Callable[[], None]) -> None:
    log_end = _read_log_end(cluster, assignment)
    if is_fence(log_end.producer.coordinator_epoch):  # records below ``start`` may be applications' by now
        raise FencedError
    if log_end.start >= start or log_end.end == 0:
        return
    check_owner()
    _move_start(cluster, assignment, log_end, start=start)


def _move_start(cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd, *, start: int) -> None:
    place = (assignment.mirror_topic, assignment.partition)
    error, _ = delete_records(cluster, log_end.leader.broker, {place: start})[place]
    if error:
        raise BrokerError(error, f"The start of mirror {place[0]}-{place[1]} cannot be moved to {start}")


class _FillerAppender:
    """Appends fillers over a single connection, a few in flight."""

    def __init__(self, channel: Channel, assignment: PartitionAssignment, log_end: LogEnd) -> None:
        self._channel = channel
        self._assignment = assignment
        self._frames = SmallFrames(channel)
        self._producer_state = OwnProducerState(log_end.producer_id)
        self._producer_state.adopt(log_end.producer, generation=0, clean=True)
        self._sent = log_end.end
        self._in_flight: deque[int] = deque()  # base offsets
        # 1 until the first filler is acknowledged: a log without producer state accepts any sequence, so a second filler could
        # take the offset of a refused first
        self._most = 1
        by_id = any(log_end.topic_id) and channel.connection.supports(requests.PRODUCE_API_KEY, requests.PRODUCE_BY_ID)
        self._version = requests.PRODUCE_BY_ID if by_id else requests.PRODUCE_BY_NAME
        self._topic = log_end.topic_id if by_id else assignment.mirror_topic.encode()

    @property
    def end(self) -> int:
        """The log end once everything sent is acknowledged."""
        return self._sent

    def run(self, start: int, *, most: int, check_owner: Callable[[], None]) -> bool:
        """Append at most ``most`` fillers and wait for their responses; return whether the log ends at ``start``."""
        until = min(start, self._sent + most * FILLER_MAX)
        while self._sent < until or self._in_flight:
            check_owner()
            while self._sent < until and len(self._in_flight) < self._most:
                self._send(min(FILLER_MAX, until - self._sent))
            self._await()
        return self._sent >= start

    def _send(self, count: int) -> None:
        batch = dense_filler(count, time.time_ns() // 1_000_000)
        epoch, sequence = self._producer_state.append(count)
        patch_for_append(batch, producer_id=self._producer_state.producer_id, producer_epoch=epoch, base_sequence=sequence)
        frame = requests.encode_produce(
            {self._topic: [(self._assignment.partition, batch)]},
            version=self._version,
            correlation_id=self._channel.next_correlation(),
            timeout_ms=int(RESPONSE_TIMEOUT_S * 500),
        )
        self._channel.send(frame)
        self._in_flight.append(self._sent)
        self._sent += count

    def _await(self) -> None:
        poll = select.poll()
        poll.register(self._channel, select.POLLIN | (select.POLLOUT if self._channel.wants_write else 0))
        if not poll.poll(RESPONSE_TIMEOUT_S * 1000):
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"The destination has not acknowledged a filler within {RESPONSE_TIMEOUT_S:.0f} s. It may be frozen. Retrying.",
            )
        self._channel.flush()
        for _, body in self._frames.read():
            self._check(requests.decode_produce(body, version=self._version)[1][0], self._in_flight.popleft())

    def _check(self, response: requests.ProducedPartition, base: int) -> None:
        if response.error:
            raise BrokerError(
                response.error, f"A filler was refused ({response.message})" if response.message else "A filler was refused"
            )
        if response.base_offset != base:
            raise foreign_write(self._assignment, base)
        self._most = IN_FLIGHT


# --- filler batches ------------------------------------------------------------------------------------------------------
# Batches of empty records. An empty record has null key, null value and no header. Its bytes depend only on its offset delta,
# so every filler is a prefix of a single template. A million records have 9 MB plain and 0.7 MB as zstd, below Kafka's
# default message.max.bytes.


FILLER_MAX = 1_000_000
_ZONES = ((1, 0, 1 << 6), (2, 1 << 6, 1 << 13), (3, 1 << 13, FILLER_MAX))  # varint bytes of the offset delta, delta range
_LEVEL = 5  # 0.71 MB for a million; lower levels compress worse, higher levels no better


def dense_filler(count: int, timestamp_ms: int) -> bytearray:
    """Return a sealed zstd batch of ``count`` empty records (1 to 1,000,000), to be patched with ``patch_for_append``."""
    if not 1 <= count <= FILLER_MAX:
        raise ValueError(f"a filler has 1 to {FILLER_MAX} records, not {count}")
    body = _compressed(count)
    header = HEADER.pack(
        0,
        RECORDS_AT - LOG_OVERHEAD + len(body),
        -1,
        CURRENT_MAGIC,
        0,
        ZSTD,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        -1,
        -1,
        -1,
        count,
    )
    batch = bytearray(header)
    batch += body
    write_checksum(batch)
    return batch


@lru_cache(maxsize=4)  # seeding repeats the largest count and ends with the remainder
def _compressed(count: int) -> bytes:
    return bytes(cramjam.zstd.compress(memoryview(_template())[: _template_size(count)], level=_LEVEL))


def _template_size(count: int) -> int:
    """Return the bytes of the first ``count`` records: 7 each, plus 1 per additional varint byte of the delta."""
    return 7 * count + sum(max(0, count - first) for _, first, _ in _ZONES[1:])


@cache
def _template() -> bytes:
    return b"".join(_zone(width, first, end) for width, first, end in _ZONES)


def _zone(width: int, first: int, end: int) -> bytes:
    """Return the records whose offset delta takes ``width`` bytes. They differ only in these, written column by column."""
    record = varint(width + 5) + b"\0\0" + bytes(width) + b"\1\1\0"
    zone = bytearray(record * (end - first))
    for column in range(width):
        zone[3 + column :: len(record)] = _digits(column, first, end, more=column < width - 1)
    return bytes(zone)


def _digits(column: int, first: int, end: int, *, more: bool) -> bytes:
    """Return byte ``column`` of the varints of the deltas in ``[first, end)``. Zigzag doubles a delta: 64 digits, then 128."""
    if column == 0:
        period = bytes(2 * low | more << 7 for low in range(64))
    else:
        period = b"".join(bytes([digit | more << 7]) * (1 << 7 * column - 1) for digit in range(128))
    skip = first % len(period)
    return (period * ((skip + end - first) // len(period) + 1))[skip : skip + end - first]
