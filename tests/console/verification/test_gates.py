"""The migration gate: runs, overrides, and promotions that it opens or blocks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.utils import translation

from console.access import Permission
from console.actors import Actor
from console.errors import ConflictError, DeniedError, InvalidInputError
from console.mirrors.operation_actions import operate
from console.models import AuditEvent, ClusterLink, GateRun, LinkConfig, MirrorTopic
from console.models.mirrors import STAYING
from console.verification.actions import mark_started, override_gate, record_checks, record_result, start_gate, start_verify
from console.verification.rules import gate_closed
from console.workflows.verifying import _checks, _comparison, _keep, _with_the_rest
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.gates import VerifiedData, check_data, check_losses
from linkengine.domain.plans import LogRange, VerifyReport
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeMirror

Sent = list[tuple[str, dict[str, Any]]]
EQUAL = VerifyReport(records_compared=9, differences=0, first_differences=(), bytes_compared=9, duration_ms=1, not_copied=0)
ENDS = {"end": 200, "stable_end": 200}
REASON = "Sales moves tonight, the rest is agreed."


@pytest.fixture
def gated(link: ClusterLink) -> ClusterLink:
    LinkConfig.objects.create(link=link, name="migration.gate.enable", value="true")
    return link


def promote(mirror: MirrorTopic, by: Actor, *, after_s: int = 0) -> MirrorTopic:
    fresh = MirrorTopic.objects.select_related("link__destination__environment").get(pk=mirror.pk)
    return operate(mirror=fresh, operation=MirrorEvent.PROMOTE, by=by, now=NOW + timedelta(seconds=after_s))


def finished(mirror: MirrorTopic, by: Actor, *, lost: int) -> GateRun:
    run = start_gate(mirror=mirror, by=by, now=NOW)
    record_checks(run=run, checks=[check_losses(lost)], now=NOW)
    return run


def test_a_gate_run_starts_a_verification_run_and_is_not_duplicated(mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    run = start_gate(mirror=mirror, by=owner, now=NOW)

    assert start_gate(mirror=mirror, by=owner, now=NOW) == run
    assert run.verify_run is not None
    assert [task for task, _ in sent] == ["verify_mirror", "advance_gate"]
    assert AuditEvent.objects.filter(action="RunMigrationGate").count() == 1


def test_a_mirror_of_a_link_without_a_gate_can_be_promoted(mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    assert promote(mirror, owner).state == MirrorState.PENDING_STOPPED


def test_a_promotion_is_refused_before_the_gate_was_run(
    gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    with pytest.raises(ConflictError, match="has not been run yet"):
        promote(mirror, owner)


def test_a_page_in_japanese_gives_the_reason_in_japanese(gated: ClusterLink, mirror: MirrorTopic) -> None:
    with translation.override("ja"):
        assert "の移行ゲートは閉じています: まだ実行されていません。" in gate_closed(mirror, now=NOW)
    assert "is closed: it has not been run yet. Run the gate" in gate_closed(mirror, now=NOW)


def test_a_green_gate_expires_after_15_minutes(gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    finished(mirror, owner, lost=0)
    with pytest.raises(ConflictError, match="too old"):
        promote(mirror, owner, after_s=901)
    assert promote(mirror, owner, after_s=899).state == MirrorState.PENDING_STOPPED


def test_the_refusal_of_a_red_gate_names_the_failed_check(
    gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    finished(mirror, owner, lost=3)
    with pytest.raises(ConflictError, match="NOTHING_LOST"):
        promote(mirror, owner)


def test_a_gate_run_does_not_use_a_verification_run_that_started_before(mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    started = start_verify(mirror=mirror, by=owner, now=NOW)
    mark_started(run=started, now=NOW)
    queued = start_gate(mirror=mirror, by=owner, now=NOW).verify_run

    assert queued != started
    assert start_verify(mirror=mirror, by=owner, now=NOW, of_now=True) == queued


@pytest.mark.parametrize("code", STAYING)
def test_a_new_alarm_closes_a_green_gate(gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent, code: str) -> None:
    finished(mirror, owner, lost=0)
    mirror.transition_errors.create(code=code, message="3 differ.", since=NOW, last_seen_at=NOW)
    with pytest.raises(ConflictError, match=code):
        promote(mirror, owner)

    override_gate(mirror=mirror, reason=REASON, by=owner, now=NOW)
    assert promote(mirror, owner).state == MirrorState.PENDING_STOPPED


def test_a_loss_before_a_green_run_does_not_close_the_gate(
    gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    before = NOW - timedelta(hours=1)
    mirror.transition_errors.create(code="RECORDS_LOST", message="3 lost.", since=before, last_seen_at=before)
    finished(mirror, owner, lost=0)

    assert promote(mirror, owner).state == MirrorState.PENDING_STOPPED


@pytest.mark.parametrize("event", ["mirror-ready", "mirror-ready-paused", "re-parent"])
@pytest.mark.parametrize("opened", [True, False], ids=["green", "overridden"])
def test_a_green_run_or_override_from_before_the_topic_became_a_mirror_again_does_not_count(
    gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent, event: str, opened: bool
) -> None:
    """Within the 15 minutes the topic was failed over and made a mirror again, or moved to another source."""
    if opened:
        finished(mirror, owner, lost=0)
    else:
        override_gate(mirror=mirror, reason=REASON, by=owner, now=NOW)
    mirror.transitions.create(from_state="", to_state="ACTIVE", event=event, by="engine", at=NOW + timedelta(seconds=6))
    with pytest.raises(ConflictError, match="has not been run since the topic became a mirror again"):
        promote(mirror, owner, after_s=8)

    override_gate(mirror=mirror, reason=REASON, by=owner, now=NOW + timedelta(seconds=9))
    assert promote(mirror, owner, after_s=10).state == MirrorState.PENDING_STOPPED


def test_a_gate_run_fails_if_the_topic_becomes_a_mirror_again_during_it(mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    run = start_gate(mirror=mirror, by=owner, now=NOW)
    later = NOW + timedelta(seconds=6)
    mirror.transitions.create(from_state="", to_state="ACTIVE", event="mirror-ready", by="engine", at=later)

    assert {check.state for check in _checks(run)} == {"FAILED"}


def test_a_green_run_from_the_future_does_not_open_the_gate(
    gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    ahead = NOW + timedelta(hours=1)
    run = start_gate(mirror=mirror, by=owner, now=ahead)
    record_checks(run=run, checks=[check_losses(0)], now=ahead)
    with pytest.raises(ConflictError, match="too old"):
        promote(mirror, owner)

    finished(mirror, owner, lost=3)
    with pytest.raises(ConflictError, match="NOTHING_LOST"):
        promote(mirror, owner, after_s=3601)


@pytest.mark.parametrize("code", ["RECORDS_DIFFER", "TOMBSTONES_MISSED"])
def test_an_equal_verification_run_does_not_pass_while_an_alarm_is_active(
    mirror: MirrorTopic, owner: Actor, sent: Sent, code: str
) -> None:
    run = start_verify(mirror=mirror, by=owner, now=NOW)
    record_result(run=run, report=EQUAL, now=NOW)
    assert check_data(_comparison(run)).state == "PASSED"

    mirror.transition_errors.create(code=code, message="3 differ.", since=NOW, last_seen_at=NOW)
    assert check_data(_comparison(run)).state == "FAILED"


@pytest.mark.parametrize(
    "change", [{"ranges_removed_at": NOW}, {"mirror_topic_id": "another"}, {"source_topic_id": "of a new parent"}]
)
def test_a_verification_run_is_discarded_if_the_topics_changed_during_it(
    mirror: MirrorTopic, owner: Actor, sent: Sent, change: dict[str, Any]
) -> None:
    """The mirror lost its tail, was created anew, or moved to another source."""
    run = start_verify(mirror=mirror, by=owner, now=NOW)
    MirrorTopic.objects.filter(pk=mirror.pk).update(**change)

    _keep(run, EQUAL, now=NOW)

    run.refresh_from_db()
    assert (run.status, run.finished_at) == ("ERROR", NOW)
    check = check_data(_comparison(run))
    assert (check.state, "Start the verification again" in check.detail) == ("FAILED", True)


def test_differences_count_even_if_the_mirror_was_truncated_during_the_run(
    mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    run = start_verify(mirror=mirror, by=owner, now=NOW)
    MirrorTopic.objects.filter(pk=mirror.pk).update(ranges_removed_at=NOW)

    _keep(run, replace(EQUAL, differences=3), now=NOW)

    run.refresh_from_db()
    assert (run.status, run.differences) == ("DIFFERENT", 3)


@pytest.mark.parametrize(
    ("head", "include", "state"),
    [(0, "", "FAILED"), (60, "", "FAILED"), (100, "", "PASSED"), (0, "cleanup.policy", "PASSED")],
    ids=["deleted", "deleted after the start of the copy", "never copied", "the mirror's own retention"],
)
def test_records_of_the_source_below_the_mirrors_log_start_fail_the_data_check(
    link: ClusterLink, mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch, head: int, include: str, state: str
) -> None:
    """A verification run does not read them: it starts at the higher of both log start offsets."""
    begins = {"orders": 40, "copy": 100}
    monkeypatch.setattr(jobs, "log_ranges", lambda _, topic, **__: (LogRange(partition=1, start=begins[topic], **ENDS),))
    MirrorTopic.objects.filter(pk=mirror.pk).update(name="copy")
    if head:
        mirror.gaps.create(partition=1, start=0, end=head, reason="HEAD", filled=head, noted_at=NOW)
    if include:
        LinkConfig.objects.create(link=link, name="topic.config.sync.include", value=include)

    seen = _with_the_rest(MirrorTopic.objects.get(pk=mirror.pk), VerifiedData(records=5, differences=0), run=None)

    assert check_data(seen).state == state
    assert (f"no longer on the mirror (partition 1: [{max(40, head)}, 100))" in seen.missing) == (state == "FAILED")


@pytest.mark.parametrize(
    ("not_copied", "records", "state"),
    [(0, 9, "PASSED"), (0, 0, "FAILED"), (5, 9, "FAILED"), (None, 9, "FAILED")],
    ids=["records written since", "compared when empty", "behind when compared", "source's end unknown"],
)
def test_records_that_were_not_copied_when_compared_fail_the_data_check(
    mirror: MirrorTopic,
    owner: Actor,
    sent: Sent,
    monkeypatch: pytest.MonkeyPatch,
    not_copied: int | None,
    records: int,
    state: str,
) -> None:
    """Both sides hold [40, 200) now; the run compared up to 190."""
    monkeypatch.setattr(jobs, "log_ranges", lambda *_, **__: (LogRange(partition=1, start=40, **ENDS),))
    run = start_verify(mirror=mirror, by=owner, now=NOW)
    seen = replace(EQUAL, not_copied=not_copied, records_compared=records, partitions=((1, 40, 190),))
    record_result(run=run, report=seen, now=NOW)

    assert check_data(_with_the_rest(mirror, _comparison(run), run=run)).state == state


def test_the_data_check_fails_if_the_log_starts_are_unknown(mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = LinkEngineError(ErrorCode.TIMEOUT_ERROR, "no response")
    monkeypatch.setattr(jobs, "log_ranges", Mock(side_effect=silent))

    check = check_data(_with_the_rest(mirror, VerifiedData(records=5, differences=0), run=None))

    assert (check.state, check.detail) == ("FAILED", "The log starts of both sides could not be read: no response")


def test_a_failover_does_not_need_an_open_gate(gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    stopped = operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=owner, now=NOW)
    assert stopped.state == MirrorState.PENDING_STOPPED


def test_an_override_opens_the_gate_and_is_audited(gated: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    finished(mirror, owner, lost=3)
    override_gate(mirror=mirror, reason=f"  {REASON}\n", by=owner, now=NOW + timedelta(seconds=1))

    assert promote(mirror, owner, after_s=2).state == MirrorState.PENDING_STOPPED
    assert AuditEvent.objects.get(action="OverrideMigrationGate").detail == {"reason": REASON}


@pytest.mark.parametrize("reason", ["", "   \n ", "because"])
def test_an_override_needs_a_reason(mirror: MirrorTopic, owner: Actor, reason: str) -> None:
    with pytest.raises(InvalidInputError, match="The reason is too short"):
        override_gate(mirror=mirror, reason=reason, by=owner, now=NOW)


def test_a_reader_may_neither_run_nor_override(mirror: MirrorTopic, colleague: Actor) -> None:
    with pytest.raises(DeniedError, match=Permission.VERIFY):
        start_gate(mirror=mirror, by=colleague, now=NOW)
    with pytest.raises(DeniedError, match=Permission.OPERATE_MIRROR):
        override_gate(mirror=mirror, reason=REASON, by=colleague, now=NOW)


def test_the_gate_of_a_stopped_mirror_cannot_be_run(make_mirror: MakeMirror, owner: Actor) -> None:
    with pytest.raises(ConflictError, match="is STOPPED and cannot be promoted"):
        start_gate(mirror=make_mirror(state=MirrorState.STOPPED), by=owner, now=NOW)
