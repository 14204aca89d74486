"""Build batches of empty records that advance a new log to its mirror's start offset. Independent of topics and offsets.

An empty record has null key, null value and no header. Its bytes depend only on its offset delta, so every filler is a prefix
of a single template. A million records have 9 MB plain and 0.7 MB as zstd, below Kafka's default message.max.bytes.
"""

from __future__ import annotations

from functools import cache, lru_cache

import cramjam

from linkengine.batches.compression import ZSTD
from linkengine.batches.patch import seal
from linkengine.batches.records import varint
from linkengine.batches.view import CURRENT_MAGIC, HEADER, LOG_OVERHEAD, RECORDS_AT

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
    seal(batch)
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
