"""Plan a response whose batches all pass unchanged, reading only their headers. Pure.

Most responses hold nothing else: no gap, marker, aborted data, nor adjacent batches small enough to merge. Finding that out
costs a short look at each header. Any other response is left to ``planning``, the only place that handles the other cases.
"""

from __future__ import annotations

import struct

from linkengine.batches.coalesce import is_small
from linkengine.batches.steps import Append
from linkengine.batches.view import (
    CODEC_MASK,
    CONTROL_BIT,
    CURRENT_MAGIC,
    LAST_CODEC,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORDS_AT,
    base_offset_at,
    read_view,
)

# base offset, length, magic, attributes, last offset delta, max timestamp, record count
_GLANCE = struct.Struct(">qi4xb4xhi8xq14xi")
_NOT_PLAIN = CONTROL_BIT | LOG_APPEND_TIME_BIT


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
