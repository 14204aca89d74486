"""The fast path for plain responses: its plan equals that of ``planning``, or it returns None."""

import pytest

from linkengine.batches.coalesce import plain_appends
from linkengine.batches.planning import AbortedTransaction, SegmentPlanner
from linkengine.batches.view import CorruptBatchError
from tests.linkengine.batches.batchlog import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LZ4,
    TRANSACTIONAL,
    Batch,
    Rec,
    dense,
    log_of,
    message,
    resealed,
)

ATTRIBUTES_LOW = 22
BIG = [Rec(value=b"x" * 70_000)]  # too large to be merged with a neighbour
FIRST = dense(10, BIG)
UNRELATED_ABORT = [AbortedTransaction(1 << 40, 0)]  # disables the planner's fast path
FAR = 1 << 40


@pytest.mark.parametrize(
    "log",
    [
        log_of(FIRST),
        log_of(FIRST, dense(11, BIG * 3)),
        log_of(FIRST, dense(11, [Rec()]), dense(12, BIG)),
        log_of(dense(10, [Rec()])),
        log_of(dense(10, BIG, bits=TRANSACTIONAL, producer_id=5), dense(11, BIG, bits=DELETE_HORIZON)),
        log_of(dense(10, [Rec(value=bytes(range(256)) * 90)] * 300, codec=LZ4), dense(310, BIG)),
        log_of(FIRST, dense(11, BIG))[:-1],
        log_of(FIRST, dense(11, BIG).encode()[:17]),
        log_of(FIRST, dense(11, BIG).encode()[:16]),
        log_of(FIRST)[:-1],
        log_of(),
    ],
)
def test_plain_batches_are_planned_as_without_the_fast_path(log: memoryview) -> None:
    appends = plain_appends(log, next_offset=10, high_end=FAR)

    assert appends == SegmentPlanner().plan(log, next_offset=10, high_end=FAR, aborted=UNRELATED_ABORT)
    assert all(append.payload.obj is log.obj for append in appends or ())


@pytest.mark.parametrize(
    "log",
    [
        log_of(FIRST, dense(11, BIG, bits=CONTROL)),
        log_of(FIRST, dense(11, BIG, bits=LOG_APPEND_TIME)),
        log_of(FIRST, dense(12, BIG)),
        log_of(dense(9, BIG * 2)),
        log_of(Batch(10, {0: BIG[0], 2: BIG[0]})),
        log_of(Batch(10, {0: BIG[0]}, last_offset_delta=3)),
        log_of(Batch(10, {}, last_offset_delta=0)),
        log_of(dense(10, [Rec()]), dense(11, [Rec()])),
        log_of(message(10, 1, Rec()), FIRST),
    ],
)
def test_a_response_with_other_batches_is_left_to_the_planner(log: memoryview) -> None:
    assert plain_appends(log, next_offset=10, high_end=FAR) is None


def test_nothing_beyond_the_last_stable_offset_is_planned() -> None:
    assert plain_appends(log_of(FIRST, dense(11, BIG * 2)), next_offset=10, high_end=12) is None
    assert plain_appends(log_of(FIRST, dense(11, BIG * 2)), next_offset=10, high_end=13) is not None


def test_an_invalid_batch_raises_or_is_left_to_the_planner() -> None:
    unknown_codec = log_of(resealed(FIRST.encode(), ATTRIBUTES_LOW, 7))
    cut_short = bytearray(FIRST.encode())[:40]
    cut_short[8:12] = bytes(4)  # the length

    assert plain_appends(unknown_codec, next_offset=10, high_end=FAR) is None
    with pytest.raises(CorruptBatchError, match="claims a length"):
        plain_appends(memoryview(cut_short), next_offset=10, high_end=FAR)
