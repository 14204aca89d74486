"""Warnings before an operation; nothing is refused for them."""

from __future__ import annotations

import pytest

from console.actions.reversing import unclean_sides
from console.actors import Actor
from console.errors import UnavailableError
from console.models import ClusterLink, GapRange, MirrorPartition, MirrorTopic
from console.queries.cautions import cautions_of, mirrored_elsewhere, unclean_elections
from linkengine.domain.states import GapReason, MirrorEvent, MirrorState
from tests.console.conftest import NOW, Engine, MakeMirror

E = MirrorEvent


def test_a_reversal_warns_of_transactional_producers(mirror: MirrorTopic, owner: Actor) -> None:
    assert cautions_of(mirror, E.REVERSE_AND_START, by=owner) == ()

    GapRange.objects.create(
        mirror=mirror, partition=0, start=5, end=6, reason=GapReason.TRANSACTION_MARKER, filled=1, noted_at=NOW
    )
    (closed,) = cautions_of(mirror, E.REVERSE_AND_START, by=owner)
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(last_high_watermark=17)
    (opened,) = cautions_of(MirrorTopic.objects.get(pk=mirror.pk), E.REVERSE_AND_PAUSE, by=owner)

    assert closed.startswith("Transactional producers write to 'orders'. A transaction")
    assert "7 offsets wait behind open transactions now." in opened
    assert cautions_of(mirror, E.FAILOVER, by=owner) == ()


def test_a_deletion_names_the_mirrors_elsewhere_that_the_actor_may_see(
    make_mirror: MakeMirror, back: ClusterLink, owner: Actor, stranger: Actor
) -> None:
    mirror = make_mirror()
    other = make_mirror("orders", link=back)

    (sentence,) = cautions_of(mirror, E.DELETE, by=owner)

    assert "'orders' on cluster 'Source' (link 'west-to-east')" in sentence
    assert "1 on other clusters" in mirrored_elsewhere("destination-id", "orders", by=stranger)
    assert "Source" not in mirrored_elsewhere("destination-id", "orders", by=stranger)
    MirrorTopic.objects.filter(pk=other.pk).update(state=MirrorState.STOPPED)
    assert cautions_of(mirror, E.DELETE, by=owner) == ()


def test_unclean_elections_are_asked_of_both_clusters_and_unknown_is_no_all_clear(mirror: MirrorTopic, engine: Engine) -> None:
    engine.answers["find_unclean_elections"] = {"orders": ["Source"]}
    assert unclean_sides(mirror.link, [mirror]) == {"orders": ("Source",)}
    assert engine.calls[-1] == ("find_unclean_elections", {"link_id": mirror.link_id, "topics": {"orders": "orders"}})

    engine.refuses("find_unclean_elections", UnavailableError("No worker answers."))
    assert unclean_sides(mirror.link, [mirror]) == {"orders": None}


@pytest.mark.parametrize(
    ("clusters", "words"),
    [((), ""), (("Source", "East"), "is on for 'orders' on Source and East."), (None, "could not be read on both clusters")],
)
def test_the_warning_says_where(clusters: tuple[str, ...] | None, words: str) -> None:
    assert words in unclean_elections("orders", clusters)
    assert bool(unclean_elections("orders", clusters)) is bool(words)
