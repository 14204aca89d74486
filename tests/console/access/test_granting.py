"""Role bindings that expire, roles of groups, and the rights to grant them, with their end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from console.access import Permission, can
from console.access.actions import (
    add_member,
    create_group,
    delete_group,
    follow_provider,
    grant_role,
    remove_member,
    revoke_role,
)
from console.access.permissions import held_until
from console.actors import SYSTEM, Actor
from console.errors import DeniedError, InvalidInputError
from console.mirrors import bulk_actions
from console.models import (
    AuditEvent,
    BulkOperation,
    Cluster,
    ClusterLink,
    Environment,
    GroupMember,
    MirrorTopic,
    Organization,
    RoleBinding,
    UserGroup,
)
from tests.console.conftest import NOW, MakeActor, MakeMirror

HOUR = timedelta(hours=1)


def again(actor: Actor) -> Actor:
    """Return the actor of another request: an actor reads the roles once."""
    return Actor(name=actor.name, user=actor.user)


@pytest.fixture
def admin(make_actor: MakeActor, organization: Organization) -> Actor:
    """Administers the organization."""
    return make_actor("admin", "OrganizationAdmin", organization=organization)


@pytest.fixture
def temporary_admin(make_actor: MakeActor, organization: Organization) -> Actor:
    """Administers the organization for another hour."""
    place: dict[str, Any] = {"organization": organization, "expires_at": timezone.now() + HOUR}
    return make_actor("temporary", "OrganizationAdmin", **place)


@pytest.fixture
def group(organization: Organization, admin: Actor) -> UserGroup:
    return create_group(name="on-call", organization=organization, by=admin, now=NOW)


class TestExpiry:
    """A binding grants its role until it expires."""

    def test_an_expired_binding_grants_nothing(self, stranger: Actor, destination: Cluster, time_machine: Any) -> None:
        time_machine.move_to(NOW, tick=False)
        end = NOW + HOUR
        grant_role(user=stranger.user, role="DeveloperRead", cluster=destination, expires_at=end, by=SYSTEM, now=NOW)
        assert can(again(stranger), Permission.VIEW, cluster=destination)

        time_machine.move_to(end - timedelta(seconds=1), tick=False)
        assert can(again(stranger), Permission.VIEW, cluster=destination)

        time_machine.move_to(end, tick=False)
        assert not can(again(stranger), Permission.VIEW, cluster=destination)
        assert RoleBinding.objects.filter(user=stranger.user).exists()

    @pytest.mark.usefixtures("sent")
    @pytest.mark.parametrize("end", ["expired", "deactivated"])
    def test_queued_work_is_refused_after_the_role_or_the_user_has_ended(
        self, end: str, make_mirror: MakeMirror, link: ClusterLink, stranger: Actor, time_machine: Any
    ) -> None:
        now = timezone.now()
        grant_role(user=stranger.user, role="Operator", cluster=link.destination, expires_at=now + HOUR, by=SYSTEM, now=now)
        topics: dict[str, MirrorTopic | None] = {name: make_mirror(name) for name in ("a", "b")}
        stored = bulk_actions.start(link=link, operation="pause", topics=topics, by=again(stranger), now=now)

        if end == "expired":
            time_machine.move_to(now + HOUR)
        else:
            User.objects.filter(username=stranger.name).update(is_active=False)
        stored = BulkOperation.objects.get(pk=stored.pk)
        bulk_actions.carry_out(stored, check_clusters=lambda _mirrors: [], now=timezone.now())

        assert set(stored.topics.values_list("status", flat=True)) == {"FAILED"}
        assert set(MirrorTopic.objects.values_list("state", flat=True)) == {"ACTIVE"}

    def test_an_expiry_in_the_past_is_refused(self, stranger: Actor, owner: Actor, destination: Cluster) -> None:
        with pytest.raises(InvalidInputError, match="in the past") as caught:
            grant_role(user=stranger.user, role="DeveloperRead", cluster=destination, expires_at=NOW, by=owner, now=NOW)
        assert caught.value.field == "expires_at"

    def test_another_expiry_replaces_the_binding(self, stranger: Actor, owner: Actor, destination: Cluster) -> None:
        values: dict[str, Any] = {
            "user": stranger.user,
            "role": "DeveloperRead",
            "cluster": destination,
            "by": owner,
            "now": NOW,
        }
        grant_role(**values, expires_at=NOW + HOUR)

        forever = grant_role(**values)

        assert RoleBinding.objects.get(user=stranger.user) == forever
        assert forever.expires_at is None
        actions = list(AuditEvent.objects.order_by("pk").values_list("action", flat=True))
        assert actions == ["GrantRole", "RevokeRole", "GrantRole"]
        assert grant_role(**values) == forever

    @pytest.mark.parametrize("lasts", [None, 2 * HOUR])
    def test_a_temporary_role_is_not_granted_for_longer(
        self, lasts: timedelta | None, temporary_admin: Actor, stranger: Actor, environment: Environment
    ) -> None:
        """Otherwise a user with a role for one hour could keep it, or give it away, permanently."""
        now = timezone.now()
        expires_at = now + lasts if lasts else None
        for user in (stranger.user, temporary_admin.user):
            values: dict[str, Any] = {"user": user, "role": "EnvironmentAdmin", "environment": environment}
            with pytest.raises(DeniedError, match="Your own role") as caught:
                grant_role(**values, expires_at=expires_at, by=temporary_admin, now=now)
            assert caught.value.field == "expires_at"
        assert AuditEvent.objects.filter(result="DENIED", action="GrantRole").count() == 2

        granted = grant_role(**values, expires_at=now + HOUR / 2, by=temporary_admin, now=now)

        assert granted.expires_at == now + HOUR / 2

    def test_a_permanent_role_beside_a_temporary_one_counts(
        self, temporary_admin: Actor, make_actor: MakeActor, stranger: Actor, environment: Environment
    ) -> None:
        both = make_actor("temporary", "EnvironmentAdmin", environment=environment)

        assert grant_role(user=stranger.user, role="DeveloperRead", environment=environment, by=both, now=NOW)
        binding = RoleBinding(user=stranger.user, role="OrganizationAdmin", organization=environment.organization)
        assert held_until(both, binding) == RoleBinding.objects.get(role="OrganizationAdmin").expires_at


class TestOperatorAndAuditor:
    """The roles for on-call engineers and for auditors."""

    def test_an_operator_operates_and_configures_nothing(self, make_actor: MakeActor, mirror: MirrorTopic) -> None:
        operator = make_actor("operator", "Operator", cluster=mirror.link.destination)

        allowed = {permission for permission in Permission if can(operator, permission, mirror=mirror)}

        assert allowed == {Permission.VIEW, Permission.OPERATE_MIRROR, Permission.VERIFY}

    def test_an_auditor_changes_nothing_and_reads_no_records(self, make_actor: MakeActor, mirror: MirrorTopic) -> None:
        auditor = make_actor("auditor", "Auditor", cluster=mirror.link.destination)

        allowed = {permission for permission in Permission if can(auditor, permission, mirror=mirror)}

        assert allowed == {Permission.VIEW, Permission.VIEW_AUDIT, Permission.VIEW_ACCESS}

    def test_an_auditor_cannot_grant_roles(self, make_actor: MakeActor, stranger: Actor, destination: Cluster) -> None:
        auditor = make_actor("auditor", "Auditor", cluster=destination)

        with pytest.raises(DeniedError):
            grant_role(user=stranger.user, role="DeveloperRead", cluster=destination, by=auditor, now=NOW)

    def test_an_owner_cannot_grant_the_role_auditor(self, make_actor: MakeActor, stranger: Actor, destination: Cluster) -> None:
        resource_owner = make_actor("resource-owner", "ResourceOwner", cluster=destination)

        grant_role(user=stranger.user, role="Operator", cluster=destination, by=resource_owner, now=NOW)
        with pytest.raises(DeniedError, match="view the audit"):
            grant_role(user=stranger.user, role="Auditor", cluster=destination, by=resource_owner, now=NOW)


class TestGroups:
    """Members of a group have its roles."""

    def test_members_have_the_roles_of_the_group(
        self, group: UserGroup, admin: Actor, stranger: Actor, destination: Cluster
    ) -> None:
        assert stranger.user is not None
        grant_role(group=group, role="Operator", cluster=destination, by=admin, now=NOW)
        assert not can(again(stranger), Permission.OPERATE_MIRROR, cluster=destination)

        add_member(group=group, user=stranger.user, by=admin, now=NOW)
        assert can(again(stranger), Permission.OPERATE_MIRROR, cluster=destination)

        remove_member(group=group, user=stranger.user, by=admin, now=NOW)
        assert not can(again(stranger), Permission.OPERATE_MIRROR, cluster=destination)
        actions = set(AuditEvent.objects.values_list("action", flat=True))
        assert {"CreateGroup", "GrantRole", "AddGroupMember", "RemoveGroupMember"} <= actions

    def test_a_group_gets_roles_in_its_organization_only(self, group: UserGroup) -> None:
        """Its members are chosen by the administrators of its organization."""
        other = Organization.objects.create(name="Other", created_at=NOW)

        with pytest.raises(InvalidInputError, match="another organization"):
            grant_role(group=group, role="DeveloperRead", organization=other, by=SYSTEM, now=NOW)

    def test_members_are_added_only_by_actors_who_hold_the_roles_as_long(
        self, group: UserGroup, temporary_admin: Actor, stranger: Actor, environment: Environment
    ) -> None:
        assert stranger.user is not None
        grant_role(group=group, role="EnvironmentAdmin", environment=environment, by=SYSTEM, now=NOW)

        with pytest.raises(DeniedError, match="not for as long"):
            add_member(group=group, user=stranger.user, by=temporary_admin, now=timezone.now())
        assert not GroupMember.objects.exists()

    @pytest.mark.parametrize("role", ["EnvironmentAdmin", "Auditor"])
    def test_groups_are_managed_by_organization_admins_only(
        self, role: str, group: UserGroup, make_actor: MakeActor, stranger: Actor, environment: Environment
    ) -> None:
        assert stranger.user is not None
        actor = make_actor("actor", role, environment=environment)

        with pytest.raises(DeniedError):
            add_member(group=group, user=stranger.user, by=actor, now=NOW)
        with pytest.raises(DeniedError):
            delete_group(group=group, by=actor, now=NOW)
        with pytest.raises(DeniedError):
            create_group(name="mine", organization=group.organization, by=actor, now=NOW)

    def test_only_superusers_map_groups_of_the_provider(self, admin: Actor, organization: Organization) -> None:
        with pytest.raises(DeniedError):
            create_group(name="mapped", organization=organization, external_name="kafka-admins", by=admin, now=NOW)

    def test_members_follow_the_provider(self, organization: Organization, stranger: Actor) -> None:
        assert stranger.user is not None
        for name in ("one", "two", "three"):
            create_group(name=name, organization=organization, external_name=f"idp-{name}", by=SYSTEM, now=NOW)
        create_group(name="unmapped", organization=organization, by=SYSTEM, now=NOW)
        add_member(group=UserGroup.objects.get(name="three"), user=stranger.user, by=SYSTEM, now=NOW)

        def groups_after(*external: str) -> list[str]:
            assert stranger.user is not None
            follow_provider(user=stranger.user, external_names=external, now=NOW)
            return list(UserGroup.objects.filter(memberships__user=stranger.user).values_list("name", flat=True))

        assert groups_after("idp-one", "unknown", "") == ["one", "three"]
        assert groups_after("idp-two") == ["three", "two"]
        assert groups_after() == ["three"]
        assert AuditEvent.objects.filter(action="RemoveGroupMember", actor="engine").count() == 2

    def test_a_binding_has_a_user_or_a_group(self, group: UserGroup, stranger: Actor, destination: Cluster) -> None:
        principals: list[dict[str, Any]] = [{}, {"user": stranger.user, "group": group}]
        for principal in principals:
            with pytest.raises(InvalidInputError, match="either a user or a group"):
                grant_role(**principal, role="DeveloperRead", cluster=destination, by=SYSTEM, now=NOW)

    def test_deleting_a_group_ends_its_roles(
        self, group: UserGroup, admin: Actor, stranger: Actor, destination: Cluster
    ) -> None:
        assert stranger.user is not None
        binding = grant_role(group=group, role="Operator", cluster=destination, by=admin, now=NOW)
        add_member(group=group, user=stranger.user, by=admin, now=NOW)

        delete_group(group=group, by=admin, now=NOW)

        assert not RoleBinding.objects.filter(pk=binding.pk).exists()
        assert not can(again(stranger), Permission.VIEW, cluster=destination)

    def test_the_role_of_a_group_can_be_revoked(self, group: UserGroup, admin: Actor, destination: Cluster) -> None:
        binding = grant_role(group=group, role="Operator", cluster=destination, by=admin, now=NOW)

        revoke_role(binding=binding, by=admin, now=NOW)

        event = AuditEvent.objects.get(action="RevokeRole")
        assert event.detail == {"group": "on-call", "role": "Operator", "prefixed": False}
