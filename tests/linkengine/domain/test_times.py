"""Timestamps as text, whatever a producer wrote; pauses between retries double up to a limit."""

from __future__ import annotations

import pytest

from linkengine.domain.times import pause_s, utc_words


@pytest.mark.parametrize(
    ("timestamp_ms", "words"),
    [
        (0, "1970-01-01 00:00:00 UTC"),
        (1_792_548_000_999, "2026-10-21 02:00:00 UTC"),
        (253_402_300_799_999, "9999-12-31 23:59:59 UTC"),
        (253_402_300_800_000, "Unix millisecond 253402300800000"),
        (-1, "Unix millisecond -1"),
        (2**63 - 1, "Unix millisecond 9223372036854775807"),
    ],
)
def test_every_timestamp_has_a_text(timestamp_ms: int, words: str) -> None:
    assert utc_words(timestamp_ms) == words


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
