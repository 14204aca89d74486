"""API keys: limits, owners, rotation, and the rights to issue them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from console.access import Permission, can, visible_clusters
from console.access.account_actions import create_service_account
from console.access.actions import KeyLimit, create_api_key, delete_api_key, grant_role, rotate_api_key
from console.access.permissions import check_anywhere
from console.access.queries import list_api_keys, valid_key
from console.actors import SYSTEM, Actor
from console.errors import ConflictError, DeniedError, InvalidInputError
from console.models import ApiKey, AuditEvent, Cluster, Environment, Organization, RoleBinding
from tests.console.conftest import NOW, MakeActor

DAY = timedelta(days=1)


@pytest.fixture
def admin(make_actor: MakeActor, organization: Organization) -> Actor:
    """Administers the organization."""
    return make_actor("admin", "OrganizationAdmin", organization=organization)


@pytest.fixture
def program(organization: Organization, admin: Actor) -> User:
    """A service account of the organization."""
    return create_service_account(name="pipeline", description="", organization=organization, by=admin, now=NOW)


def with_key(actor: Actor, **limit: Any) -> Actor:
    """Return the actor of a request with a key of this user."""
    assert actor.user is not None
    key, _ = create_api_key(user=actor.user, description="", limit=KeyLimit(**limit), by=SYSTEM, now=NOW)
    return Actor(name=actor.name, user=actor.user, key=key)


class TestLimits:
    """A limited key may do at most what its owner may."""

    def test_a_key_without_limits_may_do_what_its_owner_may(self, owner: Actor, destination: Cluster) -> None:
        for permission in Permission:
            assert can(with_key(owner), permission, cluster=destination) == can(owner, permission, cluster=destination)

    def test_a_role_limits_a_key(self, owner: Actor, destination: Cluster) -> None:
        actor = with_key(owner, role="Operator")

        allowed = {permission for permission in Permission if can(actor, permission, cluster=destination)}

        assert allowed == {Permission.VIEW, Permission.OPERATE_MIRROR, Permission.VERIFY}

    def test_a_role_limits_what_a_key_may_do_on_any_cluster(self, owner: Actor) -> None:
        check_anywhere(with_key(owner, role="CloudClusterAdmin"), Permission.MANAGE_LINK)
        with pytest.raises(DeniedError):
            check_anywhere(with_key(owner, role="Operator"), Permission.MANAGE_LINK)

    def test_a_role_adds_nothing_to_the_owner(self, colleague: Actor, destination: Cluster) -> None:
        actor = with_key(colleague, role="OrganizationAdmin")

        assert {permission for permission in Permission if can(actor, permission, cluster=destination)} == {Permission.VIEW}

    def test_a_place_limits_a_key(self, owner: Actor, destination: Cluster, source: Cluster) -> None:
        actor = with_key(owner, cluster=destination)

        assert can(actor, Permission.MANAGE_LINK, cluster=destination)
        assert not can(actor, Permission.VIEW, cluster=source)
        assert not can(actor, Permission.VIEW, environment=destination.environment)
        assert list(visible_clusters(actor)) == [destination]

    def test_a_place_adds_nothing_to_the_owner(
        self, make_actor: MakeActor, organization: Organization, destination: Cluster, source: Cluster
    ) -> None:
        topic = {"cluster": destination, "resource_type": "Topic", "resource_name": "orders"}
        reader = with_key(make_actor("reader", "DeveloperRead", **topic), organization=organization)
        elsewhere = with_key(make_actor("reader"), cluster=source)

        assert can(reader, Permission.VIEW, cluster=destination, resource_type="Topic", resource_name="orders")
        assert not can(reader, Permission.VIEW, cluster=destination)
        assert not can(elsewhere, Permission.VIEW, cluster=source)

    def test_a_key_limits_a_superuser_too(self, make_actor: MakeActor, destination: Cluster, source: Cluster) -> None:
        root = make_actor("root")
        assert root.user is not None
        User.objects.filter(pk=root.user.pk).update(is_superuser=True)
        root.user.refresh_from_db()
        actor = with_key(root, role="DeveloperRead", cluster=destination)

        assert not actor.may_do_all
        assert {permission for permission in Permission if can(actor, permission, cluster=destination)} == {Permission.VIEW}
        assert not can(actor, Permission.VIEW, cluster=source)
        assert with_key(root).may_do_all

    def test_expired_roles_of_the_owner_do_not_count(
        self, make_actor: MakeActor, organization: Organization, destination: Cluster
    ) -> None:
        past = timezone.now() - DAY
        actor = make_actor("late", "OrganizationAdmin", organization=organization, expires_at=past)

        assert not can(with_key(actor, cluster=destination), Permission.VIEW, cluster=destination)

    def test_an_unknown_role_is_refused(self, owner: Actor) -> None:
        assert owner.user is not None
        with pytest.raises(InvalidInputError):
            create_api_key(user=owner.user, description="", limit=KeyLimit(role="Emperor"), by=owner, now=NOW)


class TestOwners:
    """Keys of service accounts are issued only by actors who could grant the account's roles."""

    def test_an_admin_creates_keys_for_a_service_account(self, admin: Actor, program: User, destination: Cluster) -> None:
        grant_role(user=program, role="Operator", cluster=destination, by=admin, now=NOW)

        key, secret = create_api_key(user=program, description="ci", by=admin, now=NOW)

        found = valid_key(key=key.key, secret=secret, now=NOW)
        assert found is not None
        assert found.user == program
        assert list_api_keys(by=admin) == [key]
        assert AuditEvent.objects.get(action="CreateApiKey").detail == {"user": "pipeline"}
        delete_api_key(api_key=key, by=admin, now=NOW)

    def test_a_key_of_an_account_with_foreign_roles_is_refused(self, admin: Actor, program: User) -> None:
        """The key would let the administrator use a role in another organization."""
        other = Organization.objects.create(name="Other", created_at=NOW)
        grant_role(user=program, role="DeveloperRead", organization=other, by=SYSTEM, now=NOW)
        key, _ = create_api_key(user=program, description="", by=SYSTEM, now=NOW)

        with pytest.raises(DeniedError, match="could not grant"):
            create_api_key(user=program, description="", by=admin, now=NOW)
        with pytest.raises(DeniedError, match="could not grant"):
            rotate_api_key(api_key=key, overlap=DAY, by=admin, now=NOW)
        assert AuditEvent.objects.filter(action="MANAGE_API_KEY", result="DENIED").count() == 2

    @pytest.mark.parametrize("role", ["EnvironmentAdmin", "Auditor"])
    def test_other_roles_do_not_manage_service_accounts(
        self, role: str, make_actor: MakeActor, environment: Environment, program: User
    ) -> None:
        actor = make_actor("actor", role, environment=environment)
        key, _ = create_api_key(user=program, description="", by=SYSTEM, now=NOW)

        with pytest.raises(DeniedError):
            create_api_key(user=program, description="", by=actor, now=NOW)
        with pytest.raises(DeniedError):
            delete_api_key(api_key=key, by=actor, now=NOW)
        assert list_api_keys(by=actor) == []

    def test_an_admin_creates_no_keys_for_persons(self, admin: Actor, stranger: Actor) -> None:
        assert stranger.user is not None
        with pytest.raises(DeniedError):
            create_api_key(user=stranger.user, description="", by=admin, now=NOW)

    def test_a_temporary_admin_issues_keys_that_expire_with_the_role(
        self, make_actor: MakeActor, organization: Organization, program: User, destination: Cluster
    ) -> None:
        now = timezone.now()
        temporary = make_actor("temporary", "OrganizationAdmin", organization=organization, expires_at=now + DAY)
        grant_role(user=program, role="Operator", cluster=destination, by=SYSTEM, now=NOW)

        for expires_at in (None, now + 2 * DAY):
            with pytest.raises(DeniedError) as caught:
                create_api_key(user=program, description="", expires_at=expires_at, by=temporary, now=now)
            assert caught.value.field == "expires_at"
        assert create_api_key(user=program, description="", expires_at=now + DAY, by=temporary, now=now)

    def test_a_key_creates_no_keys(self, owner: Actor) -> None:
        assert owner.user is not None
        actor = with_key(owner, role="DeveloperRead")
        with pytest.raises(DeniedError, match="API key cannot create"):
            create_api_key(user=owner.user, description="", by=actor, now=NOW)


class TestRotation:
    """A rotation replaces a key without an interruption."""

    def test_the_old_key_is_accepted_during_the_overlap(self, owner: Actor, destination: Cluster) -> None:
        assert owner.user is not None
        limit = KeyLimit(role="Operator", cluster=destination)
        old, old_secret = create_api_key(user=owner.user, description="ci", limit=limit, by=owner, now=NOW)

        new, secret = rotate_api_key(api_key=old, overlap=DAY, by=owner, now=NOW)

        assert (new.description, new.role, new.cluster, new.user) == ("ci", "Operator", destination, owner.user)
        assert valid_key(key=new.key, secret=secret, now=NOW) == new
        assert valid_key(key=old.key, secret=old_secret, now=NOW + DAY / 2) == old
        assert valid_key(key=old.key, secret=old_secret, now=NOW + DAY) is None
        event = AuditEvent.objects.get(action="RotateApiKey")
        assert event.detail["replaces"] == old.key
        assert secret not in str(event.detail)

    def test_a_rotation_keeps_the_lifetime_and_extends_nothing(self, owner: Actor) -> None:
        assert owner.user is not None
        old, _ = create_api_key(user=owner.user, description="", expires_at=NOW + 10 * DAY, by=owner, now=NOW)

        new, _ = rotate_api_key(api_key=old, overlap=7 * DAY, by=owner, now=NOW + 9 * DAY)

        assert new.expires_at == NOW + 19 * DAY
        assert ApiKey.objects.get(pk=old.pk).expires_at == NOW + 10 * DAY

    def test_a_key_is_rotated_once(self, owner: Actor) -> None:
        assert owner.user is not None
        old, _ = create_api_key(user=owner.user, description="", by=owner, now=NOW)
        rotate_api_key(api_key=old, overlap=DAY, by=owner, now=NOW)

        with pytest.raises(ConflictError, match="was rotated already"):
            rotate_api_key(api_key=old, overlap=DAY, by=owner, now=NOW)
        assert ApiKey.objects.count() == 2

    def test_an_expired_key_is_not_rotated(self, owner: Actor) -> None:
        assert owner.user is not None
        old, _ = create_api_key(user=owner.user, description="", expires_at=NOW + DAY, by=owner, now=NOW)

        with pytest.raises(ConflictError, match="has expired"):
            rotate_api_key(api_key=old, overlap=timedelta(0), by=owner, now=NOW + DAY)

    @pytest.mark.parametrize("overlap", [-DAY, 31 * DAY])
    def test_an_overlap_out_of_range_is_refused(self, overlap: timedelta, owner: Actor) -> None:
        assert owner.user is not None
        old, _ = create_api_key(user=owner.user, description="", by=owner, now=NOW)

        with pytest.raises(InvalidInputError):
            rotate_api_key(api_key=old, overlap=overlap, by=owner, now=NOW)

    def test_a_key_of_another_user_is_not_rotated(self, owner: Actor, stranger: Actor) -> None:
        assert owner.user is not None
        old, _ = create_api_key(user=owner.user, description="", by=owner, now=NOW)

        with pytest.raises(DeniedError):
            rotate_api_key(api_key=old, overlap=DAY, by=stranger, now=NOW)


def test_a_key_is_deleted_with_the_place_that_limits_it(owner: Actor, destination: Cluster) -> None:
    """Otherwise it would have no limit any longer."""
    with_key(owner, cluster=destination)
    RoleBinding.objects.filter(cluster=destination).delete()

    destination.delete()

    assert not ApiKey.objects.exists()
