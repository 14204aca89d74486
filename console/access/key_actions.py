"""Creates, rotates and deletes API keys, and creates bearer tokens.

A key acts as its owner. Users have keys of their own. The keys of a service account are created by the administrators of its
organization who could grant all of its roles: a key lets them use these roles. A limited key (to a role or a place) has at most
the permissions of its owner, and no request that signs in with an API key creates or rotates another key.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext, gettext_noop

from console import audit
from console.access import Permission, can
from console.access.credentials import hash_secret, write_token
from console.access.permissions import FOREVER, covered_until, denied
from console.actors import Actor
from console.errors import ConflictError, DeniedError, InvalidInputError
from console.models import Account, ApiKey, Cluster, Environment, Organization, RoleBinding

KEY_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
KEY_LENGTH = 16
SECRET_BYTES = 32
LONGEST_OVERLAP = timedelta(days=30)  # of the old and the new secret after a rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimit:
    """The limits of a key: a role, and a place of the tree; the default limits nothing."""

    role: str = ""
    organization: Organization | None = None
    environment: Environment | None = None
    cluster: Cluster | None = None


UNLIMITED = KeyLimit()


def create_api_key(
    *,
    user: User,
    description: str,
    expires_at: datetime | None = None,
    limit: KeyLimit = UNLIMITED,
    by: Actor,
    now: datetime,
) -> tuple[ApiKey, str]:
    """Create an API key of a user and return the row and the secret, of which only a hash is stored.

    Raises DeniedError unless the user is the actor, or a service account whose roles the actor could grant, or the actor is a
    superuser.
    """
    if expires_at is not None and expires_at <= now:
        message = gettext("The expiry time is in the past. Choose a later time, or none.")
        raise InvalidInputError(message, field="expires_at")
    _check_may_issue(user, expires_at=expires_at, by=by, now=now)
    if limit.role and limit.role not in RoleBinding.Role.values:
        message = gettext("'%(value)s' is not a role. Choose one from the list.") % {"value": limit.role}
        raise InvalidInputError(message, field="role")
    row, secret = _new_key(user=user, description=description, expires_at=expires_at, limit=limit, by=by, now=now)
    with transaction.atomic():
        row.save(force_insert=True)
        audit.record(by=by, action="CreateApiKey", resource=f"api-key/{row.key}", now=now, detail=_facts(row))
    return row, secret


def rotate_api_key(*, api_key: ApiKey, overlap: timedelta, by: Actor, now: datetime) -> tuple[ApiKey, str]:
    """Replace a key by a new key of the same owner, description, limit and lifetime; return the new row and its secret.

    The old key is accepted for ``overlap`` longer, and never longer than before. Raises ConflictError for a key that was
    rotated already or has expired.
    """
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        message = gettext("The old secret can remain valid for 0 to %(days)s days. Choose a time in that range.")
        raise InvalidInputError(message % {"days": LONGEST_OVERLAP.days}, field="overlap")
    expires_at = now + (api_key.expires_at - api_key.created_at) if api_key.expires_at else None
    _check_may_issue(api_key.user, expires_at=expires_at, by=by, now=now)
    with transaction.atomic():
        old = ApiKey.objects.select_for_update(of=("self",)).get(pk=api_key.pk)
        if old.rotated_to_id is not None or (old.expires_at is not None and old.expires_at <= now):
            message = (
                gettext("API key %(key)s was rotated already; nothing was changed. Rotate the current key or create one.")
                if old.rotated_to_id is not None
                else gettext("API key %(key)s has expired; nothing was changed. Rotate the current key or create one.")
            )
            raise ConflictError(message % {"key": old.key})
        limit = KeyLimit(role=old.role, organization=old.organization, environment=old.environment, cluster=old.cluster)
        new, secret = _new_key(user=old.user, description=old.description, expires_at=expires_at, limit=limit, by=by, now=now)
        new.save(force_insert=True)
        old.rotated_to, old.expires_at = new, min(old.expires_at or FOREVER, now + overlap)
        old.save(update_fields=["rotated_to", "expires_at"])
        detail = {**_facts(new), "replaces": old.key, "old_key_expires_at": old.expires_at.isoformat()}
        audit.record(by=by, action="RotateApiKey", resource=f"api-key/{new.key}", now=now, detail=detail)
    return new, secret


def delete_api_key(*, api_key: ApiKey, by: Actor, now: datetime) -> None:
    """Delete an API key; it and its bearer tokens are rejected from then on. A limited key deletes itself only."""
    if not may_manage_keys(api_key.user, by=by):
        raise _denied(api_key.user, by=by)
    if by.key is not None and by.key.is_limited and by.key.pk != api_key.pk:
        text = gettext_noop("A limited API key can delete itself only. Use another key, or the console.")
        raise _denied(api_key.user, text, by=by)
    with transaction.atomic():
        audit.record(by=by, action="DeleteApiKey", resource=f"api-key/{api_key.key}", now=now)
        api_key.delete()


def create_token(*, key: str, life_s: int, by: Actor, now: datetime) -> str:
    """Create a bearer token for an API key of the actor; it expires after ``life_s`` seconds, or with the key."""
    if not 1 <= life_s <= settings.API_TOKEN_LIFE_S:
        message = (
            f"A token can be valid for 1 to {settings.API_TOKEN_LIFE_S} seconds. Give expires_in_s in that range, or leave it "
            "out."
        )
        raise InvalidInputError(message, field="expires_in_s")
    with transaction.atomic():
        row = ApiKey.objects.select_related("user").get(key=key)
        if not (by.may_do_all or _is_self(row.user, by)):
            raise _denied(row.user, by=by)
        audit.record(by=by, action="CreateAccessToken", resource=f"api-key/{key}", now=now, detail={"life_s": life_s})
    return write_token(key, expires_at=now + timedelta(seconds=life_s))


def may_manage_keys(user: User, *, by: Actor) -> bool:
    """Return whether the actor may see and delete the keys of a user: their own, and those of service accounts they manage."""
    if by.may_do_all or _is_self(user, by):
        return True
    account = Account.objects.filter(user=user).select_related("organization").first()
    return _manages_service_account(account, by)


def _manages_service_account(account: Account | None, by: Actor) -> bool:
    if account is None or account.kind != Account.Kind.SERVICE or account.organization is None:
        return False
    return can(by, Permission.MANAGE_USERS, organization=account.organization)


def _check_may_issue(user: User, *, expires_at: datetime | None, by: Actor, now: datetime) -> None:
    """Raise DeniedError unless the actor may get a secret that acts as the user until ``expires_at``."""
    if by.key is not None:
        text = gettext_noop("A request with an API key cannot create API keys. Sign in to the console to do it.")
        raise _denied(user, text, by=by)
    if by.may_do_all or _is_self(user, by):
        return
    if user.is_superuser or not may_manage_keys(user, by=by):
        raise _denied(user, by=by)
    bindings = RoleBinding.objects.of_user(user).in_force(now)
    until = covered_until(by, bindings.select_related("organization", "environment", "cluster__environment"))
    if until is None:
        text = gettext_noop(
            "Service account '%(name)s' has a role that you could not grant, and a key would let you use it. Ask an "
            "administrator who has all of its permissions."
        )
        raise _denied(user, text, by=by, name=user.get_username())
    if until != FOREVER and (expires_at is None or expires_at > until):
        text = gettext_noop(
            "Your own role expires at %(time)s UTC, so the key must expire by then. Choose an earlier expiry time."
        )
        raise _denied(user, text, by=by, field="expires_at", time=f"{until:%Y-%m-%d %H:%M}")


def _is_self(user: User, by: Actor) -> bool:
    return by.user is not None and by.user.pk == user.pk


def _denied(user: User, text: str = "", *, by: Actor, field: str | None = None, **values: str) -> DeniedError:
    text = text or gettext_noop(
        "You may create and delete only your own API keys, and those of service accounts of organizations whose users you "
        "manage. Ask an administrator of this installation to do it."
    )
    return denied(text, values, by=by, action="MANAGE_API_KEY", resource=f"user/{user.get_username()}", field=field)


def _new_key(
    *, user: User, description: str, expires_at: datetime | None, limit: KeyLimit, by: Actor, now: datetime
) -> tuple[ApiKey, str]:
    secret = secrets.token_urlsafe(SECRET_BYTES)
    row = ApiKey(
        key="".join(secrets.choice(KEY_CHARACTERS) for _ in range(KEY_LENGTH)),
        secret_hash=hash_secret(secret),
        user=user,
        description=description,
        role=limit.role,
        organization=limit.organization,
        environment=limit.environment,
        cluster=limit.cluster,
        created_at=now,
        created_by=by.name,
        expires_at=expires_at,
    )
    return row, secret


def _facts(row: ApiKey) -> dict[str, Any]:
    facts: dict[str, Any] = {"user": row.user.get_username()}
    if row.role:
        facts["role"] = row.role
    if row.node is not None:
        facts["scope"] = audit.path_of(row.node)
    if row.expires_at is not None:
        facts["expires_at"] = row.expires_at.isoformat()
    return facts
