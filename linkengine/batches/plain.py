"""Plans the everyday stretch of a log, one header at a time: batches that all pass as they are. Pure.

Most answers hold nothing else: no hole, no marker, no aborted data, no neighbours small enough to be merged. To find that
out costs a glance at each header. A stretch that is not wholly of this kind is left to the ordinary way (``planning``), so
that there is one place only where the other cases are decided.
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
    """Answer the whole batches of a stretch without aborted data as they are, in order; None where any needs a closer look.

    Raises CorruptBatchError where a batch cannot be one.
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
        return None  # cut off, and not where it should begin
    cut = end - position <= MAGIC_AT or read_view(buffer, position) is None
    return appends if cut else None
