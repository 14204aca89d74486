"""Failover reports are written from the rows of a mirror."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console.actors import Actor
from console.mirrors import transitions
from console.mirrors.reversals import forget_ends
from console.mirrors.rules import refused_steps, why_not_retry
from console.models import (
    ApprovalRequest,
    BulkOperation,
    BulkOperationTopic,
    ClampedOffset,
    Drill,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    StopReport,
)
from console.models.mirrors import CONFIGS_REFUSED
from console.reconciling import transition_errors
from console.verification.drill_actions import conclude
from console.verification.report_actions import write_stop_reports
from console.verification.report_presenters import report_row
from console.web.numbers import UNKNOWN
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason
from tests.console.conftest import NOW, MakeMirror


def request_stop(mirror: MirrorTopic, event: MirrorEvent, reason: StopReason, *, by: Actor, after_s: int) -> MirrorTopic:
    now = NOW + timedelta(seconds=after_s)
    return transitions.apply_event(mirror=mirror, event=event, by=by, now=now, stop_reason=reason)


def test_failover_report_counts_from_the_last_observation_of_the_source(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror(partitions=2)
    seen = {"last_source_seen_at": NOW - timedelta(seconds=3), "caught_up_at": NOW - timedelta(seconds=5)}
    MirrorPartition.objects.update(last_source_end=25, last_high_watermark=25, stopped_end=20, source_end=None, **seen)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    assert (report.records_not_copied, report.rpo_ms, report.rto_ms) == (10, 5_000, 2_000)
    assert (report.requested_by, report.source_seen_at) == ("owner", seen["last_source_seen_at"])
    assert [row["not_copied"] for row in report.partitions] == [5, 5]


def test_partitions_missing_from_the_mirror_make_the_loss_unknown(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror(partitions=2)
    MirrorPartition.objects.update(
        last_source_end=20, last_high_watermark=20, stopped_end=20, last_source_seen_at=NOW, caught_up_at=NOW
    )
    SourceTopic.objects.create(link=mirror.link, name=mirror.source_topic, partitions=3, seen_at=NOW)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    assert [row["not_copied"] for row in report.partitions] == [0, 0, None]
    assert (report.records_not_copied, report.rpo_ms, report.source_seen_at) == (None, None, None)


def test_report_ignores_observations_of_an_earlier_source(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror(partitions=2)
    MirrorPartition.objects.update(last_source_end=90, last_high_watermark=90, last_source_seen_at=NOW, last_timestamp_ms=1)
    forget_ends(mirror, complete_at=NOW)
    MirrorPartition.objects.update(stopped_end=20, caught_up_at=NOW)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    assert (report.records_not_copied, report.source_seen_at) == (None, None)
    assert [(row["source_end"], row["last_timestamp_ms"]) for row in report.partitions] == [(None, None)] * 2


def test_observation_later_than_the_stop_makes_rpo_unknown(mirror: MirrorTopic, owner: Actor) -> None:
    ahead = NOW + timedelta(hours=1)  # a clock has been set back since
    MirrorPartition.objects.update(
        last_source_end=20, last_high_watermark=20, stopped_end=20, last_source_seen_at=ahead, caught_up_at=ahead
    )
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    assert (report.rpo_ms, report.source_seen_at) == (None, None)


def test_rto_of_a_failover_that_overrules_a_promotion_counts_from_the_failover(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = request_stop(make_mirror(), MirrorEvent.PROMOTE, StopReason.PROMOTE, by=owner, after_s=0)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=60)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=61))

    assert (report.reason, report.rto_ms) == (StopReason.FAILOVER, 1_000)
    assert report.records_not_copied is None  # the source's end was never observed
    assert report.source_seen_at is None


@pytest.mark.parametrize(
    ("source_ends", "lost"),
    [({0: 20, 1: 20}, 0), ({0: 20, 1: 23}, 3), (None, None), ({0: 20}, None), ({0: 20, 1: 20, 2: 1}, None)],
    ids=["equal", "new-records", "unavailable", "one-unavailable", "unmirrored-partition"],
)
def test_promotion_report_uses_the_source_ends_read_after_the_fence(
    make_mirror: MakeMirror, owner: Actor, source_ends: dict[int, int] | None, lost: int | None
) -> None:
    mirror = make_mirror(partitions=2)
    MirrorPartition.objects.update(last_source_end=20, last_high_watermark=20, last_source_seen_at=NOW, stopped_end=20)
    mirror = request_stop(mirror, MirrorEvent.PROMOTE, StopReason.PROMOTE, by=owner, after_s=0)
    now = NOW + timedelta(seconds=5)

    ends = {} if source_ends is None else {mirror.pk: source_ends}
    (report,) = write_stop_reports(mirrors=[mirror], now=now, source_ends=ends, queried_at=now)

    assert report.records_not_copied == lost
    assert report.rpo_ms == (0 if lost == 0 else None)
    assert (report.source_seen_at == now) is (source_ends is not None and len(source_ends) > 1)


def test_records_behind_an_open_transaction_count_as_not_copied(mirror: MirrorTopic, owner: Actor) -> None:
    seen = {"last_source_seen_at": NOW, "caught_up_at": NOW - timedelta(minutes=15)}
    MirrorPartition.objects.update(last_source_end=10, last_high_watermark=10, stopped_end=10, **seen)
    MirrorPartition.objects.filter(partition=0).update(last_source_end=1_000, last_high_watermark=50_001, stopped_end=1_000)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    assert (report.records_not_copied, report.rpo_ms) == (49_001, 15 * 60_000)
    assert [(row["stable_end"], row["source_end"]) for row in report.partitions] == [(1_000, 50_001), (10, 10)]
    sentence = report_row(report, now=NOW).sentence
    assert sentence.startswith("Up to 49,001 records were not copied as of the last measurement of the source")
    assert "49,001 of these offsets were behind an open transaction" in sentence


def test_unknown_high_watermark_makes_the_loss_unknown(mirror: MirrorTopic, owner: Actor) -> None:
    MirrorPartition.objects.update(last_source_end=10, last_high_watermark=None, stopped_end=10, last_source_seen_at=NOW)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW)

    assert report.records_not_copied is None
    assert "is not known" in report_row(report, now=NOW).sentence


@pytest.mark.parametrize(("age_s", "known"), [(14, True), (16, False), (19 * 60, False)])
def test_source_last_seen_more_than_15_s_before_a_failover_makes_the_loss_unknown(
    make_mirror: MakeMirror, owner: Actor, age_s: int, known: bool
) -> None:
    """The same rule as ``MirrorPartition.lag``. The number of missing records at that time is a lower bound."""
    mirror = make_mirror(partitions=2)
    seen_at = NOW - timedelta(seconds=age_s)
    MirrorPartition.objects.update(
        last_source_end=20, last_high_watermark=20, stopped_end=20, last_source_seen_at=NOW, caught_up_at=seen_at
    )
    MirrorPartition.objects.filter(partition=1).update(last_source_seen_at=seen_at, last_high_watermark=27)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(minutes=2))

    assert report.records_not_copied == (7 if known else None)
    assert [row["not_copied"] for row in report.partitions] == [0, 7 if known else None]
    assert [row["missing_when_seen"] for row in report.partitions] == [0, 7]
    row = report_row(report, now=NOW)
    assert row.loses
    assert row.not_copied == ("7" if known else UNKNOWN)
    if not known:
        assert row.sentence.startswith("How many records were left behind is not known: the source was last seen")
        assert row.sentence.endswith("When last seen, at least 7 records were missing.")


def test_refused_configs_are_kept_in_report_and_mirror_until_a_retry_resolves_them(
    make_mirror: MakeMirror, owner: Actor
) -> None:
    refused = (
        RefusedStep(name="retention.ms", value="2592000000", code="POLICY_VIOLATION_ERROR", message="7 days at most."),
        RefusedStep(name="compression.type", value=None, code="POLICY_VIOLATION_ERROR", message="Must be zstd."),
    )
    mirror = make_mirror(state=MirrorState.STOPPED, stop_reason="failover")
    write_stop_reports(mirrors=[mirror], now=NOW, refused={mirror: refused})
    transition_errors.note_refusals({mirror: refused}, now=NOW)

    assert refused_steps(mirror) == list(refused)
    (error,) = mirror.transition_errors.all()
    assert error.code == CONFIGS_REFUSED
    assert "retention.ms=2592000000, compression.type=(cluster default)" in error.message
    assert "7 days at most." in error.message

    transition_errors.settle_refusals(mirror=mirror, refused=refused[1:], now=NOW)
    assert refused_steps(mirror) == [refused[1]]
    assert [row.resolved is None for row in report_row(mirror.stop_reports.get(), now=NOW).refused] == [False, True]
    assert "retention.ms" not in mirror.transition_errors.get().message

    transition_errors.settle_refusals(mirror=mirror, refused=(), now=NOW)
    assert not mirror.transition_errors.exists()
    assert why_not_retry(mirror) == "The destination refuses no config of topic 'orders'. Nothing has to be retried."


def clamp(mirror: MirrorTopic, group: str, *, after_s: int) -> ClampedOffset:
    at = NOW + timedelta(seconds=after_s)
    return ClampedOffset.objects.create(mirror=mirror, group=group, partition=0, stopping_since=at, at=at)


def test_clamped_offsets_belong_to_the_report_of_their_stop(mirror: MirrorTopic, owner: Actor) -> None:
    first, second = clamp(mirror, "first", after_s=0), clamp(mirror, "second", after_s=100)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    reports = [write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=at)) for at in (10, 110)]

    for row, (report,) in zip((first, second), reports, strict=True):
        row.refresh_from_db()
        assert row.report == report


def test_report_and_clamped_offsets_outlive_the_mirror(mirror: MirrorTopic, owner: Actor) -> None:
    clamp(mirror, "app", after_s=0)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)
    write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    MirrorTopic.objects.get(pk=mirror.pk).delete()

    report = StopReport.objects.get()
    assert (report.mirror, report.mirror_name, report.link_name) == (None, "orders", "west-to-east")
    assert (report.source_cluster_id, report.destination_cluster_id) == ("source-id", "destination-id")
    assert [row.group for row in report.clamped.all()] == ["app"]


def test_report_has_the_reason_of_the_operation_that_requested_the_stop(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror()
    for number, (after_s, reason) in enumerate(((-60, "an earlier one"), (0, "us-west is down"), (60, "a later one"))):
        operation = BulkOperation.objects.create(
            pk=number + 1,
            link=mirror.link,
            operation="failover",
            requested_by="owner",
            requested_at=NOW,
            options={"reason": reason, "checklist": [{"text": "Producers are stopped.", "confirmed": False}]},
        )
        at = NOW + timedelta(seconds=after_s)
        BulkOperationTopic.objects.create(operation=operation, name=mirror.name, status="ACCEPTED", done_at=at)
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    report = StopReport.objects.get()
    assert (report.operation_number, report.request_reason) == (2, "us-west is down")
    assert report.checklist == [{"text": "Producers are stopped.", "confirmed": False}]


@pytest.mark.parametrize("with_key", [False, True])
def test_report_names_the_second_approver_whose_approval_was_in_force(
    mirror: MirrorTopic, owner: Actor, colleague: Actor, with_key: bool
) -> None:
    """Not the approver of another operation, nor of an approval that had expired or was rejected."""
    facts = {"link": mirror.link, "user": owner.user, "requested_at": NOW, "status": "APPROVED", "decided_by": colleague.user}
    times = {"decided_at": NOW, "expires_at": NOW + timedelta(hours=1)}
    ApprovalRequest.objects.create(**facts, **times, operation="failover", topics=[mirror.name], reason="x")
    by = Actor(name="owner (API key ABC)", user=owner.user) if with_key else owner
    stopped = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=by, after_s=60)

    (report,) = write_stop_reports(mirrors=[stopped], now=NOW + timedelta(seconds=62))
    assert report.approved_by == "colleague"
    for change in ({"operation": "promote"}, {"expires_at": NOW}, {"status": "REJECTED"}, {"topics": ["others"]}):
        before = ApprovalRequest.objects.values(*change).get()
        ApprovalRequest.objects.update(**change)
        (report,) = write_stop_reports(mirrors=[stopped], now=NOW + timedelta(seconds=62))
        assert report.approved_by == "", change
        ApprovalRequest.objects.update(**before)


def test_report_of_a_single_failover_has_no_operation(mirror: MirrorTopic, owner: Actor) -> None:
    mirror = request_stop(mirror, MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)

    (report,) = write_stop_reports(mirrors=[mirror], now=NOW + timedelta(seconds=2))

    assert (report.operation_number, report.request_reason, report.checklist) == (None, "", [])


def test_reports_of_scratch_copies_are_deleted_with_their_drill(make_mirror: MakeMirror, owner: Actor) -> None:
    kept = request_stop(make_mirror("kept"), MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)
    drill = Drill.objects.create(link=kept.link, status="CLEANING", status_since=NOW, requested_by="owner", requested_at=NOW)
    copy = request_stop(make_mirror("copy", drill=drill), MirrorEvent.FAILOVER, StopReason.FAILOVER, by=owner, after_s=0)
    write_stop_reports(mirrors=[kept, copy], now=NOW + timedelta(seconds=2))
    MirrorTopic.objects.filter(pk=copy.pk).delete()
    assert StopReport.objects.get(drill=drill).mirror_name == "copy"

    conclude(drill=drill, now=NOW)

    assert [report.mirror_name for report in StopReport.objects.all()] == ["kept"]
