"""Where the mirrored part of a stopped mirror ends, from batches as they are read."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.batches.patch import patch_for_append
from linkengine.batches.records import encode_records
from linkengine.batches.view import BatchView, CorruptBatchError, iter_batches
from linkengine.copyjob.stop.takeover import _mirrored_end

OWN, ANOTHER = 1 << 62, 7
PRODUCER_ID_AT = 43  # in a batch


def batch(offset: int, *, producer_id: int) -> bytearray:
    record: Any = SimpleNamespace(offset=offset, timestamp=1, key=None, value=b"v", headers=[])
    made = encode_records([record], codec=0)
    patch_for_append(memoryview(made), producer_id=producer_id, producer_epoch=0, base_sequence=offset)
    made[:8] = offset.to_bytes(8, "big")
    return made


def views(*batches: bytearray) -> Iterator[tuple[BatchView, memoryview]]:
    data = memoryview(bytearray(b"".join(batches)))
    return ((view, data[at : at + view.size]) for at, view in iter_batches(data))


def test_mirrored_part_ends_before_the_first_batch_of_another_producer() -> None:
    found = views(batch(5, producer_id=OWN), batch(6, producer_id=ANOTHER), batch(7, producer_id=OWN))

    assert _mirrored_end(found, start=5, producer_ids={OWN}) == 6


def test_batch_whose_producer_id_was_damaged_in_transit_is_not_foreign() -> None:
    """Consumer groups would be moved back to it, and what follows it would count as not mirrored."""
    damaged = batch(6, producer_id=OWN)
    damaged[PRODUCER_ID_AT] ^= 1

    with pytest.raises(CorruptBatchError):
        _mirrored_end(views(batch(5, producer_id=OWN), damaged), start=5, producer_ids={OWN})
