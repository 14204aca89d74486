"""Grants and revokes roles, changes passwords, creates and deletes API keys, and creates bearer tokens."""

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
from console.access.api_keys import hash_secret, write_token
from console.access.grants import missing_permission, reach_of
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
    """Grant a role on one node of the tree and return the binding; return the existing binding if the role is granted already.

    Raises DeniedError if the actor lacks MANAGE_ACCESS there, or lacks one of the permissions that the role contains.
    """
    values = {
        "user": user,
        "role": role,
        "organization": organization,
        "environment": environment,
        "cluster": cluster,
        "resource_type": resource_type,
        "resource_name": resource_name,
        "prefixed": prefixed,
    }
    binding = RoleBinding(**values, granted_at=now, granted_by=by.name)
    check_permission(by, Permission.MANAGE_ACCESS, **reach_of(binding))
    existing = RoleBinding.objects.filter(**values).first()
    if existing is not None:
        return existing
    try:
        return _store(binding, by=by, now=now)
    except (InvalidInputError, IntegrityError):
        existing = RoleBinding.objects.filter(**values).first()
        if existing is None:
            raise
        return existing  # another request has granted it since the check


def revoke_role(*, binding: RoleBinding, by: Actor, now: datetime) -> None:
    """Revoke a role; raise DeniedError if the actor could not grant it."""
    check_permission(by, Permission.MANAGE_ACCESS, **reach_of(binding))
    _check_holds_role(by, binding, action="RevokeRole")
    with transaction.atomic():
        audit.record(by=by, action="RevokeRole", resource=_path(binding), now=now, detail=_facts(binding))
        binding.delete()


def change_own_password(*, new: str, by: Actor, now: datetime) -> None:
    """Set the actor's password, which ends the actor's sessions; the caller has checked the current password.

    API keys and bearer tokens stay valid. Raises InvalidInputError for a password that ``AUTH_PASSWORD_VALIDATORS`` rejects.
    """
    user = by.user
    assert user is not None  # only users have passwords
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
    """Create an API key for the actor, or for any user if the actor is a superuser; return the row and the secret.

    Only a hash of the secret is stored, so it cannot be shown again.
    """
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
    """Create a bearer token for an API key of the actor; it expires after ``life_s`` seconds, or with the key."""
    if not 1 <= life_s <= settings.API_TOKEN_LIFE_S:
        message = (
            f"A token can be valid for 1 to {settings.API_TOKEN_LIFE_S} seconds. Give expires_in_s in that range, or leave it "
            "out."
        )
        raise InvalidInputError(message, field="expires_in_s")
    with transaction.atomic():
        row = ApiKey.objects.select_related("user").get(key=key)
        _check_own(row.user, by)
        audit.record(by=by, action="CreateAccessToken", resource=f"api-key/{key}", now=now, detail={"life_s": life_s})
    return write_token(key, expires_at=now + timedelta(seconds=life_s))


def delete_api_key(*, api_key: ApiKey, by: Actor, now: datetime) -> None:
    """Delete an API key; it and its bearer tokens are rejected from then on."""
    _check_own(api_key.user, by)
    with transaction.atomic():
        audit.record(by=by, action="DeleteApiKey", resource=f"api-key/{api_key.key}", now=now)
        api_key.delete()


def _store(binding: RoleBinding, *, by: Actor, now: datetime) -> RoleBinding:
    _check_binding(binding)
    _check_holds_role(by, binding, action="GrantRole")
    with transaction.atomic():
        binding.save()
        audit.record(by=by, action="GrantRole", resource=_path(binding), now=now, detail=_facts(binding))
    return binding


def _check_holds_role(by: Actor, binding: RoleBinding, *, action: str) -> None:
    missing = missing_permission(by, binding)
    if missing is None:
        return
    path = _path(binding)
    reason = (
        f"The role {binding.role} includes the permission to {missing} in {path}, which you do not have. Ask an administrator "
        "who has it."
    )
    audit.record_denial(by=by, action=action, resource=path, reason=reason)
    raise DeniedError(reason, code="NOT_AUTHORIZED")


def _check_own(user: User, by: Actor) -> None:
    if by.may_do_all or (by.user is not None and by.user.pk == user.pk):
        return
    reason = "You may create and delete only your own API keys. Ask an administrator of this installation to do it."
    audit.record_denial(by=by, action="MANAGE_API_KEY", resource=f"user/{user.get_username()}", reason=reason)
    raise DeniedError(reason, code="NOT_AUTHORIZED")


def _check_binding(binding: RoleBinding) -> None:
    if bool(binding.resource_type) != bool(binding.resource_name) and binding.resource_type != "Cluster":
        raise InvalidInputError("A resource needs both a type and a name. Give both, or neither.", field="resource_name")
    try:
        binding.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInputError(" ".join(messages), field=None if field == "__all__" else field) from None


def _path(binding: RoleBinding) -> str:
    place = binding.organization or binding.environment or binding.cluster
    path = audit.path_of(place) if place else "nowhere"  # full_clean rejects a binding without a place
    return f"{path}/{binding.resource_type.lower()}/{binding.resource_name}" if binding.resource_name else path


def _facts(binding: RoleBinding) -> dict[str, str | bool]:
    return {"user": binding.user.get_username(), "role": binding.role, "prefixed": binding.prefixed}
