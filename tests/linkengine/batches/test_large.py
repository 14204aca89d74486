"""Batches whose decompressed records exceed the memory limit: read, hashed and rewritten piece by piece."""

import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkengine.batches import large, planning
from linkengine.batches.compression import DecompressedTooLargeError
from linkengine.batches.large import hash_fields, hash_large, read_large, rewrite_large
from linkengine.batches.planning import Append, Fill, SegmentPlanner, Step
from linkengine.batches.records import RecordLike, decode_batch, decode_records
from linkengine.batches.view import CURRENT_MAGIC, BatchView, CorruptBatchError, read_view
from linkengine.domain.states import GapReason
from tests.effort import tries
from tests.linkengine.batches.batchlog import (
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    ZSTD,
    Batch,
    Rec,
    at,
    dense,
    log_of,
    read_payload,
    resealed,
    wrapper,
)
from tests.linkengine.batches.sourcelog import CODECS, DENSE, SPARSE, SourceLog, source_logs
from tests.linkengine.batches.test_planning_model import expected, mirrored

MEGABYTE = 1 << 20


def viewed(batch: Batch | bytes) -> tuple[BatchView, memoryview]:
    data = memoryview(bytearray(batch if isinstance(batch, bytes) else batch.encode()))
    view = read_view(data)
    assert view is not None
    return view, data


@given(DENSE | SPARSE, CODECS, st.sampled_from([0, LOG_APPEND_TIME]))
def test_records_are_read_and_hashed_as_the_compiled_codec_reads_them(records: dict[int, Rec], codec: int, bits: int) -> None:
    view, data = viewed(Batch(5, records, codec=codec, bits=bits, last_offset_delta=20, max_timestamp=2000))

    in_pieces = [(record.offset, record.timestamp, *hash_large(record)) for record in read_large(view, data)]

    assert in_pieces == [
        (record.offset, record.timestamp, record.key is not None, hash_fields(record.key, record.value, record.headers))
        for record in decode_records(view, data)
    ]


def test_different_contents_have_different_hashes() -> None:
    contents: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (None, None, []),
        (b"", None, []),
        (None, b"", []),
        (b"a", b"b", []),
        (b"ab", b"", []),
        (b"a", b"b", [("", None)]),
        (b"a", b"b", [("", b"")]),
        (b"a", b"b", [("h", None)]),
        (b"a", b"b", [("h", None), ("", None)]),
    ]

    assert len({hash_fields(*content) for content in contents}) == len(contents)


def too_large_for_memory(view: BatchView, batch: memoryview) -> Iterator[RecordLike]:
    if view.magic == CURRENT_MAGIC:
        raise DecompressedTooLargeError("too large")
    return decode_batch(view, batch)


def replanned(log: SourceLog, next_offset: int) -> list[Step]:
    """Plan until the end, as a copy worker does that fetches again what a plan has left out."""
    steps: list[Step] = []
    while next_offset < log.end:
        buffer, aborted = log.response(next_offset)
        some = SegmentPlanner().plan(memoryview(buffer), next_offset=next_offset, aborted=aborted, high_end=log.end)
        assert some
        steps += some
        next_offset = some[-1].end
    return steps


@settings(max_examples=tries(60), deadline=None)
@given(source_logs(), st.data(), st.booleans())
def test_every_offset_shows_what_the_source_shows_with_small_plans_and_large_batches(
    log: SourceLog,
    data: st.DataObject,
    in_pieces: bool,
) -> None:
    next_offset = data.draw(st.integers(0, log.end))
    with (
        patch.object(planning, "decode_batch", too_large_for_memory if in_pieces else decode_batch),
        patch.object(planning, "MOST_APPENDS", data.draw(st.sampled_from([1, 3, 1000]))),
        patch.object(planning, "_MOST_PENDING", data.draw(st.sampled_from([1, 100, 1 << 20]))),
        patch.object(large, "RUN_BYTES", data.draw(st.sampled_from([1, 100, 1 << 20]))),
    ):
        steps = replanned(log, next_offset)

    assert mirrored(steps) == expected(log, next_offset, log.end)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_an_18_megabyte_batch_with_log_append_time_is_rewritten_from_the_next_offset(codec: int) -> None:
    recs = [Rec(5, b"%d" % number, bytes(6 * MEGABYTE)) for number in range(3)]
    log = log_of(dense(10, recs, codec=codec, bits=LOG_APPEND_TIME, max_timestamp=99))

    steps = SegmentPlanner().plan(log, next_offset=11, high_end=13)

    (step,) = steps
    assert isinstance(step, Append)
    assert (step.start, step.end) == (11, 13)
    assert read_payload(step.payload).records == (at(recs[1], 99), at(recs[2], 99))
    assert len(step.payload) < 1_200_000


def test_gaps_between_large_records_are_filled() -> None:
    recs = {delta: Rec(5, None, bytes(9 * MEGABYTE)) for delta in (1, 3)}

    steps = SegmentPlanner().plan(log_of(Batch(0, recs, codec=ZSTD, last_offset_delta=4)), next_offset=0, high_end=5)

    assert [(step.start, step.end, isinstance(step, Fill)) for step in steps] == [
        (0, 1, True), (1, 2, False), (2, 3, True), (3, 4, False), (4, 5, True),
    ]  # fmt: skip


def test_a_run_larger_than_the_sources_batch_is_split_into_smaller_batches() -> None:
    noise = bytes(range(256)) * 4
    view, data = viewed(dense(0, [Rec(5, None, noise[number:] + noise) for number in range(200)], codec=ZSTD))

    (whole,) = rewrite_large(view, data, start=0, end=200, limit=MEGABYTE)
    parts = list(rewrite_large(view, data, start=0, end=200, limit=len(whole.payload) - 1))

    assert len(parts) > 1
    assert parts[0].start == 0
    assert parts[-1].end == 200
    assert [append.start for append in parts[1:]] == [append.end for append in parts[:-1]]
    everything = [record for append in parts for record in read_payload(append.payload).records]
    assert tuple(everything) == read_payload(whole.payload).records


def test_small_batches_with_large_records_pass_unchanged() -> None:
    bombs = [dense(number, [Rec(value=bytes(20 * MEGABYTE))], codec=ZSTD).encode() for number in range(3)]
    tail = [dense(3 + number, [Rec()], codec=ZSTD).encode() for number in range(3)]
    assert max(map(len, bombs)) < 8 << 10
    buffer = bytearray(b"".join(bombs + tail))

    steps = SegmentPlanner().plan(memoryview(buffer), next_offset=0, high_end=6)

    assert [step.end - step.start for step in steps] == [1, 1, 1, 3]
    assert [step.payload.tobytes() if isinstance(step, Append) else None for step in steps[:3]] == bombs
    assert isinstance(steps[3], Append)


def test_a_too_large_old_message_raises_after_everything_before_it_is_planned() -> None:
    giant = wrapper(1, GZIP, {1: Rec(5, None, bytes(33 * MEGABYTE)), 2: Rec(5, None, bytes(33 * MEGABYTE))})

    first = SegmentPlanner().plan(log_of(dense(0, [Rec()]), giant), next_offset=0, high_end=3)
    with pytest.raises(DecompressedTooLargeError, match=r"larger than 67108864 bytes"):
        SegmentPlanner().plan(log_of(giant), next_offset=1, high_end=3)

    assert [(step.start, step.end) for step in first] == [(0, 1)]


@pytest.mark.parametrize("value", [0x12, 0x0E, 0x7E, 0x01])
def test_a_large_record_with_a_wrong_length_is_refused(value: int) -> None:
    view, data = viewed(resealed(dense(3, [Rec()] * 2).encode(), 61, value))

    with pytest.raises(CorruptBatchError):
        [hash_large(record) for record in read_large(view, data)]


@given(st.data())
def test_noise_instead_of_records_raises_only_CorruptBatchError(data: st.DataObject) -> None:
    whole = bytearray(dense(3, [Rec(headers=((b"h", b"v"),))] * 3).encode())
    place = data.draw(st.integers(61, len(whole) - 1))
    view, batch = viewed(resealed(bytes(whole), place, data.draw(st.integers(0, 255))))

    try:
        found = [hash_large(record) for record in read_large(view, batch)]
    except CorruptBatchError:
        return
    assert len(found) == 3


_MEASURE = """
import resource
from linkengine.batches.planning import SegmentPlanner
from linkengine.batches.compression import ZSTD, deflater
from linkengine.batches.records import varint
from linkengine.batches.patch import write_checksum
from linkengine.batches.view import HEADER, LOG_OVERHEAD

def batch(base, count, size, bits):
    packer, out = deflater(ZSTD), bytearray(61)
    for number in range(count):
        front = b"\\0\\0" + varint(number) + b"\\1" + varint(size)
        out += packer.compress(varint(len(front) + size + 1) + front)
        left = size
        while left:
            part = min(left, 1 << 20)
            out += packer.compress(bytes(part))
            left -= part
        out += packer.compress(b"\\0")
    out += packer.flush()
    HEADER.pack_into(out, 0, base, len(out) - LOG_OVERHEAD, -1, 2, 0, ZSTD | bits, count - 1, 5, 5, -1, -1, -1, count)
    write_checksum(out)
    return out

LOG_APPEND_TIME = 8
cases = {
    "one message": (1, 250_000_000, 0),
    "three messages": (3, 100_000_000, 0),
    "one message, stamped": (1, 250_000_000, LOG_APPEND_TIME),
    "three messages, stamped": (3, 100_000_000, LOG_APPEND_TIME),
    "a million messages, stamped": (1_000_000, 1, LOG_APPEND_TIME),
}
made = {name: batch(0, *case) for name, case in cases.items()}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, data in made.items():
    count, at = cases[name][0], 0
    while at < count:
        at = SegmentPlanner().plan(memoryview(bytearray(data)), next_offset=at, high_end=count)[-1].end
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(name, (peak - before) // 1024, sep=": ")
"""


def test_planning_huge_batches_takes_less_than_70_megabytes() -> None:
    done = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True, timeout=300)

    taken = dict(line.split(": ") for line in done.stdout.splitlines())
    assert len(taken) == 5
    assert max(int(megabytes) for megabytes in taken.values()) < 70, taken  # megabytes


def test_a_compacted_end_of_a_large_batch_is_filled_to_its_last_offset() -> None:
    log = log_of(Batch(0, {0: Rec(5, None, bytes(17 * MEGABYTE))}, codec=ZSTD, last_offset_delta=7))

    steps = SegmentPlanner().plan(log, next_offset=0, high_end=8)

    assert [(step.start, step.end) for step in steps] == [(0, 1), (1, 8)]
    assert isinstance(steps[1], Fill)
    assert steps[1].reason is GapReason.COMPACTED
