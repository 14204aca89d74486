"""Lineage ranges are opened where a mirror begins, closed where it ends, kept after deletions, and followed through chains."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.access import cluster_names
from console.actors import SYSTEM
from console.mirrors.lineage import Origin, close_lineage, lineage_of, open_lineage
from console.mirrors.presenters import origin_rows
from console.models import Cluster, ClusterLink, LineageRange, MirrorPartition, MirrorTopic
from console.workflows.mirrors import note_synced
from linkengine.domain.mirrorjobs import MirrorSynced
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeActor

LATER = NOW + timedelta(hours=1)


def spans(origins: list[Origin]) -> list[tuple[int, int, int, str]]:
    return [(origin.partition, origin.start, origin.end, origin.cluster_id) for origin in origins]


@pytest.fixture
def opened(mirror: MirrorTopic) -> MirrorTopic:
    """Return a mirror of two partitions with open ranges; the first begins at 4."""
    mirror.mirror_topic_id, mirror.source_topic_id = "id-here", "id-there"
    mirror.save()
    open_lineage(mirror=mirror, starts={0: 4}, now=NOW)
    return mirror


def test_open_range_ends_where_its_mirror_ends(opened: MirrorTopic) -> None:
    origins = lineage_of(opened, by=SYSTEM)

    assert spans(origins) == [(n, 4 if n == 0 else 0, 10, "source-id") for n in range(opened.num_partitions)]
    assert (origins[0].topic, origins[0].topic_id, origins[0].link_name) == ("orders", "id-there", "west-to-east")
    assert (origins[0].since, origins[0].until) == (NOW, None)


def test_opening_and_closing_are_idempotent(opened: MirrorTopic) -> None:
    open_lineage(mirror=opened, starts={0: 9}, now=LATER)
    for _ in range(2):
        close_lineage(mirror=opened, ends={0: 8, 1: 0}, now=LATER)
    MirrorPartition.objects.filter(mirror=opened).update(mirror_end=500)

    assert spans(lineage_of(opened, by=SYSTEM))[0] == (0, 4, 8, "source-id")
    assert 1 not in {origin.partition for origin in lineage_of(opened, by=SYSTEM)}  # no record was copied over the link
    assert lineage_of(opened, by=SYSTEM)[0].until == LATER


def test_added_partitions_begin_at_offset_0(opened: MirrorTopic) -> None:
    opened.num_partitions += 1
    opened.save()

    open_lineage(mirror=opened, starts={}, now=LATER)

    newest = LineageRange.objects.order_by("pk").last()
    assert newest is not None
    assert (newest.partition, newest.start, newest.opened_at) == (opened.num_partitions - 1, 0, LATER)


def test_sync_opens_the_lineage_of_added_partitions(opened: MirrorTopic) -> None:
    grown = MirrorSynced(partitions=4, source_partitions=4, source_configs={})

    note_synced(opened, grown, now=LATER)

    newest = LineageRange.objects.filter(opened_at=LATER).values_list("partition", "start", "topic_id", "origin_topic_id")
    assert list(newest.order_by("partition")) == [(2, 0, "id-here", "id-there"), (3, 0, "id-here", "id-there")]


def test_sync_result_after_the_stop_opens_no_range(opened: MirrorTopic) -> None:
    close_lineage(mirror=opened, now=LATER)
    MirrorTopic.objects.update(state=MirrorState.STOPPED)

    note_synced(opened, MirrorSynced(partitions=3, source_partitions=3, source_configs={}), now=LATER)

    assert not LineageRange.objects.filter(closed_at=None).exists()


def test_lineage_is_kept_after_its_mirror_is_deleted(opened: MirrorTopic) -> None:
    close_lineage(mirror=opened, now=LATER)
    opened.delete()

    assert {row.mirror_id for row in LineageRange.objects.all()} == {None}
    assert LineageRange.objects.filter(topic="orders", end=10).exists()


def _onward(destination: Cluster) -> MirrorTopic:
    """Create a mirror of the mirror topic on a third cluster."""
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
    return last


def test_chain_of_links_is_followed_to_the_first_source(opened: MirrorTopic, destination: Cluster, source: Cluster) -> None:
    last = _onward(destination)

    open_lineage(mirror=last, starts={}, now=LATER)

    (origin,) = lineage_of(last, by=SYSTEM)
    assert spans([origin]) == [(0, 0, 7, "destination-id")]
    assert spans(list(origin.upstream)) == [(0, 4, 7, "source-id")]


@pytest.mark.parametrize(
    ("place", "seen"),
    [
        ({}, False),
        ({"resource_type": "Topic", "resource_name": "orders"}, True),
        ({"resource_type": "Topic", "resource_name": "others"}, False),
        ({"resource_type": "ClusterLink", "resource_name": "west-to-east"}, True),
        ({"resource_type": "ClusterLink", "resource_name": "onward"}, False),
    ],
)
def test_chain_ends_at_an_origin_that_the_reader_may_not_see(
    opened: MirrorTopic, destination: Cluster, make_actor: MakeActor, place: dict[str, str], seen: bool
) -> None:
    """The reader sees the last cluster; of the middle cluster nothing, or the resource of the binding."""
    last = _onward(destination)
    open_lineage(mirror=last, starts={}, now=LATER)
    reader = make_actor("reader", "DeveloperRead", cluster=last.link.destination)
    if place:
        reader = make_actor("reader", "DeveloperRead", cluster=destination, **place)

    (origin,) = lineage_of(last, by=reader)

    assert (origin.cluster_id, origin.topic, origin.hidden) == ("destination-id", "orders", False)  # its own link
    (behind,) = origin.upstream
    named = ("source-id", "orders", "west-to-east")
    assert (behind.cluster_id, behind.topic, behind.link_name) == (named if seen else ("", "", ""))
    assert (behind.start, behind.end, behind.hidden) == (4, 7, not seen)
    (row,) = origin_rows([origin], names=cluster_names(reader), now=LATER)
    assert ("Source" in str(row)) is False
    assert row.behind == (
        ["orders on source-id, over link west-to-east"] if seen else ["a topic that you do not have permission to see"]
    )


def test_earlier_link_of_the_topic_is_hidden_from_a_reader_of_another_link(opened: MirrorTopic, make_actor: MakeActor) -> None:
    LineageRange.objects.filter(mirror=opened).update(link_uuid=uuid4(), link_name="former")
    place = {"cluster": opened.link.destination, "resource_type": "ClusterLink", "resource_name": opened.link.name}
    reader = make_actor("reader", "DeveloperRead", **place)

    assert {(origin.hidden, origin.link_name, origin.topic) for origin in lineage_of(opened, by=reader)} == {(True, "", "")}
    (row,) = origin_rows(lineage_of(opened, by=reader), names=cluster_names(reader), now=LATER)
    assert (row.hidden, "former" in str(row)) == (True, False)


def test_lineage_of_a_ring_of_reversed_links_is_finite(opened: MirrorTopic) -> None:
    LineageRange.objects.create(
        cluster_id="source-id", topic="orders", topic_id="id-there", partition=0, start=0, end=100, opened_at=NOW,
        origin_cluster_id="destination-id", origin_topic="orders", origin_topic_id="id-here", link_name="back",
        link_uuid=opened.link.link_uuid,
    )  # fmt: skip

    with CaptureQueriesContext(connection) as queries:
        assert lineage_of(opened, by=SYSTEM)[0].upstream

    assert len(queries) <= 5
