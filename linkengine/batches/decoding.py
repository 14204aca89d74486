"""Decode whole batches of any format: magic 2, and the formats before Kafka 0.11 that logs may still hold."""

from __future__ import annotations

from collections.abc import Iterator

from linkengine.batches.legacy import decode_legacy
from linkengine.batches.records import RecordLike, decode_records
from linkengine.batches.view import CURRENT_MAGIC, BatchView


def decode_batch(view: BatchView, batch: memoryview) -> Iterator[RecordLike]:
    """Return all records of a whole batch, in offset order; raise CorruptBatchError for a damaged batch.

    A compressed message of magic 0 or 1 carries the offset of its last record; only its records show where it begins. Raises
    InflatedTooFarError, a CorruptBatchError, if the records are larger than the memory limit; ``large`` reads such batches of
    magic 2. Both are raised at the call, unless only a later record is damaged.
    """
    return decode_records(view, batch) if view.magic == CURRENT_MAGIC else decode_legacy(view, batch)
