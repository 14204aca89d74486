"""Warnings before an operation. They do not prevent it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from console.actors import Actor
from console.errors import UnavailableError
from console.mirrors.operation_queries import (
    cautions_of,
    cautions_of_many,
    mirrored_elsewhere,
    transactional_ids,
    unclean_elections,
)
from console.mirrors.reversals import risks_of
from console.models import ClusterLink, GapRange, MirrorPartition, MirrorTopic
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from linkengine.domain.states import GapReason, MirrorEvent, MirrorState
from tests.console.conftest import NOW, Engine, MakeMirror

E = MirrorEvent


def test_reversal_warns_of_transactional_producers(mirror: MirrorTopic, owner: Actor) -> None:
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


def test_deletion_lists_visible_mirrors_of_the_topic(
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


@pytest.mark.parametrize(("operation", "queries"), [(E.REVERSE_AND_START, 1), (E.DELETE, 1), (E.PAUSE, 0)])
def test_warnings_of_many_mirrors_take_as_many_queries_as_of_one(
    make_mirror: MakeMirror, back: ClusterLink, owner: Actor, django_assert_num_queries: Any, operation: E, queries: int
) -> None:
    names = [f"orders-{number}" for number in range(5)]
    for name in names:
        mirror = make_mirror(name)
        make_mirror(name, link=back)
        noted = {"reason": GapReason.ABORTED, "filled": 1, "noted_at": NOW}
        GapRange.objects.create(mirror=mirror, partition=0, start=5, end=6, **noted)
    assert owner.bindings
    mirrors = list(MirrorTopic.objects.exclude(link=back).select_related("link__destination").prefetch_related("partitions"))

    for chosen in (mirrors[:1], mirrors):
        with django_assert_num_queries(queries):
            found = cautions_of_many(chosen, operation, by=owner, risks={})
        assert {pk: len(warnings) for pk, warnings in found.items()} == {row.pk: bool(queries) for row in chosen}
    assert all(mirror.name in " ".join(found[mirror.pk]) for mirror in mirrors if queries)


WRITERS = TransactionalWriters(ids=("a", "b"), open_ids=("b",), unnamed_open=0, complete=True)


def test_unknown_risks_of_a_reversal_are_warnings(mirror: MirrorTopic, engine: Engine, owner: Actor) -> None:
    risks = ReversalRisks(unclean_on=("Source",), writers=WRITERS)
    engine.responses["find_reversal_risks"] = json.loads(json.dumps({"orders": asdict(risks)}))
    assert risks_of(mirror.link, [mirror]) == {"orders": risks}
    assert engine.calls[-1] == ("find_reversal_risks", {"link_id": mirror.link_id, "topics": {"orders": "orders"}})

    engine.refuses("find_reversal_risks", UnavailableError("No worker responds."))
    found = risks_of(mirror.link, [mirror])
    assert found == {"orders": ReversalRisks(unclean_on=None, writers=None)}
    ids, elections = cautions_of(mirror, E.REVERSE_AND_START, by=owner, risks=found["orders"])
    assert "could not be read" in ids
    assert "could not be read" in elections


def test_reversal_lists_transactional_ids_with_advice(mirror: MirrorTopic, owner: Actor) -> None:
    """Even if no copied record came from a transaction."""
    risks = ReversalRisks(unclean_on=(), writers=WRITERS)

    advice, ids = cautions_of(mirror, E.REVERSE_AND_START, by=owner, risks=risks)

    assert "Stop these producers first" in advice
    assert ids == "Transactional ids that wrote to 'orders' recently: b (transaction open), a."


@pytest.mark.parametrize(
    ("writers", "words"),
    [
        (None, ["could not be read; there may be some"]),
        (TransactionalWriters(ids=(), open_ids=(), unnamed_open=0, complete=True), []),
        (
            TransactionalWriters(ids=(), open_ids=(), unnamed_open=0, complete=False),
            ["More transactional ids may write", "lacks DESCRIBE"],
        ),
        (TransactionalWriters(ids=(), open_ids=(), unnamed_open=2, complete=False), ["unknown: 2.", "More transactional ids"]),
        (
            TransactionalWriters(ids=tuple(f"i{n:02}" for n in range(14)), open_ids=("i13",), unnamed_open=0, complete=True),
            ["recently: i13 (transaction open), i00,", "i08, 4 more."],
        ),
    ],
)
def test_unknown_transactional_ids_are_reported_as_unknown(writers: TransactionalWriters | None, words: list[str]) -> None:
    found = transactional_ids("orders", writers)

    assert all(word in found for word in words)
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("clusters", "words"),
    [((), ""), (("Source", "East"), "is on for 'orders' on Source and East."), (None, "could not be read on both clusters")],
)
def test_unclean_election_warning_names_the_clusters(clusters: tuple[str, ...] | None, words: str) -> None:
    assert words in unclean_elections("orders", clusters)
    assert bool(unclean_elections("orders", clusters)) is bool(words)
