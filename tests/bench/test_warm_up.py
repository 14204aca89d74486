"""Brokers count as warm when the rate of a bare writer and reader no longer rises."""

from __future__ import annotations

from itertools import count

from bench.warm_up import MOST_ROUNDS, until_settled


def _found(*rates: float) -> list[float]:
    rest = iter(rates)
    return until_settled(lambda: next(rest))


def test_warm_up_continues_while_the_rate_rises() -> None:
    assert _found(200, 300, 390, 440, 445, 450) == [200, 300, 390, 440, 445, 450]


def test_one_slow_round_does_not_end_the_warm_up() -> None:
    assert _found(200, 150, 300, 290, 310) == [200, 150, 300, 290, 310]


def test_slow_rises_are_seen_as_well() -> None:
    assert _found(100, 103, 106, 108, 110) == [100, 103, 106, 108, 110]


def test_warm_up_ends_after_the_maximum_number_of_rounds() -> None:
    steps = count(1)
    assert len(until_settled(lambda: 2.0 ** next(steps))) == MOST_ROUNDS
