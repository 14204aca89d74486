"""Migrations preserve the rows of earlier versions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import StateApps

from tests.console.conftest import NOW, SOURCE_PROPERTIES

BINDINGS = ([("console", "0024_topics_without_cleanup_policy")], [("console", "0025_one_binding_each")])
CREDENTIALS = ([("console", "0032_what_may_have_gone_unseen")], [("console", "0033_cred_uses_cluster_credentials")])
REPORTS = ([("console", "0050_bulk_operations")], [("console", "0062_failover_reports_and_drills")])


def migrated(*, to: list[tuple[str, str]]) -> StateApps:
    """Migrate the tables forwards or backwards and return their models."""
    MigrationExecutor(connection).migrate(to)
    return MigrationExecutor(connection).loader.project_state(to).apps


@pytest.fixture
def tables(transactional_db: None) -> Iterator[None]:
    """Restore the tables of the newest version after each test."""
    yield
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


@pytest.mark.usefixtures("tables")
def test_migrations_keep_the_oldest_of_duplicate_role_bindings_and_mark_links_that_use_registered_credentials() -> None:
    """Both in one pass: the tables go through dozens of migrations, back and forth."""
    before, after = BINDINGS
    apps = migrated(to=before)
    _create_duplicate_bindings(apps)

    apps = migrated(to=after)
    bindings = apps.get_model("console", "RoleBinding").objects
    assert sorted(bindings.values_list("granted_by", flat=True)) == ["first", "third"]

    before, after = CREDENTIALS
    apps = migrated(to=before)
    _create_links(apps)

    apps = migrated(to=after)
    marked = apps.get_model("console", "ClusterLink").objects.filter(uses_cluster_credentials=True)
    assert list(marked.values_list("name", flat=True)) == ["registered"]


def _create_duplicate_bindings(apps: StateApps) -> None:
    binding = apps.get_model("console", "RoleBinding")
    user = apps.get_model("auth", "User").objects.create(username="a-user")
    place = apps.get_model("console", "Organization").objects.create(name="Acme", created_at=NOW)
    for granted_by, role in (("first", "DeveloperRead"), ("second", "DeveloperRead"), ("third", "DeveloperManage")):
        binding.objects.create(user=user, role=role, organization=place, granted_at=NOW, granted_by=granted_by)


def _create_links(apps: StateApps) -> None:
    """Create links whose credentials earlier versions derived from the configs whenever copying started."""
    environment = apps.get_model("console", "Environment").objects.create(
        organization=apps.get_model("console", "Organization").objects.get(),
        name="Production",
        slug="production",
        created_at=NOW,
    )
    clusters = apps.get_model("console", "Cluster").objects
    source, destination = (
        clusters.create(
            environment=environment,
            name=name,
            cluster_id=name,
            bootstrap_servers="x",
            properties=SOURCE_PROPERTIES,
            created_at=NOW,
        )
        for name in ("source", "destination")
    )
    links = apps.get_model("console", "ClusterLink").objects
    common = {"destination": destination, "source_cluster_id": "source", "state_since": NOW, "created_at": NOW}
    links.create(name="registered", source=source, properties={}, **common)
    links.create(name="inbound", source=source, properties={}, connection_mode="INBOUND", **common)
    links.create(name="own", source=source, properties=SOURCE_PROPERTIES, **common)
    links.create(name="unregistered", source=None, properties=SOURCE_PROPERTIES, **common)


@pytest.mark.usefixtures("tables")
def test_reports_get_the_names_of_their_mirrors_and_the_offsets_that_they_clamped() -> None:
    before, after = REPORTS
    apps = migrated(to=before)
    organization = apps.get_model("console", "Organization").objects.create(name="Acme", created_at=NOW)
    environment = apps.get_model("console", "Environment").objects.create(
        organization=organization, name="Production", slug="production", created_at=NOW
    )
    cluster = apps.get_model("console", "Cluster").objects.create(
        environment=environment, name="here", cluster_id="here", bootstrap_servers="x", properties={}, created_at=NOW
    )
    link = apps.get_model("console", "ClusterLink").objects.create(
        name="west", destination=cluster, source_cluster_id="there", properties={}, state_since=NOW, created_at=NOW
    )
    mirror = apps.get_model("console", "MirrorTopic").objects.create(
        link=link, name="orders", source_topic="orders", state="STOPPED", state_since=NOW, created_at=NOW
    )
    report = apps.get_model("console", "StopReport").objects
    offset = apps.get_model("console", "ClampedOffset").objects
    for number, group in enumerate(("first", "second")):
        at = NOW + timedelta(minutes=number)
        stop = {"reason": "failover", "requested_by": "a", "requested_at": at, "rto_ms": 1}
        report.create(mirror=mirror, writable_at=at + timedelta(seconds=9), **stop)
        offset.create(mirror=mirror, stopping_since=at, at=at, group=group, group_key=group, partition=0)

    stored = migrated(to=after).get_model("console", "StopReport").objects

    names = ("mirror_name", "link_name", "source_cluster_id", "destination_cluster_id")
    assert set(stored.values_list(*names)) == {("orders", "west", "there", "here")}
    assert list(stored.order_by("writable_at").values_list("clamped__group", flat=True)) == ["first", "second"]
