"""Starting verification runs and storing their results."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.actors import Actor
from console.errors import ConflictError, DeniedError, NotFoundError
from console.models import MirrorTopic, VerifyRun
from console.verification import actions as verification_actions
from console.verification.queries import get_run, list_runs
from linkengine.domain.plans import VerifyReport
from linkengine.domain.ranges import RecordDifference
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

Sent = list[tuple[str, dict[str, Any]]]
DIFFERENCE = RecordDifference(partition=0, offset=7, kind="value", source_value="a", mirror_value="b")


def report(*differences: RecordDifference) -> VerifyReport:
    return VerifyReport(
        records_compared=100, differences=len(differences), first_differences=differences, bytes_compared=5, duration_ms=9,
        partitions=((0, 0, 100),),
    )  # fmt: skip


def test_an_unfinished_run_is_returned_instead_of_a_second_run(mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    run = verification_actions.start_verify(mirror=mirror, by=owner, now=NOW)

    assert verification_actions.start_verify(mirror=mirror, by=owner, now=NOW + timedelta(minutes=1)) == run
    assert sent == [("verify_mirror", {"run_id": run.pk})]
    assert (
        verification_actions.start_verify(mirror=mirror, by=owner, now=NOW + timedelta(hours=3)) == run
    )  # a terabyte takes as long


def test_a_run_is_started_once(mirror: MirrorTopic, owner: Actor) -> None:
    run = verification_actions.start_verify(mirror=mirror, by=owner, now=NOW)

    assert verification_actions.mark_started(run=run, now=NOW)
    assert not verification_actions.mark_started(run=run, now=NOW)


@pytest.mark.parametrize(("differences", "status"), [((), "EQUAL"), ((DIFFERENCE,), "DIFFERENT")])
def test_the_report_of_a_run_is_stored(
    differences: tuple[RecordDifference, ...], status: str, mirror: MirrorTopic, owner: Actor
) -> None:
    run = verification_actions.start_verify(mirror=mirror, by=owner, now=NOW)

    verification_actions.record_result(run=run, report=report(*differences), now=NOW)

    row = get_run(run_id=run.pk, by=owner)
    assert (row.status, row.records_compared, row.ranges) == (status, 100, [[0, 0, 100]])
    assert [difference["offset"] for difference in row.first_differences] == [7] * len(differences)
    assert list_runs(mirror=mirror) == [row]


def test_a_failed_run_has_an_error_and_no_result(mirror: MirrorTopic, owner: Actor) -> None:
    run = verification_actions.start_verify(mirror=mirror, by=owner, now=NOW)
    verification_actions.record_failure(run=run, message="No Spark.", now=NOW)

    assert (VerifyRun.objects.get().status, VerifyRun.objects.get().error_message) == ("ERROR", "No Spark.")
    assert verification_actions.start_verify(mirror=mirror, by=owner, now=NOW) != run


def test_a_late_failure_does_not_replace_a_stored_result(mirror: MirrorTopic, owner: Actor) -> None:
    run = verification_actions.start_verify(mirror=mirror, by=owner, now=NOW)
    stale = VerifyRun.objects.select_related("mirror").get(pk=run.pk)
    verification_actions.record_result(run=run, report=report(DIFFERENCE), now=NOW)

    verification_actions.record_failure(run=stale, message="The worker was lost.", now=NOW)

    assert [VerifyRun.objects.get().status, stale.status] == ["DIFFERENT", "DIFFERENT"]


def test_a_mirror_that_is_being_created_cannot_be_verified(make_mirror: MakeMirror, owner: Actor) -> None:
    with pytest.raises(ConflictError, match="still being created"):
        verification_actions.start_verify(mirror=make_mirror("orders", MirrorState.PENDING_SETUP), by=owner, now=NOW)


def test_readers_may_see_but_not_start_runs_and_strangers_see_none(
    mirror: MirrorTopic, owner: Actor, colleague: Actor, stranger: Actor
) -> None:
    run = verification_actions.start_verify(mirror=mirror, by=owner, now=NOW)

    with pytest.raises(DeniedError):
        verification_actions.start_verify(mirror=mirror, by=colleague, now=NOW)
    assert get_run(run_id=run.pk, by=colleague) == run
    with pytest.raises(NotFoundError):
        get_run(run_id=run.pk, by=stranger)
