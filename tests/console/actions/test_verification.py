"""Starting comparisons and keeping what they saw."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.actions import verification
from console.actors import Actor
from console.errors import ConflictError, DeniedError, NotFoundError
from console.models import MirrorTopic, VerifyRun
from console.queries.verification import get_run, list_runs
from linkengine.domain.coverage import RecordDifference
from linkengine.domain.plans import VerifyReport
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

Sent = list[tuple[str, dict[str, Any]]]
DIFFERENCE = RecordDifference(partition=0, offset=7, kind="value", source_value="a", mirror_value="b")


def report(*differences: RecordDifference) -> VerifyReport:
    return VerifyReport(
        records_compared=100, differences=len(differences), first_differences=differences, bytes_compared=5, duration_ms=9,
        partitions=((0, 0, 100),),
    )  # fmt: skip


def test_a_comparison_is_queued_once(mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    run = verification.start_verify(mirror=mirror, by=owner, now=NOW)

    assert verification.start_verify(mirror=mirror, by=owner, now=NOW + timedelta(minutes=1)) == run
    assert sent == [("verify_mirror", {"run_id": run.pk})]
    assert verification.start_verify(mirror=mirror, by=owner, now=NOW + timedelta(hours=3)) == run  # a terabyte takes as long


def test_a_run_is_taken_once(mirror: MirrorTopic, owner: Actor) -> None:
    run = verification.start_verify(mirror=mirror, by=owner, now=NOW)

    assert verification.mark_started(run=run, now=NOW)
    assert not verification.mark_started(run=run, now=NOW)


@pytest.mark.parametrize(("differences", "status"), [((), "EQUAL"), ((DIFFERENCE,), "DIFFERENT")])
def test_what_the_witness_saw_is_kept(
    differences: tuple[RecordDifference, ...], status: str, mirror: MirrorTopic, owner: Actor
) -> None:
    run = verification.start_verify(mirror=mirror, by=owner, now=NOW)

    verification.record_result(run=run, report=report(*differences), now=NOW)

    row = get_run(run_id=run.pk, by=owner)
    assert (row.status, row.records_compared, row.ranges) == (status, 100, [[0, 0, 100]])
    assert [one["offset"] for one in row.first_differences] == [7] * len(differences)
    assert list_runs(mirror=mirror) == [row]


def test_a_comparison_that_fails_says_nothing_about_the_data(mirror: MirrorTopic, owner: Actor) -> None:
    run = verification.start_verify(mirror=mirror, by=owner, now=NOW)
    verification.record_failure(run=run, message="No Spark.", now=NOW)

    assert (VerifyRun.objects.get().status, VerifyRun.objects.get().error_message) == ("ERROR", "No Spark.")
    assert verification.start_verify(mirror=mirror, by=owner, now=NOW) != run


def test_a_result_is_not_taken_back_by_somebody_who_took_the_comparison_for_dead(mirror: MirrorTopic, owner: Actor) -> None:
    run = verification.start_verify(mirror=mirror, by=owner, now=NOW)
    as_read_before = VerifyRun.objects.select_related("mirror").get(pk=run.pk)
    verification.record_result(run=run, report=report(DIFFERENCE), now=NOW)

    verification.record_failure(run=as_read_before, message="The worker went away.", now=NOW)

    assert [VerifyRun.objects.get().status, as_read_before.status] == ["DIFFERENT", "DIFFERENT"]


def test_what_is_not_there_yet_cannot_be_compared(make_mirror: MakeMirror, owner: Actor) -> None:
    with pytest.raises(ConflictError, match="still being created"):
        verification.start_verify(mirror=make_mirror("orders", MirrorState.PENDING_SETUP), by=owner, now=NOW)


def test_who_may_only_look_starts_nothing_and_strangers_see_nothing(
    mirror: MirrorTopic, owner: Actor, colleague: Actor, stranger: Actor
) -> None:
    run = verification.start_verify(mirror=mirror, by=owner, now=NOW)

    with pytest.raises(DeniedError):
        verification.start_verify(mirror=mirror, by=colleague, now=NOW)
    assert get_run(run_id=run.pk, by=colleague) == run
    with pytest.raises(NotFoundError):
        get_run(run_id=run.pk, by=stranger)
