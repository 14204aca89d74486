"""Rows of single-record batches are merged without decoding; other batches are not."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkengine.batches.coalesce import LEAST_ROW, merge_row
from linkengine.batches.patch import patch_for_append, write_checksum
from linkengine.batches.planning import SegmentPlanner
from linkengine.batches.records import Record, encode_records
from linkengine.batches.view import ATTRIBUTES_AT, TRANSACTIONAL_BIT, CorruptBatchError
from tests.linkengine.batches.batchlog import read_payload

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 20

values = st.one_of(st.none(), st.binary(max_size=300), st.just(b"v" * 7_000))
records = st.builds(
    lambda age, key, value, headers: Record(0, NOW_MS + age, key, value, headers),
    st.integers(-100_000, 100_000),
    st.one_of(st.none(), st.binary(max_size=20)),
    values,
    st.lists(st.tuples(st.text(min_size=1, max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2),
)


def batch_at(offset: int, record: Record, *, attributes: int = 0) -> bytearray:
    batch = encode_records([record._replace(offset=offset)], codec=0)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes)
    write_checksum(batch)
    return batch


def row_of(records_in: list[Record], *, attributes: int = 0) -> memoryview:
    return memoryview(bytearray(b"".join(batch_at(5 + at, rec, attributes=attributes) for at, rec in enumerate(records_in))))


def plain(count: int) -> list[Record]:
    return [Record(0, NOW_MS + number, None, b"%d" % number, []) for number in range(count)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(records, min_size=1, max_size=40), st.sampled_from([400, LIMIT]))
def test_merged_batches_hold_the_same_records_with_a_valid_checksum(records_in: list[Record], limit: int) -> None:
    buffer = row_of(records_in)

    row = merge_row(buffer, 0, high_end=1 << 40, transactional=False, coalesce_bytes=limit)

    assert (row.end, row.next_offset) == (len(buffer), 5 + len(records_in))
    found, expected_start = [], 5
    for append in row.appends:
        assert (append.start, append.count) == (expected_start, append.records)
        assert append.count == 1 or len(append.payload) <= limit
        patch_for_append(append.payload, producer_id=7, producer_epoch=0, base_sequence=0)
        read = read_payload(append.payload)
        assert read.checksum_right
        assert read.max_timestamp == append.max_timestamp == max(record.timestamp for record in read.records)
        found += [(record.timestamp, record.key, record.value, _headers(record.headers)) for record in read.records]
        expected_start = append.end
    assert found == [(record.timestamp, record.key, record.value, record.headers) for record in records_in]


def _headers(found: Sequence[tuple[str | bytes, bytes | None]]) -> list[tuple[str, bytes | None]]:
    return [(key.decode() if isinstance(key, bytes) else key, value) for key, value in found]


@pytest.mark.parametrize(
    "other",
    [
        encode_records([Record(25, NOW_MS, None, b"1", []), Record(26, NOW_MS, None, b"2", [])], codec=0),
        encode_records([Record(25, NOW_MS, None, b"zipped", [])], codec=1),
        batch_at(25, Record(0, NOW_MS, None, b"after a hole", []))[:30],
        batch_at(26, Record(0, NOW_MS, None, b"after a hole", [])),
        batch_at(25, Record(0, NOW_MS, None, b"x" * 9_000, [])),
        batch_at(25, Record(0, NOW_MS, None, b"appended late", []), attributes=8),
    ],
    ids=["two records", "compressed", "cut off", "after a hole", "large", "log append time"],
)
def test_a_row_ends_before_any_other_batch(other: bytearray) -> None:
    row = merge_row(
        memoryview(bytearray(bytes(row_of(plain(20))) + other)), 0, high_end=99, transactional=False, coalesce_bytes=LIMIT
    )

    assert row.next_offset == 25


def test_a_row_ends_at_the_last_stable_offset() -> None:
    row = merge_row(row_of(plain(20)), 0, high_end=15, transactional=False, coalesce_bytes=LIMIT)

    assert row.next_offset == 15


@pytest.mark.parametrize(("transactional", "end"), [(True, 25), (False, -1)])
def test_transactional_data_is_merged_only_if_none_can_be_aborted(transactional: bool, end: int) -> None:
    buffer = row_of(plain(20), attributes=TRANSACTIONAL_BIT)

    row = merge_row(buffer, 0, high_end=99, transactional=transactional, coalesce_bytes=LIMIT)

    assert row.next_offset == end


def test_a_damaged_batch_gets_no_new_checksum() -> None:
    buffer = row_of(plain(20))
    buffer[-2] ^= 1

    row = merge_row(buffer, 0, high_end=99, transactional=False, coalesce_bytes=LIMIT)
    try:
        steps = SegmentPlanner().plan(buffer, next_offset=5, high_end=99)
    except CorruptBatchError:
        steps = []

    assert row.next_offset == 24
    assert all(read_payload(step.payload).checksum_right for step in steps if step.end <= 24)  # type: ignore[union-attr]
    assert not [step for step in steps if step.end == 25 and read_payload(step.payload).checksum_right]  # type: ignore[union-attr]


def test_the_planner_merges_long_and_short_rows_into_a_single_append() -> None:
    (step,) = SegmentPlanner().plan(row_of(plain(500)), next_offset=5, high_end=9_999)
    short = SegmentPlanner().plan(row_of(plain(LEAST_ROW - 1)), next_offset=5, high_end=9_999)

    assert (step.start, step.end) == (5, 505)
    assert [(append.start, append.end) for append in short] == [(5, 5 + LEAST_ROW - 1)]
