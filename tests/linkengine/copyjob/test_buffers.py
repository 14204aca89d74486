"""Receive buffers are reused and bounded."""

from linkengine.copyjob.buffers import BufferPool


def test_a_released_buffer_is_taken_again_and_the_number_is_bounded() -> None:
    pool = BufferPool(most=2)
    first, second = pool.take(), pool.take()

    assert first is not None
    assert second is not None
    assert pool.take() is None
    first.release()
    assert pool.take() is first


def test_a_buffer_grows_to_what_an_answer_needs_and_keeps_its_pages() -> None:
    buffer = BufferPool(most=1).take()
    assert buffer is not None

    large = buffer.view(5_000_000)

    assert len(large) == 5_000_000
    assert buffer.view(10).obj is large.obj
