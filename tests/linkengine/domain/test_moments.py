"""Timestamps as text, whatever a producer wrote."""

import pytest

from linkengine.domain.moments import utc_words


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
