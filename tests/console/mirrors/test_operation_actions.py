"""Operations of users on one or many mirrors: what they change, and why they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from console.actors import Actor
from console.errors import ConflictError, DeniedError, InvalidInputError
from console.mirrors.operation_actions import operate, operate_many
from console.mirrors.rules import OFFERED, why_not
from console.models import AuditEvent, ClusterLink, MirrorTopic, StateTransitionError
from console.models.mirrors import RECORDS_LOST
from linkengine.domain.states import BIDIRECTIONAL_ONLY, OPERATIONS, LinkState, MirrorEvent, MirrorState, can
from tests.console.conftest import NOW, MakeActor, MakeMirror

E = MirrorEvent
S = MirrorState
Sent = list[tuple[str, dict[str, Any]]]


@pytest.mark.parametrize("event", [E.PAUSE, E.PROMOTE, E.FAILOVER])
def test_an_operation_changes_the_state_and_queues_the_engines_tasks(
    event: E, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    moved = operate(mirror=mirror, operation=event, by=owner, now=NOW)

    assert moved.state == (S.PAUSED if event is E.PAUSE else S.PENDING_STOPPED)
    assert MirrorTopic.objects.get().stop_reason == ("" if event is E.PAUSE else event.value)
    assert AuditEvent.objects.get().detail == {"from": "ACTIVE", "to": moved.state}
    names = [name for name, _ in sent]
    assert names == ["reconcile_link"] if event is E.PAUSE else ["reconcile_link", "advance_stop"]


def test_pausing_a_mirror_does_not_restart_the_copies_of_its_link(mirror: MirrorTopic, owner: Actor) -> None:
    operate(mirror=mirror, operation=E.PAUSE, by=owner, now=NOW)

    assert ClusterLink.objects.get().revision == mirror.link.revision


def test_a_failover_replaces_a_pending_promotion(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror("orders", S.PENDING_STOPPED)

    operate(mirror=mirror, operation=E.FAILOVER, by=owner, now=NOW)

    assert MirrorTopic.objects.get().stop_reason == "failover"


def test_an_operation_clears_errors_except_lost_records(mirror: MirrorTopic, owner: Actor) -> None:
    for code in ("AUTHORIZATION_ERROR", RECORDS_LOST):
        StateTransitionError.objects.create(mirror=mirror, code=code, message="", since=NOW, last_seen_at=NOW)

    operate(mirror=mirror, operation=E.PAUSE, by=owner, now=NOW)

    assert [error.code for error in StateTransitionError.objects.all()] == [RECORDS_LOST]


def test_validate_only_changes_nothing(mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    operate(mirror=mirror, operation=E.PROMOTE, validate_only=True, by=owner, now=NOW)

    assert MirrorTopic.objects.get().state == S.ACTIVE
    assert not sent
    with pytest.raises(ConflictError):
        operate(mirror=mirror, operation=E.RESUME, validate_only=True, by=owner, now=NOW)


@pytest.mark.parametrize("state", list(S))
def test_the_rules_allow_exactly_the_transitions_of_the_table(
    state: S, link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror
) -> None:
    mirror = make_mirror("orders", state)

    reasons = {event: why_not(mirror, event) for event in OPERATIONS}

    assert reasons.keys() <= set(OFFERED)
    assert {event for event, reason in reasons.items() if reason == ""} == {event for event in OPERATIONS if can(state, event)}


@pytest.mark.parametrize("event", sorted(BIDIRECTIONAL_ONLY))
def test_reversals_and_restores_need_a_bidirectional_link(event: E, make_mirror: MakeMirror) -> None:
    state = S.STOPPED if event is E.RESTORE else S.ACTIVE

    assert "needs a bidirectional link" in why_not(make_mirror("orders", state), event)


def test_a_reversal_needs_both_sides(link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders")
    back.state = LinkState.UNAVAILABLE
    back.save()
    assert "needs both clusters" in why_not(mirror, E.REVERSE_AND_START)
    back.delete()
    assert "other side" in why_not(mirror, E.REVERSE_AND_START)


@pytest.mark.parametrize("event", sorted(BIDIRECTIONAL_ONLY))
@pytest.mark.parametrize("state", sorted(set(LinkState) - {LinkState.ACTIVE}))
def test_reversals_and_restores_need_an_active_link(
    event: E, state: LinkState, link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror
) -> None:
    link.state = state

    reason = why_not(make_mirror("orders", S.STOPPED if event is E.RESTORE else S.ACTIVE), event)

    assert f"is {state}; this needs both clusters" in reason


@pytest.mark.parametrize("state", LinkState)
def test_a_failover_never_depends_on_the_link(state: LinkState, link: ClusterLink, make_mirror: MakeMirror) -> None:
    link.state = state

    assert why_not(make_mirror("orders", S.LINK_FAILED), E.FAILOVER) == ""


@pytest.mark.parametrize("event", sorted(set(E) - OPERATIONS))
def test_users_may_not_raise_events_of_the_engine(event: E, make_mirror: MakeMirror) -> None:
    for state in S:
        assert "cannot be requested by users" in why_not(make_mirror(state.value, state), event)


def test_a_mirror_cannot_be_reversed_if_its_source_topic_is_a_mirror(
    link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror
) -> None:
    mirror = make_mirror("orders")
    make_mirror("orders", link=back)

    assert "on the other side is ACTIVE itself" in why_not(mirror, E.REVERSE_AND_PAUSE)


def test_recover_is_refused_if_offsets_changed_their_meaning(make_mirror: MakeMirror) -> None:
    assert why_not(make_mirror("a", S.FAILED, error_code="AUTHORIZATION_ERROR"), E.RECOVER) == ""
    assert "no longer mean the same" in why_not(make_mirror("b", S.FAILED, error_code="SOURCE_TOPIC_ID_CHANGED"), E.RECOVER)
    assert "before it was a mirror" in why_not(make_mirror("c", S.FAILED, partitions=0), E.RECOVER)


def test_the_rules_are_checked_on_the_current_row(make_mirror: MakeMirror, link: ClusterLink, owner: Actor) -> None:
    """Since the rows were read, a mirror has failed for a reason that cannot be recovered, and the link was paused."""
    failed = make_mirror("orders", S.FAILED, error_code="AUTHORIZATION_ERROR")
    paused = make_mirror("payments", S.PAUSED)
    MirrorTopic.objects.filter(pk=failed.pk).update(error_code="UNEXPECTED_TRUNCATION")
    ClusterLink.objects.update(state=LinkState.PAUSED)

    with pytest.raises(ConflictError, match="UNEXPECTED_TRUNCATION"):
        operate(mirror=failed, operation=E.RECOVER, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="is paused"):
        operate(mirror=paused, operation=E.RESUME, by=owner, now=NOW)

    assert set(MirrorTopic.objects.values_list("name", "state")) == {("orders", S.FAILED), ("payments", S.PAUSED)}
    assert not AuditEvent.objects.exists()


def test_the_audit_row_has_the_stored_previous_state(make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror("orders")
    MirrorTopic.objects.update(state=S.PAUSED)

    operate(mirror=mirror, operation=E.FAILOVER, by=owner, now=NOW)

    assert AuditEvent.objects.get().detail == {"from": "PAUSED", "to": "PENDING_STOPPED"}


def test_operating_a_stopped_mirror_has_confluents_error_message(make_mirror: MakeMirror) -> None:
    reason = why_not(make_mirror("orders", S.STOPPED), E.PROMOTE)
    assert reason == "Topic 'orders' has already stopped its mirror from 'west-to-east'. Only RESTORE and DELETE are possible."


def test_a_paused_link_allows_only_a_failover_of_its_mirrors(make_mirror: MakeMirror, link: ClusterLink) -> None:
    link.state = LinkState.PAUSED
    paused = make_mirror("orders", S.PAUSED)

    assert "cluster.link.paused" in why_not(paused, E.RESUME)
    assert "fail over" in why_not(paused, E.PROMOTE)
    assert why_not(paused, E.FAILOVER) == ""


def test_a_mirror_that_is_being_deleted_allows_no_operation(make_mirror: MakeMirror) -> None:
    assert "being deleted" in why_not(make_mirror(deletion_requested_at=NOW), E.PAUSE)


def test_each_mirror_of_a_batch_succeeds_or_fails_separately(make_mirror: MakeMirror, link: ClusterLink, owner: Actor) -> None:
    make_mirror("a")
    make_mirror("b", S.STOPPED)

    rows = operate_many(link=link, names=["a", "b", "none", "a"], operation=E.PROMOTE, by=owner, now=NOW)

    assert [(row.mirror_topic_name, row.error_code) for row in rows] == [("a", None), ("b", 400), ("none", 404)]
    assert (
        rows[1].error_message
        == "Topic 'b' has already stopped its mirror from 'west-to-east'. Only RESTORE and DELETE are possible."
    )
    assert rows[0].mirror is not None
    assert rows[0].mirror.state == S.PENDING_STOPPED


def test_a_pattern_matches_whole_names(make_mirror: MakeMirror, link: ClusterLink, owner: Actor) -> None:
    for name in ("ab", "abc", "b"):
        make_mirror(name)

    rows = operate_many(link=link, pattern="a.?", operation=E.PAUSE, validate_only=True, by=owner, now=NOW)

    assert [row.mirror_topic_name for row in rows] == ["ab"]


@pytest.mark.parametrize("chosen", [{}, {"pattern": "("}])
def test_a_batch_needs_names_or_a_valid_pattern(chosen: dict[str, str], link: ClusterLink, owner: Actor) -> None:
    with pytest.raises(InvalidInputError):
        operate_many(link=link, operation=E.PAUSE, by=owner, now=NOW, **chosen)  # type: ignore[arg-type]


def test_a_denied_mirror_does_not_stop_the_batch(make_mirror: MakeMirror, link: ClusterLink, make_actor: MakeActor) -> None:
    make_mirror("a")
    make_mirror("b")
    place = {"cluster": link.destination, "resource_type": "Topic"}
    actor = make_actor("developer", "DeveloperManage", resource_name="a", **place)
    make_actor("developer", "DeveloperRead", resource_name="b", **place)

    rows = operate_many(link=link, names=["a", "b"], operation=E.PAUSE, by=actor, now=NOW)

    assert [row.error_code for row in rows] == [None, 403]


def test_a_reader_may_not_operate_mirrors(mirror: MirrorTopic, colleague: Actor) -> None:
    with pytest.raises(DeniedError, match="the role Operator there"):
        operate(mirror=mirror, operation=E.FAILOVER, by=colleague, now=NOW)
