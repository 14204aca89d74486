"""Querysets of visible rows contain exactly what an actor may see."""

from __future__ import annotations

from console.access import visible_clusters, visible_environments, visible_links, visible_mirrors
from console.actors import ENGINE, Actor
from console.models import Cluster, ClusterLink, Environment, Organization, RoleBinding
from tests.console.conftest import MakeActor, MakeMirror

Role = RoleBinding.Role


def names(rows: object) -> list[str]:
    return sorted(str(row) for row in rows)  # type: ignore[attr-defined]


def test_a_stranger_sees_nothing(stranger: Actor, link: ClusterLink, make_mirror: MakeMirror) -> None:
    make_mirror()

    for visible in (visible_environments, visible_clusters, visible_links, visible_mirrors):
        assert not visible(stranger).exists()
        assert visible(ENGINE).exists()


def test_an_environment_admin_sees_all_of_the_environment(owner: Actor, link: ClusterLink, make_mirror: MakeMirror) -> None:
    make_mirror()

    assert names(visible_environments(owner)) == ["Production"]
    assert names(visible_clusters(owner)) == ["Destination", "Source"]
    assert names(visible_links(owner)) == ["west-to-east"]
    assert names(visible_mirrors(owner)) == ["orders"]


def test_an_organization_admin_sees_its_organization_only(
    make_actor: MakeActor, organization: Organization, link: ClusterLink
) -> None:
    other = Organization.objects.create(name="Other", created_at=link.created_at)
    Environment.objects.create(organization=other, name="Elsewhere", slug="elsewhere", created_at=link.created_at)
    admin = make_actor("admin", Role.ORGANIZATION_ADMIN, organization=organization)

    assert names(visible_environments(admin)) == ["Production"]
    assert names(visible_links(admin)) == ["west-to-east"]


def test_a_reader_of_the_destination_does_not_see_the_source(colleague: Actor, link: ClusterLink) -> None:
    assert names(visible_clusters(colleague)) == ["Destination"]
    assert names(visible_environments(colleague)) == ["Production"]
    assert names(visible_links(colleague)) == ["west-to-east"]


def test_the_reader_of_a_topic_sees_it_and_its_link(
    make_actor: MakeActor, destination: Cluster, make_mirror: MakeMirror
) -> None:
    make_mirror("orders")
    make_mirror("salaries")
    reader = make_actor("reader", Role.DEVELOPER_READ, cluster=destination, resource_type="Topic", resource_name="orders")
    prefix = make_actor(
        "prefix", Role.DEVELOPER_READ, cluster=destination, resource_type="Topic", resource_name="sal", prefixed=True
    )
    blind = make_actor("blind", Role.DEVELOPER_READ, cluster=destination, resource_type="Topic", resource_name="none")

    assert names(visible_mirrors(reader)) == ["orders"]
    assert names(visible_mirrors(prefix)) == ["salaries"]
    assert names(visible_links(reader)) == ["west-to-east"]
    assert not visible_links(blind).exists()


def test_a_prefix_is_case_sensitive(
    make_actor: MakeActor, destination: Cluster, link: ClusterLink, make_mirror: MakeMirror
) -> None:
    """As in ``can``: a list must not contain rows that the actor may not open."""
    for name in ("pay.bills", "PAY.salaries", "pay_x", "pa"):
        make_mirror(name)
    place = {"cluster": destination, "prefixed": True}
    payer = make_actor("payer", Role.DEVELOPER_READ, resource_type="Topic", resource_name="pay.", **place)
    shouter = make_actor("shouter", Role.DEVELOPER_READ, resource_type="ClusterLink", resource_name="WEST", **place)
    westerner = make_actor("westerner", Role.DEVELOPER_READ, resource_type="ClusterLink", resource_name="west", **place)

    assert names(visible_mirrors(payer)) == ["pay.bills"]
    assert not visible_links(shouter).exists()
    assert not visible_mirrors(shouter).exists()
    assert names(visible_links(westerner)) == [link.name]


def test_an_empty_prefix_matches_every_name(make_actor: MakeActor, destination: Cluster, make_mirror: MakeMirror) -> None:
    make_mirror("orders")
    reader = make_actor(
        "reader", Role.DEVELOPER_READ, cluster=destination, resource_type="Topic", resource_name="", prefixed=True
    )

    assert names(visible_mirrors(reader)) == ["orders"]
    assert names(visible_links(reader)) == ["west-to-east"]
