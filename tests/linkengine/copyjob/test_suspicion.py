"""Judgement takes observations and time."""

from linkengine.copyjob.suspicion import Suspicion


def test_neither_count_nor_time_alone_confirms() -> None:
    suspicion = Suspicion(observations=3, seconds=5.0)

    assert [suspicion.confirmed("a", now) for now in (0.0, 0.1, 0.2)] == [False, False, False]
    assert suspicion.confirmed("a", 5.0)
    assert not suspicion.confirmed("b", 100.0)


def test_an_observation_of_something_else_starts_over() -> None:
    suspicion = Suspicion(observations=2, seconds=1.0)

    assert [suspicion.confirmed("a", now, of=of) for now, of in ((0.0, 7), (2.0, 8), (2.5, 8))] == [False, False, False]
    assert suspicion.confirmed("a", 3.0, of=8)


def test_an_observation_to_the_contrary_starts_over() -> None:
    suspicion = Suspicion(observations=2, seconds=0.0)
    suspicion.confirmed("a", 0.0)

    suspicion.clear("a")

    assert not suspicion.confirmed("a", 1.0)
