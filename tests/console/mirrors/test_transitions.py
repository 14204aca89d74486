"""State transitions by compare-and-swap: every transition of the table, every missing one, and concurrent transitions."""

from __future__ import annotations

from functools import partial

import pytest

from console.actors import ENGINE
from console.errors import NotFoundError
from console.mirrors.transitions import apply_event
from console.models import ClusterLink, MirrorTopic, StateTransition
from linkengine.domain.errors import IllegalTransitionError
from linkengine.domain.states import TRANSITIONS, MirrorEvent, MirrorState
from tests.console.concurrently import run_concurrently
from tests.console.conftest import NOW, MakeMirror


@pytest.mark.parametrize("state", MirrorState)
def test_only_transitions_of_the_table_are_possible(state: MirrorState, make_mirror: MakeMirror) -> None:
    for event in MirrorEvent:
        mirror, target = make_mirror(f"orders-{event}", state, partitions=0), TRANSITIONS[state].get(event)
        steps = StateTransition.objects.filter(mirror=mirror)

        if target is None:
            with pytest.raises(IllegalTransitionError):
                apply_event(mirror=mirror, event=event, by=ENGINE, now=NOW)
            assert MirrorTopic.objects.get(pk=mirror.pk).state == state, event
            assert not steps.exists(), event
            continue
        apply_event(mirror=mirror, event=event, by=ENGINE, now=NOW, stop_reason="failover")
        row, step = MirrorTopic.objects.get(pk=mirror.pk), steps.get()
        assert row.state == target, event
        assert (step.from_state, step.to_state, step.event, step.by) == (state, target, event, "engine")
        assert row.prior_state == ("" if target is state else state), event


def test_a_transition_increases_the_sequence_of_the_link(make_mirror: MakeMirror, link: ClusterLink) -> None:
    apply_event(mirror=make_mirror(), event=MirrorEvent.PAUSE, by=ENGINE, now=NOW)

    assert ClusterLink.objects.get(pk=link.pk).sequence == link.sequence + 1


def test_a_transition_of_a_stale_row_uses_the_stored_state(make_mirror: MakeMirror) -> None:
    mirror = make_mirror()
    stale = MirrorTopic.objects.get(pk=mirror.pk)
    apply_event(mirror=mirror, event=MirrorEvent.PAUSE, by=ENGINE, now=NOW)

    moved = apply_event(mirror=stale, event=MirrorEvent.RESUME, by=ENGINE, now=NOW)

    assert moved.state == MirrorState.ACTIVE
    assert list(StateTransition.objects.values_list("event", flat=True)) == ["resume", "pause"]


def test_a_transition_of_a_deleted_mirror_raises_not_found(make_mirror: MakeMirror) -> None:
    mirror = make_mirror()
    MirrorTopic.objects.all().delete()

    with pytest.raises(NotFoundError):
        apply_event(mirror=mirror, event=MirrorEvent.PAUSE, by=ENGINE, now=NOW)


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_pauses_succeeds(make_mirror: MakeMirror) -> None:
    mirror = make_mirror()
    rows, outcomes = [MirrorTopic.objects.select_related("link").get(pk=mirror.pk) for _ in range(2)], []

    def pause(own: MirrorTopic) -> None:
        try:
            apply_event(mirror=own, event=MirrorEvent.PAUSE, by=ENGINE, now=NOW)
            outcomes.append("won")
        except IllegalTransitionError:
            outcomes.append("lost")

    run_concurrently(*(partial(pause, row) for row in rows))

    assert sorted(outcomes) == ["lost", "won"]
    assert StateTransition.objects.filter(event="pause").count() == 1
