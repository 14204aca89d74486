"""Who asks: an API key with its secret over HTTP Basic (RFC 7617), or the session of a person in the console.

Secrets are kept as SHA-256 of 256 random bits, which needs no slow hash. Comparison takes the same time whether the key
exists or not. Failures never say which part was wrong.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from console.actions.access import hash_secret
from console.models import ApiKey

REALM = "Clusterlink"
LAST_USE_GRAIN = timedelta(minutes=1)  # a busy key is one write a minute, not one a request
_NOBODY = hash_secret("")


class ApiKeyAuthentication(BaseAuthentication):
    """HTTP Basic; the user name is the API key, the password its secret."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        """Answer the key's owner, None where another scheme may try, or raise AuthenticationFailed."""
        scheme, _, encoded = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"basic":
            if scheme:
                raise AuthenticationFailed
            return None
        name, secret = _credentials(encoded)
        api_key = find_key(name, secret=secret, now=timezone.now())
        if api_key is None:
            raise AuthenticationFailed
        return api_key.user, api_key

    def authenticate_header(self, _request: Request) -> str:
        """Tell clients how to authenticate."""
        return f'Basic realm="{REALM}", charset="UTF-8"'


class ConsoleSessionAuthentication(SessionAuthentication):
    """The session of the console's pages; changes need the CSRF token, as every form of the console does."""


def find_key(name: str, *, secret: str, now: datetime) -> ApiKey | None:
    """Answer the usable key of that name and secret and note its use; one query, and one write a minute."""
    api_key = ApiKey.objects.select_related("user").filter(key=name).first()
    given = hash_secret(secret)
    fits = hmac.compare_digest(given, api_key.secret_hash if api_key else _NOBODY)
    if api_key is None or not fits or not api_key.user.is_active or (api_key.expires_at and api_key.expires_at <= now):
        return None
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - LAST_USE_GRAIN)
    if api_key.last_used_at is None or api_key.last_used_at <= now - LAST_USE_GRAIN:
        ApiKey.objects.filter(stale, pk=api_key.pk).update(last_used_at=now)
    return api_key


def _credentials(encoded: bytes) -> tuple[str, str]:
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise AuthenticationFailed from None
    name, _, secret = text.partition(":")
    if "\0" in name:  # PostgreSQL refuses to look for it
        raise AuthenticationFailed
    return name, secret
