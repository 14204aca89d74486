"""The header of a record batch, read in place, and the order of batches in a response.

Record batch v2 (KIP-98), big endian; the checksum is CRC-32C over everything that follows it:

| at | field                | type   | meaning                                                              |
|----|----------------------|--------|----------------------------------------------------------------------|
|  0 | base offset          | int64  | offset of the first record, kept when compaction removes that record |
|  8 | length               | int32  | bytes after this field                                               |
| 12 | partition leader epoch | int32 | set by the broker, outside the checksum                              |
| 16 | magic                | int8   | 2                                                                    |
| 17 | checksum             | uint32 |                                                                      |
| 21 | attributes           | int16  | 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon (KIP-534) |
| 23 | last offset delta    | int32  | last offset minus base offset; compaction keeps it                   |
| 27 | base timestamp       | int64  | what the records' timestamp deltas are relative to                   |
| 35 | max timestamp        | int64  | of all records; with LogAppendTime the timestamp of every record     |
| 43 | producer id          | int64  |                                                                      |
| 51 | producer epoch       | int16  |                                                                      |
| 53 | base sequence        | int32  |                                                                      |
| 57 | record count         | int32  |                                                                      |
| 61 | records              |        | compressed as a whole when there is a codec                          |

A message of magic 0 or 1 shares offset, length and the place of the magic byte: offset int64, size int32, CRC-32 uint32,
magic int8, attributes int8, timestamp int64 (magic 1 only), key and value with int32 lengths. Its offset is that of the
last record inside when it wraps compressed messages.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from linkengine.domain.errors import ErrorCode, LinkEngineError

_FIELDS = (
    ("base_offset", "q"),
    ("length", "i"),
    ("leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("last_offset_delta", "i"),
    ("base_timestamp", "q"),
    ("max_timestamp", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("record_count", "i"),
)


def _offset_of(field: str) -> int:
    position = [name for name, _ in _FIELDS].index(field)
    return struct.calcsize(">" + "".join(code for _, code in _FIELDS[:position]))


HEADER = struct.Struct(">" + "".join(code for _, code in _FIELDS))
LOG_OVERHEAD = _offset_of("leader_epoch")  # base offset and length, which the length does not include
MAGIC_AT = _offset_of("magic")
CRC_AT = _offset_of("crc")
ATTRIBUTES_AT = _offset_of("attributes")  # the first checksummed byte
RECORDS_AT = HEADER.size
_BASE_OFFSET = struct.Struct(">q")
_TIMES = struct.Struct(">h4xqq")  # attributes, base timestamp and max timestamp, from the attributes on
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
LAST_CODEC = 4  # zstd
CURRENT_MAGIC = 2
NO_TIMESTAMP = -1
LEGACY_HEADER = struct.Struct(">qiIbb")  # offset, size, CRC-32, magic, attributes
LEGACY_TIMESTAMP = struct.Struct(">q")
_LEGACY_MIN_LENGTH = {0: 14, 1: 22}  # an empty message: null key, null value
_V2_MIN_LENGTH = RECORDS_AT - LOG_OVERHEAD


class CorruptBatchError(LinkEngineError):
    """Bytes that are not a valid record batch; the message names the violated rule."""

    def __init__(self, message: str, *, code: ErrorCode = ErrorCode.CORRUPT_RECORDS) -> None:
        super().__init__(code, message)


class BatchView(NamedTuple):
    """The header's fields in wire order. A tuple, for the hot path."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Number of bytes of the whole batch."""
        return self.length + LOG_OVERHEAD

    @property
    def next_offset(self) -> int:
        """The offset after the last offset that this batch covers."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)


def base_offset_at(buffer: memoryview, position: int) -> int | None:
    """Return the base offset at a position, of a whole or cut-off batch; None if not even the base offset is complete."""
    if len(buffer) - position < _BASE_OFFSET.size:
        return None
    offset: int = _BASE_OFFSET.unpack_from(buffer, position)[0]
    return offset


def iter_batches(buffer: memoryview, position: int = 0) -> Iterator[tuple[int, BatchView]]:
    """Yield (start, view) of each whole batch from ``position`` on; stop at the partial batch that a Fetch may end with.

    Raises CorruptBatchError at the first invalid batch. The checksum is not verified.
    """
    end = len(buffer)
    unpack, make = HEADER.unpack_from, BatchView._make
    while end - position > MAGIC_AT:
        if end - position >= RECORDS_AT and buffer[position + MAGIC_AT] == CURRENT_MAGIC:
            view = make(unpack(buffer, position))
            size = view.length + LOG_OVERHEAD
            if RECORDS_AT <= size <= end - position and _plausible(view):  # the usual case; read_view finds the reason if not
                yield position, view
                position += size
                continue
        slow = read_view(buffer, position)
        if slow is None:
            return
        yield position, slow
        position += slow.length + LOG_OVERHEAD


def _plausible(view: BatchView) -> bool:
    return (
        view.base_offset >= 0 <= view.record_count <= view.last_offset_delta + 1 > 0
        and view.attributes & CODEC_MASK <= LAST_CODEC
    )


def read_view(buffer: memoryview | bytes | bytearray, position: int = 0) -> BatchView | None:
    """Return the header at ``position`` (17 bytes must be there); None if the batch is not whole."""
    magic = buffer[position + MAGIC_AT]
    (length,) = struct.unpack_from(">i", buffer, position + 8)
    smallest = _LEGACY_MIN_LENGTH.get(magic, _V2_MIN_LENGTH)
    if length < smallest:
        raise CorruptBatchError(f"A record batch claims a length of {length} bytes; its header alone has {smallest}.")
    if position + LOG_OVERHEAD + length > len(buffer):
        return None
    if magic < CURRENT_MAGIC:
        return _legacy_view(buffer, position)
    view = BatchView._make(HEADER.unpack_from(buffer, position))
    _check_fields(view, buffer[position : position + view.size])
    return view


def _legacy_view(buffer: memoryview | bytes | bytearray, position: int) -> BatchView:
    offset, length, crc, magic, attributes = LEGACY_HEADER.unpack_from(buffer, position)
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = LEGACY_TIMESTAMP.unpack_from(buffer, position + LEGACY_HEADER.size)
    if offset < 0:
        raise CorruptBatchError(f"A message set claims the offset {offset}; offsets begin at 0.")
    known = attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT)  # the other bits have another meaning from magic 2 on
    return BatchView(offset, length, -1, magic, crc, known, 0, timestamp, timestamp, -1, -1, -1, 1)


def _check_fields(view: BatchView, batch: memoryview | bytes | bytearray) -> None:
    """Raise if a whole batch is invalid. An unknown format fails permanently; a flipped bit may be read correctly later."""
    if view.magic != CURRENT_MAGIC:
        _raise_for_format(view, batch)
    if view.base_offset < 0:
        raise CorruptBatchError(f"A record batch claims the base offset {view.base_offset}; offsets begin at 0.")
    if view.last_offset_delta < 0:
        raise CorruptBatchError(f"The record batch at offset {view.base_offset} ends before it begins.")
    if not 0 <= view.record_count <= view.last_offset_delta + 1:
        raise CorruptBatchError(
            f"The record batch at offset {view.base_offset} claims {view.record_count} records "
            f"on {view.last_offset_delta + 1} offsets."
        )
    if view.attributes & CODEC_MASK > LAST_CODEC:
        check_crc(view, batch)
        raise CorruptBatchError(
            f"The record batch at offset {view.base_offset} uses compression {view.codec}; 0 to {LAST_CODEC} are known.",
            code=ErrorCode.UNSUPPORTED_MESSAGE_FORMAT,
        )


def _raise_for_format(view: BatchView, batch: memoryview | bytes | bytearray) -> None:
    """Raise for a magic byte that is not known. It is outside the checksum, which shows the format of the rest."""
    if crc32c(batch[ATTRIBUTES_AT:]) == view.crc:
        raise CorruptBatchError(
            f"The record batch at offset {view.base_offset} claims format version {batch[MAGIC_AT]} and has the checksum of "
            f"version {CURRENT_MAGIC}."
        )
    raise CorruptBatchError(
        f"A record batch has format version {batch[MAGIC_AT]}; versions 0 to {CURRENT_MAGIC} are known.",
        code=ErrorCode.UNSUPPORTED_MESSAGE_FORMAT,
    )


def first_timestamp(batch: memoryview | bytes | bytearray) -> int:
    """Return the timestamp of the first record of a whole batch of magic 2, as its producer set it.

    Returns the max timestamp if the log cleaner has replaced the base timestamp by the delete horizon (KIP-534).
    """
    attributes, base, newest = _TIMES.unpack_from(batch, ATTRIBUTES_AT)
    return int(newest if attributes & DELETE_HORIZON_BIT else base)


def verify_crc(buffer: memoryview | bytes | bytearray) -> bool:
    """Return whether a whole batch (any magic) matches its checksum."""
    if buffer[MAGIC_AT] == CURRENT_MAGIC:
        (expected,) = struct.unpack_from(">I", buffer, CRC_AT)
        return crc32c(buffer[ATTRIBUTES_AT:]) == int(expected)
    (expected,) = struct.unpack_from(">I", buffer, LOG_OVERHEAD)
    return zlib.crc32(buffer[MAGIC_AT:]) == int(expected)


def check_crc(view: BatchView, batch: memoryview | bytes | bytearray) -> None:
    """Raise CorruptBatchError if a whole batch does not match its checksum."""
    if not verify_crc(batch):
        raise CorruptBatchError(f"The record batch at offset {view.base_offset} does not have the checksum it claims.")


def crc32c(data: memoryview | bytes | bytearray) -> int:
    """Return the CRC-32C of ``data``; writable buffers are copied first, as the library requires."""
    value: int = google_crc32c.value(data if isinstance(data, bytes) else bytes(data))
    return value


# --- order of batches ----------------------------------------------------------------------------------------------------
# Whether a batch at an unexpected offset really has that offset, by the batch and by what follows it. The base offset of a
# batch is outside its checksum. A bit that flips in it, on disk or on the network, moves all its records, or opens a gap
# where they were, and every other check passes. The order of the log reveals it: batches ascend without overlap.
#
# | the batch was moved | it contradicts |
# |---------------------|----------------|
# | up                  | the next batch, which begins before it ends, or the high end of its own response |
# | down                | the batch before it, which ends after it begins |
#
# If nothing follows in the response, this cannot be decided, and the batch is read again (``UnconfirmedBatchError``).
#
# A batch that begins where the previous batch ended needs no check, except for the first batch of a response: a fetch from
# within a batch returns the batch from its beginning, and a batch that was moved up may claim exactly the requested offset.
#
# ``intact_part`` finds the undamaged batches at the start of a response. It computes a checksum over every byte, so it is
# called only after damage was found.


NOT_SEEN = -1


class UnconfirmedBatchError(Exception):
    """A response begins with an unexpected batch that nothing in it confirms, or contradicts itself: read it again."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self.base_offset = base_offset


def check_next(buffer: memoryview, after: int, view: BatchView) -> int | None:
    """Return the base offset of the next batch, whole or cut off, None at the end; raise if the two batches overlap."""
    following = base_offset_at(buffer, after)
    if following is not None and following < view.next_offset:
        raise CorruptBatchError(
            f"The record batch at offset {view.base_offset} ends at {view.next_offset}, and the next begins at {following}: "
            "one of the two claims an offset that is not its own."
        )
    return following


class OrderCheck:
    """Checks the first batch of a response, and batches that do not begin at the planner's cursor."""

    __slots__ = ("_buffer", "_first", "_high_end", "_seen")

    def __init__(self, buffer: memoryview, *, first: int, high_end: int, seen: int | None) -> None:
        self._buffer, self._first, self._high_end, self._seen = buffer, first, high_end, seen

    def admits(self, start: int, view: BatchView, *, cursor: int) -> bool:
        """Return whether the batch at ``start`` may be planned; if False, the next response has to begin with it.

        Raises CorruptBatchError if it contradicts its neighbours, UnconfirmedBatchError if the response begins with it.
        """
        begun = cursor > self._first
        if begun and view.base_offset < cursor:
            raise CorruptBatchError(f"A record batch claims offset {view.base_offset}; the one before it ends at {cursor}.")
        following = check_next(self._buffer, start + view.size, view)
        if (
            view.base_offset == cursor
            or self._seen is None
            or cursor >= self._high_end
            or self._confirmed(view, following, cursor=cursor)
        ):
            return True
        if not begun:
            self._check_repeated(view)
        return not begun

    def _confirmed(self, view: BatchView, following: int | None, *, cursor: int) -> bool:
        if following is None:
            return view.next_offset == self._high_end
        if view.base_offset < cursor:  # its end shows whether its offset is right
            return following == view.next_offset
        return view.next_offset <= self._high_end

    def _check_repeated(self, view: BatchView) -> None:
        """Accept a batch that began a response twice with the same offset, if it ends within the stable part of the log."""
        if view.base_offset != self._seen:
            raise UnconfirmedBatchError(view.base_offset)
        if view.next_offset > self._high_end:
            raise CorruptBatchError(
                f"A record batch claims the offsets {view.base_offset} to {view.next_offset - 1}, but its partition has stable "
                f"offsets below {self._high_end} only."
            )


def intact_part(buffer: memoryview, *, next_offset: int) -> memoryview:
    """Return the part before the first damaged batch; raise CorruptBatchError if it holds no needed offset."""
    end, needed = 0, False
    try:
        for start, view in _whole(buffer):
            end = start + view.size
            needed |= view.next_offset > next_offset
    except CorruptBatchError:
        if not needed:
            raise
    return buffer[:end]


def _whole(buffer: memoryview) -> Iterator[tuple[int, BatchView]]:
    for start, view in iter_batches(buffer):
        check_crc(view, buffer[start : start + view.size])
        check_next(buffer, start + view.size, view)
        yield start, view
