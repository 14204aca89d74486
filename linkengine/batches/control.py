"""Read control batches: the markers that brokers write between records. Must not know how the copy handles them.

A control batch holds a single record whose key is version int16, type int16 (KIP-98; the other types belong to KRaft's own
log). For a mirror every control batch is an offset without a record; the type matters only for the end of an aborted
transaction.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from linkengine.batches.records import decode_records
from linkengine.batches.view import BatchView, CorruptBatchError

_LARGEST = 1 << 10  # bytes of a marker's record; brokers do not compress it
_KEY = struct.Struct(">hh")  # version, type


class ControlType(IntEnum):
    """The type of a control record; data topics hold only the first two."""

    UNKNOWN = -1  # from a newer broker, or the log cleaner has emptied the batch
    ABORT = 0  # ends a transaction: its records must not be read
    COMMIT = 1
    LEADER_CHANGE = 2  # KRaft metadata log, as are the following
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def is_commit(view: BatchView, batch: memoryview) -> bool:
    """Return whether a whole batch is a COMMIT marker."""
    return view.is_control and control_type(view, batch) is ControlType.COMMIT


def control_type(view: BatchView, batch: memoryview) -> ControlType:
    """Return the marker type of a whole control batch."""
    if view.record_count == 0:
        return ControlType.UNKNOWN
    record = next(decode_records(view, batch, most=_LARGEST), None)
    key = record.key if record is not None else None
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError(f"The control batch at offset {view.base_offset} has no type in its key.")
    _, number = _KEY.unpack_from(key)
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN
