"""Results of a bulk operation: outcomes by topic, and the status of the operation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.actors import ENGINE, Actor
from console.links.actions import remove_link
from console.mirrors import operation_queries, transitions
from console.mirrors.bulk_actions import carry_out, operate_now, start
from console.mirrors.operation_actions import operate
from console.mirrors.operation_presenters import operation_row
from console.mirrors.operation_queries import STATUSES, TopicOutcome
from console.models import BulkOperation, ClusterLink, MirrorTopic
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeMirror

E = MirrorEvent
S = MirrorState
LATER = NOW + timedelta(minutes=1)
pytestmark = pytest.mark.usefixtures("sent")

# The operation, the state before it, and the events of the engine until it has ended.
PATHS: dict[str, tuple[S, list[E]]] = {
    BulkOperation.CREATE: (S.PENDING_SETUP, [E.SETUP_DONE]),
    E.PROMOTE: (S.ACTIVE, [E.FENCED]),
    E.FAILOVER: (S.FAILED, [E.FENCED]),
    E.REVERSE_AND_START: (S.ACTIVE, [E.SYNCHRONIZED, E.FENCED]),
    E.REVERSE_AND_PAUSE: (S.ACTIVE, [E.SYNCHRONIZED, E.FENCED]),
    E.RESTORE: (S.STOPPED, [E.OFFSETS_AGREED, E.MIRROR_READY]),
}


def accept(link: ClusterLink, operation: str, *mirrors: MirrorTopic) -> BulkOperation:
    """Store an operation that was accepted for these mirrors, with their transitions."""
    stored = BulkOperation.objects.create(link=link, operation=operation, requested_by="owner", requested_at=NOW)
    for mirror in mirrors:
        stored.topics.create(name=mirror.name, mirror=mirror, status="ACCEPTED", done_at=NOW)
        if operation != BulkOperation.CREATE:
            apply(mirror, E(operation), at=NOW)
    return stored


def apply(mirror: MirrorTopic, event: E, *, at: Any = LATER) -> None:
    row, changes = MirrorTopic.objects.get(pk=mirror.pk), {}
    if event in (E.SYNCHRONIZED, E.PROMOTE, E.FAILOVER):
        changes = {"stop_reason": "failover" if event is E.FAILOVER else "promote"}
    transitions.apply_event(mirror=row, event=event, by=ENGINE, now=at, **changes)


def outcomes(operation: BulkOperation) -> list[str]:
    return [topic.outcome for topic in operation_queries.topics_of(operation)]


def status(operation: BulkOperation) -> str:
    """Return the status that the page shows, which is also that of the filter of the list."""
    operation = BulkOperation.objects.get(pk=operation.pk)
    shown = operation_row(operation, operation_queries.count_topics([operation])[operation.pk], now=LATER).badge.code
    found = [
        name for name in STATUSES if BulkOperation.objects.filter(operation_queries.has_status(name), pk=operation.pk).exists()
    ]
    assert found == [shown]
    return shown


@pytest.mark.parametrize("operation", PATHS)
def test_topic_is_done_only_when_its_operation_has_ended(link: ClusterLink, make_mirror: MakeMirror, operation: str) -> None:
    before, events = PATHS[operation]
    mirror = make_mirror("orders", before)
    stored = accept(link, operation, mirror)

    for event in events:
        assert (outcomes(stored), status(stored)) == ([TopicOutcome.REQUESTED], "REQUESTED")
        apply(mirror, event)

    assert (outcomes(stored), status(stored)) == ([TopicOutcome.ENDED], "FINISHED")


@pytest.mark.parametrize("operation", PATHS)
@pytest.mark.parametrize("ended", [False, True])
def test_topic_that_another_operation_has_changed_is_not_claimed(
    link: ClusterLink, make_mirror: MakeMirror, operation: str, *, ended: bool
) -> None:
    """Also if the other operation leads to the same state."""
    before, events = PATHS[operation]
    mirror = make_mirror("orders", before)
    stored = accept(link, operation, mirror)
    for event in events if ended else ():
        apply(mirror, event)

    other = E.RESTORE if MirrorTopic.objects.get().state == S.STOPPED else E.FAILOVER
    apply(mirror, other)
    changed = outcomes(stored)
    if other is E.RESTORE:
        apply(mirror, E.FAILOVER)
    apply(mirror, E.FENCED)

    assert changed == outcomes(stored) == [TopicOutcome.CHANGED]
    assert status(stored) == "CHANGED"


@pytest.mark.parametrize("operation", [BulkOperation.CREATE, E.REVERSE_AND_START, E.RESTORE])
def test_failed_mirror_is_counted(link: ClusterLink, make_mirror: MakeMirror, operation: str) -> None:
    mirrors = [make_mirror(name, PATHS[operation][0]) for name in ("orders", "bills")]
    stored = accept(link, operation, *mirrors)

    apply(mirrors[0], E.FATAL)
    before = status(stored)
    apply(mirrors[1], E.FATAL)

    assert before == "REQUESTED"
    assert outcomes(stored) == [TopicOutcome.MIRROR_FAILED, TopicOutcome.MIRROR_FAILED]
    assert status(stored) == "FINISHED_WITH_FAILURES"


def test_reversal_that_the_other_side_has_ended_is_not_claimed(link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders")
    stored = accept(link, E.REVERSE_AND_START, mirror)

    apply(mirror, E.REVERSAL_ENDED)

    assert outcomes(stored) == [TopicOutcome.CHANGED]


def test_outage_of_the_source_does_not_change_the_outcome_of_a_creation(link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders", S.PENDING_SETUP)
    stored = accept(link, BulkOperation.CREATE, mirror)

    apply(mirror, E.SETUP_DONE)
    apply(mirror, E.SOURCE_LOST)

    assert outcomes(stored) == [TopicOutcome.ENDED]


def test_deletion_has_ended_when_the_mirror_is_gone(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    mirror, kept = make_mirror("orders", S.STOPPED), make_mirror("bills", S.STOPPED)
    stored = start(link=link, operation=E.DELETE, topics={"orders": mirror, "bills": kept}, by=owner, now=NOW)
    carry_out(BulkOperation.objects.get(pk=stored.pk), check_clusters=lambda mirrors: [None] * len(mirrors), now=NOW)
    requested = outcomes(stored)

    mirror.delete()
    MirrorTopic.objects.filter(pk=kept.pk).update(deletion_requested_at=None)  # the cluster has refused it

    assert requested == [TopicOutcome.REQUESTED, TopicOutcome.REQUESTED]
    assert outcomes(stored) == [TopicOutcome.MIRROR_FAILED, TopicOutcome.ENDED]
    make_mirror("orders", S.STOPPED)  # another mirror of this name
    assert outcomes(stored) == [TopicOutcome.MIRROR_FAILED, TopicOutcome.ENDED]
    remove_link(link=ClusterLink.objects.get(), by=owner, now=NOW)
    assert outcomes(stored) == [TopicOutcome.LINK_DELETED, TopicOutcome.LINK_DELETED]  # not because of the operation


def test_operation_of_rest_has_outcomes(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    mirrors = [make_mirror("orders"), make_mirror("bills"), make_mirror("old", S.STOPPED)]
    names = [mirror.name for mirror in mirrors]
    operate_now(link=link, names=names, operation=E.PROMOTE, validate_only=False, by=owner, now=NOW)
    apply(mirrors[1], E.FENCED)
    operate(mirror=MirrorTopic.objects.get(name="orders"), operation=E.FAILOVER, by=owner, now=LATER)

    stored = BulkOperation.objects.get()

    found = {topic.name: topic.outcome for topic in operation_queries.topics_of(stored)}
    assert found == {"bills": TopicOutcome.ENDED, "old": TopicOutcome.FAILED, "orders": TopicOutcome.CHANGED}


def test_operation_without_an_end_is_complete_when_it_is_accepted(link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders")
    stored = accept(link, E.PAUSE, mirror)

    apply(mirror, E.RESUME)

    assert (outcomes(stored), status(stored)) == ([TopicOutcome.ACCEPTED], "FINISHED")


def test_canceled_operation_waits_for_the_topics_that_had_begun(link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror("orders")
    stored = accept(link, E.PROMOTE, mirror)
    stored.topics.create(name="bills", status="CANCELED", done_at=NOW)
    BulkOperation.objects.update(canceled_by="owner")
    before = status(stored)

    apply(mirror, E.FENCED)

    assert (before, status(stored)) == ("REQUESTED", "CANCELED")


def test_outcomes_of_several_operations_are_counted_by_one_query(link: ClusterLink, make_mirror: MakeMirror) -> None:
    first = accept(link, E.PROMOTE, make_mirror("a"), make_mirror("b"))
    second = accept(link, BulkOperation.CREATE, make_mirror("c"), make_mirror("d", S.PENDING_SETUP))

    with CaptureQueriesContext(connection) as queries:
        counts = operation_queries.count_topics([first, second])

    assert len(queries) == 1
    assert counts == {first.pk: {"REQUESTED": 2}, second.pk: {"ENDED": 1, "REQUESTED": 1}}
