"""Invitations, service accounts, deactivation, sessions and preferences."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.test import Client

from console.access import account_actions
from console.access.actions import grant_role
from console.actors import SYSTEM, Actor
from console.errors import ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.models import Account, AuditEvent, Environment, Invitation, Organization, UserSession
from tests.console.conftest import NOW, MakeActor

PASSWORD = "a long passphrase 4711"
PREFERENCES = {"time_zone": "Asia/Tokyo", "language": "ja", "density": "compact"}


@pytest.fixture
def admin(make_actor: MakeActor, organization: Organization) -> Actor:
    """Administers the organization."""
    return make_actor("admin", "OrganizationAdmin", organization=organization)


@pytest.fixture
def invited(admin: Actor, organization: Organization) -> tuple[User, str]:
    """A user with an open invitation, and its token."""
    return account_actions.invite_user(name="newcomer", organization=organization, by=admin, now=NOW)


def accept(token: str, *, after: timedelta = timedelta(0), password: str = PASSWORD) -> User:
    return account_actions.accept_invitation(token=token, password=password, request_id="r", client_address="", now=NOW + after)


class TestInvitations:
    """An invited user sets a password with a link that works once."""

    def test_an_invited_user_cannot_sign_in_before_accepting(self, invited: tuple[User, str]) -> None:
        user, token = invited
        assert not user.is_active
        assert not user.has_usable_password()
        assert token not in Invitation.objects.get().token_hash
        assert token not in str(list(AuditEvent.objects.values()))

        assert accept(token) == user

        assert authenticate(username="newcomer", password=PASSWORD) == user
        with pytest.raises(NotFoundError):
            accept(token)
        assert AuditEvent.objects.filter(action="AcceptInvitation", actor="newcomer").exists()

    def test_an_invitation_expires(self, invited: tuple[User, str]) -> None:
        with pytest.raises(NotFoundError):
            accept(invited[1], after=account_actions.INVITATION_LIFETIME)
        assert not User.objects.get(username="newcomer").is_active

    def test_another_link_replaces_the_first(self, invited: tuple[User, str], admin: Actor) -> None:
        token = account_actions.renew_invitation(user=invited[0], by=admin, now=NOW)

        with pytest.raises(NotFoundError):
            accept(invited[1])
        assert accept(token)

    def test_a_weak_password_is_refused_and_the_link_still_works(self, invited: tuple[User, str]) -> None:
        with pytest.raises(InvalidInputError) as caught:
            accept(invited[1], password="short")
        assert caught.value.field == "new_password"
        assert accept(invited[1])

    def test_a_canceled_invitation_deletes_the_user(self, invited: tuple[User, str], admin: Actor) -> None:
        account_actions.cancel_invitation(user=invited[0], by=admin, now=NOW)

        assert not User.objects.filter(username="newcomer").exists()
        with pytest.raises(NotFoundError):
            accept(invited[1])

    def test_a_link_for_a_user_with_foreign_roles_is_refused(self, invited: tuple[User, str], admin: Actor) -> None:
        """The link would let the administrator sign in as the user."""
        accept(invited[1])
        user = User.objects.get(username="newcomer")
        other = Organization.objects.create(name="Other", created_at=NOW)
        grant_role(user=user, role="DeveloperRead", organization=other, by=SYSTEM, now=NOW)

        with pytest.raises(DeniedError, match="could not grant"):
            account_actions.renew_invitation(user=user, by=admin, now=NOW)
        assert AuditEvent.objects.filter(action="RenewInvitation", result="DENIED").exists()

    def test_a_deactivated_user_is_not_invited_again(self, invited: tuple[User, str], admin: Actor) -> None:
        user = accept(invited[1])
        account_actions.deactivate_user(user=user, by=admin, now=NOW)
        user.refresh_from_db()

        with pytest.raises(ConflictError, match="deactivated"):
            account_actions.renew_invitation(user=user, by=admin, now=NOW)

    @pytest.mark.parametrize("name", ["admin", "engine", "System", "\uff45ngine", "with space", "", "x" * 151])
    def test_taken_reserved_and_malformed_names_are_refused(self, name: str, admin: Actor, organization: Organization) -> None:
        with pytest.raises(InvalidInputError) as caught:
            account_actions.invite_user(name=name, organization=organization, by=admin, now=NOW)
        assert caught.value.field == "name"

    @pytest.mark.parametrize("role", ["EnvironmentAdmin", "Auditor", "ResourceOwner"])
    def test_only_organization_admins_invite(
        self, role: str, make_actor: MakeActor, environment: Environment, organization: Organization
    ) -> None:
        actor = make_actor("actor", role, environment=environment)

        with pytest.raises(DeniedError):
            account_actions.invite_user(name="newcomer", organization=organization, by=actor, now=NOW)
        with pytest.raises(DeniedError):
            account_actions.create_service_account(name="bot", description="", organization=organization, by=actor, now=NOW)
        assert not User.objects.filter(username__in=["newcomer", "bot"]).exists()


class TestActivation:
    """A deactivated user has neither sessions nor permissions."""

    def test_deactivation_ends_sessions(self, invited: tuple[User, str], admin: Actor) -> None:
        user = accept(invited[1])
        client = Client()
        client.force_login(user)
        assert client.get("/access/me/").status_code == 200

        account_actions.deactivate_user(user=user, by=admin, now=NOW)

        assert client.get("/access/me/").status_code == 302
        assert not UserSession.objects.filter(user=user).exists()

    def test_users_are_activated_again(self, invited: tuple[User, str], admin: Actor) -> None:
        user = accept(invited[1])
        account_actions.deactivate_user(user=user, by=admin, now=NOW)

        account_actions.activate_user(user=user, by=admin, now=NOW)

        assert User.objects.get(pk=user.pk).is_active
        with pytest.raises(ConflictError):
            account_actions.activate_user(user=user, by=admin, now=NOW)

    def test_an_open_invitation_is_not_activated(self, invited: tuple[User, str], admin: Actor) -> None:
        with pytest.raises(ConflictError, match="open invitation"):
            account_actions.activate_user(user=invited[0], by=admin, now=NOW)

    def test_users_do_not_deactivate_their_own_account(self, admin: Actor, organization: Organization) -> None:
        assert admin.user is not None
        Account.objects.create(user=admin.user, organization=organization, created_at=NOW, created_by="test")

        with pytest.raises(ConflictError):
            account_actions.deactivate_user(user=admin.user, by=admin, now=NOW)

    @pytest.mark.parametrize("flag", ["is_superuser", "is_staff"])
    def test_organization_admins_manage_neither_superusers_nor_staff(
        self, flag: str, invited: tuple[User, str], admin: Actor
    ) -> None:
        user = accept(invited[1])
        setattr(user, flag, True)
        user.save()

        for action in (account_actions.deactivate_user, account_actions.renew_invitation):
            with pytest.raises(DeniedError):
                action(user=user, by=admin, now=NOW)

    def test_users_of_other_organizations_are_not_managed(self, admin: Actor, stranger: Actor) -> None:
        assert stranger.user is not None
        other = Organization.objects.create(name="Other", created_at=NOW)
        Account.objects.create(user=stranger.user, organization=other, created_at=NOW, created_by="test")

        with pytest.raises(DeniedError):
            account_actions.deactivate_user(user=stranger.user, by=admin, now=NOW)


def test_a_service_account_cannot_sign_in(admin: Actor, organization: Organization) -> None:
    user = account_actions.create_service_account(name="bot", description="", organization=organization, by=admin, now=NOW)

    assert not user.has_usable_password()
    assert authenticate(username="bot", password="") is None
    with pytest.raises(InvalidInputError, match="service account"):
        account_actions.renew_invitation(user=user, by=admin, now=NOW)


def test_preferences_are_checked_and_stored(stranger: Actor) -> None:
    account = account_actions.save_preferences(**PREFERENCES, by=stranger, now=NOW)

    assert Account.objects.get(user=stranger.user) == account
    for wrong in ({"time_zone": "Mars/Base"}, {"language": "xx"}, {"density": "huge"}):
        with pytest.raises(InvalidInputError) as refused:
            account_actions.save_preferences(**(PREFERENCES | wrong), by=stranger, now=NOW)
        assert refused.value.field == next(iter(wrong))
    assert {name: getattr(Account.objects.get(user=stranger.user), name) for name in PREFERENCES} == PREFERENCES


def test_a_session_of_another_user_is_not_ended(stranger: Actor, admin: Actor) -> None:
    client = Client()
    client.force_login(User.objects.get(username="admin"))
    row = UserSession.objects.get()

    with pytest.raises(NotFoundError):
        account_actions.end_session(session_id=row.pk, by=stranger, now=NOW)
    account_actions.end_session(session_id=row.pk, by=admin, now=NOW)
    assert client.get("/access/me/").status_code == 302
