"""Failover drills: scratch copies, batches, reports, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from console.access import visible_mirrors
from console.actors import ENGINE, Actor
from console.errors import ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.mirrors.actions import request_deletion
from console.models import AuditEvent, ClusterLink, Drill, LinkConfig, MirrorPartition, MirrorTopic, VerifiedRange, VerifyRun
from console.models.mirrors import DELETION_REFUSED
from console.reconciling import transition_errors
from console.verification.actions import record_failure
from console.verification.drill_actions import begin_next_batch, cancel_drill, check_no_drill, conclude, report_of, start_drill
from console.verification.report_actions import write_stop_reports
from console.workflows.drills import COMPARISONS, _check, _clean, _comparison, _copies, _judged, _prepare
from linkengine import jobs
from linkengine.domain.failover import BATCH, DrillRow
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import LinkState, MirrorState
from tests.console.conftest import NOW, MakeMirror
from tests.console.observed import link_figures

Sent = list[tuple[str, dict[str, Any]]]


def test_scratch_copies_are_created_for_active_mirrors_and_not_listed(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    make_mirror("orders"), make_mirror("paused", MirrorState.PAUSED)

    drill = start_drill(link=link, by=owner, now=NOW)

    copy = MirrorTopic.objects.get(drill=drill)
    assert (copy.name, copy.source_topic, copy.state) == (f"orders.clusterlink-drill-{drill.pk}", "orders", "PENDING_SETUP")
    assert copy.start_spec == "latest"
    assert set(visible_mirrors(owner).values_list("name", flat=True)) == {"orders", "paused"}
    assert link_figures(link=link, by=ENGINE).mirrors == 2
    assert AuditEvent.objects.get(action="StartFailoverDrill").detail["topics"] == ["orders"]


def test_a_second_drill_of_a_link_is_refused_while_the_first_runs(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    start_drill(link=link, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="is in progress"):
        start_drill(link=link, by=owner, now=NOW)


def test_a_drill_of_unknown_mirrors_names_them(link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    with pytest.raises(NotFoundError, match="bills"):
        start_drill(link=link, names=["orders", "bills"], by=owner, now=NOW)
    assert not link.drills.exists()


def test_a_drill_of_a_link_without_active_mirrors_is_refused(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    with pytest.raises(ConflictError, match="no active mirror"):
        start_drill(link=link, by=owner, now=NOW)


def test_a_drill_of_a_whole_link_runs_in_batches(link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent) -> None:
    names = sorted(f"topic-{number}" for number in range(BATCH + 3))
    for name in names:
        make_mirror(name, partitions=1)

    drill = start_drill(link=link, by=owner, now=NOW)
    assert drill.topics == names
    assert rehearsed(drill) == names[:BATCH]
    link.mirrors.filter(name=names[-1]).update(state=MirrorState.PAUSED)
    finish_batch(drill, names[:BATCH])

    assert begin_next_batch(drill=drill, by=owner, now=NOW)
    assert rehearsed(drill) == names[BATCH:-1]
    finish_batch(drill, names[BATCH:-1])
    assert not begin_next_batch(drill=drill, by=owner, now=NOW)

    conclude(drill=drill, now=NOW)
    drill.refresh_from_db()
    problems = {row["mirror_topic_name"]: row["problem"] for row in drill.report}
    assert sorted(problems) == names
    assert "the mirror topic is not active" in problems[names[-1]]
    assert drill.status == "FAILED"  # the paused mirror was not rehearsed


def test_a_drill_creates_no_copies_on_a_link_that_is_being_deleted(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    for number in range(BATCH + 1):
        make_mirror(f"topic-{number:02}", partitions=1)
    drill = start_drill(link=link, by=owner, now=NOW)
    finish_batch(drill, rehearsed(drill))
    ClusterLink.objects.update(deletion_requested_at=NOW)

    assert not begin_next_batch(drill=drill, by=owner, now=NOW)

    assert rehearsed(drill) == []
    drill.refresh_from_db()
    assert drill.report[-1]["problem"] == "Not rehearsed: the cluster link is being deleted."


def test_a_drill_that_ends_early_reports_the_topics_it_did_not_rehearse(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    for number in range(BATCH + 1):
        make_mirror(f"topic-{number}", partitions=1)
    drill = start_drill(link=link, by=owner, now=NOW)
    MirrorTopic.objects.filter(drill=drill).delete()
    Drill.objects.update(status="CLEANING", problem="The step took too long.")
    drill.refresh_from_db()

    assert not begin_next_batch(drill=drill, by=owner, now=NOW)

    conclude(drill=drill, now=NOW)
    drill.refresh_from_db()
    assert (drill.status, len(drill.report)) == ("FAILED", BATCH + 1)
    assert {row["problem"] for row in drill.report} == {"Not rehearsed: the drill ended early because of a problem."}


def rehearsed(drill: Drill) -> list[str]:
    return sorted(MirrorTopic.objects.filter(drill=drill).values_list("source_topic", flat=True))


def finish_batch(drill: Drill, names: list[str]) -> None:
    """Delete the copies and add passed report rows, as the tasks do after a successful batch."""
    MirrorTopic.objects.filter(drill=drill).delete()
    good: dict[str, Any] = {"scratch_topic_name": "x", "records_compared": 1, "differences": 0, "writable": True}
    drill.refresh_from_db()
    drill.status = Drill.Status.CLEANING
    drill.report += report_of([DrillRow(mirror_topic_name=name, **good) for name in names])
    drill.save()


def test_a_malformed_start_spec_is_refused(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    with pytest.raises(InvalidInputError):
        start_drill(link=link, start_spec="yesterday", by=owner, now=NOW)


def test_a_drill_of_a_link_that_is_not_active_is_refused(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    ClusterLink.objects.update(state=LinkState.UNAVAILABLE)
    with pytest.raises(ConflictError, match="unavailable"):
        start_drill(link=link, by=owner, now=NOW)


def test_a_reader_may_not_start_a_drill(link: ClusterLink, mirror: MirrorTopic, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        start_drill(link=link, by=colleague, now=NOW)


def test_a_scratch_copy_can_be_deleted_although_a_filter_matches(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    filters = '{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.enable", value="true")
    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.filters", value=filters)
    drill = start_drill(link=link, by=owner, now=NOW)
    copy = MirrorTopic.objects.select_related("link__destination__environment").get(drill=drill)

    request_deletion(mirror=copy, by=owner, now=NOW)

    copy.refresh_from_db()
    assert copy.deletion_requested_at == NOW


def test_a_failed_verification_run_of_a_drill_is_repeated_a_limited_number_of_times(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    start_drill(link=link, by=owner, now=NOW)
    copy = MirrorTopic.objects.exclude(drill=None).get()
    MirrorTopic.objects.filter(pk=copy.pk).update(state=MirrorState.STOPPED)
    copy.refresh_from_db()

    runs = []
    for _ in range(COMPARISONS + 1):
        runs.append(run := _comparison(copy, NOW))
        record_failure(run=run, message="The worker was lost.", now=NOW)

    assert len({run.pk for run in runs}) == COMPARISONS
    assert runs[-1].pk == runs[-2].pk


COMPARED = [(997, 0, False), (997, 2, True), (0, 0, True)]  # first offset, records, whether the comparison is conclusive


@pytest.mark.parametrize(("begins", "records", "proves"), COMPARED)
def test_a_comparison_without_records_is_inconclusive_unless_all_of_the_source_was_read(
    link: ClusterLink, make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch, begins: int, records: int, proves: bool
) -> None:
    """The compared offsets may hold nothing but an aborted transaction."""
    monkeypatch.setattr(jobs, "try_writing", lambda *_: [])
    requested = {"requested_by": "owner", "requested_at": NOW}
    drill = Drill.objects.create(link=link, status="CHECKING", status_since=NOW, start_spec="latest", **requested)
    copy = make_mirror("orders.clusterlink-drill-1", MirrorState.STOPPED, partitions=1, drill=drill)
    MirrorPartition.objects.filter(mirror=copy).update(source_start=0, last_source_end=1000)
    run = VerifyRun.objects.create(
        mirror=copy, status="EQUAL", ranges=[[0, begins, 1000]], records_compared=records, **requested
    )
    seen = {"records": records, "first_verified_at": NOW, "verified_at": NOW}
    VerifiedRange.objects.create(mirror=copy, partition=0, start=begins, end=1000, **seen)

    problem = _judged(copy, run, drill)["problem"]

    assert problem == "" if proves else problem.startswith("Nothing was compared in partition 0:")


def test_a_drill_is_refused_if_topic_deletion_is_disabled(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    link.destination.deletes_topics = False
    link.destination.save()
    with pytest.raises(ConflictError, match=r"delete\.topic\.enable=false") as refused:
        start_drill(link=link, by=owner, now=NOW)

    assert refused.value.code == "TOPIC_DELETION_DISABLED"
    assert not link.drills.exists()


@pytest.mark.parametrize("known", [True, False], ids=["known from the probe", "known from the refused deletion"])
def test_a_drill_names_scratch_topics_that_the_destination_does_not_delete(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent, known: bool
) -> None:
    start_drill(link=link, by=owner, now=NOW)
    copy = MirrorTopic.objects.exclude(drill=None).get()
    MirrorTopic.objects.filter(pk=copy.pk).update(state=MirrorState.STOPPED, num_partitions=2)
    Drill.objects.update(status=Drill.Status.CLEANING)
    if known:
        link.destination.deletes_topics = False
        link.destination.save()
    else:
        transition_errors.note(mirror=copy, code=DELETION_REFUSED, message="Topic deletion is disabled.", now=NOW)

    for _ in range(2):  # the first step deletes the rows, the second ends the drill
        drill = Drill.objects.select_related("link__destination").get()
        _clean(drill, _copies(drill), NOW)

    drill = Drill.objects.get()
    assert not MirrorTopic.objects.filter(pk=copy.pk).exists()
    assert drill.status == Drill.Status.FAILED
    assert drill.problem.startswith(f"Scratch topic '{copy.name}' is left on the destination; delete it there.")


def test_a_drill_reports_configs_that_the_destination_refuses_after_a_failover(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "try_writing", lambda *_: ())
    start_drill(link=link, by=owner, now=NOW)
    copy = MirrorTopic.objects.select_related("link__destination").exclude(drill=None).get()
    copy.state, copy.stop_reason = MirrorState.STOPPED, "failover"
    copy.save()
    step = RefusedStep(name="retention.ms", value="99", code="POLICY_VIOLATION_ERROR", message="7 days at most.")
    write_stop_reports(mirrors=[copy], now=NOW, refused={copy: [step]})

    judged = _judged(copy, VerifyRun(), Drill.objects.get())

    assert "leaves configs undone that the destination refuses: retention.ms=99." in judged["note"]


def test_canceled_drill_deletes_its_copies_and_rehearses_no_further_topics(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    for number in range(BATCH + 2):
        make_mirror(f"topic-{number:02}", partitions=1)
    drill = start_drill(link=link, by=owner, now=NOW)

    cancel_drill(drill=drill, by=owner, now=NOW)
    cancel_drill(drill=drill, by=owner, now=NOW)  # again: nothing more happens

    drill.refresh_from_db()
    assert (drill.status, drill.canceled_by, drill.problem) == ("CLEANING", "owner", "Canceled by owner.")
    assert ("advance_drill", {"drill_id": drill.pk}) in sent
    assert AuditEvent.objects.filter(action="CancelFailoverDrill").count() == 1
    MirrorTopic.objects.filter(drill=drill).delete()
    _clean(drill, [], NOW)
    drill.refresh_from_db()
    assert (drill.status, drill.finished_at) == ("CANCELED", NOW)
    assert {row["problem"] for row in drill.report} == {"Not rehearsed: the drill was canceled."}
    assert rehearsed(drill) == []


def test_step_in_progress_does_not_undo_a_cancellation(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    drill = start_drill(link=link, by=owner, now=NOW)
    MirrorTopic.objects.filter(drill=drill).update(state=MirrorState.FAILED)  # so each step would end at once
    as_read = Drill.objects.get(pk=drill.pk)
    cancel_drill(drill=drill, by=owner, now=NOW)

    _prepare(as_read, _copies(as_read), NOW)
    _check(as_read, _copies(as_read), NOW)

    drill.refresh_from_db()
    assert (drill.status, drill.report) == ("CLEANING", [])


def test_drill_that_is_over_cannot_be_canceled(link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    drill = start_drill(link=link, by=owner, now=NOW)
    Drill.objects.filter(pk=drill.pk).update(status="PASSED")

    with pytest.raises(ConflictError, match="has ended"):
        cancel_drill(drill=drill, by=owner, now=NOW)

    drill.refresh_from_db()
    assert (drill.status, drill.canceled_by) == ("PASSED", "")


def test_reader_may_not_cancel_a_drill(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, colleague: Actor, sent: Sent
) -> None:
    drill = start_drill(link=link, by=owner, now=NOW)

    with pytest.raises(DeniedError):
        cancel_drill(drill=drill, by=colleague, now=NOW)

    drill.refresh_from_db()
    assert drill.status == "PREPARING"


def test_canceled_drill_allows_another_one(link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    drill = start_drill(link=link, by=owner, now=NOW)
    cancel_drill(drill=drill, by=owner, now=NOW)
    with pytest.raises(ConflictError, match=f"Failover drill {drill.pk} .* is in progress"):
        check_no_drill(link)
    MirrorTopic.objects.filter(drill=drill).delete()
    drill.refresh_from_db()
    conclude(drill=drill, now=NOW)

    check_no_drill(link)
    start_drill(link=link, by=owner, now=NOW)

    assert link.drills.count() == 2
