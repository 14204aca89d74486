"""Timestamps as text, whatever a producer wrote, and due times, whatever clocks do."""

from datetime import UTC, datetime, timedelta

import pytest

from linkengine.domain.moments import is_due, utc_words

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


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


@pytest.mark.parametrize(
    ("ahead_s", "due"),
    [(None, True), (-3600, True), (0, True), (0.1, False), (30, False), (32, False), (32.1, True), (3600, True)],
)
def test_a_time_further_ahead_than_the_longest_pause_is_due(ahead_s: float | None, *, due: bool) -> None:
    at = None if ahead_s is None else NOW + timedelta(seconds=ahead_s)

    assert is_due(at, now=NOW, longest=timedelta(seconds=30)) is due
