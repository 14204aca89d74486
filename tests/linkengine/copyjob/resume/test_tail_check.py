"""The tail check compares a mirror's last records with its source, on handmade batches."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.batches.patch import patch_for_append
from linkengine.batches.records import encode_records
from linkengine.batches.view import crc32c, read_view
from linkengine.copyjob.resume import tail_check
from linkengine.copyjob.resume.tail_check import Difference, DifferenceKind, first_difference, read_log_tail
from linkengine.copyjob.values import LogTail
from linkengine.domain.errors import LinkEngineError
from tests.linkengine.batches.batchlog import GZIP, Rec, message, wrapper
from tests.linkengine.copyjob.partitions import unexpected

OWN_ID, OTHER_ID, ABORTING_ID = 1 << 62, 7, 8
TOPIC = ("t", bytes(16), 0)
CONNECTION: Any = SimpleNamespace()  # the connection, which is not used


def batch(base: int, *values: str, producer_id: int = OWN_ID, codec: int = 0, key: bytes | None = None) -> bytes:
    records: Any = [
        SimpleNamespace(offset=base + at, timestamp=1_000 + base + at, key=key, value=value.encode(), headers=[("h", None)])
        for at, value in enumerate(values)
    ]
    encoded = encode_records(records, codec=codec)
    patch_for_append(memoryview(encoded), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    encoded[0:8] = base.to_bytes(8, "big")  # as the broker does
    return bytes(encoded)


def marker(base: int, *, producer_id: int = OWN_ID) -> bytes:
    encoded = bytearray(batch(base, "", producer_id=producer_id, key=bytes(4)))  # version 0, ABORT
    encoded[22] |= 0x30  # control, transactional
    return with_crc(encoded)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bytes]]:
    """Return the batches of each side; a read returns all batches that reach the offset."""
    held: dict[str, list[bytes]] = {"mirror": [], "source": []}

    monkeypatch.setattr(
        tail_check, "read_with_aborted", lambda *_, offset, **__: (0, [(ABORTING_ID, 3)], reaching(held["mirror"], offset))
    )
    monkeypatch.setattr(tail_check, "read_committed", lambda *_, offset, **__: (0, (), reaching(held["source"], offset)))
    return held


def reaching(batches: list[bytes], offset: int) -> memoryview:
    """Return the batches that reach the offset."""
    return memoryview(b"".join(encoded for encoded in batches if _end(encoded) > offset))


def _end(encoded: bytes) -> int:
    view = read_view(encoded)
    assert view is not None
    return view.next_offset


def with_append_time(base: int, value: str, *, codec: int, at_ms: int) -> bytes:
    """Return a batch of a single record in a topic with LogAppendTime; the record itself has the time 1,000 + offset."""
    encoded = bytearray(batch(base, value, codec=codec))
    encoded[22] |= 0x08
    encoded[35:43] = at_ms.to_bytes(8, "big")  # max timestamp
    return with_crc(encoded)


def with_crc(encoded: bytearray) -> bytes:
    encoded[17:21] = crc32c(bytes(encoded[21:])).to_bytes(4, "big")
    return bytes(encoded)


def never() -> bool:
    return False


def always() -> bool:
    return True


def difference(tail: LogTail, *, bounds: tuple[int, int], compacted: Callable[[], bool] = never) -> Difference | None:
    return first_difference(CONNECTION, topic=TOPIC, leader_epoch=0, bounds=bounds, tail=tail, compacted=compacted)


def range_of(mirror: Sequence[bytes], *, end: int, start: int = 0, local_start: int = 0) -> LogTail:
    return read_log_tail(
        CONNECTION, topic=TOPIC, leader_epoch=0, bounds=(start, end), producer_id=OWN_ID, local_start=lambda: local_start
    )


def test_tail_is_the_whole_last_batch_but_nothing_before_the_log_start(logs: dict[str, list[bytes]]) -> None:
    logs["mirror"] = [batch(0, "a", "b"), batch(2, "c", "d", "e")]
    tail = range_of(logs["mirror"], end=5)
    assert (tail.start, tail.end, sorted(tail.records), tail.foreign) == (2, 5, [2, 3, 4], None)
    assert range_of(logs["mirror"], end=5, start=3).start == 3


def test_tail_extends_over_markers_to_the_records_before_them(logs: dict[str, list[bytes]]) -> None:
    logs["mirror"] = [batch(0, "a", producer_id=OTHER_ID), *(marker(at) for at in range(1, 40))]
    tail = range_of(logs["mirror"], end=40)
    assert (sorted(tail.records), tail.markers, tail.foreign) == ([0], frozenset(range(1, 40)), 0)
    assert tail.only_markers_from(1)
    assert not tail.only_markers_from(0)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ([batch(0, "a", "b"), marker(2, producer_id=OTHER_ID)], None),
        ([batch(0, "a", "b")], None),
        ([batch(0, "a", "B"), marker(2, producer_id=OTHER_ID)], (1, DifferenceKind.RECORD)),
        ([batch(0, "a", "b", "c")], (2, DifferenceKind.MARKER)),
        ([], None),
    ],
    ids=["equal", "not visible yet", "another record", "a record under a marker", "compacted away"],
)
def test_first_difference_is_reported_with_offset_and_kind(
    logs: dict[str, list[bytes]], source: list[bytes], expected: tuple[int, DifferenceKind] | None
) -> None:
    logs["mirror"], logs["source"] = [batch(0, "a", "b"), marker(2)], source
    found = difference(range_of(logs["mirror"], end=3), bounds=(0, 10))
    assert (None if found is None else (found.offset, found.kind)) == expected


def test_foreign_record_at_the_offset_of_a_source_marker_is_a_difference(logs: dict[str, list[bytes]]) -> None:
    logs["mirror"] = [batch(0, "a", "b"), batch(2, "foreign", producer_id=OTHER_ID)]
    logs["source"] = [batch(0, "a", "b"), marker(2, producer_id=OTHER_ID)]

    tail = range_of(logs["mirror"], end=3)
    found = difference(tail, bounds=(0, 3))

    assert tail.foreign == 2
    assert found == Difference(offset=2, kind=DifferenceKind.RECORD)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(("at_ms", "expected"), [(5_000, None), (5_001, 2)], ids=["the same time", "another time"])
def test_append_time_of_the_source_equals_the_records_own_time_on_the_mirror(
    logs: dict[str, list[bytes]], codec: int, at_ms: int, expected: int | None
) -> None:
    """A fetched response is read-only memory, and a batch of a single record gets its time in place."""
    copied = bytearray(batch(2, "late"))
    copied[27:35] = copied[35:43] = (5_000).to_bytes(8, "big")
    logs["mirror"] = [batch(0, "a", "b"), with_crc(copied)]
    logs["source"] = [batch(0, "a", "b"), with_append_time(2, "late", codec=codec, at_ms=at_ms)]

    found = difference(range_of(logs["mirror"], end=3), bounds=(0, 3))

    assert (None if found is None else found.offset) == expected


def test_marker_explained_by_compaction_does_not_hide_later_differences(logs: dict[str, list[bytes]]) -> None:
    logs["mirror"] = [marker(0), batch(1, "a"), batch(2, "c", "d")]
    logs["source"] = [batch(0, "old", key=b"k"), batch(1, "a"), batch(2, "c", "D")]
    tail = replace(range_of(logs["mirror"], end=4), start=0, markers=frozenset({0}))
    requested: list[str] = []

    def compacted() -> bool:
        requested.append("once")
        return True

    found = difference(tail, bounds=(0, 4), compacted=compacted)
    assert found == Difference(offset=3, kind=DifferenceKind.RECORD)
    assert requested == ["once"]

    assert difference(tail, bounds=(0, 4)) == Difference(offset=0, kind=DifferenceKind.MARKER)
    logs["source"][0] = batch(0, "old")  # compaction never removes a record without a key
    assert difference(tail, bounds=(0, 4), compacted=unexpected) == Difference(offset=0, kind=DifferenceKind.MARKER)


def test_tail_check_fails_while_remote_storage_of_the_mirror_returns_nothing(
    logs: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last marker is returned; the records before it are on remote storage."""
    logs["mirror"] = [batch(0, "a", "b"), marker(2), marker(3)]
    monkeypatch.setattr(
        tail_check,
        "read_with_aborted",
        lambda *_, offset, **__: (0, (), reaching(logs["mirror"], offset) if offset >= 3 else memoryview(b"")),
    )

    with pytest.raises(LinkEngineError, match="Remote storage of mirror t-0"):
        range_of(logs["mirror"], end=4, local_start=3)


def test_tail_of_a_mirror_whose_end_was_compacted_is_empty(logs: dict[str, list[bytes]]) -> None:
    tail = range_of(logs["mirror"], end=4)

    assert (tail.start, tail.records, tail.markers) == (0, {}, frozenset())


def test_tail_check_fails_while_remote_storage_of_the_source_returns_nothing(logs: dict[str, list[bytes]]) -> None:
    logs["mirror"] = [batch(0, "a", "b")]

    tail = range_of(logs["mirror"], end=2)

    with pytest.raises(LinkEngineError, match="slow"):
        first_difference(CONNECTION, topic=TOPIC, leader_epoch=0, bounds=(0, 2), tail=tail, compacted=never, local_start=2)


def test_offsets_below_the_sources_log_start_are_not_compared(logs: dict[str, list[bytes]]) -> None:
    logs["mirror"], logs["source"] = [batch(0, "a", "b")], [batch(0, "x", "y")]
    tail = range_of(logs["mirror"], end=2)
    assert difference(tail, bounds=(2, 2)) is None


def test_aborted_records_of_applications_are_not_records_of_the_mirror(logs: dict[str, list[bytes]]) -> None:
    """A reversal closes a topic, which aborts open transactions; the other side has fillers there."""
    aborted = bytearray(batch(3, "never", "seen", producer_id=ABORTING_ID))
    aborted[22] |= 0x10  # transactional
    logs["mirror"] = [batch(0, "a", "b", "c", producer_id=OTHER_ID), bytes(aborted)]
    logs["source"] = [batch(0, "a", "b", "c"), marker(3), marker(4)]

    tail = range_of(logs["mirror"], end=5)

    assert sorted(tail.records) == [0, 1, 2]
    assert difference(tail, bounds=(0, 5)) is None


def test_aborted_foreign_transaction_at_the_offsets_of_records_is_a_difference(
    logs: dict[str, list[bytes]],
) -> None:
    aborted = bytearray(batch(3, "never", "seen", key=b"k", producer_id=ABORTING_ID))
    aborted[22] |= 0x10  # transactional
    logs["mirror"] = [batch(0, "a", "b", "c"), bytes(aborted), marker(5, producer_id=ABORTING_ID)]
    logs["source"] = [batch(0, "a", "b", "c"), batch(3, "d", key=b"k"), marker(4), marker(5)]
    tail = range_of(logs["mirror"], end=6)

    for compacted in (never, always):  # compaction never turns a record into aborted data
        assert difference(tail, bounds=(0, 6), compacted=compacted) == Difference(offset=3, kind=DifferenceKind.FOREIGN)


def test_marker_with_another_producer_id_is_accepted_as_filler_of_a_compacted_offset(
    logs: dict[str, list[bytes]],
) -> None:
    """The transaction coordinator may have assigned another producer id since the offset was filled."""
    logs["mirror"] = [batch(0, "a", "b"), marker(2, producer_id=OTHER_ID)]
    logs["source"] = [batch(0, "a", "b"), batch(2, "c", key=b"k")]
    tail = range_of(logs["mirror"], end=3)

    assert difference(tail, bounds=(0, 3)) == Difference(offset=2, kind=DifferenceKind.FOREIGN)
    assert difference(tail, bounds=(0, 3), compacted=always) is None


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("last", "expected"), [(b"z", None), (b"Z", 4)], ids=["the same", "another one"])
def test_records_of_message_formats_before_kafka_0_11_are_compared(
    logs: dict[str, list[bytes]], magic: int, last: bytes, expected: int | None
) -> None:
    """When sides are reversed, a topic becomes a mirror with everything it holds."""
    wrapped = {2: Rec(value=b"x"), 3: Rec(value=b"y"), 4: Rec(value=b"z")}
    logs["mirror"] = [batch(0, "a"), message(1, magic, Rec()), wrapper(magic, GZIP, wrapped)]
    logs["source"] = [*logs["mirror"][:2], wrapper(magic, GZIP, wrapped | {4: Rec(value=last)})]

    tail = range_of(logs["mirror"], end=5)
    found = difference(tail, bounds=(0, 5))

    assert (tail.start, sorted(tail.records)) == (2, [2, 3, 4])
    assert (None if found is None else found.offset) == expected
