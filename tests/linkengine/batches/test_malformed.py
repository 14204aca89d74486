"""Logs of every shape with changed bytes and valid checksums: every reader raises only CorruptBatchError."""

import struct
from collections.abc import Callable
from contextlib import suppress

import google_crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkengine.batches.large import decompressed_limit, decompressed_size, hash_large, heaviest_record, read_large
from linkengine.batches.planning import SegmentPlanner
from linkengine.batches.records import control_type, decode_batch
from linkengine.batches.view import (
    CURRENT_MAGIC,
    NOT_SEEN,
    BatchView,
    CorruptBatchError,
    UnconfirmedBatchError,
    intact_part,
    iter_batches,
)
from tests.effort import tries
from tests.linkengine.batches.batchlog import CONTROL, Batch, crc32_of_gzip
from tests.linkengine.batches.sourcelog import SourceLog, source_logs

SETTINGS = settings(max_examples=tries(75), deadline=None, suppress_health_check=list(HealthCheck))


def read_all(view: BatchView, batch: memoryview) -> None:
    for _ in decode_batch(view, batch):
        pass


def read_in_pieces(view: BatchView, batch: memoryview) -> None:
    if view.magic == CURRENT_MAGIC:
        for record in read_large(view, batch):
            hash_large(record)


def read_kind(view: BatchView, batch: memoryview) -> None:
    if view.is_control:
        control_type(view, batch)


def measure(view: BatchView, batch: memoryview) -> None:
    decompressed_limit(view, batch, most=1 << 10)
    decompressed_size(view, batch, most=1 << 20)


READERS: list[Callable[[BatchView, memoryview], object]] = [read_all, read_in_pieces, read_kind, heaviest_record, measure]


def resealed(log: bytearray) -> None:
    """Set valid checksums on everything that looks like a batch, as a faulty producer would."""
    at = 0
    while len(log) - at > 61:
        (size,) = struct.unpack_from(">i", log, at + 8)
        end = at + 12 + size
        if size < 14 or end > len(log):
            return
        if log[at + 16] == CURRENT_MAGIC:
            struct.pack_into(">I", log, at + 17, google_crc32c.value(bytes(log[at + 21 : end])))
        else:
            struct.pack_into(">I", log, at + 12, crc32_of_gzip(bytes(log[at + 16 : end])))
        at = end


def changed(log: SourceLog, data: st.DataObject) -> bytearray:
    buffer, _ = log.response(0)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(buffer) - 1))
        buffer[at] = data.draw(st.sampled_from([buffer[at] ^ 1, buffer[at] ^ 0x80, 0, 0x7F, 0xFF]))
    if data.draw(st.booleans()):
        resealed(buffer)
    return buffer


@SETTINGS
@given(source_logs(), st.data())
def test_a_changed_log_is_planned_or_refused(log: SourceLog, data: st.DataObject) -> None:
    buffer = changed(log, data)
    _, aborted = log.response(0)

    with suppress(CorruptBatchError, UnconfirmedBatchError):
        SegmentPlanner().plan(
            memoryview(buffer),
            next_offset=0,
            aborted=aborted,
            high_end=log.end,
            seen=data.draw(st.sampled_from([None, NOT_SEEN])),
        )
    with suppress(CorruptBatchError):
        intact_part(memoryview(buffer), next_offset=0)


@SETTINGS
@given(source_logs(), st.data())
def test_each_reader_of_a_changed_batch_reads_or_refuses_it(log: SourceLog, data: st.DataObject) -> None:
    buffer = memoryview(changed(log, data))

    with suppress(CorruptBatchError):
        for start, view in iter_batches(buffer):
            for read in READERS:
                with suppress(CorruptBatchError):
                    read(view, buffer[start : start + view.size])


@pytest.mark.parametrize("count", [1, 1000, (1 << 31) - 1])
def test_a_wrong_record_count_is_refused(count: int) -> None:
    batch = bytearray(Batch(0, {}, last_offset_delta=(1 << 31) - 1 if count > 1000 else count, bits=CONTROL).encode())
    struct.pack_into(">i", batch, 57, count)
    resealed(batch)

    (entry,) = iter_batches(memoryview(batch))

    for read in (read_all, read_in_pieces, read_kind):
        with pytest.raises(CorruptBatchError):
            read(entry[1], memoryview(batch))
