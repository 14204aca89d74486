"""Database constraints refuse invalid rows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from console.models import (
    Cluster,
    ClusterLink,
    CopyWorker,
    GapRange,
    MirrorPartition,
    MirrorTopic,
    RoleBinding,
    SourceTopic,
)
from tests.console.conftest import NOW, SOURCE_PROPERTIES, MakeMirror


def refused(model: Any, **values: Any) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        model.objects.create(**values)


def test_link_cannot_connect_a_cluster_with_itself(destination: Cluster) -> None:
    dated = {"state_since": NOW, "created_at": NOW}
    refused(ClusterLink, name="loop", destination=destination, source=destination, properties={}, **dated)


def test_a_link_name_is_used_once_per_destination(link: ClusterLink) -> None:
    dated = {"state_since": NOW, "created_at": NOW}
    refused(ClusterLink, name=link.name, destination=link.destination, properties={}, source_cluster_id="other", **dated)


def test_a_mirror_cannot_have_an_unknown_state(mirror: MirrorTopic) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        MirrorTopic.objects.filter(pk=mirror.pk).update(state="DREAMING")


def test_a_stopping_mirror_has_a_reason(mirror: MirrorTopic) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        MirrorTopic.objects.filter(pk=mirror.pk).update(state="PENDING_STOPPED", stop_reason="")


def test_a_partition_does_not_start_after_its_end(mirror: MirrorTopic) -> None:
    refused(MirrorPartition, mirror=mirror, partition=9, mirror_start=5, mirror_end=4)


def test_gap_is_not_empty_and_stored_once(mirror: MirrorTopic) -> None:
    gap = {"mirror": mirror, "partition": 0, "start": 3, "reason": "ABORTED", "noted_at": NOW}
    refused(GapRange, end=3, filled=0, **gap)
    refused(GapRange, end=4, filled=2, **gap)
    GapRange.objects.create(end=4, filled=1, **gap)
    refused(GapRange, end=5, filled=1, **gap)


def test_role_is_granted_at_exactly_one_level(mirror: MirrorTopic, owner: Any) -> None:
    cluster = mirror.link.destination
    binding = {"user": owner.user, "role": "DeveloperRead", "granted_at": NOW, "granted_by": "test"}
    refused(RoleBinding, **binding)
    refused(RoleBinding, cluster=cluster, environment=cluster.environment, **binding)
    refused(RoleBinding, environment=cluster.environment, resource_type="Topic", resource_name="orders", **binding)


def test_a_role_is_granted_once_at_each_place(mirror: MirrorTopic, stranger: Any) -> None:
    cluster = mirror.link.destination
    environment, topic = cluster.environment, {"cluster": cluster, "resource_type": "Topic", "resource_name": "orders"}
    places: list[dict[str, Any]] = [
        {"organization": environment.organization},
        {"environment": environment},
        {"cluster": cluster},
        topic,
    ]
    for place in [*places, {**topic, "prefixed": True}]:
        binding = {"user": stranger.user, "role": "DeveloperRead", "granted_at": NOW, "granted_by": "test", **place}
        RoleBinding.objects.create(**binding)
        refused(RoleBinding, **binding)


def test_source_topic_belongs_to_a_cluster_or_a_link(link: ClusterLink) -> None:
    refused(SourceTopic, name="orders", partitions=1, seen_at=NOW)
    refused(SourceTopic, name="orders", partitions=1, seen_at=NOW, link=link, cluster=link.destination)
    refused(SourceTopic, name="orders", partitions=0, seen_at=NOW, link=link)


def test_number_of_a_copy_worker_is_unique(db: None) -> None:
    CopyWorker.objects.create(number=0)

    refused(CopyWorker, number=0)


def test_credentials_are_not_readable_in_the_database(link: ClusterLink) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT properties FROM console_clusterlink")
        stored = cursor.fetchone()[0]

    assert "secret-of-the-link" not in stored
    assert "source.test" not in stored
    assert ClusterLink.objects.get(pk=link.pk).properties == SOURCE_PROPERTIES


def test_a_cluster_with_links_cannot_be_deleted(link: ClusterLink, make_mirror: MakeMirror) -> None:
    make_mirror()
    with pytest.raises(IntegrityError), transaction.atomic():
        link.destination.delete()
