"""Grant and revoke roles; make and delete API keys; make bearer tokens."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from console import audit
from console.access import Permission, check_permission
from console.access.handing import reach_of, withheld
from console.access.keys import hash_secret
from console.access.tokens import write_token
from console.actors import Actor
from console.errors import DeniedError, InvalidInputError
from console.models import ApiKey, Cluster, Environment, Organization, RoleBinding

KEY_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
KEY_LENGTH = 16
SECRET_BYTES = 32


def grant_role(  # noqa: PLR0913 - one keyword per level of the tree
    *,
    user: User,
    role: str,
    organization: Organization | None = None,
    environment: Environment | None = None,
    cluster: Cluster | None = None,
    resource_type: str = "",
    resource_name: str = "",
    prefixed: bool = False,
    by: Actor,
    now: datetime,
) -> RoleBinding:
    """Grant a role on one node of the tree; granting it again answers the binding that is there.

    Raises DeniedError where the actor does not manage access there, or may not do there what the role allows.
    """
    what = {
        "user": user,
        "role": role,
        "organization": organization,
        "environment": environment,
        "cluster": cluster,
        "resource_type": resource_type,
        "resource_name": resource_name,
        "prefixed": prefixed,
    }
    binding = RoleBinding(**what, granted_at=now, granted_by=by.name)
    check_permission(by, Permission.MANAGE_ACCESS, **reach_of(binding))
    known = RoleBinding.objects.filter(**what).first()
    if known is not None:
        return known
    try:
        return _store(binding, by=by, now=now)
    except (InvalidInputError, IntegrityError):
        known = RoleBinding.objects.filter(**what).first()
        if known is None:
            raise
        return known  # somebody was quicker


def revoke_role(*, binding: RoleBinding, by: Actor, now: datetime) -> None:
    """Take a role away; who may not grant it may not do that either."""
    check_permission(by, Permission.MANAGE_ACCESS, **reach_of(binding))
    _check_not_beyond(by, binding, action="RevokeRole")
    with transaction.atomic():
        audit.record(by=by, action="RevokeRole", resource=_path(binding), now=now, detail=_facts(binding))
        binding.delete()


def change_own_password(*, new: str, by: Actor, now: datetime) -> None:
    """Set the actor's password; the caller has checked the present one. Ends the sessions that were begun with it.

    API keys and their tokens stay valid: they are secrets of their own. Raises InvalidInputError for a password that the
    installation's rules (``AUTH_PASSWORD_VALIDATORS``) do not allow.
    """
    user = by.user
    assert user is not None  # programs have keys, no passwords
    try:
        validate_password(new, user)
    except ValidationError as error:
        raise InvalidInputError(" ".join(error.messages), field="new_password") from None
    with transaction.atomic():
        user.set_password(new)
        user.save(update_fields=["password"])
        audit.record(by=by, action="ChangePassword", resource=f"user/{user.get_username()}", now=now)


def create_api_key(
    *, user: User, description: str, expires_at: datetime | None = None, by: Actor, now: datetime
) -> tuple[ApiKey, str]:
    """Make a key for oneself (a superuser for anybody); the secret is in this answer and nowhere else."""
    _check_own(user, by)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    key = "".join(secrets.choice(KEY_CHARACTERS) for _ in range(KEY_LENGTH))
    with transaction.atomic():
        row = ApiKey.objects.create(
            key=key, secret_hash=hash_secret(secret), user=user, description=description, created_at=now, expires_at=expires_at
        )
        audit.record(by=by, action="CreateApiKey", resource=f"api-key/{key}", now=now, detail={"user": user.get_username()})
    return row, secret


def create_token(*, key: str, life_s: int, by: Actor, now: datetime) -> str:
    """Make a bearer token that acts as an API key of the actor's until it expires, or the key does or is deleted."""
    if not 1 <= life_s <= settings.API_TOKEN_LIFE_S:
        message = f"A token lasts 1 to {settings.API_TOKEN_LIFE_S} seconds. Give expires_in_s in that range, or leave it out."
        raise InvalidInputError(message, field="expires_in_s")
    with transaction.atomic():
        row = ApiKey.objects.select_related("user").get(key=key)
        _check_own(row.user, by)
        audit.record(by=by, action="CreateAccessToken", resource=f"api-key/{key}", now=now, detail={"life_s": life_s})
    return write_token(key, expires_at=now + timedelta(seconds=life_s))


def delete_api_key(*, api_key: ApiKey, by: Actor, now: datetime) -> None:
    """Make a key useless at once."""
    _check_own(api_key.user, by)
    with transaction.atomic():
        audit.record(by=by, action="DeleteApiKey", resource=f"api-key/{api_key.key}", now=now)
        api_key.delete()


def _store(binding: RoleBinding, *, by: Actor, now: datetime) -> RoleBinding:
    _check_binding(binding)
    _check_not_beyond(by, binding, action="GrantRole")
    with transaction.atomic():
        binding.save()
        audit.record(by=by, action="GrantRole", resource=_path(binding), now=now, detail=_facts(binding))
    return binding


def _check_not_beyond(by: Actor, binding: RoleBinding, *, action: str) -> None:
    beyond = withheld(by, binding)
    if beyond is None:
        return
    where = _path(binding)
    reason = (
        f"The role {binding.role} allows to {beyond} in {where}, which you may not do there yourself. Ask somebody who may."
    )
    audit.record_denial(by=by, action=action, resource=where, reason=reason)
    raise DeniedError(reason, code="NOT_AUTHORIZED")


def _check_own(user: User, by: Actor) -> None:
    if by.may_do_all or (by.user is not None and by.user.pk == user.pk):
        return
    reason = "You may make and delete API keys of your own only. Ask an administrator of this installation for others."
    audit.record_denial(by=by, action="MANAGE_API_KEY", resource=f"user/{user.get_username()}", reason=reason)
    raise DeniedError(reason, code="NOT_AUTHORIZED")


def _check_binding(binding: RoleBinding) -> None:
    if bool(binding.resource_type) != bool(binding.resource_name) and binding.resource_type != "Cluster":
        raise InvalidInputError("A resource needs both its type and its name.", field="resource_name")
    try:
        binding.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInputError(" ".join(messages), field=None if field == "__all__" else field) from None


def _path(binding: RoleBinding) -> str:
    place = binding.organization or binding.environment or binding.cluster
    path = audit.path_of(place) if place else "nowhere"  # what names no place is refused
    return f"{path}/{binding.resource_type.lower()}/{binding.resource_name}" if binding.resource_name else path


def _facts(binding: RoleBinding) -> dict[str, str | bool]:
    return {"user": binding.user.get_username(), "role": binding.role, "prefixed": binding.prefixed}
