"""Credentials: throttle of failed attempts, API keys and tokens, and the sign-in forms."""

from __future__ import annotations

import hashlib
import ipaddress
import math
from datetime import UTC, datetime
from typing import Any

import structlog
from django import forms
from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.admin.sites import AdminSite
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.core import signing
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy

from console import audit
from console.access.second_factor import has_second_factor
from console.actors import Actor
from console.redis import rate_limit

# --- the throttle of failed sign-ins and API-key attempts -------------------------------------------------------------
#
# Attempts are counted per name and address, so that an attack on a name does not lock its owner out elsewhere. IPv6 addresses
# count by their first 64 bits, since a client usually has the whole network. All refusals are logged, but only the first of an
# address per hour is audited, so that an attack cannot fill the database.


NOT_SIGNED_IN = "not signed in"  # no user can have this name
NOTED_EVERY_MS = 3_600_000
MOST_OF_ADDRESS = 64  # characters that the audit keeps
_log = structlog.get_logger(__name__)


def attempts_at(kind: str, name: str, request: Any) -> str:
    """Return the counter for attempts at a name from the request's address; without ``name`` all attempts from there."""
    return f"{kind}:{name}:{_place(_address(request))}"


def attempts_of(kind: str, name: str) -> str:
    """Return the counter for attempts at a name from all addresses."""
    return f"{kind}:{name}:everywhere"


def count_attempt(attempts: str, *, names: int = 1) -> int:
    """Count an attempt. Returns 0 or the seconds to wait. ``names`` multiplies the limit."""
    if settings.ATTEMPTS_AT_ONCE <= 0:
        return 0
    every_s = max(1.0, float(settings.ATTEMPT_EVERY_S))
    return math.ceil(rate_limit.take(attempts, per_s=names / every_s, burst=names * settings.ATTEMPTS_AT_ONCE))


def reset_attempts(attempts: str) -> None:
    """Reset the counter after a successful attempt."""
    rate_limit.reset(attempts)


def note_refusal(request: Any, *, action: str, resource: str) -> None:
    """Log a throttled attempt, and audit the first attempt of its address per hour."""
    address = _address(request)
    _log.warning("attempt.refused", action=action, resource=resource, client=address)
    if rate_limit.is_first(f"refused:{action}:{_place(address)}", ttl_ms=NOTED_EVERY_MS):
        by = Actor(
            name=NOT_SIGNED_IN,
            user=None,
            request_id=getattr(request, "request_id", ""),
            client_address=address[:MOST_OF_ADDRESS],
        )
        reason = "Too many failed attempts from this address. Further ones are in the log, and here once per hour."
        audit.record_denial(by=by, action=action, resource=resource, reason=reason)


def _address(request: Any) -> str:
    return str(request.META.get("REMOTE_ADDR") or "") if request is not None else ""


def _place(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


# --- API keys and bearer tokens ---------------------------------------------------------------------------------------
#
# Only hashes of the secrets of API keys are stored.
#
# A token is an API key and an expiry time, signed with this installation's ``SECRET_KEY``. No token is stored. The API key is
# looked up whenever a token is used, so deleting the key also invalidates its tokens. Tokens consist of the characters that
# RFC 6750, section 2.1, allows.


_SALT = "console.access.credentials"


def hash_secret(secret: str) -> str:
    """Return the SHA-256 of a secret of 256 random bits; a slow password hash is not needed, since it cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def write_token(key: str, *, expires_at: datetime) -> str:
    """Return a token for an API key."""
    return _signer().sign_object({"key": key, "end": int(expires_at.timestamp())})


def read_token(token: str, *, now: datetime) -> str | None:
    """Return the API key of a token; None if the signature is wrong or the token has expired."""
    try:
        found = _signer().unsign_object(token)
    except signing.BadSignature:
        return None
    return str(found["key"]) if datetime.fromtimestamp(found["end"], UTC) > now else None


def _signer() -> signing.Signer:
    return signing.Signer(sep=".", salt=_SALT)


# --- sign-in forms of the console and of the admin site ---------------------------------------------------------------
#
# Attempts are counted per name and address (see the throttle above) before the password is checked. A successful attempt
# resets the count.


class SignInForm(AuthenticationForm):
    """Django's form with throttling; ``wait_s`` is the time until the next attempt is accepted."""

    wait_s = 0

    def clean(self) -> dict[str, Any]:
        """Check the password unless the attempt is throttled. Raises ValidationError."""
        name = self.cleaned_data.get("username", "")
        attempts = attempts_at("sign-in", name, self.request)
        self.wait_s = count_attempt(attempts)
        if self.wait_s:
            note_refusal(self.request, action="ThrottleSignIn", resource=f"user/{name}")
            message = gettext("Too many attempts. Wait %(seconds)s seconds, then try again.") % {"seconds": self.wait_s}
            raise ValidationError(message, code="too_many_attempts")
        values: dict[str, Any] = super().clean()
        reset_attempts(attempts)
        return values


class AdminSignInForm(SignInForm, AdminAuthenticationForm):
    """The sign-in form of the admin site, which accepts superusers only, and no users with a second factor."""

    def confirm_login_allowed(self, user: Any) -> None:
        """Raise ValidationError for others, and for users who have to enter a code, for which this form has no step."""
        super().confirm_login_allowed(user)
        if not user.is_superuser:
            raise self.get_invalid_login_error()
        if has_second_factor(user):
            message = gettext(
                "You use a second factor. Sign in to the console, then open the administration with the same session."
            )
            raise ValidationError(message, code="second_factor")


class SuperuserSite(AdminSite):
    """Django's admin site, for superusers only. Its own permissions, which staff could have, do not count."""

    login_form = AdminSignInForm

    def has_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)


# --- the form field for a user name -----------------------------------------------------------------------------------
#
# Used by the forms that grant roles or create API keys. A list instead of the text field would show all users of the
# installation to every user who manages access to a topic.


class UserNameField(forms.CharField):
    """A field for the exact name of an active user; its cleaned value is the ``User``."""

    def __init__(self, *, suggestions: str = "", required: bool = True) -> None:
        """``suggestions`` is the id of a ``<datalist>`` of the page with names to suggest, or ""."""
        attributes = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        attributes |= {"list": suggestions} if suggestions else {}
        super().__init__(
            label=gettext_lazy("User"),
            required=required,
            max_length=150,
            help_text=gettext_lazy("The exact user name."),
            widget=forms.TextInput(attrs=attributes),
        )

    def clean(self, value: Any) -> Any:
        """Return the active user with the name, None for an empty name; raise ValidationError if there is no such user."""
        name = super().clean(value)
        if not name:
            return None
        user = User.objects.filter(username=name, is_active=True).first()
        if user is None:
            message = gettext("No active user has this name. Check the spelling; names are case-sensitive.")
            raise forms.ValidationError(message)
        return user
