"""Merges neighbouring small batches, because a destination's cost is per batch. Must not know gaps: it is given runs.

A *run* is a piece of the log with a record at every offset: either a fetched batch that can pass as it is, or records that were
decoded for another reason. Records are re-encoded only where that is cheaper than one more batch at the destination; keys,
values, headers, timestamps and order stay, offsets stay consecutive, the codec stays. Nothing is merged beyond
``coalesce_bytes`` of uncompressed records, so what consumers unpack at once stays bounded too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from linkengine.batches.records import RecordLike, decode_plain, encode_records, plain_batch
from linkengine.batches.steps import Append
from linkengine.batches.view import BatchView

# One more batch costs a destination about 140 microseconds, re-encoding a record about 0.6 here, and a codec both ways about
# 5 ns per byte. Batches above these sizes are cheaper left alone.
SMALL_RECORDS = 256
SMALL_BYTES = 64 << 10
SMALL_COMPRESSED_BYTES = 8 << 10
_GROWTH_PER_RECORD = 6  # longer offset delta, timestamp delta and length after a merge


class RawRun(NamedTuple):
    """A dense fetched batch; may pass through untouched."""

    view: BatchView
    payload: memoryview

    @property
    def codec(self) -> int:
        return self.view.codec

    @property
    def weight(self) -> int:
        """Bytes, as far as known without decompressing."""
        return self.view.size + self.view.record_count * _GROWTH_PER_RECORD

    @property
    def small(self) -> bool:
        limit = SMALL_COMPRESSED_BYTES if self.view.codec else SMALL_BYTES
        return self.view.size <= limit and self.view.record_count <= SMALL_RECORDS


class RecordRun(NamedTuple):
    """Decoded records with consecutive offsets; they have to be encoded anyway, so they merge with any small neighbour."""

    records: list[RecordLike]
    codec: int
    weight: int  # bytes of the uncompressed batch they came from: an upper bound
    fetched_size: int  # bytes of that batch as the source stores it: what the topic certainly allows
    small: bool = True


Run = RawRun | RecordRun


def coalesce(runs: Iterable[Run], *, coalesce_bytes: int) -> Iterator[Append]:
    """Yield one append per run or per merged group of runs, in order. The runs must follow each other without a gap."""
    for group in _groups(runs, coalesce_bytes):
        if len(group) == 1:
            yield from _alone(group[0], coalesce_bytes)
        else:
            yield from _merged(group, coalesce_bytes)


def _groups(runs: Iterable[Run], limit: int) -> Iterator[list[Run]]:
    """Cut where neighbours cannot merge, without decompressing anything yet."""
    group: list[Run] = []
    weight = 0
    for run in runs:
        fits = group and run.small and group[-1].small and run.codec == group[0].codec and weight + run.weight <= limit
        if group and not fits:
            yield group
            group, weight = [], 0
        group.append(run)
        weight += run.weight
    if group:
        yield group


def _alone(run: Run, limit: int) -> Iterator[Append]:
    if isinstance(run, RecordRun):
        yield from _encode(run.records, codec=run.codec, limit=max(limit, run.fetched_size))
        return
    view = run.view
    yield Append(view.base_offset, view.record_count, run.payload, view.record_count, view.max_timestamp)


def _merged(group: list[Run], limit: int) -> Iterator[Append]:
    """Decode the runs of a group and pack them again, now by their uncompressed size."""
    pack: list[Run] = []
    records: list[RecordLike] = []
    weight = 0
    for run in group:
        decoded, size = _decoded(run)
        if pack and weight + size > limit:
            yield from _packed(pack, records, limit)
            pack, records, weight = [], [], 0
        pack.append(run)
        records += decoded
        weight += size
    yield from _packed(pack, records, limit)


def _decoded(run: Run) -> tuple[list[RecordLike], int]:
    if isinstance(run, RecordRun):
        return run.records, run.weight
    plain = plain_batch(run.view, run.payload)
    return decode_plain(run.view, plain), len(plain) + run.view.record_count * _GROWTH_PER_RECORD


def _packed(pack: list[Run], records: list[RecordLike], limit: int) -> Iterator[Append]:
    if len(pack) == 1:
        yield from _alone(pack[0], limit)
    else:
        yield from _encode(records, codec=pack[0].codec, limit=limit)


def _encode(records: list[RecordLike], *, codec: int, limit: int) -> Iterator[Append]:
    """Encode records as one batch, or as halves while it is larger than ``limit`` (a codec may have packed better before)."""
    payload = encode_records(records, codec=codec)
    if len(payload) > limit and len(records) > 1:
        middle = len(records) // 2
        yield from _encode(records[:middle], codec=codec, limit=limit)
        yield from _encode(records[middle:], codec=codec, limit=limit)
        return
    newest = max(record.timestamp for record in records)
    yield Append(records[0].offset, len(records), memoryview(payload), len(records), newest)
