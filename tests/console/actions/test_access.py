"""Granting and revoking roles, API keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.access.handing import may_hand_on
from console.actions import access
from console.actions.access import create_api_key, delete_api_key, grant_role, revoke_role
from console.actors import SYSTEM, Actor
from console.errors import DeniedError, InvalidInputError
from console.models import ApiKey, AuditEvent, Cluster, ClusterLink, Environment, RoleBinding
from console.queries.access import list_api_keys, list_bindings, my_bindings, user_of_key
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


@pytest.mark.parametrize("moment", ["_check_binding", "_check_not_beyond"])
def test_of_two_grants_at_the_same_moment_one_is_stored(
    moment: str, stranger: Actor, owner: Actor, destination: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = getattr(access, moment)
    place: dict[str, Any] = {"cluster": destination, "resource_type": "Topic", "resource_name": "orders"}

    def somebody_is_quicker(*args: Any, **kwargs: Any) -> None:
        RoleBinding.objects.create(user=stranger.user, role="DeveloperRead", granted_at=NOW, granted_by="quick", **place)
        check(*args, **kwargs)

    monkeypatch.setattr(access, moment, somebody_is_quicker)

    assert grant(stranger, owner, **place).granted_by == "quick"
    assert RoleBinding.objects.filter(user=stranger.user).count() == 1
    assert not AuditEvent.objects.exists()


def test_a_role_is_revoked_with_a_trace(stranger: Actor, owner: Actor, destination: Cluster) -> None:
    binding = grant(stranger, owner, cluster=destination, resource_type="Topic", resource_name="orders")

    revoke_role(binding=binding, by=owner, now=NOW)

    assert my_bindings(by=stranger) == []
    assert AuditEvent.objects.first().resource == f"cluster/{destination.cluster_id}/topic/orders"  # type: ignore[union-attr]


@pytest.mark.parametrize("place", [{}, {"resource_type": "Topic"}, {"resource_name": "x"}])
def test_a_role_needs_a_place_that_makes_sense(place: dict[str, str], stranger: Actor, destination: Cluster) -> None:
    cluster = {"cluster": destination} if place else {}
    with pytest.raises(InvalidInputError):
        grant(stranger, SYSTEM, **cluster, **place)


def test_an_unknown_role_is_refused(stranger: Actor, destination: Cluster) -> None:
    with pytest.raises(InvalidInputError) as caught:
        grant(stranger, SYSTEM, "Emperor", cluster=destination)
    assert caught.value.field == "role"


def test_the_owner_of_one_name_does_not_give_more_than_it(make_actor: MakeActor, stranger: Actor, link: ClusterLink) -> None:
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
def test_nobody_hands_on_or_takes_away_more_than_they_may_do_themselves(
    own: str, lower: str, higher: str, make_actor: MakeActor, stranger: Actor, destination: Cluster
) -> None:
    somebody = make_actor("somebody", own, cluster=destination)
    revoke_role(binding=grant(stranger, somebody, lower, cluster=destination), by=somebody, now=NOW)

    with pytest.raises(DeniedError, match="you may not do there yourself"):
        grant(somebody, somebody, higher, cluster=destination)
    given = grant(stranger, SYSTEM, higher, cluster=destination)
    with pytest.raises(DeniedError):
        revoke_role(binding=given, by=somebody, now=NOW)
    assert not may_hand_on(somebody, given)
    assert [one.role for one in my_bindings(by=stranger)] == [higher]


def test_an_environments_admin_does_not_become_the_organizations(owner: Actor, environment: Environment) -> None:
    with pytest.raises(DeniedError, match="manage the organization"):
        grant(owner, owner, "OrganizationAdmin", environment=environment)
    grant(owner, owner, "EnvironmentAdmin", environment=environment)


def test_bindings_are_shown_to_who_manages_them(owner: Actor, colleague: Actor, stranger: Actor) -> None:
    assert {one.user.username for one in list_bindings(by=owner)} == {"owner", "colleague"}
    assert {one.user.username for one in list_bindings(by=colleague)} == {"colleague"}
    assert list_bindings(by=stranger) == []


def test_a_key_opens_the_door_until_it_expires_or_goes(owner: Actor) -> None:
    assert owner.user is not None
    key, secret = create_api_key(user=owner.user, description="ci", expires_at=NOW + timedelta(days=1), by=owner, now=NOW)
    assert secret not in key.secret_hash
    assert secret not in str(AuditEvent.objects.get().detail)

    def opens(given: str, *, after: timedelta = timedelta(0)) -> bool:
        return user_of_key(key=key.key, secret=given, now=NOW + after) == owner.user

    assert opens(secret)
    assert ApiKey.objects.get().last_used_at == NOW
    assert not opens("wrong")
    assert not opens(secret, after=timedelta(days=1))
    delete_api_key(api_key=key, by=owner, now=NOW)
    assert not opens(secret)


def test_a_key_of_somebody_deactivated_opens_nothing(owner: Actor) -> None:
    assert owner.user is not None
    key, secret = create_api_key(user=owner.user, description="", by=owner, now=NOW)
    owner.user.is_active = False
    owner.user.save()

    assert user_of_key(key=key.key, secret=secret, now=NOW) is None


def test_keys_are_ones_own(owner: Actor, stranger: Actor) -> None:
    assert owner.user is not None
    key, _ = create_api_key(user=owner.user, description="", by=owner, now=NOW)

    assert list_api_keys(by=stranger) == []
    assert list_api_keys(by=owner) == [key]
    with pytest.raises(DeniedError):
        delete_api_key(api_key=key, by=stranger, now=NOW)
    with pytest.raises(DeniedError):
        create_api_key(user=owner.user, description="", by=stranger, now=NOW)
    assert AuditEvent.objects.filter(result="DENIED").count() == 2
