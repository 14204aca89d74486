from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from console.mirrors.queries import FollowedConfig
from console.web import numbers
from console.web.numbers import UNKNOWN, config_words, readable_config, synced_config_rows

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "write", [numbers.count, numbers.size, numbers.byte_rate, numbers.record_rate, numbers.duration, numbers.lag_time]
)
def test_unknown_is_a_dash(write: object) -> None:
    assert write(None) == "\N{EN DASH}"  # type: ignore[operator]


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (99_120, "99,120"), (1_204_551, "1,204,551")])
def test_counts_have_thousands_separators(number: int, text: str) -> None:
    assert numbers.count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (3226, "3.15 KiB"),
        (15 * 1024, "15.0 KiB"),
        (200 * 1024**2, "200 MiB"),
        (1024**2 - 1, "1.00 MiB"),
        (5 * 1024**4, "5.00 TiB"),
    ],
)
def test_sizes_have_iec_units_and_three_digits(number: int, text: str) -> None:
    assert numbers.size(number) == text


@pytest.mark.parametrize(
    ("number_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (252_000, "4 min 12 s"),
        (240_000, "4 min"),
        (3_600_000 * 27, "1 d 3 h"),
        (3_601_000, "1 h"),
    ],
)
def test_durations_have_at_most_two_units(number_ms: int, text: str) -> None:
    assert numbers.duration(number_ms) == text


@pytest.mark.parametrize(("number_ms", "text"), [(0, "0 s"), (400, "< 1 s"), (4_000, "4 s")])
def test_time_lag_below_one_second_has_no_milliseconds(number_ms: int, text: str) -> None:
    assert numbers.lag_time(number_ms) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(seconds=1), "just now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=2), "2 min ago"),
        (timedelta(days=3), "3 d ago"),
        (-timedelta(minutes=5), "in 5 min"),
    ],
)
def test_relative_times_have_one_unit(ago: timedelta, text: str) -> None:
    assert numbers.ago(NOW - ago, now=NOW) == text


def test_moment_has_exact_and_iso_times() -> None:
    moment = numbers.moment(NOW, now=NOW)

    assert moment is not None
    assert moment.exact == "2026-03-01 12:00:00 UTC"
    assert moment.iso == "2026-03-01T12:00:00.000+00:00"


@pytest.mark.parametrize(
    ("start", "end", "shown"),
    [
        (NOW, NOW + timedelta(minutes=2), "2026-03-01 12:00:00 to 12:02:00 UTC"),
        (NOW, NOW + timedelta(hours=12), "2026-03-01 12:00:00 to 2026-03-02 00:00:00 UTC"),
    ],
)
def test_interval_has_the_date_of_its_end_if_it_is_another(start: datetime, end: datetime, shown: str) -> None:
    assert numbers.interval(start, end) == shown


def test_moment_of_none_is_none() -> None:
    assert numbers.moment(None, now=NOW) is None


@pytest.mark.parametrize(("part", "whole", "share"), [(99, 100, 99), (999, 1000, 99), (5, 0, 100), (None, 9, None)])
def test_percentage_is_rounded_down(part: int | None, whole: int | None, share: int | None) -> None:
    assert numbers.percent_of(part, whole) == share


@pytest.mark.parametrize(("number_ms", "text"), [(None, "default"), (-1, "unlimited"), (604_800_000, "7 d")])
def test_retention_is_formatted(number_ms: int | None, text: str) -> None:
    assert numbers.retention(number_ms) == text


def test_plural_follows_the_number() -> None:
    assert numbers.plural(1, "topic") == "1 topic"
    assert numbers.plural(2_000, "topic") == "2,000 topics"


@pytest.mark.parametrize(
    ("known", "unknown", "expected"),
    [(0, 0, "0"), (1200, 0, "1,200"), (None, 0, UNKNOWN), (0, 1, UNKNOWN), (None, 2, UNKNOWN), (7, 2, "≥ 7")],
)
def test_worst_lag_with_unknown_partitions_is_a_lower_bound(known: int | None, unknown: int, expected: str) -> None:
    assert numbers.worst_lag(known, unknown=unknown) == expected


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (1_700_000_000_500, "2023-11-15 07:13:20 JST"),
        (0, "1970-01-01 09:00:00 JST"),
        (-1, "Unix millisecond -1"),
        (253_402_300_799_999, "9999-12-31 23:59:59 UTC"),  # its time in Tokyo is outside of the calendar
        (2**63 - 1, f"Unix millisecond {2**63 - 1}"),
    ],
)
def test_timestamp_of_a_record_is_in_the_time_zone_of_the_page_if_it_has_one(timestamp_ms: int, shown: str) -> None:
    with timezone.override("Asia/Tokyo"):
        assert numbers.record_time(timestamp_ms) == shown


# --- config values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("retention.ms", "-1", "unlimited"),
        ("retention.bytes", "-1", "unlimited"),
        ("retention.ms", "90061001", "1 day 1 hour 1 minute 1 second 1 ms"),
        ("topic.config.sync.ms", "5000", "5 seconds"),
        ("retention.ms", "0", "0 ms"),
        ("max.compaction.lag.ms", "9223372036854775807", "unlimited"),
        ("flush.messages", "9223372036854775807", "unlimited"),
        ("local.retention.ms", "-2", ""),  # the value of retention.ms
        ("local.retention.ms", "-1", ""),
        ("segment.bytes", "1073741824", "1 GiB"),
        ("segment.bytes", "1000000", "about 977 KiB"),
        ("segment.bytes", "1023", ""),
        ("max.message.bytes", "1048588", "about 1.00 MiB"),
        ("link.throughput.limit.bytes.per.second", "1048576", "1 MiB/s"),
        ("link.throughput.limit.bytes.per.second", "100", "100 B/s"),
        ("link.throughput.limit.bytes.per.second", "-1", "no limit"),
        ("link.rpo.objective.ms", "-1", "no objective"),
        ("verify.max.records.per.run", "500000", "500,000"),
        ("min.insync.replicas", "2", ""),
        ("cleanup.policy", "delete", ""),
        ("acl.sync.enable", "true", ""),
        ("cluster.link.prefix", "", ""),
    ],
)
def test_value_is_shown_in_peoples_units(name: str, value: str, words: str) -> None:
    assert config_words(name, value) == words
    assert readable_config(name, value) == (f"{words} ({value})" if words else value)


def test_synced_configs_say_which_differ_on_the_mirror() -> None:
    rows = synced_config_rows(
        [
            FollowedConfig(name="retention.ms", source_value="604800000", mirror_value="-1", always=False),
            FollowedConfig(name="cleanup.policy", source_value="delete", mirror_value="delete", always=True),
        ]
    )

    assert [(row.name, row.source, row.mirror, row.differs) for row in rows] == [
        ("retention.ms", "7 days (604800000)", "unlimited (-1)", True),
        ("cleanup.policy", "delete", "delete", False),
    ]
