"""Mirrors by state over time, and the markers of operations, errors, edits and verification runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.actors import Actor
from console.audit import path_of
from console.history.incidents import Past, markers, read_past, states_of_minute, states_over_time
from console.history.queries import window
from console.models import AuditEvent, ClusterLink, MirrorTopic, StateTransition, StateTransitionError, VerifyRun
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW

pytestmark = pytest.mark.django_db
HOUR = window(start=NOW - timedelta(hours=1), end=NOW)


def add_step(mirror: MirrorTopic, states: tuple[str, str], event: str, *, minutes_ago: float) -> None:
    at = NOW - timedelta(minutes=minutes_ago)
    StateTransition.objects.create(mirror=mirror, from_state=states[0], to_state=states[1], event=event, by="amelia", at=at)


def past_of(link: ClusterLink) -> Past:
    return read_past(link, start=HOUR.start)


def test_states_are_computed_backwards_from_the_present_one(link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders", MirrorState.PAUSED)
    make_mirror("bills")
    add_step(mirror, ("ACTIVE", "PAUSED"), "pause", minutes_ago=30)

    counts = states_over_time(past_of(link), HOUR)

    assert counts[MirrorState.ACTIVE][:30] == [2] * 30
    assert counts[MirrorState.PAUSED][:30] == [0] * 30
    assert (counts[MirrorState.ACTIVE][-1], counts[MirrorState.PAUSED][-1]) == (1, 1)
    assert set(counts) == {MirrorState.ACTIVE, MirrorState.PAUSED}


def test_short_failure_is_visible_in_its_step(link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    add_step(mirror, ("ACTIVE", "FAILED"), "fatal", minutes_ago=29.9)
    add_step(mirror, ("FAILED", "ACTIVE"), "recover", minutes_ago=29.5)

    counts = states_over_time(past_of(link), HOUR)

    assert sum(counts[MirrorState.FAILED]) == 1
    assert sum(counts[MirrorState.ACTIVE]) == HOUR.steps - 1


def test_mirror_is_not_counted_before_its_creation(link: ClusterLink, make_mirror: Any) -> None:
    add_step(make_mirror("orders"), ("", "PENDING_SETUP"), "create", minutes_ago=10)
    MirrorTopic.objects.update(state=MirrorState.PENDING_SETUP)

    counts = states_over_time(past_of(link), HOUR)

    assert counts[MirrorState.PENDING_SETUP][0] == 0
    assert counts[MirrorState.PENDING_SETUP][-1] == 1


def test_states_of_a_minute_are_those_at_its_end(link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders", MirrorState.PAUSED)
    add_step(mirror, ("ACTIVE", "PAUSED"), "pause", minutes_ago=29.5)

    before = states_of_minute(past_of(link), NOW - timedelta(minutes=31))
    after = states_of_minute(past_of(link), NOW - timedelta(minutes=30))

    assert before == [(MirrorState.ACTIVE, 1, ["orders"])]
    assert after == [(MirrorState.PAUSED, 1, ["orders"])]


def add_one_of_each(link: ClusterLink, mirror: MirrorTopic) -> None:
    add_step(mirror, ("ACTIVE", "PAUSED"), "pause", minutes_ago=50)
    add_step(mirror, ("PAUSED", "PENDING_STOPPED"), "failover", minutes_ago=40)
    error_at = NOW - timedelta(minutes=30)
    StateTransitionError.objects.create(
        mirror=mirror, code="RECORDS_LOST", message="17 records", since=error_at, last_seen_at=error_at
    )
    for status, minutes in (("EQUAL", 20), ("DIFFERENT", 15)):
        at = NOW - timedelta(minutes=minutes)
        VerifyRun.objects.create(mirror=mirror, status=status, requested_by="amelia", requested_at=at, finished_at=at)
    for result, minutes in (("SUCCESS", 10), ("DENIED", 9)):
        at = NOW - timedelta(minutes=minutes)
        AuditEvent.objects.create(
            at=at, actor="amelia", action="AlterClusterLinkConfigs", resource=path_of(link), result=result
        )


def test_markers_are_listed_by_time_with_their_kind(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    add_one_of_each(link, mirror)

    found = markers(link, past=past_of(link), start=HOUR.start, end=NOW, by=owner)

    assert [(marker.kind, marker.text, marker.topic) for marker in found] == [
        ("pause", "pause", "orders"),
        ("failover", "failover", "orders"),
        ("error", "RECORDS_LOST", "orders"),
        ("verification", "verification: EQUAL", "orders"),
        ("error", "verification: DIFFERENT", "orders"),
        ("edit", "AlterClusterLinkConfigs", ""),
    ]


def test_edits_are_hidden_without_the_permission_to_view_the_audit_log(
    link: ClusterLink, mirror: MirrorTopic, colleague: Actor
) -> None:
    add_one_of_each(link, mirror)

    found = markers(link, past=past_of(link), start=HOUR.start, end=NOW, by=colleague)

    assert "edit" not in {marker.kind for marker in found}
    assert len(found) == 5


def test_markers_of_a_mirror_are_its_own(link: ClusterLink, mirror: MirrorTopic, make_mirror: Any, owner: Actor) -> None:
    add_one_of_each(link, mirror)
    other = make_mirror("bills")

    found = markers(other, past=read_past(other, start=HOUR.start), start=HOUR.start, end=NOW, by=owner)

    assert found == []
