import random
from itertools import pairwise

import pytest

from linkengine.batches.coalesce import SMALL_BYTES, SMALL_COMPRESSED_BYTES, SMALL_RECORDS
from linkengine.batches.planning import Append, SegmentPlanner
from linkengine.batches.view import CorruptBatchError
from tests.linkengine.batches.batchlog import (
    GZIP,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Rec,
    dense,
    log_of,
    read_payload,
    resealed,
)

LIMIT = 1 << 20


def appends(*log: Batch, limit: int = LIMIT) -> list[Append]:
    steps = SegmentPlanner().plan(log_of(*log), next_offset=log[0].base_offset, high_end=1 << 40, coalesce_bytes=limit)
    return [step for step in steps if isinstance(step, Append)]


def singles(count: int, *, codec: int = 0, size: int = 20) -> list[Batch]:
    return [
        dense(number, [Rec(timestamp=2000 - number, key=b"%d" % number, value=b"%03d" % (number % 7) * size)], codec=codec)
        for number in range(count)
    ]


def all_records(log: list[Batch]) -> tuple[Rec, ...]:
    return tuple(record for batch in log for record in batch.records.values())


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_small_neighbours_become_one_batch_of_the_same_codec(codec: int) -> None:
    log = singles(500, codec=codec)

    (append,) = appends(*log)

    read = read_payload(append.payload)
    assert (append.base_offset, append.count, append.max_timestamp) == (0, 500, 2000)
    assert (read.attributes, read.checksum_right, read.max_timestamp) == (codec, True, 2000)
    assert read.records == all_records(log)


def test_transactional_and_ordinary_batches_merge() -> None:
    log = [dense(0, [Rec()]), dense(1, [Rec(), Rec()], bits=TRANSACTIONAL, producer_id=4), dense(3, [Rec()])]

    (append,) = appends(*log)

    assert read_payload(append.payload).attributes == 0
    assert append.count == 4


def test_another_codec_begins_another_batch() -> None:
    log = [dense(0, [Rec()]), dense(1, [Rec()]), dense(2, [Rec()], codec=LZ4), dense(3, [Rec()], codec=LZ4), dense(4, [Rec()])]

    assert [(append.base_offset, append.count, read_payload(append.payload).attributes) for append in appends(*log)] == [
        (0, 2, 0),
        (2, 2, LZ4),
        (4, 1, 0),
    ]


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("limit", [1, 300, 5000])
def test_no_merged_batch_is_larger_than_the_limit(codec: int, limit: int) -> None:
    log = singles(300, codec=codec)
    largest = max(len(batch.encode()) for batch in log)

    merged = appends(*log, limit=limit)

    assert sum((read_payload(append.payload).records for append in merged), ()) == all_records(log)
    assert all(len(append.payload) <= max(limit, largest) for append in merged)
    assert all(append.end == following.base_offset for append, following in pairwise(merged))


def test_a_merge_that_turns_out_larger_than_the_limit_is_halved() -> None:
    empty = [Rec(timestamp=1 << 61, key=None, value=None)] * 200  # eight bytes more each beside a record from 1970
    log = [dense(0, [Rec(timestamp=0, key=None, value=None)] * 200), *(dense(200 * number, empty) for number in range(1, 6))]
    limit = sum(len(batch.encode()) + 200 * 6 for batch in log)

    merged = appends(*log, limit=limit)

    assert [append.count for append in merged] == [600, 600]
    assert all(len(append.payload) <= limit for append in merged)
    assert sum((read_payload(append.payload).records for append in merged), ()) == all_records(log)


@pytest.mark.parametrize(
    "large",
    [
        dense(1, [Rec(value=b"x" * SMALL_BYTES)]),
        dense(1, [Rec(value=b"")] * (SMALL_RECORDS + 1)),
    ],
)
def test_a_large_batch_passes_unchanged(large: Batch) -> None:
    data = bytearray(dense(0, [Rec()]).encode() + large.encode() + dense(large.end, [Rec()]).encode())

    steps = SegmentPlanner().plan(memoryview(data), next_offset=0, high_end=1 << 40)

    assert [step.payload.obj is data for step in steps if isinstance(step, Append)] == [True, True, True]


def test_a_compressed_batch_counts_as_large_at_fewer_bytes() -> None:
    noise = random.Random(7).randbytes(SMALL_COMPRESSED_BYTES + 1)
    log = [dense(number, [Rec(value=noise)], codec=SNAPPY) for number in range(3)]
    assert all(len(batch.encode()) > SMALL_COMPRESSED_BYTES for batch in log)

    assert [append.count for append in appends(*log)] == [1, 1, 1]


def test_batches_that_the_compiled_codec_cannot_encode_pass_unchanged() -> None:
    odd = Rec(headers=((b"\xff", b"v"),))
    log = [dense(0, [Rec()]), dense(1, [odd]), dense(2, [Rec()])]

    assert b"".join(bytes(append.payload) for append in appends(*log)) == b"".join(batch.encode() for batch in log)


def test_merging_keeps_a_first_record_without_timestamp() -> None:
    log = [dense(0, [Rec(timestamp=-1)]), dense(1, [Rec(timestamp=7)])]

    assert sum((read_payload(append.payload).records for append in appends(*log)), ()) == all_records(log)


def test_batches_do_not_merge_across_a_gap_but_decoded_records_merge_with_neighbours() -> None:
    log = [dense(0, [Rec()]), Batch(1, {0: Rec(), 1: Rec(), 4: Rec()}, last_offset_delta=4), dense(6, [Rec()])]

    assert [(append.base_offset, append.count) for append in appends(*log)] == [(0, 3), (5, 2)]


def test_a_damaged_batch_is_never_merged() -> None:
    data = bytearray(dense(0, [Rec()]).encode() + dense(1, [Rec()]).encode())
    data[-1] ^= 1

    with pytest.raises(CorruptBatchError, match="offset 1 does not have the checksum"):
        SegmentPlanner().plan(memoryview(data), next_offset=0, high_end=2)


def test_a_batch_with_a_malformed_record_is_never_merged() -> None:
    data = bytearray(dense(0, [Rec()]).encode() + resealed(dense(1, [Rec()]).encode(), 61, 0x12))

    with pytest.raises(CorruptBatchError, match="to be merged cannot be read"):
        SegmentPlanner().plan(memoryview(data), next_offset=0, high_end=2)
