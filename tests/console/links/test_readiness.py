"""The stored facts from which the failover readiness of a link is derived."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from console.actors import ENGINE
from console.links.health_queries import observe_links
from console.links.readiness_queries import link_readiness
from console.models import (
    Drill,
    LinkConfig,
    LinkTask,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    SyncedGroup,
    VerifiedRange,
    VerifyRun,
)
from console.models.mirrors import RECORDS_DIFFER
from console.reconciling import transition_errors
from linkengine.domain.failover import ReadyFact, ReadyState
from linkengine.domain.groups import GroupStatus
from linkengine.domain.linktasks import TaskName
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData, make_mirror, make_page_data
from tests.console.observed import readiness_of


@pytest.fixture
def page_data(db: None) -> PageData:
    """A link with a single mirror topic that could be failed over at any time."""
    page_data = make_page_data()
    link, now = page_data.link, page_data.now
    link.mirrors.all().delete()
    link.drills.all().delete()
    link.tasks.all().delete()
    link.groups.all().delete()
    mirror = page_data.mirrors["flights"] = make_mirror(link, "flights", MirrorState.ACTIVE, lag=0, rate=1.0, now=now)
    MirrorTopic.objects.filter(pk=mirror.pk).update(created_at=now - timedelta(days=30))
    MirrorPartition.objects.filter(mirror=mirror).update(last_source_seen_at=now)
    SourceTopic.objects.filter(link=link, name="flights").update(retention_ms=604_800_000)
    LinkConfig.objects.filter(link=link, name="consumer.offset.sync.enable").update(value="true")
    for row in mirror.partitions.all():
        verify(page_data, row.partition, row.mirror_start, row.mirror_end)
    LinkTask.objects.create(link=link, name=TaskName.CONSUMER_OFFSETS, succeeded_at=now - timedelta(seconds=20))
    SyncedGroup.objects.create(link=link, name="app", destination_name="app", status=GroupStatus.SYNCED, listed_at=now)
    SyncedGroup.objects.create(link=link, name="x", destination_name="x", status=GroupStatus.EXCLUDED, listed_at=now)
    drill(page_data, Drill.Status.PASSED, ["flights"], age=timedelta(days=3))
    return page_data


def verify(page_data: PageData, partition: int, start: int | None, end: int | None) -> None:
    """Make offsets of "flights" verified."""
    assert start is not None
    assert end is not None
    dated = {"first_verified_at": page_data.now, "verified_at": page_data.now - timedelta(minutes=5)}
    mirror = page_data.mirrors["flights"]
    VerifiedRange.objects.create(mirror=mirror, partition=partition, start=start, end=end, **dated)


def drill(page_data: PageData, status: str, topics: list[str], *, age: timedelta) -> None:
    at = page_data.now - age
    about = {"start_spec": "latest", "requested_by": "amelia", "requested_at": at, "status_since": at, "finished_at": at}
    Drill.objects.create(link=page_data.link, status=status, topics=topics, **about)


def states(page_data: PageData) -> dict[ReadyFact, ReadyState]:
    page_data.link.refresh_from_db()
    found = readiness_of(page_data.link, now=page_data.now)
    return {fact.fact: fact.state for fact in found.facts}


def test_link_with_all_facts_is_ready(page_data: PageData) -> None:
    found = readiness_of(page_data.link, now=page_data.now)

    assert found.state is ReadyState.READY, found.sentence
    assert "1 consumer group synced 20 s ago" in found.sentence
    assert "with 7 d of retention" in found.sentence


def test_newest_finished_drill_counts(page_data: PageData) -> None:
    drill(page_data, Drill.Status.FAILED, ["flights"], age=timedelta(days=1))
    drill(page_data, Drill.Status.CHECKING, ["flights"], age=timedelta(hours=1))
    assert states(page_data)[ReadyFact.DRILL] is ReadyState.NOT_READY

    drill(page_data, Drill.Status.PASSED, ["another"], age=timedelta(minutes=1))
    assert states(page_data)[ReadyFact.DRILL] is ReadyState.UNKNOWN


def test_mirror_created_again_after_the_drill_is_not_drilled(page_data: PageData) -> None:
    mirrors = MirrorTopic.objects.filter(link=page_data.link, name="flights")

    mirrors.update(created_at=page_data.now - timedelta(days=2))
    assert states(page_data)[ReadyFact.DRILL] is ReadyState.UNKNOWN

    mirrors.update(created_at=page_data.now - timedelta(days=3))
    assert states(page_data)[ReadyFact.DRILL] is ReadyState.READY


def test_link_without_a_drill_keeps_its_other_facts(page_data: PageData) -> None:
    page_data.link.drills.all().delete()

    assert states(page_data) == dict.fromkeys(ReadyFact, ReadyState.READY) | {ReadyFact.DRILL: ReadyState.UNKNOWN}


def test_mirror_that_was_never_verified_is_unknown(page_data: PageData) -> None:
    make_mirror(page_data.link, "late", MirrorState.ACTIVE, rate=1.0, now=page_data.now)

    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.UNKNOWN


def test_mirror_of_which_a_few_records_were_verified_is_unknown(page_data: PageData) -> None:
    VerifiedRange.objects.all().delete()
    verify(page_data, 0, 0, 10)
    assert "1 mirror topic verified only in part" in readiness_of(page_data.link, now=page_data.now).sentence

    VerifiedRange.objects.all().delete()
    for row in page_data.mirrors["flights"].partitions.exclude(partition=2):
        verify(page_data, row.partition, row.mirror_start, row.mirror_end)
    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.UNKNOWN


def test_offsets_that_the_next_run_compares_may_be_unverified(page_data: PageData) -> None:
    last = VerifiedRange.objects.get(partition=2)
    VerifiedRange.objects.filter(pk=last.pk).update(end=last.end - 500_000)
    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.READY

    VerifiedRange.objects.filter(pk=last.pk).update(end=last.end - 500_001)
    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.UNKNOWN

    LinkConfig.objects.create(link=page_data.link, name="verify.max.records.per.run", value="600000")
    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.READY


@pytest.mark.parametrize("bound", ["mirror_start", "mirror_end"])
def test_mirror_with_an_unknown_bound_is_not_verified(page_data: PageData, bound: str) -> None:
    MirrorPartition.objects.filter(mirror=page_data.mirrors["flights"], partition=1).update(**{bound: None})

    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.UNKNOWN


def test_recent_run_of_the_whole_mirror_counts_while_the_ledger_has_what_it_compared(page_data: PageData) -> None:
    mirror, at = page_data.mirrors["flights"], page_data.now - timedelta(days=3)
    compared = [[row.partition, row.mirror_start, row.mirror_end] for row in mirror.partitions.all()]
    run = VerifyRun.objects.create(
        mirror=mirror, status="EQUAL", requested_by="amelia", requested_at=at, finished_at=at, ranges=compared
    )
    mirror.partitions.update(mirror_end=F("mirror_end") + 2_000_000, source_end=F("source_end") + 2_000_000)
    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.READY

    VerifyRun.objects.filter(pk=run.pk).update(finished_at=at - timedelta(days=5))
    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.UNKNOWN

    VerifyRun.objects.filter(pk=run.pk).update(finished_at=at)
    VerifiedRange.objects.filter(partition=1).update(end=F("end") - 1)
    assert states(page_data)[ReadyFact.VERIFICATION] is ReadyState.UNKNOWN


def test_stopped_mirrors_and_scratch_copies_do_not_count(page_data: PageData) -> None:
    make_mirror(page_data.link, "stopped", MirrorState.STOPPED, now=page_data.now)
    scratch = make_mirror(page_data.link, "scratch", MirrorState.ACTIVE, now=page_data.now)
    MirrorTopic.objects.filter(pk=scratch.pk).update(drill=page_data.link.drills.first())

    assert set(states(page_data).values()) == {ReadyState.READY}


def test_mirror_that_is_being_deleted_does_not_count(page_data: PageData) -> None:
    doomed = make_mirror(page_data.link, "doomed", MirrorState.FAILED, lag=9, now=page_data.now)
    MirrorTopic.objects.filter(pk=doomed.pk).update(deletion_requested_at=page_data.now)

    assert set(states(page_data).values()) == {ReadyState.READY}


@pytest.mark.parametrize(
    ("code", "fact"), [(RECORDS_DIFFER, ReadyFact.VERIFICATION), ("AUTHORIZATION_ERROR", ReadyFact.RIGHTS)]
)
def test_errors_of_mirrors_count(page_data: PageData, code: str, fact: ReadyFact) -> None:
    transition_errors.note(mirror=page_data.mirrors["flights"], code=code, message="It is so.", now=page_data.now)

    assert states(page_data)[fact] is ReadyState.NOT_READY


def test_missing_right_of_a_task_counts(page_data: PageData) -> None:
    page_data.link.tasks.update(errors=[{"code": "AUTHORIZATION_ERROR", "message": "No."}], error_count=1)

    assert states(page_data)[ReadyFact.RIGHTS] is ReadyState.NOT_READY


def test_group_with_an_error_counts(page_data: PageData) -> None:
    page_data.link.groups.filter(name="app").update(status=GroupStatus.FAILED)

    assert states(page_data)[ReadyFact.GROUPS] is ReadyState.NOT_READY


@pytest.mark.parametrize("retention_ms", [None, "gone"])
def test_unknown_retention_is_unknown(page_data: PageData, retention_ms: int | str | None) -> None:
    topics = SourceTopic.objects.filter(link=page_data.link, name="flights")
    topics.delete() if retention_ms == "gone" else topics.update(retention_ms=None)

    assert states(page_data)[ReadyFact.RETENTION] is ReadyState.UNKNOWN


def test_unlimited_retention_is_not_the_shortest(page_data: PageData) -> None:
    SourceTopic.objects.filter(link=page_data.link, name="flights").update(retention_ms=-1)

    assert states(page_data)[ReadyFact.RETENTION] is ReadyState.READY


def test_lag_is_compared_with_retention_by_size(page_data: PageData) -> None:
    """``retention.bytes`` counts per partition; a record has 91 bytes here."""
    mirror = page_data.mirrors["flights"]
    MirrorTopic.objects.filter(pk=mirror.pk).update(source_configs={"retention.bytes": "1000000"})
    SourceTopic.objects.filter(link=page_data.link, name="flights").update(retention_ms=-1)
    mirror.partitions.update(source_end=F("mirror_end") + 5_000, last_high_watermark=F("mirror_end") + 5_000)
    found = readiness_of(page_data.link, now=page_data.now)
    assert "with retention by size only at the source" in found.sentence
    assert states(page_data)[ReadyFact.RETENTION] is ReadyState.READY

    mirror.partitions.filter(partition=1).update(source_end=F("mirror_end") + 5_500)
    assert states(page_data)[ReadyFact.RETENTION] is ReadyState.NOT_READY

    mirror.partitions.update(source_end=F("mirror_end") + 1, records_copied=0)
    assert states(page_data)[ReadyFact.RETENTION] is ReadyState.UNKNOWN

    for unlimited in ("-1", "not a number"):
        MirrorTopic.objects.filter(pk=mirror.pk).update(source_configs={"retention.bytes": unlimited})
        assert states(page_data)[ReadyFact.RETENTION] is ReadyState.READY


def test_mirror_without_partitions_makes_the_lag_unknown(page_data: PageData) -> None:
    MirrorPartition.objects.filter(mirror=page_data.mirrors["flights"]).delete()

    assert states(page_data)[ReadyFact.RETENTION] is ReadyState.UNKNOWN


def test_mirror_without_recent_reports_is_not_ready(page_data: PageData) -> None:
    MirrorPartition.objects.filter(mirror=page_data.mirrors["flights"]).update(observed_at=page_data.now - timedelta(minutes=2))
    MirrorTopic.objects.update(state_since=page_data.now - timedelta(hours=1))
    type(page_data.link).objects.update(state_since=page_data.now - timedelta(hours=1))

    assert states(page_data)[ReadyFact.HEALTH] is ReadyState.NOT_READY


def test_alarm_of_a_mirror_is_not_ready(page_data: PageData) -> None:
    transition_errors.note(
        mirror=page_data.mirrors["flights"], code="SOURCE_TRUNCATED", message="Records are lost.", now=page_data.now
    )

    assert states(page_data)[ReadyFact.HEALTH] is ReadyState.NOT_READY


def test_more_mirrors_need_no_more_queries(page_data: PageData) -> None:
    for number in range(20):
        make_mirror(page_data.link, f"extra-{number}", MirrorState.ACTIVE, rate=1.0, now=page_data.now)

    with CaptureQueriesContext(connection) as queries:
        seen = observe_links([page_data.link], by=ENGINE, now=page_data.now, failing={})
        link_readiness(page_data.link, seen[page_data.link.pk], now=page_data.now)

    assert len(queries) == 5
