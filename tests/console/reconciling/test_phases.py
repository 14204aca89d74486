"""Reports of copy workers change the states of mirrors."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from console.models import LinkConfig, MirrorPartition, MirrorTopic, StateTransition, StateTransitionError
from console.reconciling import plans, transition_errors
from console.reconciling.phases import RETRY_TIMEOUT, WorstReport, apply_report, worst_report
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

P = PartitionPhase
S = MirrorState
COPYING = WorstReport(phase=P.COPYING)
LOST = WorstReport(phase=P.SOURCE_UNREACHABLE, code="TIMEOUT_ERROR", message="No broker responds.")
BROKEN = WorstReport(phase=P.LINK_BROKEN, code="AUTHENTICATION_ERROR", message="Wrong password.")
DAMAGED = WorstReport(phase=P.SOURCE_UNREACHABLE, code="CORRUPT_RECORDS", message="Damaged at the source.")
DAMAGED_ON_ARRIVAL = WorstReport(phase=P.DESTINATION_UNREACHABLE, code="CORRUPT_RECORDS", message="Damaged on arrival.")
NO_RIGHTS = WorstReport(phase=P.LINK_BROKEN, code="AUTHORIZATION_ERROR", message="May not READ.")
DELETED = WorstReport(phase=P.SOURCE_UNREACHABLE, code="SOURCE_TOPIC_MAY_BE_DELETED", message="The topic does not exist.")
FOREIGN = WorstReport(phase=P.FAILED, code="FOREIGN_WRITE", message="Another producer wrote.")


def see(mirror: MirrorTopic, report: WorstReport | None, *, after_s: float = 0) -> MirrorTopic:
    apply_report(mirror=mirror, report=report, now=NOW + timedelta(seconds=after_s))
    return MirrorTopic.objects.select_related("link").get(pk=mirror.pk)


def codes() -> list[str]:
    return list(StateTransitionError.objects.values_list("code", flat=True))


def test_status_is_that_of_the_worst_fresh_partition(mirror: MirrorTopic) -> None:
    rows = [
        MirrorPartition(phase=phase, observed_at=NOW - timedelta(seconds=age), error_code=phase)
        for phase, age in [(P.COPYING, 0), (P.SOURCE_UNREACHABLE, 1), (P.FAILED, 60), (P.WAITING, 0)]
    ]

    report = worst_report(rows, now=NOW)

    assert report is not None
    assert report.phase is P.SOURCE_UNREACHABLE
    assert worst_report(rows[2:], now=NOW) is None
    assert worst_report([MirrorPartition(phase=P.COPYING, observed_at=NOW + timedelta(hours=1))], now=NOW) is None


@pytest.mark.parametrize("state", list(S))
def test_mirror_that_was_stopped_without_a_record_of_it_fails(state: S, make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders", state)
    row = found_fence(after_s=1)
    report = worst_report([MirrorPartition(phase=P.RELEASED, observed_at=NOW), row], now=NOW)
    assert report is not None

    seen = see(mirror, report, after_s=2)

    fails = state in (S.ACTIVE, S.SOURCE_UNAVAILABLE, S.LINK_FAILED)
    assert seen.state == (S.FAILED if fails else state)
    assert (seen.error_code, seen.error_message) == (("MIRROR_WAS_STOPPED", "Stopped.") if fails else ("", ""))


def test_fence_found_by_an_old_assignment_changes_nothing(mirror: MirrorTopic) -> None:
    before = worst_report([found_fence(after_s=-1)], now=NOW)

    assert see(mirror, before, after_s=2).state == S.ACTIVE
    assert see(mirror, replace(COPYING, phase=P.RELEASED, code="MIRROR_WAS_STOPPED"), after_s=2).state == S.ACTIVE


def test_found_fence_does_not_change_a_mirror_that_was_stopped_since(mirror: MirrorTopic) -> None:
    report = worst_report([found_fence(after_s=1)], now=NOW)
    MirrorTopic.objects.update(state=S.STOPPED)

    assert see(mirror, report, after_s=2).state == S.STOPPED


def found_fence(*, after_s: float) -> MirrorPartition:
    """Return the report of a fence, with an assignment written ``after_s`` after the mirror came into its state."""
    row = MirrorPartition(phase=P.RELEASED, error_code="MIRROR_WAS_STOPPED", error_message="Stopped.", observed_at=NOW)
    row.since_ms = int((NOW + timedelta(seconds=after_s)).timestamp() * 1000)
    return row


def test_source_counts_as_lost_after_a_moment_until_it_returns(mirror: MirrorTopic) -> None:
    mirror = see(mirror, LOST)
    assert (mirror.state, codes()) == (S.ACTIVE, ["TIMEOUT_ERROR"])
    mirror = see(mirror, LOST, after_s=3)
    assert mirror.state == S.SOURCE_UNAVAILABLE

    mirror = see(mirror, COPYING, after_s=4)

    assert (mirror.state, mirror.error_since, codes()) == (S.ACTIVE, None, [])
    assert list(StateTransition.objects.values_list("event", flat=True)) == ["source-back", "source-lost"]


def test_refused_credentials_fail_the_link_at_once_until_they_are_accepted(mirror: MirrorTopic) -> None:
    mirror = see(mirror, BROKEN)
    assert (mirror.state, codes()) == (S.LINK_FAILED, ["AUTHENTICATION_ERROR"])
    assert StateTransitionError.objects.get().message == "Wrong password."

    mirror = see(mirror, COPYING, after_s=1)
    assert (mirror.state, codes()) == (S.ACTIVE, [])


@pytest.mark.parametrize(("report", "state"), [(LOST, S.SOURCE_UNAVAILABLE), (BROKEN, S.LINK_FAILED)])
def test_failed_attempts_are_counted_until_copying_resumes(report: WorstReport, state: S, mirror: MirrorTopic) -> None:
    for second in range(5):
        mirror = see(mirror, replace(report, again=second % 2 == 0), after_s=second)
    assert (mirror.state, mirror.retry_count) == (state, 3)

    assert see(mirror, COPYING, after_s=6).retry_count == 0


def test_retry_count_of_a_promotion_counts_its_own_checks(make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders", S.PENDING_STOPPED, retry_count=2)

    assert see(mirror, replace(LOST, again=True)).retry_count == 2


def test_wrong_credentials_never_fail_a_mirror_permanently(mirror: MirrorTopic) -> None:
    mirror = see(mirror, BROKEN)
    assert see(mirror, BROKEN, after_s=RETRY_TIMEOUT.total_seconds() * 3).state == S.LINK_FAILED


@pytest.mark.parametrize("report", [NO_RIGHTS, DELETED, DAMAGED, DAMAGED_ON_ARRIVAL])
def test_some_errors_become_permanent_after_the_retry_timeout(report: WorstReport, mirror: MirrorTopic) -> None:
    mirror = see(mirror, report)
    mirror = see(mirror, report, after_s=RETRY_TIMEOUT.total_seconds() - 1)
    assert mirror.state in (S.ACTIVE, S.LINK_FAILED, S.SOURCE_UNAVAILABLE)

    mirror = see(mirror, report, after_s=RETRY_TIMEOUT.total_seconds())

    assert (mirror.state, mirror.error_code, mirror.error_message) == (S.FAILED, report.code, report.message)


@pytest.mark.parametrize("state", [S.ACTIVE, S.PENDING_SYNCHRONIZE])
@pytest.mark.parametrize("between", [COPYING, LOST], ids=["healthy", "unavailable"])
def test_only_an_uninterrupted_error_becomes_permanent(state: S, between: WorstReport, make_mirror: MakeMirror) -> None:
    """A short error after five minutes of copying, or at the end of an outage, does not count, also while a reversal drains."""
    timeout_s, mirror = RETRY_TIMEOUT.total_seconds(), make_mirror("orders", state)
    StateTransitionError.objects.create(mirror=mirror, code="WAITING_FOR_LAG", message="", since=NOW, last_seen_at=NOW)
    for report, at_s in ((DELETED, 0), (between, 1), (between, timeout_s), (DELETED, timeout_s + 1)):
        mirror = see(mirror, report, after_s=at_s)
        assert mirror.state != S.FAILED
    assert ("WAITING_FOR_LAG" in codes()) is (state == S.PENDING_SYNCHRONIZE or between is LOST)

    assert see(mirror, DELETED, after_s=2 * timeout_s + 1).state == S.FAILED


def test_foreign_write_fails_the_mirror_at_once(mirror: MirrorTopic) -> None:
    mirror = see(mirror, FOREIGN)

    assert (mirror.state, mirror.error_code) == (S.FAILED, "FOREIGN_WRITE")
    assert see(mirror, COPYING).state == S.FAILED


def test_unavailable_destination_is_shown_but_changes_no_state(mirror: MirrorTopic) -> None:
    unavailable = WorstReport(phase=P.DESTINATION_UNREACHABLE, code="DESTINATION_UNAVAILABLE", message="Unavailable.")

    assert see(mirror, unavailable, after_s=60).state == S.ACTIVE
    assert codes() == ["DESTINATION_UNAVAILABLE"]


@pytest.mark.parametrize("state", [S.PAUSED, S.STOPPED, S.PENDING_SETUP, S.FAILED])
def test_mirrors_that_are_not_copied_are_not_changed(state: S, make_mirror: MakeMirror) -> None:
    assert see(make_mirror("orders", state), FOREIGN).state == state
    assert codes() == []


def test_promotion_keeps_its_own_errors(make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders", S.PENDING_STOPPED)
    StateTransitionError.objects.create(mirror=mirror, code="WAITING_FOR_LAG", message="", since=NOW, last_seen_at=NOW)

    assert see(mirror, COPYING).state == S.PENDING_STOPPED
    assert codes() == ["WAITING_FOR_LAG"]
    assert see(mirror, BROKEN).state == S.PENDING_STOPPED


def test_promotion_waits_on_after_copying_failed_and_records_it_once(make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders", S.PENDING_STOPPED)

    for second in range(3):
        mirror = see(mirror, FOREIGN, after_s=second)

    assert (mirror.state, mirror.error_code) == (S.PENDING_STOPPED, "")
    assert list(mirror.transitions.values_list("event", "detail")) == [("fatal", "Another producer wrote.")]


@pytest.mark.parametrize(("report", "fields"), [(DELETED, {}), (FOREIGN, {"fencing_at": NOW})], ids=["may recover", "fenced"])
def test_history_of_a_promotion_has_only_permanent_failures_before_the_fence(
    report: WorstReport, fields: dict[str, datetime], make_mirror: MakeMirror
) -> None:
    mirror = make_mirror("orders", S.PENDING_STOPPED, **fields)

    for after_s in (0, RETRY_TIMEOUT.total_seconds()):
        mirror = see(mirror, report, after_s=after_s)

    assert not mirror.transitions.exists()


@pytest.mark.parametrize("report", [LOST, BROKEN, FOREIGN, COPYING])
@pytest.mark.parametrize(
    "moved", [{"state": S.STOPPED, "stop_reason": "failover"}, {"stop_reason": "failover"}, {"deletion_requested_at": NOW}]
)
def test_mirror_that_was_stopped_since_the_pass_started_is_not_changed(
    report: WorstReport, moved: dict[str, Any], make_mirror: MakeMirror
) -> None:
    """New errors would never be cleared, and the error that a failure left in the row is still shown."""
    as_read = make_mirror("orders", S.PENDING_STOPPED if len(moved) == 1 else S.ACTIVE, error_since=NOW)
    MirrorTopic.objects.filter(pk=as_read.pk).update(error_code="LEFT", **moved)

    mirror = see(as_read, report, after_s=60)

    assert (mirror.error_code, codes(), mirror.transitions.exists()) == ("LEFT", [], False)


@pytest.mark.parametrize("report", [LOST, FOREIGN])
def test_mirror_that_is_failing_over_ignores_reports(report: WorstReport, make_mirror: MakeMirror) -> None:
    mirror = see(make_mirror("orders", S.PENDING_STOPPED, stop_reason="failover"), report, after_s=60)

    assert (mirror.error_since, codes(), mirror.transitions.exists()) == (None, [], False)


@pytest.mark.parametrize("state", [S.STOPPED, None], ids=["stopped", "deleted"])
def test_event_is_not_applied_if_the_mirror_was_stopped_first(
    state: S | None, mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other mirrors of the link have to be handled in any case."""
    rows, note = MirrorTopic.objects.filter(pk=mirror.pk), transition_errors.note

    def overtake(**facts: Any) -> bool:
        changed = note(**facts)
        rows.update(state=state) if state else rows.delete()
        return changed

    monkeypatch.setattr(transition_errors, "note", overtake)
    apply_report(mirror=mirror, report=FOREIGN, now=NOW)

    assert list(rows.values_list("state", flat=True)) == ([state] if state else [])


def test_no_report_changes_nothing(mirror: MirrorTopic) -> None:
    assert see(mirror, None).state == S.ACTIVE


def test_retry_timeout_is_that_of_the_link(mirror: MirrorTopic) -> None:
    assert plans.retry_timeout(mirror.link) == RETRY_TIMEOUT
    LinkConfig.objects.create(link=mirror.link, name="cluster.link.retry.timeout.ms", value="60000")
    short = plans.retry_timeout(mirror.link)
    seen = []
    for after_s in (0, 59, 60):
        apply_report(mirror=mirror, report=DELETED, now=NOW + timedelta(seconds=after_s), retry_timeout=short)
        mirror = MirrorTopic.objects.select_related("link").get(pk=mirror.pk)
        seen.append(mirror.state)

    assert short == timedelta(minutes=1)
    assert seen[-2:] == [S.ACTIVE, S.FAILED] or seen[-2:] == [S.SOURCE_UNAVAILABLE, S.FAILED]
