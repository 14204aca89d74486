"""Pauses grow, stay bounded and start over."""

from linkengine.copyjob.pacing import FIRST_S, MOST_S, Backoff


def test_pauses_grow_to_a_limit_and_start_over_after_a_success() -> None:
    backoff = Backoff()
    pauses = [backoff.next_pause() for _ in range(12)]

    assert FIRST_S / 2 <= pauses[0] <= FIRST_S
    assert all(MOST_S / 2 <= pause <= MOST_S for pause in pauses[-3:])
    backoff.reset()
    assert backoff.next_pause() <= FIRST_S
