import pytest

from linkengine.batches.planning import AbortedTransaction, Append, Fill, SegmentPlanner, Step, is_contradictory
from linkengine.batches.view import NOT_SEEN, CorruptBatchError, UnconfirmedBatchError
from linkengine.domain.states import GapReason
from tests.linkengine.batches.batchlog import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LZ4,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Rec,
    dense,
    log_of,
    marker,
    message,
    read_payload,
    wrapper,
)

MARKER, ABORTED, COMPACTED = GapReason.TRANSACTION_MARKER, GapReason.ABORTED, GapReason.COMPACTED
BIG = Rec(value=b"x" * 70_000)  # too large to be merged with a neighbour


def plan(
    *log: Batch | bytes, start: int = 0, high_end: int = 1 << 40, aborted: tuple[AbortedTransaction, ...] = ()
) -> list[Step]:
    return SegmentPlanner().plan(log_of(*log), next_offset=start, aborted=aborted, high_end=high_end)


def spans(steps: list[Step]) -> list[tuple[int, int, GapReason | None]]:
    return [(step.start, step.end, step.reason if isinstance(step, Fill) else None) for step in steps]


def records(step: Step) -> tuple[Rec, ...]:
    assert isinstance(step, Append)
    return read_payload(step.payload).records


def test_a_dense_batch_passes_as_a_slice_of_the_buffer() -> None:
    data = bytearray(dense(0, [BIG]).encode() + dense(1, [BIG, BIG]).encode())

    first, second = SegmentPlanner().plan(memoryview(data), next_offset=0, high_end=3)

    assert isinstance(first, Append)
    assert isinstance(second, Append)
    assert first.payload.obj is data
    assert second.payload.obj is data
    assert first.payload.tobytes() + second.payload.tobytes() == data
    assert (second.base_offset, second.count, second.records, second.max_timestamp) == (1, 2, 2, BIG.timestamp)


@pytest.mark.parametrize("bits", [0, TRANSACTIONAL, DELETE_HORIZON])
def test_a_batch_with_clearable_bits_passes_without_decoding(bits: int) -> None:
    data = bytearray(dense(0, [Rec()] * 3, bits=bits, producer_id=5).encode())

    (step,) = SegmentPlanner().plan(memoryview(data), next_offset=0, high_end=3)

    assert isinstance(step, Append)
    assert step.payload.obj is data


def test_adjacent_control_batches_become_a_single_marker_fill() -> None:
    steps = plan(dense(0, [Rec()]), marker(1, 1, 5), marker(2, 0, 6), dense(3, [Rec()]), Batch(4, {}, 0, bits=CONTROL))

    assert spans(steps) == [(0, 1, None), (1, 3, MARKER), (3, 4, None), (4, 5, MARKER)]


def test_a_response_with_only_control_batches_is_a_single_fill() -> None:
    assert spans(plan(*(marker(offset, 1, 5) for offset in range(40, 50)), start=40)) == [(40, 50, MARKER)]


def test_aborted_data_is_filled_until_the_abort_marker_and_interleaved_producers_are_not() -> None:
    def data(offset: int, producer: int) -> Batch:
        return dense(offset, [Rec()], bits=TRANSACTIONAL, producer_id=producer)

    steps = plan(
        data(0, 5),
        data(1, 6),
        dense(2, [Rec()], producer_id=5),  # not transactional
        data(3, 5),
        marker(4, 1, 6),
        marker(5, 0, 5),
        data(6, 5),  # its next transaction, committed
        marker(7, 1, 5),
        aborted=(AbortedTransaction(5, 0),),
    )

    assert spans(steps) == [(0, 1, ABORTED), (1, 3, None), (3, 4, ABORTED), (4, 6, MARKER), (6, 7, None), (7, 8, MARKER)]


def test_aborted_transactions_of_a_producer_may_be_listed_in_any_order() -> None:
    def data(offset: int) -> Batch:
        return dense(offset, [Rec()], bits=TRANSACTIONAL, producer_id=5)

    steps = plan(
        data(0),
        marker(1, 0, 5),
        data(2),
        marker(3, 1, 5),
        data(4),
        marker(5, 0, 5),
        aborted=(AbortedTransaction(5, 4), AbortedTransaction(5, 0)),
    )

    assert [reason for *_, reason in spans(steps)] == [ABORTED, MARKER, None, MARKER, ABORTED, MARKER]


def test_a_transaction_that_began_before_the_response_is_recognized_as_aborted() -> None:
    steps = plan(
        dense(7, [Rec()] * 5, bits=TRANSACTIONAL, producer_id=5), marker(12, 0, 5), start=9, aborted=(AbortedTransaction(5, 2),)
    )

    assert spans(steps) == [(9, 12, ABORTED), (12, 13, MARKER)]


def test_a_batch_that_contains_the_next_offset_is_rewritten_from_there() -> None:
    numbered = [Rec(key=b"%d" % number) for number in range(10)]

    steps = plan(dense(0, [Rec()]), dense(1, numbered, codec=ZSTD), start=4)

    assert spans(steps) == [(4, 11, None)]
    assert records(steps[0]) == tuple(numbered[3:])
    assert isinstance(steps[0], Append)
    assert read_payload(steps[0].payload).attributes == ZSTD


def test_gaps_inside_between_and_behind_batches_are_fills() -> None:
    log = [Batch(2, {1: Rec(key=b"a"), 2: Rec(key=b"b"), 5: Rec(key=b"c")}, last_offset_delta=7, codec=LZ4), dense(12, [BIG])]

    steps = plan(*log)

    assert spans(steps) == [
        (0, 3, COMPACTED),
        (3, 5, None),
        (5, 7, COMPACTED),
        (7, 8, None),
        (8, 12, COMPACTED),
        (12, 13, None),
    ]
    assert [record.key for record in records(steps[1])] == [b"a", b"b"]


def test_a_batch_emptied_by_the_log_cleaner_is_a_gap() -> None:
    assert spans(plan(Batch(0, {}, 4), Batch(5, {}, 0, bits=TRANSACTIONAL))) == [(0, 6, COMPACTED)]


def test_log_append_time_is_rewritten_as_create_time() -> None:
    source = dense(0, [Rec(timestamp=1), Rec(timestamp=2)], bits=LOG_APPEND_TIME, max_timestamp=500, codec=LZ4)

    (step,) = plan(source)

    assert isinstance(step, Append)
    assert step.max_timestamp == 500
    assert read_payload(step.payload).attributes == LZ4
    assert [record.timestamp for record in records(step)] == [500, 500]


def test_old_message_sets_become_batches_of_magic_2() -> None:
    packed = wrapper(1, LZ4, {4: Rec(key=b"d"), 6: Rec(key=b"e")})

    steps = plan(message(0, 0, Rec(key=b"a")), message(1, 1, Rec(key=b"b")), message(2, 1, Rec(key=b"c")), packed, start=1)

    assert spans(steps) == [(1, 3, None), (3, 4, COMPACTED), (4, 5, None), (5, 6, COMPACTED), (6, 7, None)]
    assert [record.key for record in records(steps[0])] == [b"b", b"c"]
    assert [record.key for record in records(steps[4])] == [b"e"]


def test_batches_before_the_next_offset_add_no_steps() -> None:
    damaged = bytearray(Batch(0, {0: Rec(), 2: Rec()}).encode())
    damaged[-1] ^= 1  # batches that are not wanted are not decoded

    assert plan(bytes(damaged), message(3, 1, Rec()), start=4) == []
    assert plan(start=4) == []


def test_a_large_batch_with_a_gap_is_split_only_at_the_gap() -> None:
    steps = plan(Batch(0, {number: Rec(value=b"%07d" % number * 4000) for number in range(100) if number != 50}))

    assert spans(steps) == [(0, 50, None), (50, 51, COMPACTED), (51, 100, None)]


def test_the_high_end_cuts_a_batch_and_a_gap() -> None:
    log = [dense(0, [Rec()] * 4), dense(9, [Rec()])]

    assert spans(plan(*log, high_end=2)) == [(0, 2, None)]
    assert spans(plan(*log, high_end=6)) == [(0, 4, None), (4, 6, COMPACTED)]
    assert spans(plan(*log, high_end=0)) == []


def test_damage_in_a_batch_that_must_be_decoded_is_refused() -> None:
    sparse = bytearray(Batch(0, {0: Rec(), 2: Rec()}).encode())
    sparse[-1] ^= 1

    with pytest.raises(CorruptBatchError, match="checksum"):
        plan(bytes(sparse))


def _flipped(batch: Batch, at: int, bit: int) -> bytes:
    data = bytearray(batch.encode())
    data[at] ^= bit
    return bytes(data)


_OF_7 = {"bits": TRANSACTIONAL, "producer_id": 7}


@pytest.mark.parametrize(
    "log",
    [
        [_flipped(dense(0, [Rec()] * 10), 22, CONTROL)],
        [_flipped(dense(0, [Rec()]), 60, 1)],
        [_flipped(marker(0, 1, 5), 26, 4)],
        [dense(0, [Rec()], **_OF_7), _flipped(marker(1, 0, 7), 50, 8), dense(2, [Rec()], **_OF_7), marker(3, 1, 7)],
        [dense(0, [Rec()], **_OF_7), _flipped(marker(1, 0, 7), 22, TRANSACTIONAL), dense(2, [Rec()], **_OF_7)],
        [dense(0, [Rec()], **_OF_7), _flipped(dense(1, [Rec()], bits=TRANSACTIONAL, producer_id=6), 50, 1)],
    ],
    ids=[
        "data with the control bit",
        "an emptied batch",
        "a longer marker",
        "abort marker of another producer",
        "an abort marker without a transaction",
        "data of another producer",
    ],
)
def test_a_flipped_bit_does_not_make_a_gap_of_records(log: list[Batch | bytes]) -> None:
    """A fill cannot be undone, so the batch that it replaces must be undamaged."""
    with pytest.raises(CorruptBatchError, match="does not have the checksum"):
        plan(*log, aborted=(AbortedTransaction(7, 0),), high_end=1_000)


COMMIT, ABORT = 1, 0


@pytest.mark.parametrize(
    ("kind", "listed", "consistent"),
    [
        (COMMIT, (), True),
        (ABORT, (AbortedTransaction(5, 0),), True),
        (COMMIT, (AbortedTransaction(5, 0),), False),  # a committed transaction would be lost
        (ABORT, (), False),  # an aborted record would be copied
        (ABORT, (AbortedTransaction(4, 0),), False),  # a flipped bit in the producer id
        (ABORT, (AbortedTransaction(5, 64),), False),  # or in the first offset
        (COMMIT, (AbortedTransaction(5, 3),), True),  # of a later transaction
    ],
)
def test_response_whose_marker_contradicts_its_aborted_transactions_is_read_again(
    kind: int, listed: tuple[AbortedTransaction, ...], *, consistent: bool
) -> None:
    log = (dense(0, [BIG, BIG], bits=TRANSACTIONAL, producer_id=5), marker(2, kind, 5), marker(3, ABORT, 9))

    def planned(seen: int | None) -> list[Step]:
        return SegmentPlanner().plan(log_of(*log), next_offset=0, aborted=listed, high_end=4, seen=seen)

    assert is_contradictory(log_of(*log), listed) is not consistent
    if consistent:
        assert planned(NOT_SEEN)[-1].end == 4
        return
    with pytest.raises(UnconfirmedBatchError) as raised:
        planned(NOT_SEEN)
    assert raised.value.base_offset == 2
    assert planned(2)[-1].end == 4  # consumers of the source see the same
    assert planned(None)[-1].end == 4  # it cannot be read again


def test_producer_that_commits_and_then_aborts_does_not_contradict_itself() -> None:
    def data(offset: int) -> Batch:
        return dense(offset, [BIG], bits=TRANSACTIONAL, producer_id=5)

    log = log_of(
        data(0), marker(1, COMMIT, 5), data(2), marker(3, ABORT, 5), marker(4, ABORT, 5), data(5), marker(6, COMMIT, 5)
    )

    steps = SegmentPlanner().plan(log, next_offset=0, aborted=(AbortedTransaction(5, 2),), high_end=7, seen=NOT_SEEN)

    assert [step.end for step in steps if isinstance(step, Append)] == [1, 6]
