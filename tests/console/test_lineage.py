"""Lineage: opened where a mirror begins, closed where it ends, kept when mirror and link are gone, followed through chains."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.lineage import close_lineage, open_lineage
from console.models import Cluster, ClusterLink, LineageRange, MirrorPartition, MirrorTopic
from console.queries.lineage import Origin, lineage_of
from console.tasks.mirrors import note_synced
from linkengine.domain.mirrorjobs import MirrorSynced
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW

LATER = NOW + timedelta(hours=1)


def spans(origins: list[Origin]) -> list[tuple[int, int, int, str]]:
    return [(one.partition, one.start, one.end, one.cluster_id) for one in origins]


@pytest.fixture
def opened(mirror: MirrorTopic) -> MirrorTopic:
    """A mirror of two partitions; the first begins at 4."""
    mirror.mirror_topic_id, mirror.source_topic_id = "id-here", "id-there"
    mirror.save()
    open_lineage(mirror=mirror, starts={0: 4}, now=NOW)
    return mirror


def test_an_open_range_reaches_as_far_as_its_mirror(opened: MirrorTopic) -> None:
    origins = lineage_of(opened)

    assert spans(origins) == [(n, 4 if n == 0 else 0, 10, "source-id") for n in range(opened.num_partitions)]
    assert (origins[0].topic, origins[0].topic_id, origins[0].link_name) == ("orders", "id-there", "west-to-east")
    assert (origins[0].since, origins[0].until) == (NOW, None)


def test_opening_twice_and_closing_twice_changes_nothing(opened: MirrorTopic) -> None:
    open_lineage(mirror=opened, starts={0: 9}, now=LATER)
    for _ in range(2):
        close_lineage(mirror=opened, ends={0: 8, 1: 0}, now=LATER)
    MirrorPartition.objects.filter(mirror=opened).update(mirror_end=500)

    assert spans(lineage_of(opened))[0] == (0, 4, 8, "source-id")
    assert 1 not in {one.partition for one in lineage_of(opened)}  # nothing came over the link
    assert lineage_of(opened)[0].until == LATER


def test_partitions_that_come_later_begin_at_their_first_offset(opened: MirrorTopic) -> None:
    opened.num_partitions += 1
    opened.save()

    open_lineage(mirror=opened, starts={}, now=LATER)

    newest = LineageRange.objects.order_by("pk").last()
    assert newest is not None
    assert (newest.partition, newest.start, newest.opened_at) == (opened.num_partitions - 1, 0, LATER)


def test_a_mirror_that_grew_has_the_lineage_of_its_new_partitions(opened: MirrorTopic) -> None:
    grown = MirrorSynced(partitions=4, source_partitions=4, source_configs={})

    note_synced(opened, grown, now=LATER)

    newest = LineageRange.objects.filter(opened_at=LATER).values_list("partition", "start", "topic_id", "origin_topic_id")
    assert list(newest.order_by("partition")) == [(2, 0, "id-here", "id-there"), (3, 0, "id-here", "id-there")]


def test_growth_that_is_noted_behind_the_stop_opens_nothing(opened: MirrorTopic) -> None:
    close_lineage(mirror=opened, now=LATER)
    MirrorTopic.objects.update(state=MirrorState.STOPPED)

    note_synced(opened, MirrorSynced(partitions=3, source_partitions=3, source_configs={}), now=LATER)

    assert not LineageRange.objects.filter(closed_at=None).exists()


def test_lineage_outlives_its_mirror(opened: MirrorTopic) -> None:
    close_lineage(mirror=opened, now=LATER)
    opened.delete()

    assert {row.mirror_id for row in LineageRange.objects.all()} == {None}
    assert LineageRange.objects.filter(topic="orders", end=10).exists()


def test_a_chain_is_followed_to_its_beginning(opened: MirrorTopic, destination: Cluster, source: Cluster) -> None:
    third = Cluster.objects.create(
        environment=destination.environment, name="Third", cluster_id="third-id", bootstrap_servers="x:1", created_at=NOW
    )
    onward = ClusterLink.objects.create(
        name="onward", destination=third, source=destination, source_cluster_id="destination-id", state_since=NOW,
        created_at=NOW, created_by="owner", properties={},
    )  # fmt: skip
    last = MirrorTopic.objects.create(
        link=onward, name="orders", source_topic="orders", source_topic_id="id-here", mirror_topic_id="id-third",
        num_partitions=1, state="ACTIVE", state_since=NOW, created_at=NOW, created_by="owner",
    )  # fmt: skip
    MirrorPartition.objects.create(mirror=last, partition=0, mirror_start=0, mirror_end=7)

    open_lineage(mirror=last, starts={}, now=LATER)

    (origin,) = lineage_of(last)
    assert spans([origin]) == [(0, 0, 7, "destination-id")]
    assert spans(list(origin.upstream)) == [(0, 4, 7, "source-id")]


def test_a_ring_of_reversed_links_ends(opened: MirrorTopic) -> None:
    LineageRange.objects.create(
        cluster_id="source-id", topic="orders", topic_id="id-there", partition=0, start=0, end=100, opened_at=NOW,
        origin_cluster_id="destination-id", origin_topic="orders", origin_topic_id="id-here", link_name="back",
        link_uuid=opened.link.link_uuid,
    )  # fmt: skip

    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert lineage_of(opened)[0].upstream

    assert len(queries) <= 5
