"""Preferences of a user in the session, and the record of sessions.

Time zone and density are stored in the account and copied to the session at sign-in, so that no page needs a query for them.
"""

from __future__ import annotations

import zoneinfo
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest
from django.utils import timezone

from console.models import Account, UserSession

TIME_ZONE, DENSITY = "time_zone", "density"  # keys of the session
LONGEST_AGENT, LONGEST_ADDRESS = 200, 64


def connect() -> None:
    """Connect the receiver of sign-ins: of the console, of the admin site and of an identity provider."""
    user_logged_in.connect(_signed_in, dispatch_uid="console.pages.preferences")


def zone_of(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the time zone of a name, or None (the default, UTC) for an empty or unknown name."""
    try:
        return zoneinfo.ZoneInfo(name) if name else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return None


def remember(request: HttpRequest, account: Account | None) -> None:
    """Copy the preferences of an account to the session."""
    request.session[TIME_ZONE] = account.time_zone if account else ""
    request.session[DENSITY] = account.density if account else ""


def record_session(request: HttpRequest, user: User) -> None:
    """Store the row of the request's session, and delete rows of sessions of the user that were replaced by it."""
    if not request.session.session_key:
        request.session.create()
    values = {
        "user": user,
        "started_at": timezone.now(),
        "client_address": str(request.META.get("REMOTE_ADDR") or "")[:LONGEST_ADDRESS],
        "user_agent": str(request.META.get("HTTP_USER_AGENT") or "").replace("\0", "")[:LONGEST_AGENT],
    }
    UserSession.objects.update_or_create(session_key=request.session.session_key, defaults=values)


def _signed_in(sender: Any, request: HttpRequest, user: User, **_more: Any) -> None:
    remember(request, Account.objects.filter(user=user).first())
    record_session(request, user)
