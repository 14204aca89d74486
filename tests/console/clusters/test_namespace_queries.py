"""How well a namespace follows: all that its source has counts, not only what is mirrored."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from console.clusters.queries import list_namespaces, summary_of
from console.models import ClusterLink, MirrorPartition, Namespace, SourceTopic
from linkengine.domain.names import ReplicationState
from tests.console.conftest import NOW, MakeMirror

R = ReplicationState


@pytest.fixture
def namespace(link: ClusterLink, make_mirror: MakeMirror) -> Namespace:
    """Follows with one mirror that has everything; the source has this topic only."""
    make_mirror("orders.new")
    now = timezone.now()
    MirrorPartition.objects.update(observed_at=now, last_source_seen_at=now, caught_up_at=now)
    ClusterLink.objects.filter(pk=link.pk).update(topics_at=now)
    listed(link, "orders.new")
    about = {"prefix": "orders.", "leader_prefix": "orders.", "reserved": True, "created_at": NOW, "created_by": "owner"}
    return Namespace.objects.create(cluster=link.destination, link=ClusterLink.objects.get(pk=link.pk), **about)


def listed(link: ClusterLink, *names: str, internal: bool = False) -> None:
    for name in names:
        SourceTopic.objects.create(link=link, name=name, partitions=1, internal=internal, seen_at=NOW)


def test_a_topic_without_a_mirror_keeps_a_namespace_from_being_in_sync(namespace: Namespace, link: ClusterLink) -> None:
    listed(link, "other")  # of no concern
    listed(link, "orders.internal", internal=True)
    assert (summary_of(namespace).state, summary_of(namespace).unmirrored) == (R.IN_SYNC, [])

    listed(link, "orders.old")
    (found,) = list_namespaces(cluster=link.destination)
    assert (found.state, found.unmirrored, found.mirrors) == (R.CATCHING_UP, ["orders.old"], 1)


@pytest.mark.parametrize("listed_ago", [None, timedelta(minutes=6)])
def test_unmirrored_topics_are_unknown_without_a_recent_list_of_source_topics(
    namespace: Namespace, listed_ago: timedelta | None
) -> None:
    assert namespace.link is not None
    namespace.link.topics_at = None if listed_ago is None else timezone.now() - listed_ago
    assert (summary_of(namespace).state, summary_of(namespace).unmirrored) == (R.CATCHING_UP, None)


def test_a_lag_seen_long_ago_is_not_in_sync(namespace: Namespace) -> None:
    MirrorPartition.objects.update(last_source_seen_at=timezone.now() - timedelta(minutes=1))
    assert summary_of(namespace).state is R.CATCHING_UP


@pytest.mark.parametrize(("waited", "state"), [(timedelta(seconds=1), R.FOLLOWING), (timedelta(minutes=5), R.CATCHING_UP)])
def test_mirror_that_waits_behind_an_open_transaction_is_not_in_sync(namespace: Namespace, waited: timedelta, state: R) -> None:
    MirrorPartition.objects.filter(partition=0).update(last_high_watermark=11, caught_up_at=timezone.now() - waited)
    assert summary_of(namespace).state is state
