"""Roles apply to the place where they are granted and below; a refusal names the role needed and is audited."""

from __future__ import annotations

import pytest

from console.access import ROLE_PERMISSIONS, Permission, can, check_permission, role_needed
from console.actors import ENGINE, Actor
from console.errors import DeniedError
from console.models import AuditEvent, Cluster, ClusterLink, Environment, MirrorTopic, Organization, RoleBinding
from tests.console.conftest import MakeActor

Role = RoleBinding.Role
P = Permission


@pytest.mark.parametrize("role", list(Role))
def test_a_role_on_a_cluster_has_exactly_the_permissions_of_the_table(
    role: Role, make_actor: MakeActor, destination: Cluster
) -> None:
    actor = make_actor("user", role, cluster=destination)

    assert {permission for permission in P if can(actor, permission, cluster=destination)} == set(ROLE_PERMISSIONS[role])


def test_a_role_applies_to_lower_levels_only(
    make_actor: MakeActor, organization: Organization, environment: Environment, link: ClusterLink, source: Cluster
) -> None:
    top = make_actor("top", Role.ORGANIZATION_ADMIN, organization=organization)
    middle = make_actor("middle", Role.ENVIRONMENT_ADMIN, environment=environment)
    bottom = make_actor("bottom", Role.CLOUD_CLUSTER_ADMIN, cluster=link.destination)

    assert can(top, P.MANAGE_LINK, link=link)
    assert can(middle, P.MANAGE_LINK, link=link)
    assert not can(middle, P.MANAGE_ORGANIZATION, organization=organization)
    assert can(bottom, P.MANAGE_LINK, link=link)
    assert not can(bottom, P.VIEW, cluster=source)
    assert not can(bottom, P.VIEW, environment=environment)


def test_a_role_on_a_resource_applies_to_that_resource_only(
    make_actor: MakeActor, mirror: MirrorTopic, link: ClusterLink
) -> None:
    place = {"cluster": link.destination, "resource_type": "Topic"}
    exact = make_actor("exact", Role.DEVELOPER_MANAGE, resource_name="orders", **place)
    prefix = make_actor("prefix", Role.DEVELOPER_MANAGE, resource_name="ord", prefixed=True, **place)
    other = make_actor("other", Role.DEVELOPER_MANAGE, resource_name="ord", **place)

    assert can(exact, P.OPERATE_MIRROR, mirror=mirror)
    assert can(prefix, P.OPERATE_MIRROR, mirror=mirror)
    assert not can(other, P.OPERATE_MIRROR, mirror=mirror)
    assert not can(exact, P.MANAGE_LINK, link=link)


def test_the_owner_of_a_link_may_operate_its_mirrors(make_actor: MakeActor, mirror: MirrorTopic) -> None:
    link = mirror.link
    place = {"cluster": link.destination, "resource_type": "ClusterLink", "resource_name": link.name}
    actor = make_actor("link-owner", Role.RESOURCE_OWNER, **place)

    assert can(actor, P.MANAGE_LINK, link=link)
    assert can(actor, P.OPERATE_MIRROR, mirror=mirror)
    assert not can(actor, P.MANAGE_LINK, cluster=link.destination)


def test_a_refusal_names_the_role_needed_and_is_audited(stranger: Actor, link: ClusterLink) -> None:
    with pytest.raises(DeniedError, match="DeveloperRead"):
        check_permission(stranger, P.VIEW, link=link)

    event = AuditEvent.objects.get()
    assert (event.actor, event.result, event.action) == ("stranger", "DENIED", "VIEW")
    assert event.resource == "cluster/destination-id/link/west-to-east"
    assert (event.request_id, event.client_address) == ("request-1", "192.0.2.1")


def test_superusers_and_the_engine_may_do_everything(make_actor: MakeActor, link: ClusterLink) -> None:
    root = make_actor("root")
    assert root.user is not None
    root.user.is_superuser = True

    assert can(root, P.MANAGE_ORGANIZATION)
    check_permission(ENGINE, P.MANAGE_LINK, link=link)
    assert not AuditEvent.objects.exists()


def test_a_deactivated_user_has_no_permissions(owner: Actor, link: ClusterLink) -> None:
    assert owner.user is not None
    owner.user.is_active = False

    assert not can(owner, P.VIEW, link=link)


def test_the_least_powerful_role_with_the_permission_is_named() -> None:
    assert role_needed(P.VIEW) == Role.DEVELOPER_READ
    assert role_needed(P.OPERATE_MIRROR) == Role.OPERATOR
    assert role_needed(P.VIEW_AUDIT) == Role.AUDITOR
    assert role_needed(P.MANAGE_USERS) == Role.ORGANIZATION_ADMIN
    assert role_needed(P.MANAGE_LINK) == Role.RESOURCE_OWNER
    assert role_needed(P.MANAGE_ORGANIZATION) == Role.ORGANIZATION_ADMIN
