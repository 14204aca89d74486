"""Merge adjacent small batches, because the cost at a destination is per batch.

A *run* is a part of the log with a record at every offset: either a fetched batch that can pass unchanged, or records that were
decoded for another reason. The input is runs; gaps are handled in ``planning``. Records are re-encoded only if that is cheaper
than another batch at the destination. Keys, values, headers, timestamps, order and codec stay, and offsets stay consecutive.
Nothing is merged beyond ``coalesce_bytes`` of uncompressed records, which also limits what consumers decompress at once. A
batch with more uncompressed bytes is not decompressed any further and passes unchanged.

Most responses need none of that: no gap, marker, aborted data, nor adjacent batches small enough to merge. Finding that out
requires only the header of each batch. Any other response is left to ``planning``, the only place that handles the other cases.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import google_crc32c

from linkengine.batches.compression import DecompressedTooLargeError
from linkengine.batches.patch import write_checksum
from linkengine.batches.records import Chunk, RecordLike, encode_chunks, encode_records, plain_batch, varint
from linkengine.batches.steps import Append
from linkengine.batches.view import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CURRENT_MAGIC,
    HEADER,
    LAST_CODEC,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
    BatchView,
    base_offset_at,
    read_view,
)

# --- runs ----------------------------------------------------------------------------------------------------------------


# A batch costs a destination about 140 microseconds, re-encoding a record about 0.6 here, and a codec both ways about 5 ns per
# byte. Batches above these sizes are cheaper to pass unchanged.
SMALL_RECORDS = 256
SMALL_BYTES = 64 << 10
SMALL_COMPRESSED_BYTES = 8 << 10
_GROWTH_PER_RECORD = 6  # longer offset delta, timestamp delta and length after a merge
_NOT_MERGEABLE = 1 << 62
# base offset, length, magic, attributes, last offset delta, max timestamp, record count
_GLANCE = struct.Struct(">qi4xb4xhi8xq14xi")
_NOT_PLAIN = CONTROL_BIT | LOG_APPEND_TIME_BIT


class RawRun(NamedTuple):
    """A dense fetched batch that may pass unchanged."""

    view: BatchView
    payload: memoryview


class RecordRun(NamedTuple):
    """Decoded records with consecutive offsets. They must be encoded anyway, so they merge with any small neighbour."""

    records: list[RecordLike]
    codec: int
    weight: int  # approximate uncompressed bytes of these records
    fetched_size: int  # bytes of the source's batch, a size that the topic certainly allows


Run = RawRun | RecordRun


class _Member(NamedTuple):
    """A run of a group, ready to encode."""

    run: Run
    chunk: Chunk
    weight: int


def coalesce(runs: Sequence[Run], *, coalesce_bytes: int) -> Iterator[Append]:
    """Yield an append per run or per merged group of runs, in order. The runs must be contiguous."""
    for group in _groups(runs, coalesce_bytes):
        if len(group) == 1:
            yield from _single(group[0], coalesce_bytes)
            continue
        for pack in _packs(group, coalesce_bytes):
            yield from _merged(pack, coalesce_bytes)


def _groups(runs: Sequence[Run], limit: int) -> Iterator[Sequence[Run]]:
    """Yield groups, cut where neighbours cannot merge, without decompressing anything yet."""
    first, weight, codec = 0, 0, -1
    for position, run in enumerate(runs):
        size, run_codec = _small(run)
        if position > first and (run_codec != codec or weight + size > limit):
            yield runs[first:position]
            first, weight = position, 0
        codec = run_codec
        weight += size
    if first < len(runs):
        yield runs[first:]


def _small(run: Run) -> tuple[int, int]:
    """Return a run's known bytes without decompressing it, and its codec; _NOT_MERGEABLE bytes if merging does not pay."""
    if isinstance(run, RecordRun):
        return run.weight, run.codec
    view = run.view
    size, count, codec = view.length, view.record_count, view.attributes & CODEC_MASK
    small = is_small(size, count, compressed=bool(codec))
    return size + count * _GROWTH_PER_RECORD if small else _NOT_MERGEABLE, codec


def is_small(size: int, count: int, *, compressed: bool) -> bool:
    """Return whether a batch of this size and record count may be worth merging with a neighbour."""
    return count <= SMALL_RECORDS and size <= (SMALL_COMPRESSED_BYTES if compressed else SMALL_BYTES)


def _single(run: Run, limit: int) -> Iterator[Append]:
    if isinstance(run, RecordRun):
        yield from _encode(run.records, codec=run.codec, limit=max(limit, run.fetched_size))
        return
    view = run.view
    yield Append(view.base_offset, view.record_count, run.payload, view.record_count, view.max_timestamp)


def _packs(group: Sequence[Run], limit: int) -> Iterator[list[_Member]]:
    """Decompress the runs of a group and yield it cut again, now by uncompressed size."""
    pack: list[_Member] = []
    weight = 0
    for run in group:
        member = _member(run, limit)
        if member is None:
            if pack:
                yield pack
            yield [_Member(run, [], limit)]
            pack, weight = [], 0
            continue
        if pack and weight + member.weight > limit:
            yield pack
            pack, weight = [], 0
        pack.append(member)
        weight += member.weight
    if pack:
        yield pack


def _member(run: Run, limit: int) -> _Member | None:
    """Return a decompressed run; None if its records are larger than ``limit``."""
    if isinstance(run, RecordRun):
        return _Member(run, run.records, run.weight)
    try:
        plain = plain_batch(run.view, run.payload, most=limit)
    except DecompressedTooLargeError:
        return None
    return _Member(run, plain, len(plain) + run.view.record_count * _GROWTH_PER_RECORD)


def _merged(pack: list[_Member], limit: int) -> Iterator[Append]:
    """Encode a pack as a batch, or as halves while it is larger than ``limit`` (the source may have compressed better)."""
    if len(pack) == 1:
        yield from _single(pack[0].run, limit)
        return
    append = _as_single_batch(pack)
    if append is None:
        for member in pack:
            yield from _single(member.run, limit)
    elif len(append.payload) > limit:
        yield from _merged(pack[: len(pack) // 2], limit)
        yield from _merged(pack[len(pack) // 2 :], limit)
    else:
        yield append


def _as_single_batch(pack: list[_Member]) -> Append | None:
    base_offset, codec = _start(pack[0].run)
    count = sum(_count(member.run) for member in pack)
    newest = max(_newest(member.run) for member in pack)
    chunks = [member.chunk for member in pack]
    payload = encode_chunks(chunks, codec=codec, base_offset=base_offset, max_timestamp=newest, count=count)
    return None if payload is None else Append(base_offset, count, memoryview(payload), count, newest)


def _start(run: Run) -> tuple[int, int]:
    if isinstance(run, RecordRun):
        return run.records[0].offset, run.codec
    return run.view.base_offset, run.view.codec


def _count(run: Run) -> int:
    return run.view.record_count if isinstance(run, RawRun) else len(run.records)


def _newest(run: Run) -> int:
    """Return the newest timestamp; for a fetched batch the max timestamp that its broker validated."""
    return run.view.max_timestamp if isinstance(run, RawRun) else max(record.timestamp for record in run.records)


def _encode(records: list[RecordLike], *, codec: int, limit: int) -> Iterator[Append]:
    """Encode records as a single batch, or as halves while it is larger than ``limit``."""
    payload = encode_records(records, codec=codec)
    if len(payload) > limit and len(records) > 1:
        middle = len(records) // 2
        yield from _encode(records[:middle], codec=codec, limit=limit)
        yield from _encode(records[middle:], codec=codec, limit=limit)
        return
    newest = max(record.timestamp for record in records)
    yield Append(records[0].offset, len(records), memoryview(payload), len(records), newest)


def plain_appends(buffer: memoryview, *, next_offset: int, high_end: int) -> list[Append] | None:
    """Return the whole batches of a response without aborted data, unchanged, in order; None if any needs ``planning``.

    Raises CorruptBatchError for an invalid batch.
    """
    appends: list[Append] = []
    position, end, after_small = 0, len(buffer), False
    while end - position >= RECORDS_AT:
        base_offset, length, magic, attributes, delta, newest, count = _GLANCE.unpack_from(buffer, position)
        after = position + length + LOG_OVERHEAD
        if magic != CURRENT_MAGIC or attributes & _NOT_PLAIN or attributes & CODEC_MASK > LAST_CODEC:
            return None
        if base_offset != next_offset or not 0 < count == delta + 1 or length < RECORDS_AT - LOG_OVERHEAD:
            return None
        if after > end:
            break
        next_offset += count
        small = is_small(length, count, compressed=bool(attributes & CODEC_MASK))
        if next_offset > high_end or (small and after_small):
            return None
        appends.append(Append(base_offset, count, buffer[position:after], count, newest))
        position, after_small = after, small
    if base_offset_at(buffer, position) not in (None, next_offset):
        return None  # cut off, and not at its expected offset
    cut = end - position <= MAGIC_AT or read_view(buffer, position) is None
    return appends if cut else None


# --- rows of single-record batches ---------------------------------------------------------------------------------------
# The most expensive kind of log, merged without decoding the records. A producer without batching writes such a row. Its
# batches differ from the merged batch only in three numbers per record: the record's length, its timestamp delta and its offset
# delta; the rest (key, value, headers) is copied. Anything else ends the row and is left to ``coalesce``: other codecs, control
# batches, damaged batches, records with inconsistent numbers.
#
# Record of such a batch: length varint, attributes 0, timestamp delta 0, offset delta 0, rest (``linkengine.batches.records``).


LEAST_ROW = 8  # shorter rows are left to ``coalesce``
LARGEST = 8_000  # bytes of a batch: the length of its record fits in two bytes
SMALLEST = RECORDS_AT - LOG_OVERHEAD + 7  # a record has at least seven bytes
# base offset, length, magic, checksum, attributes, last offset delta, base timestamp, max timestamp, record count
_FIELDS = struct.Struct(">qi4xbIhiqq14xi")
_VARINTS = [varint(value) for value in range(1 << 15)]
_ZERO = b"\x00"
_ZEROS = b"\x00\x00\x00"
_BODY_AT = RECORDS_AT - ATTRIBUTES_AT
_OVERHEAD = 12  # maximum of a record in a batch


class MergedRow(NamedTuple):
    """Consecutive offsets as merged batches, and the end of the row in the buffer."""

    appends: list[Append]
    end: int
    next_offset: int


class _Merger:
    """A merged batch under construction."""

    __slots__ = ("base_offset", "base_timestamp", "count", "newest", "parts", "size")

    def __init__(self, base_offset: int, timestamp: int) -> None:
        self.base_offset, self.base_timestamp, self.newest = base_offset, timestamp, timestamp
        self.parts: list[bytes] = []
        self.count, self.size = 0, RECORDS_AT

    def finish(self) -> Append:
        payload = bytearray(RECORDS_AT) + b"".join(self.parts)
        count, length = self.count, len(payload) - LOG_OVERHEAD
        times = (self.base_timestamp, self.newest)
        HEADER.pack_into(payload, 0, self.base_offset, length, -1, CURRENT_MAGIC, 0, 0, count - 1, *times, -1, -1, -1, count)
        write_checksum(payload)
        return Append(self.base_offset, count, memoryview(payload), count, self.newest)


def merge_row(buffer: memoryview, position: int, *, high_end: int, transactional: bool, coalesce_bytes: int) -> MergedRow:
    """Return the merged row that begins at ``position``, up to its end; it may be empty.

    ``transactional``: committed transactional data may be in the row. Nothing at or beyond ``high_end`` is included.
    """
    ignored = ~TRANSACTIONAL_BIT if transactional else -1
    appends: list[Append] = []
    merger: _Merger | None = None
    end, unpack, checksum, varints = len(buffer), _FIELDS.unpack_from, google_crc32c.value, _VARINTS
    known, next_offset = len(varints), -1
    while end - position > RECORDS_AT:
        offset, length, magic, crc, attributes, delta, timestamp, newest, count = unpack(buffer, position)
        after = position + length + LOG_OVERHEAD
        if (
            magic != CURRENT_MAGIC or attributes & ignored or count != 1 or delta or after > end
            or not SMALLEST <= length <= LARGEST
            or timestamp != newest or timestamp < 0 or offset >= high_end or (offset != next_offset and next_offset >= 0)
        ):  # fmt: skip
            break
        body = bytes(buffer[position + ATTRIBUTES_AT : after])
        rest_at = _rest_at(body)
        if not rest_at or checksum(body) != crc:
            break
        if merger is None or merger.size + len(body) > coalesce_bytes:
            if merger is not None:
                appends.append(merger.finish())
            merger = _Merger(offset, timestamp)
        since, number = timestamp - merger.base_timestamp, merger.count
        age = varints[since] if 0 <= since < known else varint(since)
        place = varints[number]
        rest = body[rest_at:]
        merger.parts += (varints[1 + len(age) + len(place) + len(rest)], _ZERO, age, place, rest)
        merger.count = number + 1
        merger.size += len(rest) + _OVERHEAD
        merger.newest = max(merger.newest, timestamp)
        position, next_offset = after, offset + 1
        if number + 2 >= known:
            appends.append(merger.finish())
            merger = None
    if merger is not None:
        appends.append(merger.finish())
    return MergedRow(appends, position, next_offset)


def _rest_at(body: bytes) -> int:
    """Return where key, value and headers begin in a batch from its attributes on; 0 if it does not have this shape."""
    at = _BODY_AT
    size = body[at]
    at += 1
    if size >= 0x80:
        size = size & 0x7F | body[at] << 7
        at += 1
    return at + 3 if size == 2 * (len(body) - at) and body[at : at + 3] == _ZEROS else 0
