"""Set the timestamp of a single-record batch with LogAppendTime to its append time, in place. Pure.

With LogAppendTime the timestamp of every record is the batch's max timestamp, whatever the record holds; a client may not send
such a batch. A single record whose timestamp delta is 0 needs no decoding: base timestamp and attributes are in the
header. If it is compressed, only its first bytes are decompressed to read the delta. So a message of 100 MB needs no second
buffer, and a log of single-record batches costs the same as without LogAppendTime. The checksum is adjusted, as in
``linkengine.batches.patch``: a damaged batch stays damaged.
"""

from __future__ import annotations

from linkengine.batches.compression import HEAD_BYTES, decompress_head
from linkengine.batches.patch import carry_checksum
from linkengine.batches.view import ATTRIBUTES_AT, HEADER, LOG_APPEND_TIME_BIT, RECORDS_AT, BatchView

_MORE = 0x80  # continuation bit of a varint byte


def restamp(view: BatchView, batch: memoryview) -> BatchView | None:
    """Rewrite the header of a dense batch of magic 2; return the new one, or None if its records must be decoded."""
    if view.record_count != 1:
        return None
    records = batch[RECORDS_AT:]
    if not _has_no_delta(decompress_head(view.codec, records) if view.codec else bytes(records[:HEAD_BYTES])):
        return None
    stamped = view._replace(attributes=view.attributes & ~LOG_APPEND_TIME_BIT, base_timestamp=view.max_timestamp)
    before = bytes(batch[ATTRIBUTES_AT:RECORDS_AT])
    HEADER.pack_into(batch, 0, *stamped)
    return stamped._replace(crc=carry_checksum(batch, crc=view.crc, before=before))


def _has_no_delta(head: bytes) -> bool:
    at = 0
    while at < len(head) and head[at] & _MORE:  # the record's length
        at += 1
    return head[at + 1 : at + 3] == b"\0\0"  # attributes, timestamp delta
