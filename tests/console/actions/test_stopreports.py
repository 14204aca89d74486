"""The report of a stop, from rows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console.actions import transitions
from console.actions.reversing import forget_ends
from console.actions.stopreports import write_stop_report
from console.actors import Actor
from console.models import MirrorPartition, MirrorTopic, SourceTopic
from console.presenters.stopreports import report_row
from linkengine.domain.states import MirrorEvent, StopReason
from tests.console.conftest import NOW, MakeMirror


def ask(mirror: MirrorTopic, event: MirrorEvent, reason: StopReason, *, by: Actor, after_s: int) -> MirrorTopic:
    now = NOW + timedelta(seconds=after_s)
    return transitions.apply_event(mirror=mirror, event=event, by=by, now=now, stop_reason=reason)


def test_a_failover_is_written_down_with_what_was_last_seen(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror(partitions=2)
    seen = {"last_source_seen_at": NOW - timedelta(seconds=3), "caught_up_at": NOW - timedelta(seconds=5)}
    MirrorPartition.objects.update(last_source_end=25, last_high_watermark=25, stopped_end=20, source_end=None, **seen)
    mirror = ask(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    report = write_stop_report(mirror=mirror, now=NOW + timedelta(seconds=2))

    assert (report.records_not_copied, report.rpo_ms, report.rto_ms) == (10, 5_000, 2_000)
    assert (report.requested_by, report.source_seen_at) == ("owner", seen["last_source_seen_at"])
    assert [one["not_copied"] for one in report.partitions] == [5, 5]


def test_partitions_that_the_mirror_never_got_are_an_unknown_loss(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror(partitions=2)
    MirrorPartition.objects.update(
        last_source_end=20, last_high_watermark=20, stopped_end=20, last_source_seen_at=NOW, caught_up_at=NOW
    )
    SourceTopic.objects.create(link=mirror.link, name=mirror.source_topic, partitions=3, seen_at=NOW)
    mirror = ask(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    report = write_stop_report(mirror=mirror, now=NOW + timedelta(seconds=2))

    assert [one["not_copied"] for one in report.partitions] == [0, 0, None]
    assert (report.records_not_copied, report.rpo_ms, report.source_seen_at) == (None, None, None)


def test_a_stop_tells_nothing_of_a_source_of_a_former_life(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror(partitions=2)
    MirrorPartition.objects.update(last_source_end=90, last_high_watermark=90, last_source_seen_at=NOW, last_timestamp_ms=1)
    forget_ends(mirror, whole_at=NOW)
    MirrorPartition.objects.update(stopped_end=20, caught_up_at=NOW)
    mirror = ask(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    report = write_stop_report(mirror=mirror, now=NOW + timedelta(seconds=2))

    assert (report.records_not_copied, report.source_seen_at) == (None, None)
    assert [(one["source_end"], one["last_timestamp_ms"]) for one in report.partitions] == [(None, None)] * 2


def test_what_was_seen_ahead_of_the_stop_makes_no_small_loss(mirror: MirrorTopic, owner: Actor) -> None:
    ahead = NOW + timedelta(hours=1)  # a clock was set back since
    MirrorPartition.objects.update(
        last_source_end=20, last_high_watermark=20, stopped_end=20, last_source_seen_at=ahead, caught_up_at=ahead
    )
    mirror = ask(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    report = write_stop_report(mirror=mirror, now=NOW + timedelta(seconds=2))

    assert (report.rpo_ms, report.source_seen_at) == (None, None)


def test_a_failover_that_overrules_a_promotion_counts_from_itself(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = ask(make_mirror(), MirrorEvent.PROMOTE, StopReason.PROMOTE, by=owner, after_s=0)
    mirror = ask(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=60)

    report = write_stop_report(mirror=mirror, now=NOW + timedelta(seconds=61))

    assert (report.reason, report.rto_ms) == (StopReason.FAILOVER, 1_000)
    assert report.records_not_copied is None  # nobody ever saw the source's end
    assert report.source_seen_at is None


@pytest.mark.parametrize(
    ("answered", "lost"),
    [({0: 20, 1: 20}, 0), ({0: 20, 1: 23}, 3), (None, None), ({0: 20}, None), ({0: 20, 1: 20, 2: 1}, None)],
    ids=["equal", "written-on", "away", "one-away", "a-partition-nobody-mirrored"],
)
def test_a_promotion_reports_what_the_source_answered_after_the_fence(
    make_mirror: MakeMirror, owner: Actor, answered: dict[int, int] | None, lost: int | None
) -> None:
    mirror = make_mirror(partitions=2)
    MirrorPartition.objects.update(last_source_end=20, last_high_watermark=20, last_source_seen_at=NOW, stopped_end=20)
    mirror = ask(mirror, MirrorEvent.PROMOTE, StopReason.PROMOTE, by=owner, after_s=0)
    now = NOW + timedelta(seconds=5)

    report = write_stop_report(mirror=mirror, now=now, source_ends=answered, asked_at=now)

    assert report.records_not_copied == lost
    assert report.rpo_ms == (0 if lost == 0 else None)
    assert (report.source_seen_at == now) is (answered is not None and len(answered) > 1)


def test_what_waited_behind_an_open_transaction_is_counted_too(mirror: MirrorTopic, owner: Actor) -> None:
    seen = {"last_source_seen_at": NOW, "caught_up_at": NOW - timedelta(minutes=15)}
    MirrorPartition.objects.update(last_source_end=10, last_high_watermark=10, stopped_end=10, **seen)
    MirrorPartition.objects.filter(partition=0).update(last_source_end=1_000, last_high_watermark=50_001, stopped_end=1_000)
    mirror = ask(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    report = write_stop_report(mirror=mirror, now=NOW + timedelta(seconds=2))

    assert (report.records_not_copied, report.rpo_ms) == (49_001, 15 * 60_000)
    assert [(one["stable_end"], one["source_end"]) for one in report.partitions] == [(1_000, 50_001), (10, 10)]
    sentence = report_row(report, now=NOW).sentence
    assert sentence.startswith("Up to 49,001 records were not copied when the source was last seen")
    assert "49,001 stood behind an open transaction" in sentence


def test_a_high_watermark_nobody_saw_is_no_loss_of_0(mirror: MirrorTopic, owner: Actor) -> None:
    MirrorPartition.objects.update(last_source_end=10, last_high_watermark=None, stopped_end=10, last_source_seen_at=NOW)
    mirror = ask(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    report = write_stop_report(mirror=mirror, now=NOW)

    assert report.records_not_copied is None
    assert "is not known" in report_row(report, now=NOW).sentence
