"""Turns the second factor of the actor on and off, and accepts its codes at sign-in."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from console import audit
from console.access import second_factor
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError


def turn_on(*, secret: str, code: str, by: Actor, now: datetime) -> list[str]:
    """Store the secret of the actor and return the recovery codes, which are not shown again.

    The caller has checked the password. Raises InvalidInputError if the code does not belong to the secret.
    """
    assert by.user is not None  # only users have a second factor
    if second_factor.has_second_factor(by.user):
        raise ConflictError("You have a second factor already. Turn it off first to set up another device.")
    with transaction.atomic():
        codes = second_factor.activate(by.user, secret, code)
        if codes is None:
            message = "The code is not valid. Enter the current code of the app, and check the clock of the device."
            raise InvalidInputError(message, field="code")
        audit.record(by=by, action="TurnOnSecondFactor", resource=f"user/{by.user.get_username()}", now=now)
    return codes


def turn_off(*, by: Actor, now: datetime) -> None:
    """Delete the secret and the recovery codes of the actor; the caller has checked the password and a code."""
    assert by.user is not None  # only users have a second factor
    with transaction.atomic():
        if not second_factor.deactivate(by.user):
            raise ConflictError("You have no second factor, so nothing was changed.")
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
