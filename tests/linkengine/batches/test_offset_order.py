"""Base offsets are outside the checksum: damage is detected by the adjacent batches, or by a second read."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkengine.batches.planning import Append, Fill, SegmentPlanner, Step
from linkengine.batches.view import NOT_SEEN, CorruptBatchError, UnconfirmedBatchError, intact_part
from tests.linkengine.batches.batchlog import LZ4, Batch, Rec, dense, log_of, message, read_payload, wrapper

HUGE = Rec(value=b"x" * 70_000)  # too large to be merged with a neighbour
FIRST, BATCHES, RECORDS = 100, 6, 3
END = FIRST + BATCHES * RECORDS
LEAST_SEEN = 80  # maximum of bytes that are cut off: the last base offset is still complete


def whole_log() -> bytearray:
    """Return a log without gaps from offset 100 on; the key of each record is its offset."""
    return bytearray(
        b"".join(
            dense(base, [Rec(key=b"%d" % (base + delta)) for delta in range(RECORDS)]).encode()
            for base in range(FIRST, END, RECORDS)
        )
    )


def damaged(number: int, bit: int) -> memoryview:
    """Return the log with one flipped bit in a batch's base offset."""
    data = whole_log()
    at = number * len(data) // BATCHES
    (base,) = struct.unpack_from(">q", data, at)
    struct.pack_into(">Q", data, at, base ^ (1 << bit))
    return memoryview(data)


def plan(data: memoryview, *, start: int = FIRST, high_end: int = END, seen: int | None = NOT_SEEN) -> list[Step]:
    return SegmentPlanner().plan(data, next_offset=start, high_end=high_end, seen=seen)


def spans(steps: list[Step]) -> list[tuple[int, int, bool]]:
    return [(step.start, step.end, isinstance(step, Fill)) for step in steps]


def keys(step: Step) -> list[bytes | None]:
    assert isinstance(step, Append)
    return [record.key for record in read_payload(step.payload).records]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, BATCHES - 1), st.integers(0, 63), st.integers(FIRST, END - 1), st.integers(0, LEAST_SEEN), st.data())
def test_no_flipped_bit_moves_or_hides_a_record(number: int, bit: int, start: int, cut: int, data: st.DataObject) -> None:
    buffer = damaged(number, bit)
    size = len(buffer) // BATCHES
    skipped = (start - FIRST) // RECORDS
    buffer = buffer[skipped * size : len(buffer) - data.draw(st.sampled_from([0, cut]))]

    try:
        steps = plan(buffer, start=start)
    except (CorruptBatchError, UnconfirmedBatchError):
        return

    found = {step.start + at: key for step in steps for at, key in enumerate(keys(step))}
    assert found == {offset: b"%d" % offset for offset in found}


@pytest.mark.parametrize("cut", [1, 40, 80])
def test_a_batch_moved_to_the_fetched_offset_is_refused(cut: int) -> None:
    data = damaged(4, 0)
    first = 4 * len(data) // BATCHES

    with pytest.raises(CorruptBatchError, match="not its own"):
        plan(data[first : len(data) - cut], start=113)


@pytest.mark.parametrize(("number", "bit"), [(1, 3), (2, 0), (4, 6), (3, 5)], ids=["up", "down", "far up", "far down"])
def test_everything_before_a_moved_batch_is_intact(number: int, bit: int) -> None:
    data = damaged(number, bit)

    with pytest.raises(CorruptBatchError, match="claims"):
        plan(data)
    part = intact_part(data, next_offset=FIRST)

    assert len(part) in ((number - 1) * len(data) // BATCHES, number * len(data) // BATCHES)
    assert [keys(step) for step in plan(part)]


def test_nothing_is_planned_behind_a_moved_first_batch() -> None:
    data = damaged(2, 2)
    rest = data[2 * len(data) // BATCHES :]

    for earlier in (NOT_SEEN, (FIRST + 2 * RECORDS) ^ 4, None):
        with pytest.raises(CorruptBatchError, match="the next begins at"):
            plan(rest, start=FIRST + 2 * RECORDS, seen=earlier)
    with pytest.raises(CorruptBatchError, match="the next begins at"):
        intact_part(rest, next_offset=FIRST + 2 * RECORDS)


def test_an_unconfirmed_gap_at_the_end_of_a_response_is_left_to_the_next_response() -> None:
    log = [dense(0, [HUGE]), dense(9, [HUGE])]

    assert spans(plan(log_of(*log), start=0, high_end=20)) == [(0, 1, False)]
    assert spans(plan(log_of(*log), start=0, high_end=10)) == [(0, 1, False), (1, 9, True), (9, 10, False)]
    assert spans(plan(log_of(*log, dense(10, [Rec()]).encode()[:8]), start=0, high_end=20)) == [
        (0, 1, False),
        (1, 9, True),
        (9, 10, False),
    ]


def test_an_unconfirmed_batch_is_accepted_when_it_is_read_a_second_time() -> None:
    log = log_of(dense(9, [HUGE]))

    with pytest.raises(UnconfirmedBatchError) as raised:
        plan(log, start=1, high_end=20)
    assert raised.value.base_offset == 9
    with pytest.raises(UnconfirmedBatchError):
        plan(log, start=1, high_end=20, seen=17)
    assert spans(plan(log, start=1, high_end=20, seen=9)) == [(1, 9, True), (9, 10, False)]
    assert spans(plan(log, start=1, high_end=20, seen=None)) == [(1, 9, True), (9, 10, False)]  # no second read


@pytest.mark.parametrize("behind", [(), (dense(1 << 40 | 10, [Rec()]),)], ids=["alone", "among others"])
def test_a_batch_beyond_the_stable_end_is_not_a_gap(behind: tuple[Batch, ...]) -> None:
    """The end was read before the batches, so it may just be outdated at the first read."""
    log = log_of(dense(1 << 40 | 9, [Rec()]), *behind)

    with pytest.raises(UnconfirmedBatchError):
        plan(log, start=1, high_end=20)
    with pytest.raises(CorruptBatchError, match="stable offsets below 20"):
        plan(log, start=1, high_end=20, seen=1 << 40 | 9)


def test_records_appended_after_the_end_was_read_are_not_damage() -> None:
    log = log_of(dense(5, [Rec()]), dense(6, [Rec()] * 4))

    assert plan(log, start=5, high_end=5) == []
    assert spans(plan(log, start=5, high_end=6)) == [(5, 6, False)]


def test_a_mirror_that_resumes_within_a_batch_needs_no_second_read() -> None:
    log = [dense(0, [Rec(key=b"%d" % number) for number in range(5)]), dense(5, [HUGE])]

    (within, _) = plan(log_of(*log), start=3, high_end=20)

    assert keys(within) == [b"3", b"4"]
    with pytest.raises(UnconfirmedBatchError):  # a gap behind it: the batch may have been moved down
        plan(log_of(log[0], dense(8, [HUGE])), start=3, high_end=20)


def test_wrappers_of_old_formats_are_accepted_by_their_last_offset() -> None:
    log = log_of(message(1, 1, Rec()), wrapper(1, LZ4, {2: Rec(), 3: Rec(), 4: Rec()}), dense(5, [Rec()]))

    steps = plan(log, start=1, high_end=6)

    assert [offset for step in steps for offset in range(step.start, step.end)] == [1, 2, 3, 4, 5]
    assert not any(isinstance(step, Fill) for step in steps)
