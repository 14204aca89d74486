"""The known common part of two topics, after restores that were started and interrupted."""

from __future__ import annotations

import pytest

from console.actors import SYSTEM
from console.links import pairs
from console.mirrors.operation_actions import operate
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.mirrors import RECORDS_DIFFER
from console.workflows import stopping
from linkengine.domain.mirrorjobs import common_ends
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason
from tests.console.conftest import NOW, MakeMirror

E = MirrorEvent
S = MirrorState
pytestmark = pytest.mark.usefixtures("sent")


@pytest.fixture
def long_ago(make_mirror: MakeMirror, back: ClusterLink) -> MirrorTopic:
    """A's topic, which was a copy of a topic at B that has been deleted since."""
    return stopped(make_mirror, back, here="A-1", there="B-1", end=50_000)


@pytest.fixture
def recent(make_mirror: MakeMirror, link: ClusterLink) -> MirrorTopic:
    """B's topic, which was created anew as a copy of A's and failed over before it had caught up."""
    return stopped(make_mirror, link, here="B-2", there="A-1", end=20_000)


def stopped(make_mirror: MakeMirror, link: ClusterLink, *, here: str, there: str, end: int) -> MirrorTopic:
    facts = {"stop_reason": StopReason.FAILOVER, "fencing_at": NOW, "mirror_topic_id": here, "source_topic_id": there}
    row = make_mirror("orders", S.STOPPED, link=link, **facts)
    MirrorPartition.objects.filter(mirror=row).update(stopped_end=None)
    MirrorPartition.objects.update_or_create(mirror=row, partition=0, defaults={"stopped_end": end})
    return row


def common(mirror: MirrorTopic, *, here: str, there: str) -> dict[int, int]:
    row = MirrorTopic.objects.get(pk=mirror.pk)
    return common_ends(pairs.common_parts(row, pairs.counterpart(row)), here_id=here, there_id=there)


def do(mirror: MirrorTopic, operation: MirrorEvent) -> None:
    operate(mirror=MirrorTopic.objects.get(pk=mirror.pk), operation=operation, by=SYSTEM, now=NOW)


def test_interrupted_restore_does_not_make_an_older_stop_count(long_ago: MirrorTopic, recent: MirrorTopic) -> None:
    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}

    do(long_ago, E.RESTORE)
    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}

    do(long_ago, E.FAILOVER)
    stopping.note_stopped({MirrorTopic.objects.get(pk=long_ago.pk): None}, now=NOW)
    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}


def test_nothing_is_common_if_the_newer_stop_is_unknown(long_ago: MirrorTopic, recent: MirrorTopic) -> None:
    MirrorTopic.objects.filter(pk=recent.pk).update(holds_copy=False)  # its restore was interrupted after the agreement
    MirrorPartition.objects.filter(mirror=recent).update(stopped_end=None)

    assert pairs.have_common_part(long_ago, MirrorTopic.objects.get(pk=recent.pk))
    assert common(long_ago, here="A-1", there="B-2") == {}


def test_nothing_is_common_if_the_mirror_had_failed_when_it_was_stopped(long_ago: MirrorTopic, recent: MirrorTopic) -> None:
    """A foreign record may be in place of a source record, with the same end."""
    for was, to, event in ((S.ACTIVE, S.FAILED, E.FATAL), (S.FAILED, S.PENDING_STOPPED, E.FAILOVER)):
        recent.transitions.create(from_state=was, to_state=to, event=event, by="owner", at=NOW)

    assert pairs.have_common_part(long_ago, MirrorTopic.objects.get(pk=recent.pk))
    assert common(long_ago, here="A-1", there="B-2") == {}


def test_recovered_mirror_has_its_end_in_common(long_ago: MirrorTopic, recent: MirrorTopic) -> None:
    steps = (S.ACTIVE, S.FAILED, E.FATAL), (S.FAILED, S.ACTIVE, E.RECOVER), (S.ACTIVE, S.PENDING_STOPPED, E.FAILOVER)
    for was, to, event in steps:
        recent.transitions.create(from_state=was, to_state=to, event=event, by="owner", at=NOW)

    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}


@pytest.mark.parametrize("ended", [True, False], ids=["before its end", "never"])
def test_nothing_is_common_if_copying_failed_during_the_promotion(
    long_ago: MirrorTopic, recent: MirrorTopic, ended: bool
) -> None:
    """The failover that replaced the promotion starts in the same state: PENDING_STOPPED."""
    steps = [(S.ACTIVE, E.PROMOTE), (S.PENDING_STOPPED, E.FATAL), (S.PENDING_STOPPED, E.FAILOVER)]
    for was, event in steps if ended else steps[::2]:
        recent.transitions.create(from_state=was, to_state=S.PENDING_STOPPED, event=event, by="owner", at=NOW)

    assert common(long_ago, here="A-1", there="B-2") == ({} if ended else {0: 20_000})


def test_nothing_is_common_if_a_verification_run_found_differences(long_ago: MirrorTopic, recent: MirrorTopic) -> None:
    recent.transition_errors.create(code=RECORDS_DIFFER, message="Offset 7 differs.", since=NOW, last_seen_at=NOW)

    assert common(long_ago, here="A-1", there="B-2") == {}


def test_common_parts_have_the_leader_epochs_of_the_source(long_ago: MirrorTopic, recent: MirrorTopic) -> None:
    MirrorPartition.objects.filter(mirror=recent, partition=0).update(source_epoch=4, fence_epoch=6)

    there, here = pairs.common_parts(long_ago, recent)

    assert (there.source_is_here, there.epochs) == (False, {})
    assert (here.source_is_here, here.epochs) == (True, {0: 4})
    assert (there.fence_epochs, here.fence_epochs) == ({}, {0: 6})  # of the copy's leaders when it was stopped


@pytest.mark.parametrize("differs", ["long_ago", "recent"])
def test_nothing_is_common_if_either_copy_is_known_to_differ(long_ago: MirrorTopic, recent: MirrorTopic, differs: str) -> None:
    """A reversal leaves two rows for the same two topics, so a difference found for either counts for both."""
    row = long_ago if differs == "long_ago" else recent
    MirrorTopic.objects.filter(pk=long_ago.pk).update(mirror_topic_id="A-1", source_topic_id="B-2")
    assert common(long_ago, here="A-1", there="B-2") == {0: 50_000}

    row.transition_errors.create(code=RECORDS_DIFFER, message="differs", since=NOW, last_seen_at=NOW)
    assert common(long_ago, here="A-1", there="B-2") == {}
