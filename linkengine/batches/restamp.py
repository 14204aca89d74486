"""Gives a record that its broker stamped (LogAppendTime) that stamp for its own time, in place. Pure.

With LogAppendTime the time of every record is the batch's max timestamp, whatever the record itself says; a client may not
send such a batch. One record whose timestamp delta is 0 needs no decoding: base timestamp and attributes are in the header.
Where it is compressed, its first bytes are unpacked to see the delta. So a message of 100 MB costs no second one, and a log of
single records what it costs without LogAppendTime. The checksum is carried over, as in ``linkengine.batches.patch``: what was
damaged stays so.
"""

from __future__ import annotations

from linkengine.batches.compression import HEAD_BYTES, decompress_head
from linkengine.batches.patch import carry_checksum
from linkengine.batches.view import ATTRIBUTES_AT, HEADER, LOG_APPEND_TIME_BIT, RECORDS_AT, BatchView

_MORE = 0x80  # of a varint's byte: another one follows


def restamp(view: BatchView, batch: memoryview) -> BatchView | None:
    """Rewrite the header of a dense batch of magic 2 and answer the new one; None where its records must be decoded."""
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
