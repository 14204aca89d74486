"""Invites users, creates service accounts, deactivates and activates both; the actor's own password and second factor."""

from __future__ import annotations

import secrets
import zoneinfo
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext, gettext_noop

from console import audit
from console.access import Permission, check_permission, second_factor
from console.access.credentials import hash_secret
from console.access.permissions import FOREVER, covered_until, denied
from console.actors import ENGINE, SYSTEM, Actor
from console.errors import ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.models import Account, Invitation, Organization, RoleBinding, UserSession

# --- users and service accounts ---------------------------------------------------------------------------------------
#
# An account belongs to an organization, whose administrators (MANAGE_USERS) manage it. The holder of an invitation link becomes
# that user, so a link for an account that has roles is created only by an actor who could grant all of these roles. Superusers
# and staff are managed by superusers only.


INVITATION_LIFETIME = timedelta(days=3)
TOKEN_BYTES = 32
RESERVED_NAMES = frozenset({ENGINE.name, SYSTEM.name})  # actors of the audit log that are not users


def invite_user(*, name: str, organization: Organization, by: Actor, now: datetime) -> tuple[User, str]:
    """Create a user who cannot sign in yet; return the user and the token of the invitation, which is not stored."""
    check_permission(by, Permission.MANAGE_USERS, organization=organization)
    with transaction.atomic():
        user = _create_user(name, kind=Account.Kind.PERSON, organization=organization, by=by, now=now)
        token = _new_invitation(user, by=by, now=now)
        audit.record(by=by, action="InviteUser", resource=_path(user), now=now, detail={"organization": organization.name})
    return user, token


def renew_invitation(*, user: User, by: Actor, now: datetime) -> str:
    """Create another invitation link, also for a user who forgot the password; the previous link stops working."""
    account = _check_manages(user, by=by)
    if account.kind == Account.Kind.SERVICE:
        message = gettext("'%(name)s' is a service account and has no password. Create an API key for it.")
        raise InvalidInputError(message % {"name": user.get_username()})
    if not user.is_active and not Invitation.objects.filter(user=user).exists():
        message = gettext("User '%(name)s' is deactivated. Activate the user first.")
        raise ConflictError(message % {"name": user.get_username()})
    _check_may_act_as(user, by=by, now=now)
    with transaction.atomic():
        token = _new_invitation(user, by=by, now=now)
        audit.record(by=by, action="RenewInvitation", resource=_path(user), now=now)
    return token


def cancel_invitation(*, user: User, by: Actor, now: datetime) -> None:
    """Withdraw an invitation. A user who has never signed in is deleted."""
    _check_manages(user, by=by)
    with transaction.atomic():
        deleted, _ = Invitation.objects.filter(user=user).delete()
        if not deleted:
            message = gettext("User '%(name)s' has no open invitation, so nothing was changed.")
            raise ConflictError(message % {"name": user.get_username()})
        audit.record(by=by, action="CancelInvitation", resource=_path(user), now=now)
        if not user.is_active:
            user.delete()


def find_invitation(*, token: str, now: datetime) -> Invitation:
    """Return the invitation of a token; raise NotFoundError if it is unknown, used, replaced or expired."""
    found = Invitation.objects.select_related("user").filter(token_hash=hash_secret(token), expires_at__gt=now).first()
    if found is None:
        message = gettext("This invitation link is not valid: it was used, replaced or has expired. Ask for a new one.")
        raise NotFoundError(message)
    return found


def accept_invitation(*, token: str, password: str, request_id: str, client_address: str, now: datetime) -> User:
    """Set the password of an invited user, activate the user and use up the invitation."""
    user = find_invitation(token=token, now=now).user
    check_password(password, user, field="new_password")
    by = Actor(name=user.get_username(), user=user, request_id=request_id, client_address=client_address)
    with transaction.atomic():
        deleted, _ = Invitation.objects.filter(token_hash=hash_secret(token), user=user).delete()
        if not deleted:
            raise NotFoundError(gettext("This invitation link was used in the meantime. Sign in, or ask for a new one."))
        user.set_password(password)
        user.is_active = True
        user.save(update_fields=["password", "is_active"])
        end_sessions(user)
        audit.record(by=by, action="AcceptInvitation", resource=_path(user), now=now)
    return user


def create_service_account(*, name: str, description: str, organization: Organization, by: Actor, now: datetime) -> User:
    """Create an account for a program. It has no password; give it roles and API keys."""
    check_permission(by, Permission.MANAGE_USERS, organization=organization)
    with transaction.atomic():
        user = _create_user(name, kind=Account.Kind.SERVICE, organization=organization, description=description, by=by, now=now)
        detail = {"organization": organization.name}
        audit.record(by=by, action="CreateServiceAccount", resource=_path(user), now=now, detail=detail)
    return user


def deactivate_user(*, user: User, by: Actor, now: datetime) -> None:
    """Deactivate a user or a service account: sessions end, API keys and tokens are rejected. Roles and keys are kept."""
    _check_manages(user, by=by)
    if by.user is not None and by.user.pk == user.pk:
        raise ConflictError(gettext("You cannot deactivate yourself. Ask another administrator to do it."))
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            message = gettext("'%(name)s' is not active, so nothing was changed.")
            raise ConflictError(message % {"name": user.get_username()})
        Invitation.objects.filter(user=user).delete()
        end_sessions(user)
        audit.record(by=by, action="DeactivateUser", resource=_path(user), now=now)


def activate_user(*, user: User, by: Actor, now: datetime) -> None:
    """Activate a deactivated user or service account, with the roles and API keys that it had."""
    _check_manages(user, by=by)
    if Invitation.objects.filter(user=user).exists():
        message = gettext("User '%(name)s' has an open invitation and becomes active by accepting it.")
        raise ConflictError(message % {"name": user.get_username()})
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            message = gettext("'%(name)s' is active already, so nothing was changed.")
            raise ConflictError(message % {"name": user.get_username()})
        audit.record(by=by, action="ActivateUser", resource=_path(user), now=now)


def save_preferences(*, time_zone: str, language: str, density: str, by: Actor, now: datetime) -> Account:
    """Store the actor's time zone ("" is UTC), language of pages ("" is that of the browser) and density of tables."""
    if time_zone and time_zone not in zoneinfo.available_timezones():
        message = gettext("'%(value)s' is not a time zone. Choose one from the list.") % {"value": time_zone}
        raise InvalidInputError(message, field="time_zone")
    if language and language not in dict(settings.LANGUAGES):
        message = gettext("'%(value)s' is not a language of the pages. Choose one from the list.") % {"value": language}
        raise InvalidInputError(message, field="language")
    if density not in Account.Density.values:
        message = gettext("'%(value)s' is not a density. Choose one from the list.") % {"value": density}
        raise InvalidInputError(message, field="density")
    assert by.user is not None  # only users have preferences
    values = {"time_zone": time_zone, "language": language, "density": density}
    created = {**values, "created_at": now, "created_by": by.name}
    with transaction.atomic():
        account, _ = Account.objects.update_or_create(user=by.user, defaults=values, create_defaults=created)
        audit.record(by=by, action="SavePreferences", resource=_path(by.user), now=now, detail=values)
    return account


def record_sign_in(*, path: str, by: Actor, now: datetime) -> None:
    """Record that the actor has signed in at the page ``path``: with a password, a code, or an identity provider."""
    audit.record(by=by, action="SignIn", resource=f"user/{by.name}", now=now, detail={"path": path})


def record_sign_out(*, by: Actor, now: datetime) -> None:
    """Record that the actor has signed out."""
    audit.record(by=by, action="SignOut", resource=f"user/{by.name}", now=now)


def end_session(*, session_id: int, by: Actor, now: datetime) -> None:
    """End one session of the actor."""
    row = UserSession.objects.filter(pk=session_id, user=by.user).first() if by.user else None
    if row is None:
        raise NotFoundError(gettext("This session has ended already. Reload the list of sessions."))
    with transaction.atomic():
        Session.objects.filter(session_key=row.session_key).delete()
        row.delete()
        audit.record(by=by, action="EndSession", resource=f"user/{by.name}", now=now)


def end_own_sessions(*, but: str | None, by: Actor, now: datetime) -> None:
    """End all sessions of the actor, without the session with the key ``but``."""
    assert by.user is not None  # only users have sessions
    with transaction.atomic():
        end_sessions(by.user, but=but)
        audit.record(by=by, action="EndOtherSessions", resource=f"user/{by.name}", now=now)


def end_sessions(user: User, *, but: str | None = None) -> None:
    """End all sessions of a user, without the session with the key ``but``."""
    rows = UserSession.objects.filter(user=user).exclude(session_key=but or "")
    Session.objects.filter(session_key__in=list(rows.values_list("session_key", flat=True))).delete()
    rows.delete()


def _create_user(name: str, *, kind: str, organization: Organization, description: str = "", by: Actor, now: datetime) -> User:
    name = User.normalize_username(name)  # first: other characters than those of a reserved name may become it (NFKC)
    if name.strip().lower() in RESERVED_NAMES:
        message = gettext("The name '%(name)s' is reserved. Choose another name.") % {"name": name}
        raise InvalidInputError(message, field="name")
    user = User(username=name, is_active=kind == Account.Kind.SERVICE)
    user.set_unusable_password()
    try:
        user.full_clean()
        with transaction.atomic():
            user.save(force_insert=True)
    except ValidationError as error:
        message = " ".join(error.message_dict.get("username", error.messages))
        raise InvalidInputError(message, field="name") from None
    except IntegrityError:
        message = gettext("A user with that user name already exists. Choose another name.")
        raise InvalidInputError(message, field="name") from None
    account = Account(
        user=user, kind=kind, organization=organization, description=description, created_at=now, created_by=by.name
    )
    account.save(force_insert=True)
    return user


def _new_invitation(user: User, *, by: Actor, now: datetime) -> str:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    values = {
        "token_hash": hash_secret(token),
        "created_at": now,
        "created_by": by.name,
        "expires_at": now + INVITATION_LIFETIME,
    }
    Invitation.objects.update_or_create(user=user, defaults=values)
    return token


def _check_manages(user: User, *, by: Actor) -> Account:
    """Return the user's account; raise DeniedError unless the actor manages it."""
    account = Account.objects.select_related("organization").filter(user=user).first()
    if by.may_do_all:
        return account or Account(user=user)
    if account is None or account.organization is None or user.is_superuser or user.is_staff:
        text = gettext_noop("User '%(name)s' is managed by the administrators of this installation only. Ask one of them.")
        raise _denied(user, text, action="MANAGE_USERS", by=by)
    check_permission(by, Permission.MANAGE_USERS, organization=account.organization)
    return account


def _check_may_act_as(user: User, *, by: Actor, now: datetime) -> None:
    """Raise DeniedError unless the actor could grant every role of the user, without an end: a link lets them use the roles."""
    if by.may_do_all:
        return
    rows = RoleBinding.objects.of_user(user).in_force(now)
    if covered_until(by, rows.select_related("organization", "environment", "cluster__environment")) == FOREVER:
        return
    text = gettext_noop(
        "User '%(name)s' has a role that you could not grant, or your own role expires. The link would let you use that role. "
        "Ask an administrator who has all permissions of the user."
    )
    raise _denied(user, text, action="RenewInvitation", by=by)


def _denied(user: User, text: str, *, action: str, by: Actor) -> DeniedError:
    return denied(text, {"name": user.get_username()}, by=by, action=action, resource=_path(user))


def _path(user: User) -> str:
    """Return the resource name for the audit log: within the organization of the account, whose auditors may see it."""
    organization = getattr(getattr(user, "account", None), "organization", None)
    path = f"user/{user.get_username()}"
    return f"{audit.path_of(organization)}/{path}" if organization is not None else path


# --- the actor's own password and second factor -----------------------------------------------------------------------


def change_own_password(*, new: str, by: Actor, now: datetime) -> None:
    """Set the actor's password, which ends the actor's sessions; the caller has checked the current password.

    API keys and bearer tokens stay valid. Raises InvalidInputError for a password that ``AUTH_PASSWORD_VALIDATORS`` rejects.
    """
    user = by.user
    assert user is not None  # only users have passwords
    check_password(new, user, field="new_password")
    with transaction.atomic():
        user.set_password(new)
        user.save(update_fields=["password"])
        audit.record(by=by, action="ChangePassword", resource=f"user/{user.get_username()}", now=now)


def check_password(new: str, user: User, *, field: str) -> None:
    """Raise InvalidInputError for a password that ``AUTH_PASSWORD_VALIDATORS`` rejects."""
    try:
        validate_password(new, user)
    except ValidationError as error:
        raise InvalidInputError(" ".join(error.messages), field=field) from None


def turn_on(*, secret: str, code: str, by: Actor, now: datetime) -> list[str]:
    """Store the secret of the actor and return the recovery codes, which are not shown again.

    The caller has checked the password. Raises InvalidInputError if the code does not belong to the secret.
    """
    assert by.user is not None  # only users have a second factor
    if second_factor.has_second_factor(by.user):
        raise ConflictError(gettext("You have a second factor already. Turn it off first to set up another device."))
    with transaction.atomic():
        codes = second_factor.activate(by.user, secret, code)
        if codes is None:
            message = gettext("The code is not valid. Enter the current code of the app, and check the clock of the device.")
            raise InvalidInputError(message, field="code")
        audit.record(by=by, action="TurnOnSecondFactor", resource=f"user/{by.user.get_username()}", now=now)
    return codes


def turn_off(*, by: Actor, now: datetime) -> None:
    """Delete the secret and the recovery codes of the actor; the caller has checked the password and a code."""
    assert by.user is not None  # only users have a second factor
    with transaction.atomic():
        if not second_factor.deactivate(by.user):
            raise ConflictError(gettext("You have no second factor, so nothing was changed. Reload the page."))
        audit.record(by=by, action="TurnOffSecondFactor", resource=f"user/{by.user.get_username()}", now=now)


def accept(*, user: User, code: str, by: Actor, now: datetime) -> bool:
    """Return whether a time-based code or a recovery code of the user is valid, and use it up."""
    if second_factor.accept_code(user, code):
        return True
    with transaction.atomic():
        if not second_factor.accept_recovery_code(user, code):
            return False
        detail = {"left": second_factor.recovery_codes_left(user)}
        audit.record(by=by, action="UseRecoveryCode", resource=f"user/{user.get_username()}", now=now, detail=detail)
    return True
