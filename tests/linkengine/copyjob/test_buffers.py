"""Receive buffers are reused, and their bytes are bounded."""

import pytest

from linkengine.copyjob.buffers import (
    AHEAD_UNIT,
    BESIDE_AHEAD,
    BUDGET,
    HUGE_PAGE,
    LOOSE_BUDGET,
    MOST_SHARES,
    SMALLEST,
    AheadMemory,
    AheadShare,
    Buffer,
    BufferPool,
)


def test_a_released_buffer_is_taken_again_and_the_bytes_are_bounded() -> None:
    pool = BufferPool(budget=2 * SMALLEST)
    first, second = pool.take(10), pool.take(SMALLEST)

    assert first is not None
    assert second is not None
    assert pool.take(10) is None
    first.release()
    assert pool.take(20) is first
    assert pool.size == 2 * SMALLEST


def test_a_larger_answer_takes_the_place_of_free_buffers() -> None:
    pool = BufferPool(budget=4 * SMALLEST)
    for one in [pool.take(10), pool.take(10), pool.take(10)]:
        assert one is not None
        one.release()

    large = pool.take(3 * SMALLEST)

    assert large is not None
    assert len(large.view(3 * SMALLEST)) == 3 * SMALLEST
    assert pool.size <= 4 * SMALLEST


def test_an_answer_beyond_the_budget_is_read_when_nothing_else_is_held() -> None:
    pool = BufferPool(budget=2 * SMALLEST)
    small = pool.take(10)
    assert small is not None

    assert pool.take(100 * SMALLEST) is None
    small.release()
    huge = pool.take(100 * SMALLEST)

    assert huge is not None
    assert pool.size == 100 * SMALLEST
    huge.release()
    assert pool.take(10) is not huge
    assert pool.size == SMALLEST


@pytest.mark.parametrize("size", [1, SMALLEST, SMALLEST + 1, (8 << 20) + 108, BUDGET])
def test_a_buffer_is_hardly_larger_than_its_answer_and_takes_what_comes(size: int) -> None:
    pool = BufferPool()
    one = pool.take(size)
    assert one is not None

    view = one.view(size)
    view[-1] = 7

    assert len(view) == size
    assert pool.size - size < HUGE_PAGE


def test_what_is_copied_out_of_buffers_is_bounded_too() -> None:
    pool = BufferPool()
    first = pool.loose(LOOSE_BUDGET)
    assert first is not None

    assert pool.loose(1) is None
    first.release()

    assert pool.loose(1) is not None


def test_a_giant_that_was_refused_has_the_next_turn_until_nobody_waits_for_it() -> None:
    pool = BufferPool(budget=4 * SMALLEST)
    held = pool.take(10)
    assert held is not None
    assert pool.take(100 * SMALLEST) is None

    assert pool.take(10) is None  # one small answer after the other would keep it waiting for ever
    pool.expect_none()  # its connection is lost
    assert pool.take(10) is not None


def test_a_giant_gets_its_turn_and_others_go_on_behind_it() -> None:
    pool = BufferPool(budget=4 * SMALLEST)
    held = pool.take(10)
    assert held is not None
    assert pool.take(100 * SMALLEST) is None
    held.release()
    giant = pool.take(100 * SMALLEST)
    assert giant is not None
    giant.release()
    assert pool.take(10) is not None


def take(share: AheadShare | None, *, head: bool = False, size: int = AHEAD_UNIT) -> Buffer | None:
    assert share is not None
    return share.take(size, head=head)


def test_memory_for_reading_ahead_is_shared_evenly_and_its_sum_is_bounded() -> None:
    memory = AheadMemory(budget=6 * AHEAD_UNIT, reserve=2 * AHEAD_UNIT)
    first = memory.open()
    alone = [take(first) for _ in range(7)]
    assert [buffer is not None for buffer in alone] == [True] * 6 + [False]

    second = memory.open()
    refused = take(second)  # the first one still uses everything
    assert first is not None
    exceeded = first.exceeded
    for buffer in alone[:4]:
        assert buffer is not None
        buffer.release()
    taken = [take(second) for _ in range(4)]

    assert refused is None
    assert exceeded
    assert not first.exceeded
    assert [buffer is not None for buffer in taken] == [True] * 3 + [False]
    assert memory.size <= 8 * AHEAD_UNIT


def test_what_is_planned_next_has_a_reserve() -> None:
    memory = AheadMemory(budget=2 * AHEAD_UNIT, reserve=AHEAD_UNIT)
    share = memory.open()
    held = [take(share), take(share)]

    assert take(share) is None
    head = take(share, head=True)
    assert head is not None
    assert take(share, head=True) is None
    assert all(held)


def test_a_single_answer_beyond_the_share_is_taken_when_nothing_else_is_held() -> None:
    memory = AheadMemory(budget=2 * AHEAD_UNIT, reserve=AHEAD_UNIT)
    share = memory.open()
    small = take(share)
    assert small is not None

    assert take(share, size=20 * AHEAD_UNIT) is None
    small.release()
    giant = take(share, size=20 * AHEAD_UNIT)
    assert giant is not None
    giant.release()

    assert memory.size <= 3 * AHEAD_UNIT


def test_only_so_many_source_brokers_are_read_ahead_at_a_time_and_the_memory_goes_with_the_last() -> None:
    memory = AheadMemory()
    shares = [memory.open() for _ in range(MOST_SHARES)]
    buffer = take(shares[0])
    assert buffer is not None
    buffer.release()

    assert memory.open() is None
    for share in shares:
        assert share is not None
        share.close()

    assert memory.size == 0
    assert memory.open() is not None


def test_ordinary_pools_are_smaller_while_a_source_is_read_ahead() -> None:
    changes: list[bool] = []
    memory = AheadMemory(changed=lambda: changes.append(memory.in_use))
    pool = BufferPool()
    held = [pool.take(SMALLEST) for _ in range(30)]
    for buffer in held[10:]:
        assert buffer is not None
        buffer.release()

    share = memory.open()
    pool.share(1, beside_ahead=memory.in_use)

    assert share is not None
    assert pool.size <= BESIDE_AHEAD
    share.close()
    pool.share(1, beside_ahead=memory.in_use)
    assert pool.take(BUDGET // 2) is not None
    assert changes == [True, False]
