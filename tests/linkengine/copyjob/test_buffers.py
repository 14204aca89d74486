"""Receive buffers are reused, and their bytes are bounded."""

import pytest

from linkengine.copyjob.buffers import BUDGET, HUGE_PAGE, LOOSE_BUDGET, SMALLEST, BufferPool


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
