"""When the benchmark takes brokers for warm: by a rate that rises no more, whatever it is."""

from __future__ import annotations

from itertools import count

from bench.warming import MOST_TURNS, until_settled


def _found(*rates: float) -> list[float]:
    rest = iter(rates)
    return until_settled(lambda: next(rest))


def test_goes_on_while_the_rate_rises() -> None:
    assert _found(200, 300, 390, 440, 445, 450) == [200, 300, 390, 440, 445, 450]


def test_one_slow_turn_is_not_taken_for_the_end() -> None:
    assert _found(200, 150, 300, 290, 310) == [200, 150, 300, 290, 310]


def test_slow_rises_are_seen_as_well() -> None:
    assert _found(100, 103, 106, 108, 110) == [100, 103, 106, 108, 110]


def test_a_machine_that_never_settles_is_given_up() -> None:
    steps = count(1)
    assert len(until_settled(lambda: 2.0 ** next(steps))) == MOST_TURNS
