"""Pauses between retries double up to a limit, with a random part."""

import pytest

from linkengine.domain.backoff import pause_s


def test_pause_doubles_from_the_first_to_the_longest() -> None:
    pauses = [pause_s(failures, first_s=0.5, longest_s=6.0, spread=(1.0, 1.0)) for failures in range(6)]

    assert pauses == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]


@pytest.mark.parametrize("failures", [0, 3, 40])
def test_pause_is_spread_around_the_doubled_value(failures: int) -> None:
    middle = pause_s(failures, first_s=0.5, longest_s=6.0, spread=(1.0, 1.0))
    pauses = {pause_s(failures, first_s=0.5, longest_s=6.0) for _ in range(200)}

    assert 0.75 * middle <= min(pauses) < 0.85 * middle
    assert 1.15 * middle < max(pauses) <= 1.25 * middle


def test_pause_stays_the_longest_after_any_number_of_failures() -> None:
    assert pause_s(100_000, first_s=0.1, longest_s=300.0, spread=(1.0, 1.0)) == 300.0
