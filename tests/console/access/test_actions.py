"""Granting and revoking roles, creating and deleting API keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.access import actions as access_actions
from console.access.actions import create_api_key, delete_api_key, grant_role, revoke_role
from console.access.permissions import may_grant
from console.access.queries import list_api_keys, list_bindings, my_bindings, valid_key
from console.actors import SYSTEM, Actor
from console.errors import DeniedError, InvalidInputError
from console.models import ApiKey, AuditEvent, Cluster, ClusterLink, Environment, RoleBinding
from tests.console.conftest import NOW, MakeActor


def grant(to: Actor, by: Actor, role: str = "DeveloperRead", **place: Any) -> RoleBinding:
    assert to.user is not None
    return grant_role(user=to.user, role=role, by=by, now=NOW, **place)


def test_a_role_is_granted_once_and_audited(stranger: Actor, owner: Actor, environment: Environment) -> None:
    binding = grant(stranger, owner, environment=environment)

    assert grant(stranger, owner, environment=environment) == binding
    event = AuditEvent.objects.get()
    assert (event.action, event.resource) == ("GrantRole", f"environment/{environment.slug}")
    assert event.detail == {"user": "stranger", "role": "DeveloperRead", "prefixed": False}


@pytest.mark.parametrize("moment", ["_check_binding", "_check_holds_role"])
def test_concurrent_grants_of_the_same_role_store_one_binding(
    moment: str, stranger: Actor, owner: Actor, destination: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = getattr(access_actions, moment)
    place: dict[str, Any] = {"cluster": destination, "resource_type": "Topic", "resource_name": "orders"}

    def grant_first(*args: Any, **kwargs: Any) -> None:
        RoleBinding.objects.create(user=stranger.user, role="DeveloperRead", granted_at=NOW, granted_by="quick", **place)
        check(*args, **kwargs)

    monkeypatch.setattr(access_actions, moment, grant_first)

    assert grant(stranger, owner, **place).granted_by == "quick"
    assert RoleBinding.objects.filter(user=stranger.user).count() == 1
    assert not AuditEvent.objects.exists()


def test_revoking_a_role_is_audited(stranger: Actor, owner: Actor, destination: Cluster) -> None:
    binding = grant(stranger, owner, cluster=destination, resource_type="Topic", resource_name="orders")

    revoke_role(binding=binding, by=owner, now=NOW)

    assert my_bindings(by=stranger) == []
    assert AuditEvent.objects.first().resource == f"cluster/{destination.cluster_id}/topic/orders"  # type: ignore[union-attr]


@pytest.mark.parametrize("place", [{}, {"resource_type": "Topic"}, {"resource_name": "x"}])
def test_a_binding_with_an_incomplete_place_is_refused(place: dict[str, str], stranger: Actor, destination: Cluster) -> None:
    cluster: dict[str, Any] = {"cluster": destination} if place else {}
    with pytest.raises(InvalidInputError):
        grant(stranger, SYSTEM, **cluster, **place)


def test_an_unknown_role_is_refused(stranger: Actor, destination: Cluster) -> None:
    with pytest.raises(InvalidInputError) as caught:
        grant(stranger, SYSTEM, "Emperor", cluster=destination)
    assert caught.value.field == "role"


def test_the_owner_of_one_topic_cannot_grant_roles_on_more_topics(
    make_actor: MakeActor, stranger: Actor, link: ClusterLink
) -> None:
    place: dict[str, Any] = {"cluster": link.destination, "resource_type": "Topic", "resource_name": "orders"}
    topic_owner = make_actor("topic-owner", "ResourceOwner", **place)

    grant(stranger, topic_owner, **place)
    for more in ({"prefixed": True}, {"resource_name": "ord"}, {"resource_type": "", "resource_name": ""}):
        with pytest.raises(DeniedError):
            grant(stranger, topic_owner, **{**place, **more})


@pytest.mark.parametrize(
    ("own", "lower", "higher"),
    [("ResourceOwner", "DeveloperManage", "CloudClusterAdmin"), ("ResourceOwner", "ResourceOwner", "EnvironmentAdmin")],
)
def test_roles_above_the_own_role_can_be_neither_granted_nor_revoked(
    own: str, lower: str, higher: str, make_actor: MakeActor, stranger: Actor, destination: Cluster
) -> None:
    admin = make_actor("admin", own, cluster=destination)
    revoke_role(binding=grant(stranger, admin, lower, cluster=destination), by=admin, now=NOW)

    with pytest.raises(DeniedError, match="which you do not have"):
        grant(admin, admin, higher, cluster=destination)
    granted = grant(stranger, SYSTEM, higher, cluster=destination)
    with pytest.raises(DeniedError):
        revoke_role(binding=granted, by=admin, now=NOW)
    assert not may_grant(admin, granted)
    assert [binding.role for binding in my_bindings(by=stranger)] == [higher]


def test_an_environment_admin_cannot_grant_organization_admin(owner: Actor, environment: Environment) -> None:
    with pytest.raises(DeniedError, match="manage the organization"):
        grant(owner, owner, "OrganizationAdmin", environment=environment)
    grant(owner, owner, "EnvironmentAdmin", environment=environment)


def test_bindings_are_listed_for_users_who_manage_them(owner: Actor, colleague: Actor, stranger: Actor) -> None:
    assert {str(binding.user) for binding in list_bindings(by=owner)} == {"owner", "colleague"}
    assert {str(binding.user) for binding in list_bindings(by=colleague)} == {"colleague"}
    assert list_bindings(by=stranger) == []


def test_an_api_key_is_accepted_until_it_expires_or_is_deleted(owner: Actor) -> None:
    assert owner.user is not None
    key, secret = create_api_key(user=owner.user, description="ci", expires_at=NOW + timedelta(days=1), by=owner, now=NOW)
    assert secret not in key.secret_hash
    assert secret not in str(AuditEvent.objects.get().detail)

    def accepted(given: str, *, after: timedelta = timedelta(0)) -> bool:
        found = valid_key(key=key.key, secret=given, now=NOW + after)
        return found is not None and found.user == owner.user

    assert accepted(secret)
    assert ApiKey.objects.get().last_used_at == NOW
    assert not accepted("wrong")
    assert not accepted(secret, after=timedelta(days=1))
    delete_api_key(api_key=key, by=owner, now=NOW)
    assert not accepted(secret)


def test_the_api_key_of_a_deactivated_user_is_rejected(owner: Actor) -> None:
    assert owner.user is not None
    key, secret = create_api_key(user=owner.user, description="", by=owner, now=NOW)
    owner.user.is_active = False
    owner.user.save()

    assert valid_key(key=key.key, secret=secret, now=NOW) is None


def test_users_see_create_and_delete_only_their_own_api_keys(owner: Actor, stranger: Actor) -> None:
    assert owner.user is not None
    key, _ = create_api_key(user=owner.user, description="", by=owner, now=NOW)

    assert list_api_keys(by=stranger) == []
    assert list_api_keys(by=owner) == [key]
    with pytest.raises(DeniedError):
        delete_api_key(api_key=key, by=stranger, now=NOW)
    with pytest.raises(DeniedError):
        create_api_key(user=owner.user, description="", by=stranger, now=NOW)
    assert AuditEvent.objects.filter(result="DENIED").count() == 2
