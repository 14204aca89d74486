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


def test_released_buffer_is_reused_and_bytes_are_bounded() -> None:
    pool = BufferPool(budget=2 * SMALLEST)
    first, second = pool.take(10), pool.take(SMALLEST)

    assert first is not None
    assert second is not None
    assert pool.take(10) is None
    first.release()
    assert pool.take(20) is first
    assert pool.size == 2 * SMALLEST


def test_larger_response_replaces_free_buffers() -> None:
    pool = BufferPool(budget=4 * SMALLEST)
    for buffer in [pool.take(10), pool.take(10), pool.take(10)]:
        assert buffer is not None
        buffer.release()

    large = pool.take(3 * SMALLEST)

    assert large is not None
    assert len(large.view(3 * SMALLEST)) == 3 * SMALLEST
    assert pool.size <= 4 * SMALLEST


def test_response_beyond_the_budget_gets_a_buffer_when_no_other_is_in_use() -> None:
    pool = BufferPool(budget=2 * SMALLEST)
    small = pool.take(10)
    assert small is not None

    assert pool.take(100 * SMALLEST) is None
    small.release()
    oversized = pool.take(100 * SMALLEST)

    assert oversized is not None
    assert pool.size == 100 * SMALLEST
    oversized.release()
    assert pool.take(10) is not oversized
    assert pool.size == SMALLEST


@pytest.mark.parametrize("size", [1, SMALLEST, SMALLEST + 1, (8 << 20) + 108, BUDGET])
def test_buffer_is_at_most_a_huge_page_larger_than_its_response(size: int) -> None:
    pool = BufferPool()
    buffer = pool.take(size)
    assert buffer is not None

    view = buffer.view(size)
    view[-1] = 7

    assert len(view) == size
    assert pool.size - size < HUGE_PAGE


def test_loose_memory_is_bounded() -> None:
    pool = BufferPool()
    first = pool.loose(LOOSE_BUDGET)
    assert first is not None

    assert pool.loose(1) is None
    first.release()

    assert pool.loose(1) is not None


def test_refused_oversized_response_blocks_smaller_ones_until_it_is_no_longer_expected() -> None:
    pool = BufferPool(budget=4 * SMALLEST)
    held = pool.take(10)
    assert held is not None
    assert pool.take(100 * SMALLEST) is None

    assert pool.take(10) is None  # small responses would keep it waiting for ever
    pool.expect_none()  # its connection was lost
    assert pool.take(10) is not None


def test_smaller_responses_continue_after_an_oversized_response() -> None:
    pool = BufferPool(budget=4 * SMALLEST)
    held = pool.take(10)
    assert held is not None
    assert pool.take(100 * SMALLEST) is None
    held.release()
    oversized = pool.take(100 * SMALLEST)
    assert oversized is not None
    oversized.release()
    assert pool.take(10) is not None


def take(share: AheadShare | None, *, head: bool = False, size: int = AHEAD_UNIT) -> Buffer | None:
    assert share is not None
    return share.take(size, head=head)


def test_ahead_memory_is_divided_evenly_and_its_sum_is_bounded() -> None:
    memory = AheadMemory(budget=6 * AHEAD_UNIT, reserve=2 * AHEAD_UNIT)
    first = memory.open()
    alone = [take(first) for _ in range(7)]
    assert [buffer is not None for buffer in alone] == [True] * 6 + [False]

    second = memory.open()
    refused = take(second)  # the first share still uses everything
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


def test_response_that_is_planned_next_may_use_the_reserve() -> None:
    memory = AheadMemory(budget=2 * AHEAD_UNIT, reserve=AHEAD_UNIT)
    share = memory.open()
    held = [take(share), take(share)]

    assert take(share) is None
    head = take(share, head=True)
    assert head is not None
    assert take(share, head=True) is None
    assert all(held)


def test_response_beyond_the_share_gets_a_buffer_when_no_other_is_in_use() -> None:
    memory = AheadMemory(budget=2 * AHEAD_UNIT, reserve=AHEAD_UNIT)
    share = memory.open()
    small = take(share)
    assert small is not None

    assert take(share, size=20 * AHEAD_UNIT) is None
    small.release()
    oversized = take(share, size=20 * AHEAD_UNIT)
    assert oversized is not None
    oversized.release()

    assert memory.size <= 3 * AHEAD_UNIT


def test_number_of_shares_is_limited_and_memory_is_freed_with_the_last() -> None:
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


def test_pools_shrink_while_a_source_is_read_ahead() -> None:
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


def test_buffers_that_pools_use_beyond_their_limit_make_the_ahead_memory_smaller() -> None:
    pool = BufferPool()
    memory = AheadMemory(budget=20 * AHEAD_UNIT, reserve=0, excess=pool.trim)
    held = [pool.take(SMALLEST) for _ in range(BUDGET // SMALLEST)]
    share = memory.open()
    pool.share(1, beside_ahead=memory.in_use)

    beside_the_held = [take(share) for _ in range(20)]
    for buffer in held:
        assert buffer is not None
        buffer.release()
    afterwards = [take(share) for _ in range(20)]

    most = BESIDE_AHEAD + 20 * AHEAD_UNIT
    assert len([buffer for buffer in beside_the_held if buffer]) == max(1, (most - BUDGET) // AHEAD_UNIT)
    assert len([buffer for buffer in afterwards if buffer]) > 10
    assert pool.size + memory.size <= most


def test_buffer_that_was_in_use_when_the_limit_was_lowered_is_not_kept() -> None:
    pool = BufferPool()
    held = [pool.take(SMALLEST) for _ in range(30)]
    pool.share(1, beside_ahead=True)
    for buffer in held:
        assert buffer is not None
        buffer.release()

    assert pool.take(SMALLEST) is not None
    assert pool.size <= BESIDE_AHEAD
