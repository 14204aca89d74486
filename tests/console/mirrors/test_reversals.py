"""The rows of reversals and restores: both sides change together, and the second of two concurrent requests sees the first."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from console.actors import Actor
from console.clusters.topic_actions import delete_topic
from console.errors import ConflictError, DeniedError
from console.links import pairs
from console.mirrors import reversals
from console.mirrors.actions import request_deletion
from console.mirrors.operation_actions import operate, operate_many
from console.models import AuditEvent, ClusterLink, MirrorPartition, MirrorTopic, RestoreRun, RoleBinding
from console.models.mirrors import RECORDS_DIFFER
from linkengine.domain.states import CLOSED_FIRST, MirrorEvent, MirrorState
from tests.console.concurrently import run_concurrently
from tests.console.conftest import NOW, Engine, MakeActor, MakeMirror

E = MirrorEvent
S = MirrorState
pytestmark = pytest.mark.usefixtures("sent")


@pytest.fixture
def mirror(link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror) -> MirrorTopic:
    """A mirror on a bidirectional link with both sides."""
    assert back
    return make_mirror("orders")


def states() -> list[str]:
    """Return the states of both sides: the mirror's, then the other topic's."""
    return list(MirrorTopic.objects.order_by("link_id").values_list("state", flat=True))


def do(mirror: MirrorTopic, operation: E, by: Actor, **more: Any) -> MirrorTopic:
    return operate(mirror=MirrorTopic.objects.get(pk=mirror.pk), operation=operation, by=by, now=NOW, **more)


@pytest.fixture
def other(mirror: MirrorTopic, back: ClusterLink, owner: Actor) -> MirrorTopic:
    """The row of the other topic, after a reversal was started."""
    do(mirror, E.REVERSE_AND_START, owner)
    return MirrorTopic.objects.get(link=back)


def test_one_of_two_concurrent_reversals_is_refused(mirror: MirrorTopic, owner: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    save = MirrorTopic.save

    def insert_first(row: MirrorTopic, **how: Any) -> None:
        monkeypatch.undo()
        MirrorTopic.objects.bulk_create([copy(row)])
        save(row, **how)

    monkeypatch.setattr(MirrorTopic, "save", insert_first)
    with pytest.raises(ConflictError, match="Another request has just started"):
        do(mirror, E.REVERSE_AND_START, owner)

    assert states() == [S.ACTIVE]


OLDER = "holds older records than 'orders' ever had"


@pytest.mark.parametrize(
    ("source_start", "refusal"), [(0, OLDER), (99, OLDER), (100, ""), (None, "not known yet .* Try again once")]
)
def test_a_reversal_is_refused_if_the_source_holds_older_records_than_the_mirror(
    mirror: MirrorTopic, owner: Actor, source_start: int | None, refusal: str
) -> None:
    """The mirror started at its source's end (``mirror.start.offset.spec``); as its mirror the source would start there too."""
    mirror.gaps.create(partition=0, start=0, end=100, reason="HEAD", filled=100, noted_at=NOW)
    MirrorPartition.objects.update_or_create(mirror=mirror, partition=0, defaults={"source_start": source_start})

    if not refusal:
        assert do(mirror, E.REVERSE_AND_START, owner).state == S.PENDING_SYNCHRONIZE
    else:
        with pytest.raises(ConflictError, match=refusal):
            do(mirror, E.REVERSE_AND_START, owner)


def test_a_mirror_with_known_differences_cannot_be_reversed(mirror: MirrorTopic, owner: Actor) -> None:
    """After the reversal the former source would hold records that differ from those of its new source."""
    mirror.transition_errors.create(code=RECORDS_DIFFER, message="Offset 7 differs.", since=NOW, last_seen_at=NOW)

    with pytest.raises(ConflictError, match="Verify the whole mirror first"):
        do(mirror, E.REVERSE_AND_START, owner)

    assert states() == [S.ACTIVE]


def test_a_reversal_changes_both_rows(mirror: MirrorTopic, other: MirrorTopic) -> None:
    assert states() == [S.PENDING_SYNCHRONIZE, S.PENDING_MIRROR]
    assert (other.name, other.source_topic, other.num_partitions) == ("orders", "orders", 2)
    assert not other.holds_copy
    assert list(other.partitions.values_list("partition", "complete_at")) == [(0, NOW), (1, NOW)]


def test_validating_a_reversal_stores_no_row(mirror: MirrorTopic, owner: Actor) -> None:
    do(mirror, E.REVERSE_AND_START, owner, validate_only=True)

    assert states() == [S.ACTIVE]


def test_a_second_reversal_reuses_and_resets_the_row_of_the_first(
    mirror: MirrorTopic, make_mirror: MakeMirror, back: ClusterLink
) -> None:
    row = make_mirror("orders", S.STOPPED, link=back, stop_reason="promote", fencing_at=NOW)
    former = {"source_start": 1, "last_source_end": 7, "last_high_watermark": 7, "last_timestamp_ms": 1_000}
    MirrorPartition.objects.filter(mirror=row).update(stopped_end=7, last_source_seen_at=NOW, **former)

    reversals.begin_reversal(mirror=mirror, operation=E.REVERSE_AND_PAUSE, by=Actor(name="x", user=None), now=NOW)

    row.refresh_from_db()
    assert (row.state, row.stop_reason, row.fencing_at, row.reversal) == (S.PENDING_MIRROR, "", None, "reverse-and-pause")
    for name in ("stopped_end", "last_source_seen_at", *former):  # these were measured on its former source
        assert set(row.partitions.values_list(name, flat=True)) == {None}


@pytest.mark.parametrize("anew", [True, False], ids=["created anew", "the same topics"])
def test_a_reversal_drops_verified_ranges_of_topics_that_were_created_anew(
    mirror: MirrorTopic, make_mirror: MakeMirror, back: ClusterLink, owner: Actor, anew: bool
) -> None:
    MirrorTopic.objects.filter(pk=mirror.pk).update(mirror_topic_id="restored")
    ids = {"source_topic_id": "before the restore" if anew else "restored", "mirror_topic_id": mirror.source_topic_id}
    row = make_mirror("orders", S.STOPPED, link=back, stop_reason="failover", **ids)
    row.verified_ranges.create(partition=0, start=0, end=7, differences=1, first_verified_at=NOW, verified_at=NOW)
    row.transition_errors.create(code=RECORDS_DIFFER, message="Offset 3 differs.", since=NOW, last_seen_at=NOW)

    do(mirror, E.REVERSE_AND_START, owner)

    assert (row.verified_ranges.exists(), row.transition_errors.exists()) == (not anew, not anew)
    assert AuditEvent.objects.filter(action="EndDifferenceAlarm").exists() == anew


def test_failing_over_the_source_topic_ends_the_reversal(mirror: MirrorTopic, other: MirrorTopic, owner: Actor) -> None:
    do(other, E.FAILOVER, owner)

    assert states() == [S.ACTIVE, S.PENDING_STOPPED]
    assert MirrorTopic.objects.get(pk=mirror.pk).reversal == ""
    assert not reversals.note_synchronized(mirror=mirror, now=NOW)


def test_a_synchronized_mirror_is_pending_stopped_until_it_is_fenced(mirror: MirrorTopic, other: MirrorTopic) -> None:
    draining = MirrorTopic.objects.get(pk=mirror.pk)

    assert reversals.note_synchronized(mirror=draining, now=NOW)

    assert states() == [S.PENDING_STOPPED, S.PENDING_MIRROR]


def test_a_paused_reversal_continues_when_it_is_resumed(mirror: MirrorTopic, other: MirrorTopic, owner: Actor) -> None:
    do(mirror, E.PAUSE, owner)
    assert states() == [S.PAUSED, S.PENDING_MIRROR]
    do(mirror, E.RESUME, owner)
    assert states() == [S.PENDING_SYNCHRONIZE, S.PENDING_MIRROR]


def test_a_paused_reversal_cannot_be_promoted_until_it_is_ended(mirror: MirrorTopic, other: MirrorTopic, owner: Actor) -> None:
    do(mirror, E.PAUSE, owner)
    with pytest.raises(ConflictError, match="paused in the middle of reverse-and-start"):
        do(mirror, E.PROMOTE, owner)

    assert states() == [S.PAUSED, S.PENDING_MIRROR]
    do(other, E.FAILOVER, owner)
    do(mirror, E.PROMOTE, owner)
    assert states() == [S.PENDING_STOPPED, S.PENDING_STOPPED]


def test_a_paused_reversal_whose_source_was_failed_over_resumes_as_active(
    mirror: MirrorTopic, other: MirrorTopic, owner: Actor
) -> None:
    do(mirror, E.PAUSE, owner)
    do(other, E.FAILOVER, owner)
    do(mirror, E.RESUME, owner)

    assert states() == [S.ACTIVE, S.PENDING_STOPPED]


def test_a_reversal_needs_the_permission_on_both_sides(mirror: MirrorTopic, link: ClusterLink, make_actor: MakeActor) -> None:
    here_only = make_actor("here-only", RoleBinding.Role.CLOUD_CLUSTER_ADMIN, cluster=link.destination)

    with pytest.raises(DeniedError):
        do(mirror, E.REVERSE_AND_START, here_only)
    assert states() == [S.ACTIVE]


def test_an_ordinary_topic_is_restored_from_its_stopped_mirror(
    mirror: MirrorTopic, back: ClusterLink, owner: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reversals, "COUNT_TIMEOUT_S", 0.1)  # no worker counts what would be lost
    MirrorTopic.objects.update(state=S.STOPPED)

    checked = operate_many(link=back, pattern="ord.*", operation=E.RESTORE, validate_only=True, by=owner, now=NOW)
    assert [(row.mirror_topic_name, row.error_code) for row in checked] == [("orders", None)]
    assert not RestoreRun.objects.exists()
    done = operate_many(link=back, names=["orders", "unknown"], operation=E.RESTORE, by=owner, now=NOW)

    assert [row.error_code for row in done] == [None, 404]
    assert states() == [S.STOPPED, S.PENDING_SETUP_FOR_RESTORE]
    assert RestoreRun.objects.get().mirror.link_id == back.pk


def test_a_worker_reads_the_common_parts_of_the_topics_that_have_any(
    mirror: MirrorTopic, back: ClusterLink, make_mirror: MakeMirror, owner: Actor, engine: Engine
) -> None:
    """``orders`` was never a mirror on this side, ``parts`` was one, and ``bills`` has nothing in common with its source."""
    former = [make_mirror("parts", link=back), make_mirror("bills", link=back)]
    MirrorTopic.objects.exclude(name="bills").update(holds_copy=True, mirror_topic_id="there", source_topic_id="here")
    MirrorTopic.objects.filter(name="bills").update(holds_copy=False)
    MirrorTopic.objects.update(state=S.STOPPED)
    MirrorPartition.objects.update(stopped_end=7, fenced_end=8)
    draft = reversals.candidate(back, "orders", owner)
    assert draft is not None
    chosen = [draft, *(MirrorTopic.objects.get(pk=row.pk) for row in former)]
    engine.responses["count_divergence"] = {}

    reversals.count_divergence(back, chosen)

    topics = {"orders": "orders", "parts": "parts"}
    assert engine.calls == [("count_divergence", {"link_id": back.pk, "topics": topics})]
    known = reversals.known_parts(ClusterLink.objects.get(pk=back.pk), topics)
    for row in chosen[:2]:
        parts = [part.to_json() for part in pairs.common_parts(row, pairs.counterpart(row))]
        assert known.pop(row.name) == {"source_topic": row.name, "parts": parts}
        assert [part["source_is_here"] for part in parts] == [row is draft]
        assert parts[0]["ends"]
    assert known == {}


def test_a_topic_whose_other_side_is_not_stopped_cannot_be_restored(
    mirror: MirrorTopic, back: ClusterLink, make_mirror: MakeMirror, owner: Actor
) -> None:
    stopped = make_mirror("orders", S.STOPPED, link=back)

    with pytest.raises(ConflictError, match="has to be STOPPED"):
        do(stopped, E.RESTORE, owner)


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_reversals_wins_and_the_rows_agree(mirror: MirrorTopic, owner: Actor) -> None:
    assert owner.bindings  # read once, before the threads start
    outcomes = []

    def reverse(operation: E) -> None:
        with suppress(ConflictError):
            do(mirror, operation, owner)
            outcomes.append(operation)

    run_concurrently(partial(reverse, E.REVERSE_AND_START), partial(reverse, E.REVERSE_AND_PAUSE))

    assert len(outcomes) == 1
    assert states() == [S.PENDING_SYNCHRONIZE, S.PENDING_MIRROR]
    assert set(MirrorTopic.objects.values_list("reversal", flat=True)) == {outcomes[0]}


def test_restores_of_both_sides_cannot_start_concurrently(mirror: MirrorTopic, back: ClusterLink, owner: Actor) -> None:
    """Both requests found the other side stopped; the second request to lock the rows is refused."""
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=S.STOPPED)
    [other] = reversals.candidates(back, owner)
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=S.PENDING_SETUP_FOR_RESTORE)

    with pytest.raises(ConflictError, match="must be STOPPED to become the source"), transaction.atomic():
        reversals.begin_restore(mirror=other, by=owner, now=NOW)

    assert MirrorTopic.objects.get().pk == mirror.pk


@pytest.mark.parametrize("state", sorted(CLOSED_FIRST))
def test_a_stopped_topic_cannot_be_deleted_while_the_other_side_is_becoming_its_mirror(
    mirror: MirrorTopic, other: MirrorTopic, owner: Actor, state: MirrorState
) -> None:
    """After the other topic is deleted it holds the only copy; this also applies to concurrent requests."""
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=S.STOPPED)
    seen = MirrorTopic.objects.select_related("link__destination").get(pk=mirror.pk)
    MirrorTopic.objects.filter(pk=other.pk).update(state=state)

    with pytest.raises(ConflictError, match=f"other side is {state}: it is becoming the mirror"):
        request_deletion(mirror=seen, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="it is becoming the mirror"):
        delete_topic(cluster=seen.link.destination, topic=seen.name, by=owner, now=NOW)
    assert not MirrorTopic.objects.exclude(deletion_requested_at=None).exists()

    MirrorTopic.objects.filter(pk=other.pk).update(state=S.STOPPED)
    request_deletion(mirror=seen, by=owner, now=NOW)
    assert MirrorTopic.objects.exclude(deletion_requested_at=None).get() == mirror
