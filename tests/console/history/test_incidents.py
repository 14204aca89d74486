"""Mirrors by state over time, and the markers of operations, errors, edits and verification runs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.actors import Actor
from console.audit import path_of
from console.history.incidents import URGENCY, Past, errors, markers, read_past, states_of_minute, states_over_time
from console.history.queries import Window, window
from console.models import AuditEvent, ClusterLink, MirrorTopic, StateTransition, StateTransitionError, VerifyRun
from console.reconciling import transition_errors
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


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Draw up to six mirrors with up to five transitions each, before and within the span, and after its end."""
    states, transitions = {}, {}
    for mirror in range(draw(st.integers(0, 6))):
        known = draw(st.lists(st.sampled_from(MirrorState), min_size=1, max_size=6))
        minutes = draw(st.lists(st.integers(-5, 75), min_size=len(known) - 1, max_size=len(known) - 1))
        begins = draw(st.sampled_from(["", known[0]]))
        steps = [
            StateTransition(
                mirror_id=mirror, from_state=from_state, to_state=to_state, at=HOUR.start + timedelta(minutes=minute)
            )
            for from_state, to_state, minute in zip([begins, *known[1:]], known[1:], sorted(minutes), strict=False)
        ]
        states[mirror] = known[-1]
        if steps:
            transitions[mirror] = steps
    return Past(names={mirror: str(mirror) for mirror in states}, states=states, transitions=transitions)


def states_by_definition(past: Past, where: Window) -> dict[MirrorState, list[int]]:
    """Count each mirror in each step: in the most urgent state that it was in at any time of the step."""
    counted: list[Counter[MirrorState]] = []
    for step in range(where.steps):
        counted.append(Counter())
        for mirror in past.states:
            changes = past.transitions.get(mirror, ())
            known = [MirrorState(row.to_state) for row in changes if where.time_of(step) <= row.at < where.end_of(step)]
            before = past.state_at(mirror, where.time_of(step))
            known += [before] if before is not None else []
            if known:
                counted[step][min(known, key=URGENCY.index)] += 1
    return {state: [counts[state] for counts in counted] for state in URGENCY if any(counts[state] for counts in counted)}


@given(past=pasts())
def test_number_of_mirrors_by_state_is_that_of_its_definition(past: Past) -> None:
    assert states_over_time(past, HOUR) == states_by_definition(past, HOUR)


def test_mirrors_without_transitions_cost_no_steps() -> None:
    """A chart of 10,000 mirrors reads the state of those only that have changed it."""
    states = dict.fromkeys(range(10_000), MirrorState.ACTIVE)
    change = StateTransition(mirror_id=7, from_state="PAUSED", to_state="ACTIVE", at=HOUR.time_of(30))
    stepped: list[int] = []

    class Observed(Past):
        def state_at(self, mirror: int, at: Any) -> MirrorState | None:
            stepped.append(mirror)
            return super().state_at(mirror, at)

    counts = states_over_time(Observed(names={}, states=states, transitions={7: [change]}), HOUR)

    assert counts[MirrorState.ACTIVE] == [9_999] * 30 + [10_000 - 1] + [10_000] * (HOUR.steps - 31)
    assert stepped == [7]


def test_later_row_with_an_earlier_time_is_counted_once_per_step(link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders", MirrorState.PAUSED)
    add_step(mirror, ("ACTIVE", "FAILED"), "fatal", minutes_ago=20)
    add_step(mirror, ("FAILED", "PAUSED"), "pause", minutes_ago=22)

    counts = states_over_time(past_of(link), HOUR)

    assert [sum(numbers) for numbers in zip(*counts.values(), strict=True)] == [1] * HOUR.steps
    assert sum(counts[MirrorState.FAILED]) == 1
    assert counts[MirrorState.PAUSED][-1] == 1


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


def add_error(mirror: MirrorTopic, code: str, *, minutes_ago: float, lasted: float | None = None) -> None:
    """Add an error that lasted for so many minutes; without ``lasted`` it is unresolved."""
    at = NOW - timedelta(minutes=minutes_ago)
    transition_errors.note(mirror=mirror, code=code, message=f"{code} happened", now=at)
    if lasted is not None:
        transition_errors.end(mirror=mirror, codes=[code], now=at + timedelta(minutes=lasted))


def test_resolved_error_keeps_its_marker(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    add_error(mirror, "TIMEOUT_ERROR", minutes_ago=40, lasted=12)
    add_error(mirror, "CORRUPT_RECORDS", minutes_ago=10)
    add_error(mirror, "AUTHORIZATION_ERROR", minutes_ago=90, lasted=45)  # it began before the span

    found = markers(link, past=past_of(link), start=HOUR.start, end=NOW, by=owner)

    assert [(marker.kind, marker.text, marker.topic) for marker in found] == [
        ("error", "TIMEOUT_ERROR", "orders"),
        ("error", "CORRUPT_RECORDS", "orders"),
    ]
    assert found[0].at == NOW - timedelta(minutes=40)


def test_waiting_is_no_error_in_a_chart(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    add_error(mirror, "WAITING_FOR_LAG", minutes_ago=40, lasted=1)
    add_error(mirror, "WAITING_FOR_GROUPS", minutes_ago=10)

    assert markers(link, past=past_of(link), start=HOUR.start, end=NOW, by=owner) == []
    assert len(errors(link, start=HOUR.start, end=NOW)) == 2


@pytest.mark.parametrize(("minutes_ago", "counts"), [(45, False), (40, True), (35, True), (28, True), (27, False)])
def test_error_counts_in_the_minutes_from_its_begin_to_its_end(
    link: ClusterLink, mirror: MirrorTopic, minutes_ago: int, counts: bool
) -> None:
    add_error(mirror, "TIMEOUT_ERROR", minutes_ago=39.5, lasted=12)
    start = NOW - timedelta(minutes=minutes_ago)

    found = errors(link, start=start, end=start + timedelta(minutes=1))

    assert [error.code for error in found] == (["TIMEOUT_ERROR"] if counts else [])


def test_newest_errors_of_a_span_are_returned_oldest_first(link: ClusterLink, mirror: MirrorTopic) -> None:
    for minutes_ago, lasted in ((50, 4), (40, 4), (30, None), (20, 4)):
        add_error(mirror, f"E{minutes_ago}", minutes_ago=minutes_ago, lasted=lasted)

    assert [error.code for error in errors(link, start=HOUR.start, end=NOW, most=3)] == ["E40", "E30", "E20"]


def add_pause(link: ClusterLink, value: str | None, *, minutes_ago: float, **others: str) -> None:
    AuditEvent.objects.create(
        at=NOW - timedelta(minutes=minutes_ago),
        actor="amelia",
        action="AlterClusterLinkConfigs",
        resource=path_of(link),
        result="SUCCESS",
        detail={"configs": {"cluster.link.paused": value, **others}},
    )


@pytest.mark.parametrize("reader", ["owner", "colleague"])
@pytest.mark.parametrize("of_mirror", [False, True])
def test_pause_of_the_link_is_a_marker_for_all_who_may_see_the_chart(
    link: ClusterLink, mirror: MirrorTopic, reader: str, of_mirror: bool, request: pytest.FixtureRequest
) -> None:
    add_pause(link, "true", minutes_ago=30)
    add_pause(link, "false", minutes_ago=20, other="7")
    add_pause(link, None, minutes_ago=90)
    subject = mirror if of_mirror else link

    found = markers(subject, past=past_of(link), start=HOUR.start, end=NOW, by=request.getfixturevalue(reader))

    assert [(marker.kind, marker.text, marker.topic) for marker in found] == [
        ("pause", "link paused", ""),
        ("pause", "link resumed", ""),
    ]


def test_pause_of_another_link_is_no_marker(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    AuditEvent.objects.create(
        at=NOW - timedelta(minutes=5),
        actor="amelia",
        action="AlterClusterLinkConfigs",
        resource=f"{path_of(link)}-2",
        result="SUCCESS",
        detail={"configs": {"cluster.link.paused": "true"}},
    )

    assert markers(link, past=past_of(link), start=HOUR.start, end=NOW, by=owner) == []
