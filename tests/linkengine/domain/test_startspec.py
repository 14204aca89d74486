"""Where a mirror begins: earliest, latest, or a time."""

import pytest

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkrules import check_start, start_problem, start_time_ms


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("earliest", None),
        ("latest", None),
        ("0", 0),
        ("1792548000123", 1_792_548_000_123),
        ("1970-01-01T00:00:01.500Z", 1_500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
        ("9999-12-31T23:59:59.999", 253_402_300_799_999),
    ],
)
def test_keywords_and_times_are_parsed(spec: str, expected: int | None) -> None:
    assert start_problem(spec) == ""
    assert start_time_ms(spec) == expected


def test_a_time_with_too_many_digits_is_refused() -> None:
    assert start_problem("2026-11-21T03:00:00.000000000+00:00") == ""
    assert "up to 40 characters" in start_problem(f"2026-11-21T03:00:00.{'0' * 20}+00:00")


@pytest.mark.parametrize("spec", ["", "Latest", "yesterday", "-5", "1.5", "1" * 16, "1969-12-31T23:59:59Z", "٣"])
def test_any_other_start_is_refused_with_a_message(spec: str) -> None:
    with pytest.raises(LinkEngineError, match=r"mirror\.start\.offset\.spec must") as caught:
        check_start(spec)
    assert caught.value.code is ErrorCode.MISCONFIGURATION_ERROR
