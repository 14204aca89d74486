"""Role bindings, API keys, and the users of keys and tokens."""

from __future__ import annotations

import hmac
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import DatabaseError
from django.db.models import Q

from console.access import Permission, can
from console.access.api_keys import hash_secret, read_token
from console.access.grants import reach_of
from console.actors import Actor
from console.http import database_outages
from console.models import ApiKey, RoleBinding

_USED_PRECISION = timedelta(minutes=1)  # an update for each request would make read requests write


def list_bindings(*, by: Actor) -> list[RoleBinding]:
    """Return the bindings at scopes whose access the actor manages, and the actor's own."""
    rows = RoleBinding.objects.select_related(
        "user", "organization", "environment__organization", "cluster__environment__organization"
    ).order_by("user__username", "pk")
    if by.may_do_all:
        return list(rows)
    manages = Permission.MANAGE_ACCESS
    return [row for row in rows if (by.user and row.user_id == by.user.pk) or can(by, manages, **reach_of(row))]


def known_user_names(*, by: Actor) -> list[str]:
    """Return the names of the active users that the actor may know: of the role bindings that ``list_bindings`` returns.

    One query.
    """
    if by.may_do_all:
        return list(User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True))
    return sorted({binding.user.get_username() for binding in list_bindings(by=by) if binding.user.is_active})


def my_bindings(*, by: Actor) -> list[RoleBinding]:
    """Return the actor's own bindings."""
    if by.user is None:
        return []
    return list(RoleBinding.objects.filter(user=by.user).select_related("organization", "environment", "cluster"))


def list_api_keys(*, by: Actor) -> list[ApiKey]:
    """Return the actor's own keys; for a superuser, all keys."""
    rows = ApiKey.objects.select_related("user").order_by("-created_at", "key")
    if by.may_do_all:
        return list(rows)
    return list(rows.filter(user=by.user)) if by.user else []


def user_of_key(*, key: str, secret: str, now: datetime) -> User | None:
    """Return the user of an API key if the secret is correct and key and user are valid; else None."""
    row = ApiKey.objects.select_related("user").filter(key=key).first()
    matches = hmac.compare_digest(row.secret_hash if row else hash_secret(""), hash_secret(secret))
    if row is None or not matches or not row.user.is_active or (row.expires_at is not None and row.expires_at <= now):
        return None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _USED_PRECISION)
    if row.last_used_at is None or row.last_used_at < now - _USED_PRECISION:
        try:
            ApiKey.objects.filter(stale, pk=row.pk).update(last_used_at=now)
        except DatabaseError as error:
            if database_outages.outage_of(error) != database_outages.READ_ONLY:  # read requests work with a read-only standby
                raise
    return row.user


def user_of_token(*, token: str, now: datetime) -> tuple[User, str] | None:
    """Return the user of a bearer token and its API key; None if the key was deleted or has expired."""
    key = read_token(token, now=now)
    row = ApiKey.objects.select_related("user").filter(key=key).first() if key else None
    if row is None or not row.user.is_active or (row.expires_at is not None and row.expires_at <= now):
        return None
    return row.user, row.key
