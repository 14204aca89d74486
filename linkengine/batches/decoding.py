"""Decodes whole batches of any format: that of magic 2, and what producers wrote before Kafka 0.11 and logs still hold."""

from __future__ import annotations

from collections.abc import Iterator

from linkengine.batches.legacy import decode_legacy
from linkengine.batches.records import RecordLike, decode_records
from linkengine.batches.view import CURRENT_MAGIC, BatchView


def decode_batch(view: BatchView, batch: memoryview) -> Iterator[RecordLike]:
    """Decode all records of one whole batch, in the order of their offsets; raise CorruptBatchError for damaged ones.

    An old compressed message has the offset of its last record: where it begins only its records tell. Raises
    InflatedTooFarError, a CorruptBatchError, where the records are larger than what is held in memory; ``large`` reads those of
    magic 2. Both are raised at once, unless it is a record further behind that is damaged.
    """
    return decode_records(view, batch) if view.magic == CURRENT_MAGIC else decode_legacy(view, batch)
