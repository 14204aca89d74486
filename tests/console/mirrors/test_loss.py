"""The confirmation of a failover and its report count the same offsets, and are unknown in the same cases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.actors import Actor
from console.mirrors import transitions
from console.mirrors.figures import figures_of, records_at_risk_of
from console.mirrors.operation_queries import preview
from console.models import MirrorPartition, MirrorTopic, SourceTopic, StopReport
from console.verification.report_actions import write_stop_reports
from linkengine.domain.states import MirrorEvent, StopReason
from tests.console.conftest import NOW, MakeMirror

E = MirrorEvent


@pytest.fixture(autouse=True)
def at_noon(time_machine: Any) -> None:
    """Stop the clock, since lags are computed for the present time."""
    time_machine.move_to(NOW, tick=False)


def seven_behind(mirror: MirrorTopic, *, age_s: int | None) -> None:
    """Set the second partition 7 offsets behind its source, which was last read ``age_s`` ago; None: never."""
    ends = {"source_end": 10, "last_source_end": 10, "last_high_watermark": 10, "mirror_end": 10, "stopped_end": 10}
    mirror.partitions.update(**ends)
    seen_at = None if age_s is None else NOW - timedelta(seconds=age_s)
    more = {"source_end": 17, "last_source_end": 17, "last_high_watermark": 17, "last_source_seen_at": seen_at}
    mirror.partitions.filter(partition=1).update(**more)


def fail_over(mirror: MirrorTopic, *, by: Actor) -> MirrorTopic:
    return transitions.apply_event(mirror=mirror, event=E.FAILOVER, by=by, now=NOW, stop_reason=StopReason.FAILOVER)


@pytest.mark.parametrize(
    ("age_s", "source_partitions", "lost"),
    [(14, 2, 7), (16, 2, None), (None, 2, None), (14, 3, None), (14, 1, 7), (14, None, 7), (-1, 2, 7), (-3, 2, None)],
    ids=["14s", "16s", "never", "only-at-source", "fewer-at-source", "not-listed", "clocks-differ", "clock-was-set-back"],
)
def test_confirmation_and_report_of_a_failover_agree(
    make_mirror: MakeMirror, owner: Actor, age_s: int | None, source_partitions: int | None, lost: int | None
) -> None:
    mirror = make_mirror(partitions=2)
    seven_behind(mirror, age_s=age_s)
    if source_partitions is not None:
        SourceTopic.objects.create(link=mirror.link, name="orders", partitions=source_partitions, seen_at=NOW)

    confirmed = preview(mirror, E.FAILOVER).records_at_risk
    confirmed_with_others = records_at_risk_of([mirror])[mirror.pk]
    to_copy = preview(mirror, E.PROMOTE).records_to_copy
    (report,) = write_stop_reports(mirrors=[fail_over(mirror, by=owner)], now=NOW)

    assert confirmed == confirmed_with_others == to_copy == report.records_not_copied == lost


def test_partition_without_a_row_makes_confirmation_and_report_unknown(make_mirror: MakeMirror, owner: Actor) -> None:
    mirrors = [make_mirror("first", partitions=3), make_mirror("middle", partitions=3), make_mirror("none", partitions=3)]
    MirrorPartition.objects.update(last_source_end=10, stopped_end=10)
    for mirror, numbers in zip(mirrors, ([0], [1], [0, 1, 2]), strict=True):
        mirror.partitions.filter(partition__in=numbers).delete()

    confirmed = records_at_risk_of(mirrors)
    write_stop_reports(mirrors=[fail_over(mirror, by=owner) for mirror in mirrors], now=NOW)

    assert set(confirmed.values()) == {None}
    for report in StopReport.objects.all():
        assert report.records_not_copied is None
        assert [row["partition"] for row in report.partitions] == [0, 1, 2]


def test_mirror_that_is_not_set_up_has_an_unknown_loss(make_mirror: MakeMirror) -> None:
    mirror = make_mirror(partitions=0)

    assert preview(mirror, E.FAILOVER).records_at_risk is None
    assert preview(mirror, E.PROMOTE).records_to_copy is None


def test_sums_count_the_partitions_whose_lag_is_none(make_mirror: MakeMirror) -> None:
    ages_s = (None, -3, -1, 0, 14, 16, 3_600)
    mirror = make_mirror(partitions=len(ages_s) + 2)
    for number, age_s in enumerate(ages_s):
        seen_at = None if age_s is None else NOW - timedelta(seconds=age_s)
        mirror.partitions.filter(partition=number).update(last_source_seen_at=seen_at)
    mirror.partitions.filter(partition=len(ages_s)).update(source_end=None)
    mirror.partitions.filter(partition=len(ages_s) + 1).update(mirror_end=None)

    unknown = {row.partition for row in mirror.partitions.all() if row.lag is None}

    assert unknown == {0, 1, 5, 6, 7, 8}
    found = {row.partition: figures_of([row], now=NOW) for row in mirror.partitions.all()}
    assert {partition for partition, figures in found.items() if figures.unknown_lags} == unknown
    assert sorted(partition for partition, figures in found.items() if figures.max_lag is not None) == [2, 3, 4]
