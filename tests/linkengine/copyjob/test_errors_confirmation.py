"""A confirmation needs a number of observations over a time."""

from linkengine.copyjob.errors import Confirmation


def test_confirmation_needs_both_count_and_time() -> None:
    confirmation = Confirmation(observations=3, seconds=5.0)

    assert [confirmation.confirmed("a", now) for now in (0.0, 0.1, 0.2)] == [False, False, False]
    assert confirmation.confirmed("a", 5.0)
    assert not confirmation.confirmed("b", 100.0)


def test_different_observation_restarts_the_confirmation() -> None:
    confirmation = Confirmation(observations=2, seconds=1.0)

    assert [confirmation.confirmed("a", now, of=of) for now, of in ((0.0, 7), (2.0, 8), (2.5, 8))] == [False, False, False]
    assert confirmation.confirmed("a", 3.0, of=8)


def test_contradicting_observation_restarts_the_confirmation() -> None:
    confirmation = Confirmation(observations=2, seconds=0.0)
    confirmation.confirmed("a", 0.0)

    confirmation.clear("a")

    assert not confirmation.confirmed("a", 1.0)
