"""Who asks: an API key with its secret over HTTP Basic (RFC 7617), a bearer token made with one (RFC 6750), or the session of a
person in the console.

What a key or token is worth is decided in ``console.queries.access``. Failures never say which part was wrong. Failures of API
keys are counted (``console.guessing``), of one key and of all keys at an address; whoever fails too often is told to wait. A
right secret is always let in: behind a proxy or a NAT one client with an old secret must not shut out the others in the hour of
a failover, and 256 random bits are not found by guessing.
"""

from __future__ import annotations

import base64
import binascii

from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.request import Request

from console import guessing
from console.api.errors import TooManyAttemptsError
from console.queries.access import user_of_key, user_of_token

REALM = "Clusterlink"
KEYS_OF_ADDRESS = 10  # times the failures of one key are those that an address has for all


class ApiKeyAuthentication(BaseAuthentication):
    """HTTP Basic; the user name is the API key, the password its secret."""

    def authenticate(self, request: Request) -> tuple[User, str] | None:
        """Answer the key's owner and the key, None where another scheme may try; raise AuthenticationFailed or a wait."""
        scheme, _, encoded = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"basic":
            if scheme and scheme.lower() != b"bearer":
                raise AuthenticationFailed
            return None
        name, secret = _credentials(encoded)
        user = user_of_key(key=name, secret=secret, now=timezone.now())
        if user is None:
            raise _refusal(request, name)
        return user, name

    def authenticate_header(self, _request: Request) -> str:
        """Tell clients how to authenticate; all ways, whichever failed."""
        return f'Basic realm="{REALM}", charset="UTF-8", Bearer realm="{REALM}"'


class BearerAuthentication(BaseAuthentication):
    """A token of POST /api/v1/tokens; it acts as the API key it was made with."""

    def authenticate(self, request: Request) -> tuple[User, str] | None:
        """Answer the key's owner and the key, None where another scheme may try, or raise AuthenticationFailed."""
        scheme, _, token = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        found = user_of_token(token=token.strip().decode("latin-1"), now=timezone.now())
        if found is None:
            raise AuthenticationFailed
        return found


class ConsoleSessionAuthentication(SessionAuthentication):
    """The session of the console's pages; changes need the CSRF token, as every form of the console does."""


def _refusal(request: Request, key: str) -> APIException:
    of_key, of_address = (guessing.attempts_at(*what, request) for what in (("api-key", key), ("api-keys", "")))
    wait = max(guessing.count(of_key), guessing.count(of_address, names=KEYS_OF_ADDRESS))
    if not wait:
        return AuthenticationFailed()
    guessing.note_refusal(request, action="ThrottleApiKey", resource=f"api-key/{key}")
    return TooManyAttemptsError(wait)


def _credentials(encoded: bytes) -> tuple[str, str]:
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise AuthenticationFailed from None
    name, _, secret = text.partition(":")
    if "\0" in name:  # PostgreSQL refuses to look for it
        raise AuthenticationFailed
    return name, secret
