"""What rows know of the part that two topics have in common, after restores that were begun and cut short."""

from __future__ import annotations

import pytest

from console import pairs
from console.actions.operations import operate
from console.actors import SYSTEM
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.mirrors import RECORDS_DIFFER
from console.tasks import stopping
from linkengine.domain.restoring import common_ends
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason
from tests.console.conftest import NOW, MakeMirror

E, S = MirrorEvent, MirrorState
pytestmark = pytest.mark.usefixtures("sent")


@pytest.fixture
def long_ago(make_mirror: MakeMirror, back: ClusterLink) -> MirrorTopic:
    """A's topic: it was a copy of a topic at B that has been deleted since."""
    return stopped(make_mirror, back, here="A-1", there="B-1", end=50_000)


@pytest.fixture
def lately(make_mirror: MakeMirror, link: ClusterLink) -> MirrorTopic:
    """B's topic: made anew as a copy of A's and failed over before it had caught up."""
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


def test_a_restore_that_is_cut_short_makes_no_older_stop_the_one_that_counts(
    long_ago: MirrorTopic, lately: MirrorTopic
) -> None:
    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}

    do(long_ago, E.RESTORE)
    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}

    do(long_ago, E.FAILOVER)
    stopping.note_stopped(MirrorTopic.objects.get(pk=long_ago.pk), now=NOW)
    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}


def test_where_the_newer_stop_is_forgotten_nothing_is_known_to_be_common(long_ago: MirrorTopic, lately: MirrorTopic) -> None:
    MirrorTopic.objects.filter(pk=lately.pk).update(holds_copy=False)  # its own restore was cut short after the sides agreed
    MirrorPartition.objects.filter(mirror=lately).update(stopped_end=None)

    assert pairs.have_parted(long_ago, MirrorTopic.objects.get(pk=lately.pk))
    assert common(long_ago, here="A-1", there="B-2") == {}


def test_a_mirror_that_had_failed_when_it_was_stopped_tells_nothing_of_its_source(
    long_ago: MirrorTopic, lately: MirrorTopic
) -> None:
    """A record of a stranger may stand where the source had another: its end is the end of both."""
    for was, to, event in ((S.ACTIVE, S.FAILED, E.FATAL), (S.FAILED, S.PENDING_STOPPED, E.FAILOVER)):
        lately.transitions.create(from_state=was, to_state=to, event=event, by="somebody", at=NOW)

    assert pairs.have_parted(long_ago, MirrorTopic.objects.get(pk=lately.pk))
    assert common(long_ago, here="A-1", there="B-2") == {}


def test_a_mirror_that_failed_and_was_recovered_tells_where_it_ended(long_ago: MirrorTopic, lately: MirrorTopic) -> None:
    steps = (S.ACTIVE, S.FAILED, E.FATAL), (S.FAILED, S.ACTIVE, E.RECOVER), (S.ACTIVE, S.PENDING_STOPPED, E.FAILOVER)
    for was, to, event in steps:
        lately.transitions.create(from_state=was, to_state=to, event=event, by="somebody", at=NOW)

    assert common(long_ago, here="A-1", there="B-2") == {0: 20_000}


@pytest.mark.parametrize("ended", [True, False], ids=["before its end", "never"])
def test_a_mirror_whose_copier_gave_up_while_its_promotion_waited_tells_nothing_of_its_source(
    long_ago: MirrorTopic, lately: MirrorTopic, ended: bool
) -> None:
    """The failover that overruled the promotion begins where the promotion did: in PENDING_STOPPED."""
    steps = [(S.ACTIVE, E.PROMOTE), (S.PENDING_STOPPED, E.FATAL), (S.PENDING_STOPPED, E.FAILOVER)]
    for was, event in steps if ended else steps[::2]:
        lately.transitions.create(from_state=was, to_state=S.PENDING_STOPPED, event=event, by="somebody", at=NOW)

    assert common(long_ago, here="A-1", there="B-2") == ({} if ended else {0: 20_000})


def test_a_mirror_that_differed_in_a_comparison_tells_nothing_of_its_source(long_ago: MirrorTopic, lately: MirrorTopic) -> None:
    lately.transition_errors.create(code=RECORDS_DIFFER, message="Offset 7 differs.", since=NOW, last_seen_at=NOW)

    assert common(long_ago, here="A-1", there="B-2") == {}


def test_the_source_of_a_copy_is_asked_by_the_epochs_it_was_read_under(long_ago: MirrorTopic, lately: MirrorTopic) -> None:
    MirrorPartition.objects.filter(mirror=lately, partition=0).update(source_epoch=4, fence_epoch=6)

    there, here = pairs.common_parts(long_ago, lately)

    assert (there.source_is_here, there.epochs) == (False, {})
    assert (here.source_is_here, here.epochs) == (True, {0: 4})
    assert (there.fence_epochs, here.fence_epochs) == ({}, {0: 6})  # of its own leaders when it was stopped


@pytest.mark.parametrize("differs", ["long_ago", "lately"])
def test_nothing_is_common_where_either_copy_is_known_to_differ(
    long_ago: MirrorTopic, lately: MirrorTopic, differs: str
) -> None:
    """A reversal leaves two rows of the same two topics; what one found out is true of both."""
    row = long_ago if differs == "long_ago" else lately
    MirrorTopic.objects.filter(pk=long_ago.pk).update(mirror_topic_id="A-1", source_topic_id="B-2")
    assert common(long_ago, here="A-1", there="B-2") == {0: 50_000}

    row.transition_errors.create(code=RECORDS_DIFFER, message="differs", since=NOW, last_seen_at=NOW)
    assert common(long_ago, here="A-1", there="B-2") == {}
