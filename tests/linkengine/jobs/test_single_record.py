"""The record, marker or gap at an offset in the batches of a Fetch response."""

from __future__ import annotations

import pytest

from linkengine.batches.planning import AbortedTransaction
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.record_views import HeaderView, Presence, SideView
from linkengine.jobs import comparing_records
from linkengine.jobs.comparing_records import LogEnds, SideRead, search_batches
from tests.linkengine.batches.batchlog import GZIP, TRANSACTIONAL, ZSTD, Batch, Rec, dense, log_of, marker, message

ENDS = LogEnds(start=0, stable=14, end=14)
PRODUCER = 9
LOG = log_of(
    dense(0, [Rec(headers=((b"h\xff", b"1"), (b"n", None))), Rec(key=b"", value=None)], codec=ZSTD),
    Batch(2, {0: Rec(), 3: Rec()}, bits=TRANSACTIONAL, producer_id=PRODUCER),
    marker(6, 0, PRODUCER),
    Batch(9, {0: Rec(), 2: Rec()}, codec=GZIP),
    message(12, 1, Rec()),
    message(13, 0, Rec(key=None)),
)
ABORTED = [AbortedTransaction(PRODUCER, 2)]


def read(offset: int, aborted: list[AbortedTransaction] = ABORTED) -> SideRead:
    return search_batches(LOG, aborted, ("topic", 0), offset=offset, ends=ENDS)


@pytest.mark.parametrize(
    ("offset", "presence", "next_offset"),
    [
        (0, Presence.RECORD, 1),
        (1, Presence.RECORD, 2),
        (2, Presence.ABORTED, 6),
        (3, Presence.ABORTED, 6),
        (6, Presence.TRANSACTION_MARKER, 7),
        (7, Presence.NO_RECORD, 9),  # between two batches
        (9, Presence.RECORD, 10),
        (10, Presence.NO_RECORD, 11),  # within a batch
        (11, Presence.RECORD, 12),
        (12, Presence.RECORD, 13),
        (13, Presence.RECORD, None),
    ],
)
def test_offset_has_what_its_batch_has(offset: int, presence: Presence, next_offset: int | None) -> None:
    found = read(offset).view

    assert (found.presence, found.next_offset, found.record is not None) == (presence, next_offset, presence is Presence.RECORD)


def test_transaction_that_is_not_aborted_has_records() -> None:
    assert read(2, []).view.presence is Presence.RECORD
    assert read(3, []).view.presence is Presence.NO_RECORD
    assert read(6).view.marker == "ABORT"


def test_null_empty_and_odd_fields_are_kept_apart() -> None:
    first, second, old = read(0).view.record, read(1).view.record, read(13).view.record

    assert first is not None
    assert [header.name for header in first.headers] == ["h\\xff", "n"]
    assert first.headers[1] == HeaderView(name="n", value=None)
    assert second is not None
    assert (second.key is not None and second.key.size, second.value) == (0, None)
    assert old is not None
    assert (old.key, old.timestamp_type, old.timestamp_ms) == (None, "none", -1)


def test_batch_has_its_compression_and_leader_epoch() -> None:
    seen = []
    for offset in (0, 9, 12):
        batch = read(offset).view.batch
        assert batch is not None
        seen.append((batch.compression, batch.leader_epoch, batch.record_count))

    assert seen == [("zstd", 7, 2), ("gzip", 7, 2), ("none", None, 1)]


@pytest.mark.parametrize(
    "changed",
    [
        Rec(key=b"K"),
        Rec(value=b"V"),
        Rec(value=None),
        Rec(headers=((b"a", b"b"),)),
        Rec(headers=((b"ab", b""),)),
        Rec(headers=((b"", None),)),
        Rec(timestamp=1),
    ],
)
def test_each_part_of_a_record_has_its_own_digest(changed: Rec) -> None:
    digests = {digests_of(Rec()), digests_of(Rec(headers=((b"a", b""),))), digests_of(changed)}

    assert len(digests) == 3
    assert digests_of(changed) == digests_of(changed, codec=ZSTD)


def digests_of(record: Rec, **options: int) -> object:
    data = log_of(dense(0, [record], **options))
    return search_batches(data, [], ("topic", 0), offset=0, ends=ENDS).digests


def test_batch_is_read_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing_records, "MOST_READ", 1_000)
    data = log_of(dense(0, [Rec(value=bytes(400)) for _ in range(4)], codec=ZSTD))

    def view(offset: int) -> SideView:
        return search_batches(data, [], ("topic", 0), offset=offset, ends=ENDS).view

    assert (view(0).presence, view(1).presence) == (Presence.RECORD, Presence.RECORD)
    with pytest.raises(LinkEngineError, match="offset 2 is not shown") as refused:
        view(2)
    assert refused.value.code is ErrorCode.RECORDS_TOO_LARGE


def test_reading_a_batch_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing_records, "BUDGET_S", -1.0)

    with pytest.raises(LinkEngineError) as refused:
        read(1)
    assert refused.value.code is ErrorCode.RECORDS_TOO_LARGE


def test_damaged_batch_and_missing_batch_are_errors() -> None:
    whole = dense(0, [Rec()]).encode()
    with pytest.raises(LinkEngineError, match="checksum") as damaged:
        search_batches(memoryview(bytearray(whole[:-1] + b"x")), [], ("topic", 0), offset=0, ends=ENDS)
    with pytest.raises(LinkEngineError, match="no data for offset 5"):
        search_batches(memoryview(bytearray(whole)), [], ("topic", 0), offset=5, ends=ENDS)

    assert damaged.value.code is ErrorCode.CORRUPT_RECORDS
