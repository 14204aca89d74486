"""Preferences of a user in the session, and the record of sessions.

Time zone, language and density are stored in the account and copied to the session at sign-in, so that no page needs a query
for them.
"""

from __future__ import annotations

import zoneinfo
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone

from console.access.account_actions import record_sign_in
from console.actors import Actor
from console.http.middleware import LANGUAGE
from console.models import Account, UserSession

TIME_ZONE, DENSITY = "time_zone", "density"  # keys of the session
LONGEST_AGENT, LONGEST_ADDRESS = 200, 64


def connect() -> None:
    """Connect the receiver of sign-ins: of the console, of the admin site and of an identity provider."""
    user_logged_in.connect(_signed_in, dispatch_uid="console.web.preferences")


def zone_of(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the time zone of a name, or None (the default, UTC) for an empty or unknown name."""
    try:
        return zoneinfo.ZoneInfo(name) if name else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return None


def remember(request: HttpRequest, account: Account | None) -> None:
    """Copy the preferences of an account to the session."""
    request.session[TIME_ZONE] = account.time_zone if account else ""
    request.session[LANGUAGE] = account.language if account else ""
    request.session[DENSITY] = account.density if account else ""


def record_session(request: HttpRequest, user: User) -> None:
    """Store the row of the request's session, and delete rows of sessions of the user that have ended."""
    if not request.session.session_key:
        request.session.create()
    alive = Session.objects.filter(expire_date__gt=timezone.now()).values("session_key")
    UserSession.objects.filter(user=user).exclude(session_key__in=alive).delete()
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
    request_id = getattr(request, "request_id", "")  # of the middleware: empty for a session that no HTTP request has created
    if request_id:
        address = str(request.META.get("REMOTE_ADDR") or "")
        by = Actor(name=user.get_username(), user=user, request_id=request_id, client_address=address)
        record_sign_in(path=request.path, by=by, now=timezone.now())
