"""Operations on several topics: rows, batches, permissions, cancel, and what REST stores."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from console.actors import Actor
from console.errors import ConflictError, DeniedError, InvalidInputError
from console.mirrors import bulk_actions, operation_actions
from console.mirrors.bulk_actions import BATCH, cancel, carry_out, operate_now, start
from console.mirrors.operation_queries import TopicOutcome, with_outcome
from console.models import AuditEvent, BulkOperation, ClusterLink, MirrorTopic, RoleBinding, VerifyRun
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeActor, MakeMirror

E = MirrorEvent
S = MirrorState
Sent = list[tuple[str, dict[str, Any]]]


def nothing_refused(mirrors: Any) -> list[LinkEngineError | None]:
    return [None] * len(mirrors)


def step(operation: BulkOperation, check: Any = nothing_refused) -> bool:
    """Carry out the next batch, as a worker that has just read the operation."""
    return carry_out(BulkOperation.objects.get(pk=operation.pk), check_clusters=check, now=NOW)


def results(operation: BulkOperation) -> dict[str, str]:
    return dict(operation.topics.values_list("name", "status"))


def begin(link: ClusterLink, by: Actor, operation: str, *names: str) -> BulkOperation:
    return start(link=link, operation=operation, topics=dict.fromkeys(names), by=by, now=NOW)


def confirmed(link: ClusterLink, by: Actor, operation: str, *seen: MirrorTopic) -> BulkOperation:
    """Start an operation on the mirrors that a confirmation showed."""
    topics = {mirror.name: mirror for mirror in seen}
    return start(link=link, operation=operation, topics=topics, by=by, now=NOW)


def test_an_operation_is_stored_audited_and_sent(link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    operation = begin(link, owner, E.PAUSE, "orders")

    assert results(operation) == {"orders": "WAITING"}
    assert (operation.user, operation.requested_by, operation.request_id) == (owner.user, "owner", "request-1")
    event = AuditEvent.objects.get(action="StartBulkOperation")
    assert event.detail == {"bulk_operation": operation.pk, "operation": "pause", "topics": 1}
    assert sent == [("advance_bulk_operation", {"operation_id": operation.pk})]
    assert MirrorTopic.objects.get().state == S.ACTIVE


@pytest.mark.parametrize("count", [2, 30], ids=["one by one", "together"])
@pytest.mark.parametrize("event", [E.PAUSE, E.FAILOVER])
def test_each_topic_succeeds_or_fails_separately(
    event: E, count: int, link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    names = [make_mirror(f"topic-{number:02}").name for number in range(count)]
    make_mirror("stopped", S.STOPPED)
    operation = begin(link, owner, event, *names, "stopped", "unknown")

    while step(operation):
        pass

    assert results(operation) == {**dict.fromkeys(names, "ACCEPTED"), "stopped": "FAILED", "unknown": "FAILED"}
    assert "has already stopped" in operation.topics.get(name="stopped").message
    assert "is not a mirror topic" in operation.topics.get(name="unknown").message
    operation.refresh_from_db()
    assert operation.finished_at == NOW
    audited = AuditEvent.objects.exclude(action="StartBulkOperation")
    assert audited.count() == count
    assert set(audited.values_list("actor", "request_id")) == {("owner", "request-1")}


def test_topics_are_carried_out_in_batches(link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent) -> None:
    names = [make_mirror(f"topic-{number:02}", S.PAUSED).name for number in range(BATCH + 1)]
    operation = begin(link, owner, E.RESUME, *names)

    assert step(operation)
    assert operation.topics.filter(status="WAITING").count() == 1
    assert not step(operation)
    assert set(results(operation).values()) == {"ACCEPTED"}


def test_a_topic_is_operated_on_once_although_two_workers_read_it(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    make_mirror("orders", S.PAUSED)
    operation = begin(link, owner, E.RESUME, "orders")
    row = operation.topics.get()

    for _ in range(2):
        bulk_actions._do_once(operation, row, partial(bulk_actions._result, operation, link, by=owner, now=NOW), now=NOW)

    assert results(operation) == {"orders": "ACCEPTED"}
    assert AuditEvent.objects.filter(action="ResumeMirrorTopic").count() == 1


def test_a_crash_leaves_topic_and_result_unchanged(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change and its result are stored in the same transaction, so the next attempt is the first attempt."""
    make_mirror("orders", S.PAUSED)
    operation = begin(link, owner, E.RESUME, "orders")

    def fails(*_args: Any, **_values: Any) -> Any:
        raise OperationalError

    with monkeypatch.context() as patch:
        patch.setattr(bulk_actions, "_noted", fails)
        with pytest.raises(OperationalError):
            step(operation)
    assert (MirrorTopic.objects.get().state, results(operation)) == (S.PAUSED, {"orders": "WAITING"})

    step(operation)

    assert (MirrorTopic.objects.get().state, results(operation)) == (S.ACTIVE, {"orders": "ACCEPTED"})


def test_an_unexpected_error_of_a_topic_does_not_affect_the_others(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bills", "orders"):
        make_mirror(name, S.PAUSED)
    operation = begin(link, owner, E.RESUME, "bills", "orders")
    apply = operation_actions.operate_row

    def fails_for_bills(mirror: MirrorTopic, event: E, **values: Any) -> Any:
        if mirror.name == "bills":
            raise RuntimeError
        return apply(mirror, event, **values)

    monkeypatch.setattr(operation_actions, "operate_row", fails_for_bills)

    assert not step(operation)

    assert results(operation) == {"bills": "FAILED", "orders": "ACCEPTED"}
    assert "worker's log" in operation.topics.get(name="bills").message


def test_topics_are_operated_on_one_by_one_if_an_error_of_one_topic_fails_them_together(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [make_mirror(f"topic-{number}").name for number in range(3)]
    operation = begin(link, owner, E.FAILOVER, *names)

    def fails(*_args: Any, **_values: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(operation_actions, "operate_together", fails)

    assert not step(operation)

    assert results(operation) == dict.fromkeys(names, "ACCEPTED")
    assert set(MirrorTopic.objects.values_list("state", flat=True)) == {S.PENDING_STOPPED}


def test_a_role_that_is_revoked_no_longer_counts_for_the_topics_that_are_left(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    operation = begin(link, owner, E.PAUSE, "orders")
    RoleBinding.objects.filter(user=owner.user).update(role="DeveloperRead")

    step(operation)

    assert results(operation) == {"orders": "FAILED"}
    assert "permission to operate mirror topics" in operation.topics.get().message
    assert MirrorTopic.objects.get().state == S.ACTIVE


def test_an_operation_of_a_deleted_user_is_refused(link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    operation = begin(link, owner, E.PAUSE, "orders")
    assert owner.user is not None
    owner.user.delete()

    step(operation)

    assert results(operation) == {"orders": "FAILED"}
    assert MirrorTopic.objects.get().state == S.ACTIVE


@pytest.mark.parametrize("operation", [E.PAUSE, E.DELETE, BulkOperation.CREATE, BulkOperation.VERIFY])
def test_starting_requires_the_permission_on_at_least_one_topic(
    operation: str, link: ClusterLink, mirror: MirrorTopic, colleague: Actor, make_actor: MakeActor, sent: Sent
) -> None:
    place = {"cluster": link.destination, "resource_type": "Topic", "resource_name": "orders"}
    partly = make_actor("partly", "DeveloperManage", **place)

    with pytest.raises(DeniedError):
        begin(link, colleague, operation, "orders", "bills")

    assert begin(link, partly, operation, "orders", "bills").topics.count() == 2
    assert BulkOperation.objects.count() == 1


def test_starting_an_operation_on_1000_topics_needs_few_statements(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    with CaptureQueriesContext(connection) as queries:
        operation = begin(link, owner, E.PAUSE, *(f"topic-{number}" for number in range(1_000)))

    assert operation.topics.count() == 1_000
    assert len(queries) < 25


def test_the_number_of_topics_is_limited(link: ClusterLink, owner: Actor, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_actions, "MOST", 1)

    with pytest.raises(InvalidInputError, match="No topics are selected"):
        begin(link, owner, E.PAUSE)
    with pytest.raises(InvalidInputError, match="2 topics are selected, and an operation takes at most 1"):
        begin(link, owner, E.PAUSE, "orders", "bills")


def test_a_deletion_applies_to_the_state_that_was_confirmed(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    operation = confirmed(link, owner, E.DELETE, make_mirror("bills"), make_mirror("orders"))
    MirrorTopic.objects.filter(name="bills").update(state=S.STOPPED)

    step(operation)

    assert results(operation) == {"bills": "FAILED", "orders": "ACCEPTED"}
    assert MirrorTopic.objects.get(name="bills").deletion_requested_at is None


def test_verification_runs_are_queued(link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent) -> None:
    make_mirror("orders"), make_mirror("new", S.PENDING_SETUP)
    operation = begin(link, owner, BulkOperation.VERIFY, "orders", "new", "unknown")

    step(operation)

    assert results(operation) == {"orders": "ACCEPTED", "new": "FAILED", "unknown": "FAILED"}
    assert VerifyRun.objects.get().mirror.name == "orders"


def test_mirrors_are_created_unless_the_clusters_refuse_them(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    options = {"replication_factor": 3, "start": "latest"}
    topics = dict.fromkeys(("bills", "orders"))
    operation = start(link=link, operation=BulkOperation.CREATE, topics=topics, options=options, by=owner, now=NOW)
    refusal = LinkEngineError(ErrorCode.TOPIC_EXISTS_ERROR, "Topic 'bills' already exists.")

    def check(mirrors: Any) -> Any:
        assert {(mirror.replication_factor, mirror.start_spec) for mirror in mirrors} == {(3, "latest")}
        return [refusal if mirror.name == "bills" else None for mirror in mirrors]

    assert not step(operation, check)

    assert results(operation) == {"bills": "FAILED", "orders": "ACCEPTED"}
    assert operation.topics.get(name="bills").error_code == "TOPIC_EXISTS_ERROR"
    created = MirrorTopic.objects.get()
    assert (created.name, created.replication_factor, created.start_spec, created.created_by) == (
        "orders",
        3,
        "latest",
        "owner",
    )


def test_a_crash_during_a_creation_leaves_neither_mirror_nor_result(
    link: ClusterLink, owner: Actor, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror without its result would be created again if a user deletes it before the worker is back."""
    operation = begin(link, owner, BulkOperation.CREATE, "orders")

    def fails(*_args: Any, **_values: Any) -> Any:
        raise OperationalError

    with monkeypatch.context() as patch:
        patch.setattr(bulk_actions, "_noted", fails)
        with pytest.raises(OperationalError):
            step(operation)
    assert (MirrorTopic.objects.count(), results(operation)) == (0, {"orders": "WAITING"})

    step(operation)

    assert (MirrorTopic.objects.get().name, results(operation)) == ("orders", {"orders": "ACCEPTED"})


def test_a_mirror_is_created_once_although_two_workers_check_it(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    operation = begin(link, owner, BulkOperation.CREATE, "orders")

    def check(mirrors: Any) -> Any:
        if not MirrorTopic.objects.exists():  # the other worker is quicker, and the user deletes the mirror at once
            step(operation)
            MirrorTopic.objects.all().delete()
        return nothing_refused(mirrors)

    step(operation, check)

    assert results(operation) == {"orders": "ACCEPTED"}
    assert not MirrorTopic.objects.exists()


@pytest.mark.parametrize("count", [2, 30], ids=["one by one", "together"])
@pytest.mark.parametrize("verb", [E.PAUSE, E.FAILOVER, E.PROMOTE, BulkOperation.VERIFY])
def test_a_mirror_that_was_added_anew_under_the_name_is_not_changed(
    verb: str, count: int, link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    mirrors = [make_mirror(f"topic-{number:02}") for number in range(count)]
    operation = confirmed(link, owner, verb, *mirrors)
    mirrors[0].delete()
    anew = make_mirror("topic-00")

    while step(operation):
        pass

    assert results(operation) == {"topic-00": "FAILED", **{mirror.name: "ACCEPTED" for mirror in mirrors[1:]}}
    assert "was deleted and added again" in operation.topics.get(name="topic-00").message
    assert MirrorTopic.objects.get(pk=anew.pk).state == S.ACTIVE
    assert not VerifyRun.objects.filter(mirror=anew.pk).exists()


def test_a_restore_applies_to_the_state_that_was_confirmed(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    """The topic was restored and stopped again, so it may have records that the confirmation did not count."""
    orders = make_mirror("orders", S.STOPPED)
    operation = confirmed(link, owner, E.RESTORE, orders)
    MirrorTopic.objects.update(state_since=NOW + timedelta(hours=1))

    step(operation)

    assert results(operation) == {"orders": "FAILED"}
    assert "has changed since the operation was requested" in operation.topics.get().message


@pytest.mark.parametrize("event", [E.REVERSE_AND_START, E.REVERSE_AND_PAUSE])
def test_a_reversal_of_several_topics_changes_both_sides_of_each(
    event: E, link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    make_mirror("bills"), make_mirror("stopped", S.STOPPED)
    former = make_mirror("orders", link=back, state=S.STOPPED, mirror_topic_id="old", deletion_requested_at=None)
    chosen = [make_mirror("orders"), *MirrorTopic.objects.filter(link=link, name__in=["bills", "stopped"])]
    operation = confirmed(link, owner, event, *chosen)

    assert not step(operation)

    assert results(operation) == {"bills": "ACCEPTED", "orders": "ACCEPTED", "stopped": "FAILED"}
    assert rows_of(link) == {
        "bills": (S.PENDING_SYNCHRONIZE, "bills", event),
        "orders": (S.PENDING_SYNCHRONIZE, "orders", event),
        "stopped": (S.STOPPED, "stopped", ""),
    }
    assert rows_of(back) == {"bills": (S.PENDING_MIRROR, "bills", event), "orders": (S.PENDING_MIRROR, "orders", event)}
    assert MirrorTopic.objects.get(link=back, name="orders").pk == former.pk
    for side, changed in ((link, event), (back, E.BECOME_MIRROR)):
        steps = MirrorTopic.objects.get(link=side, name="orders").transitions
        assert list(steps.values_list("event", "by", "at")) == [(changed, "owner", NOW)]
    queued = {(name, values["link_id"]) for name, values in sent if name == "reconcile_link"}
    assert queued == {("reconcile_link", link.pk), ("reconcile_link", back.pk)}
    outcomes = with_outcome(operation.topics.filter(status="ACCEPTED")).values_list("outcome", flat=True)
    assert set(outcomes) == {TopicOutcome.REQUESTED}


def rows_of(link: ClusterLink) -> dict[str, tuple[str, str, str]]:
    """Return state, source topic and reversal of each mirror topic of a side."""
    return {row.name: (row.state, row.source_topic, row.reversal) for row in link.mirrors.all()}


def test_a_reversal_of_several_topics_needs_the_permission_on_both_sides(
    link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror, make_actor: MakeActor, sent: Sent
) -> None:
    here = make_actor("here", "Operator", cluster=link.destination)
    operation = confirmed(link, here, E.REVERSE_AND_START, make_mirror("orders"), make_mirror("bills"))

    assert not step(operation)

    assert results(operation) == {"orders": "FAILED", "bills": "FAILED"}
    assert set(link.mirrors.values_list("state", flat=True)) == {S.ACTIVE}
    assert not back.mirrors.exists()


def test_several_topics_resume_what_they_did_when_they_were_paused(
    link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    """A topic that was paused in a reversal continues the reversal; one that failed stays as it is."""
    chosen = [make_mirror("bills"), make_mirror("orders"), make_mirror("broken", S.FAILED)]
    step(confirmed(link, owner, E.REVERSE_AND_START, chosen[1]))
    step(begin(link, owner, E.PAUSE, "bills", "orders"))
    paused = dict(link.mirrors.values_list("name", "state"))

    operation = confirmed(link, owner, E.RESUME, *chosen)
    assert not step(operation)

    assert paused == {"bills": S.PAUSED, "orders": S.PAUSED, "broken": S.FAILED}
    assert results(operation) == {"bills": "ACCEPTED", "orders": "ACCEPTED", "broken": "FAILED"}
    assert dict(link.mirrors.values_list("name", "state")) == {
        "bills": S.ACTIVE,
        "orders": S.PENDING_SYNCHRONIZE,
        "broken": S.FAILED,
    }
    assert list(back.mirrors.values_list("name", "state")) == [("orders", S.PENDING_MIRROR)]
    assert AuditEvent.objects.filter(action="ResumeMirrorTopic").count() == 2


def test_topics_that_were_canceled_are_not_operated_on(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    names = [make_mirror(f"topic-{number:02}", S.PAUSED).name for number in range(BATCH + 1)]
    operation = begin(link, owner, E.RESUME, *names)
    step(operation)

    assert cancel(operation=operation, by=owner, now=NOW) == 1

    assert not step(operation)
    assert MirrorTopic.objects.filter(state=S.PAUSED).count() == 1
    assert AuditEvent.objects.get(action="CancelBulkOperation").detail["topics"] == 1
    with pytest.raises(ConflictError, match="All topics of this operation are done"):
        cancel(operation=operation, by=owner, now=NOW)


def test_a_topic_that_is_canceled_during_the_check_is_not_created(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    operation = begin(link, owner, BulkOperation.CREATE, "orders")

    def check(mirrors: Any) -> Any:
        cancel(operation=operation, by=owner, now=NOW)
        return nothing_refused(mirrors)

    step(operation, check)

    assert results(operation) == {"orders": "CANCELED"}
    assert not MirrorTopic.objects.exists()


def test_topics_are_refused_if_the_link_was_deleted(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    operation = begin(link, owner, E.PAUSE, "orders", "bills")
    link.delete()
    operation.refresh_from_db()

    with pytest.raises(ConflictError, match="has been deleted since"):
        cancel(operation=operation, by=owner, now=NOW)
    assert not step(operation)

    assert results(operation) == {"orders": "FAILED", "bills": "FAILED"}
    assert operation.topics.filter(error_code="UNKNOWN_LINK", message__contains="'west-to-east' has been deleted").count() == 2
    assert BulkOperation.objects.get().finished_at == NOW


def test_rest_operates_at_once_and_stores_the_results(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    make_mirror("orders"), make_mirror("bills", S.STOPPED)

    rows = operate_now(link=link, names=["orders", "bills"], operation=E.PAUSE, validate_only=False, by=owner, now=NOW)

    assert [row.error_code for row in rows] == [None, 400]
    operation = BulkOperation.objects.get()
    assert (operation.operation, operation.finished_at) == ("pause", NOW)
    assert results(operation) == {"orders": "ACCEPTED", "bills": "FAILED"}
    assert AuditEvent.objects.get(action="StartBulkOperation").detail["bulk_operation"] == operation.pk
    assert "advance_bulk_operation" not in [name for name, _ in sent]


@pytest.mark.parametrize(
    ("names", "validate_only"), [(["orders"], False), (["orders", "bills"], True), (["orders", "x" * 300], False)]
)
def test_rest_stores_no_operation_for_one_topic_or_a_dry_run(
    names: list[str], validate_only: bool, link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    make_mirror("orders"), make_mirror("bills")

    operate_now(link=link, names=names, operation=E.PAUSE, validate_only=validate_only, by=owner, now=NOW)

    assert not BulkOperation.objects.exists()
