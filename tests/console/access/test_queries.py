"""Visibility of audit events by role."""

from __future__ import annotations

from typing import Any

import pytest

from console import audit
from console.access.actions import grant_role
from console.access.queries import readable_events
from console.actors import SYSTEM, Actor
from console.errors import DeniedError
from console.models import AuditEvent, Cluster, ClusterLink, Environment
from tests.console.conftest import NOW, MakeActor


@pytest.fixture(autouse=True)
def events(link: ClusterLink) -> None:
    for resource in ("cluster/destination-id/link/west-to-east", "cluster/source-id", "organization/Acme"):
        audit.record(by=SYSTEM, action="Change", resource=resource, now=NOW)


def seen(by: Actor) -> list[str]:
    return [event.resource for event in readable_events(by=by)]


def test_cluster_admin_sees_events_of_its_cluster(make_actor: MakeActor, source: Cluster) -> None:
    admin = make_actor("admin", "CloudClusterAdmin", cluster=source)
    audit.record(by=admin, action="Mine", resource="api-key/X", now=NOW)

    assert sorted(seen(admin)) == ["api-key/X", "cluster/source-id"]


def test_environment_admin_sees_events_of_all_its_clusters(owner: Actor) -> None:
    assert len(seen(owner)) == 2


def test_grants_are_visible_to_admins_of_their_scope(
    make_actor: MakeActor, owner: Actor, environment: Environment, destination: Cluster, source: Cluster, stranger: Actor
) -> None:
    AuditEvent.objects.all().delete()
    other = Environment.objects.create(
        organization=environment.organization, name="Other", slug=f"{environment.slug}-2", created_at=NOW
    )
    places: list[dict[str, Any]] = [{"environment": environment}, {"environment": other}, {"cluster": destination}]
    places.append({"cluster": source, "resource_type": "Topic", "resource_name": "orders"})
    for place in places:
        assert stranger.user is not None
        grant_role(user=stranger.user, role="DeveloperRead", by=SYSTEM, now=NOW, **place)
    of_environment, of_other = (audit.path_of(place) for place in (environment, other))
    below = [audit.path_of(destination), f"{audit.path_of(source)}/topic/orders"]

    cluster_admin = make_actor("here", "CloudClusterAdmin", cluster=destination)
    above = make_actor("above", "OrganizationAdmin", organization=environment.organization)

    assert sorted(seen(cluster_admin)) == [audit.path_of(destination)]
    assert sorted(seen(owner)) == sorted([of_environment, *below])
    assert sorted(seen(above)) == sorted([of_environment, of_other, *below])


def test_long_resource_name_is_truncated() -> None:
    row = audit.record(by=SYSTEM, action="CreateTopic", resource=f"cluster/x/topic/{'a' * 1000}", now=NOW)

    row.clean_fields(exclude=["detail"])
    assert (len(row.resource), row.resource[-2:]) == (AuditEvent._meta.get_field("resource").max_length, "a…")


def test_reader_is_denied_and_the_denial_is_recorded(colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        readable_events(by=colleague)
    assert seen(SYSTEM)[0] == "this installation"


def test_events_below_a_resource_are_selected() -> None:
    found = readable_events(by=SYSTEM).below("cluster/destination-id")

    assert [event.resource for event in found] == ["cluster/destination-id/link/west-to-east"]
