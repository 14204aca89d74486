"""The rows of reversals and restores: both sides move together, whoever comes second sees what the first did."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from console.actions import restoring, reversing
from console.actions.mirrors import delete_mirror
from console.actions.operations import operate, operate_many
from console.actions.topics import delete_topic
from console.actors import Actor
from console.errors import ConflictError, DeniedError
from console.models import AuditEvent, ClusterLink, MirrorPartition, MirrorTopic, RestoreRun, RoleBinding
from console.models.mirrors import RECORDS_DIFFER
from linkengine.domain.states import CLOSED_FIRST, MirrorEvent, MirrorState
from tests.console.atonce import at_once
from tests.console.conftest import NOW, MakeActor, MakeMirror

E, S = MirrorEvent, MirrorState
pytestmark = pytest.mark.usefixtures("sent")


@pytest.fixture
def mirror(link: ClusterLink, back: ClusterLink, make_mirror: MakeMirror) -> MirrorTopic:
    """A mirror on a link that has both sides."""
    assert back
    return make_mirror("orders")


def states() -> list[str]:
    """Answer the states of both sides: the mirror's, then the other topic's."""
    return list(MirrorTopic.objects.order_by("link_id").values_list("state", flat=True))


def do(mirror: MirrorTopic, operation: E, by: Actor, **more: Any) -> MirrorTopic:
    return operate(mirror=MirrorTopic.objects.get(pk=mirror.pk), operation=operation, by=by, now=NOW, **more)


@pytest.fixture
def other(mirror: MirrorTopic, back: ClusterLink, owner: Actor) -> MirrorTopic:
    """The other topic of a reversal that has begun."""
    do(mirror, E.REVERSE_AND_START, owner)
    return MirrorTopic.objects.get(link=back)


def test_of_two_reversals_at_the_same_moment_one_is_refused(
    mirror: MirrorTopic, owner: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = MirrorTopic.save

    def somebody_is_quicker(row: MirrorTopic, **how: Any) -> None:
        monkeypatch.undo()
        MirrorTopic.objects.bulk_create([copy(row)])
        save(row, **how)

    monkeypatch.setattr(MirrorTopic, "save", somebody_is_quicker)
    with pytest.raises(ConflictError, match="becoming a mirror"):
        do(mirror, E.REVERSE_AND_START, owner)

    assert states() == [S.ACTIVE]


OLDER = "holds older records than 'orders' ever had"


@pytest.mark.parametrize(
    ("source_start", "refusal"), [(0, OLDER), (99, OLDER), (100, ""), (None, "not known yet .* Try again once")]
)
def test_a_source_keeps_what_its_mirror_never_had(
    mirror: MirrorTopic, owner: Actor, source_start: int | None, refusal: str
) -> None:
    """The mirror began at its source's end (``mirror.start.offset.spec``); as its mirror the source would begin there, too."""
    mirror.gaps.create(partition=0, start=0, end=100, reason="HEAD", filled=100, noted_at=NOW)
    MirrorPartition.objects.update_or_create(mirror=mirror, partition=0, defaults={"source_start": source_start})

    if not refusal:
        assert do(mirror, E.REVERSE_AND_START, owner).state == S.PENDING_SYNCHRONIZE
    else:
        with pytest.raises(ConflictError, match=refusal):
            do(mirror, E.REVERSE_AND_START, owner)


def test_a_mirror_that_is_known_to_differ_from_its_source_is_not_reversed(mirror: MirrorTopic, owner: Actor) -> None:
    """The source would keep its own records where its new source has others."""
    mirror.transition_errors.create(code=RECORDS_DIFFER, message="Offset 7 differs.", since=NOW, last_seen_at=NOW)

    with pytest.raises(ConflictError, match="Verify the whole mirror first"):
        do(mirror, E.REVERSE_AND_START, owner)

    assert states() == [S.ACTIVE]


def test_both_rows_move_together(mirror: MirrorTopic, other: MirrorTopic) -> None:
    assert states() == [S.PENDING_SYNCHRONIZE, S.PENDING_MIRROR]
    assert (other.name, other.source_topic, other.num_partitions) == ("orders", "orders", 2)
    assert not other.holds_copy
    assert list(other.partitions.values_list("partition", "whole_at")) == [(0, NOW), (1, NOW)]


def test_validate_only_makes_no_row(mirror: MirrorTopic, owner: Actor) -> None:
    do(mirror, E.REVERSE_AND_START, owner, validate_only=True)

    assert states() == [S.ACTIVE]


def test_a_second_reversal_takes_the_row_of_the_first(mirror: MirrorTopic, make_mirror: MakeMirror, back: ClusterLink) -> None:
    row = make_mirror("orders", S.STOPPED, link=back, stop_reason="promote", fencing_at=NOW)
    former = {"source_start": 1, "last_source_end": 7, "last_high_watermark": 7, "last_timestamp_ms": 1_000}
    MirrorPartition.objects.filter(mirror=row).update(stopped_end=7, last_source_seen_at=NOW, **former)

    reversing.begin(mirror=mirror, operation=E.REVERSE_AND_PAUSE, by=Actor(name="x", user=None), now=NOW)

    row.refresh_from_db()
    assert (row.state, row.stop_reason, row.fencing_at, row.reversal) == (S.PENDING_MIRROR, "", None, "reverse-and-pause")
    for name in ("stopped_end", "last_source_seen_at", *former):  # they would be told of the topic that is its source now
        assert set(row.partitions.values_list(name, flat=True)) == {None}


@pytest.mark.parametrize("anew", [True, False], ids=["another topic", "the same topics"])
def test_what_was_compared_with_a_topic_that_is_gone_is_not_verified_when_the_row_is_a_mirror_again(
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


def test_failing_the_source_over_lets_the_mirror_mirror_on(mirror: MirrorTopic, other: MirrorTopic, owner: Actor) -> None:
    do(other, E.FAILOVER, owner)

    assert states() == [S.ACTIVE, S.PENDING_STOPPED]
    assert MirrorTopic.objects.get(pk=mirror.pk).reversal == ""
    assert not reversing.note_synchronized(mirror=mirror, now=NOW)


def test_what_is_synchronized_waits_for_its_fence(mirror: MirrorTopic, other: MirrorTopic) -> None:
    draining = MirrorTopic.objects.get(pk=mirror.pk)

    assert reversing.note_synchronized(mirror=draining, now=NOW)

    assert states() == [S.PENDING_STOPPED, S.PENDING_MIRROR]


def test_a_paused_reversal_goes_on_when_it_is_resumed(mirror: MirrorTopic, other: MirrorTopic, owner: Actor) -> None:
    do(mirror, E.PAUSE, owner)
    assert states() == [S.PAUSED, S.PENDING_MIRROR]
    do(mirror, E.RESUME, owner)
    assert states() == [S.PENDING_SYNCHRONIZE, S.PENDING_MIRROR]


def test_a_paused_reversal_is_not_completed_by_a_promotion_that_nobody_meant_so(
    mirror: MirrorTopic, other: MirrorTopic, owner: Actor
) -> None:
    do(mirror, E.PAUSE, owner)
    with pytest.raises(ConflictError, match="paused in the middle of reverse-and-start"):
        do(mirror, E.PROMOTE, owner)

    assert states() == [S.PAUSED, S.PENDING_MIRROR]
    do(other, E.FAILOVER, owner)
    do(mirror, E.PROMOTE, owner)
    assert states() == [S.PENDING_STOPPED, S.PENDING_STOPPED]


def test_a_paused_reversal_whose_source_was_failed_over_is_forgotten(
    mirror: MirrorTopic, other: MirrorTopic, owner: Actor
) -> None:
    do(mirror, E.PAUSE, owner)
    do(other, E.FAILOVER, owner)
    do(mirror, E.RESUME, owner)

    assert states() == [S.ACTIVE, S.PENDING_STOPPED]


def test_who_may_not_operate_the_other_side_reverses_nothing(
    mirror: MirrorTopic, link: ClusterLink, make_actor: MakeActor
) -> None:
    here_only = make_actor("here-only", RoleBinding.Role.CLOUD_CLUSTER_ADMIN, cluster=link.destination)

    with pytest.raises(DeniedError):
        do(mirror, E.REVERSE_AND_START, here_only)
    assert states() == [S.ACTIVE]


def test_an_ordinary_topic_is_restored_from_its_stopped_mirror(mirror: MirrorTopic, back: ClusterLink, owner: Actor) -> None:
    MirrorTopic.objects.update(state=S.STOPPED)

    checked = operate_many(link=back, pattern="ord.*", operation=E.RESTORE, validate_only=True, by=owner, now=NOW)
    assert [(row.mirror_topic_name, row.error_code) for row in checked] == [("orders", None)]
    assert not RestoreRun.objects.exists()
    done = operate_many(link=back, names=["orders", "unknown"], operation=E.RESTORE, by=owner, now=NOW)

    assert [row.error_code for row in done] == [None, 404]
    assert states() == [S.STOPPED, S.PENDING_SETUP_FOR_RESTORE]
    assert RestoreRun.objects.get().mirror.link_id == back.pk


def test_a_topic_that_is_mirrored_now_is_reversed_not_restored(
    mirror: MirrorTopic, back: ClusterLink, make_mirror: MakeMirror, owner: Actor
) -> None:
    stopped = make_mirror("orders", S.STOPPED, link=back)

    with pytest.raises(ConflictError, match="has to be STOPPED"):
        do(stopped, E.RESTORE, owner)


@pytest.mark.django_db(transaction=True)
def test_of_two_operators_at_once_one_wins_and_the_rows_agree(mirror: MirrorTopic, owner: Actor) -> None:
    assert owner.bindings  # read once, before the threads
    outcomes = []

    def ask(operation: E) -> None:
        with suppress(ConflictError):
            do(mirror, operation, owner)
            outcomes.append(operation)

    at_once(partial(ask, E.REVERSE_AND_START), partial(ask, E.REVERSE_AND_PAUSE))

    assert len(outcomes) == 1
    assert states() == [S.PENDING_SYNCHRONIZE, S.PENDING_MIRROR]
    assert set(MirrorTopic.objects.values_list("reversal", flat=True)) == {outcomes[0]}


def test_two_sides_cannot_be_asked_to_follow_each_other_at_the_same_time(
    mirror: MirrorTopic, back: ClusterLink, owner: Actor
) -> None:
    """Both requests have found the other side stopped; the one that comes second is refused."""
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=S.STOPPED)
    [other] = restoring.candidates(back, owner)
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=S.PENDING_SETUP_FOR_RESTORE)

    with pytest.raises(ConflictError, match="by now"), transaction.atomic():
        restoring.begin(mirror=other, by=owner, now=NOW)

    assert MirrorTopic.objects.get().pk == mirror.pk


@pytest.mark.parametrize("state", sorted(CLOSED_FIRST))
def test_a_stopped_topic_is_not_deleted_while_the_other_side_is_becoming_its_mirror(
    mirror: MirrorTopic, other: MirrorTopic, owner: Actor, state: MirrorState
) -> None:
    """Behind the deletion of the other topic it has the only copy; also where both were asked for in the same moment."""
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=S.STOPPED)
    seen = MirrorTopic.objects.select_related("link__destination").get(pk=mirror.pk)
    MirrorTopic.objects.filter(pk=other.pk).update(state=state)

    with pytest.raises(ConflictError, match=f"other side is {state}: it is becoming the mirror"):
        delete_mirror(mirror=seen, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="it is becoming the mirror"):
        delete_topic(cluster=seen.link.destination, topic=seen.name, by=owner, now=NOW)
    assert not MirrorTopic.objects.exclude(deletion_requested_at=None).exists()

    MirrorTopic.objects.filter(pk=other.pk).update(state=S.STOPPED)
    delete_mirror(mirror=seen, by=owner, now=NOW)
    assert MirrorTopic.objects.exclude(deletion_requested_at=None).get() == mirror
