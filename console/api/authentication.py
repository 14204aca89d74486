"""Authentication of REST requests (API key, bearer token, session) and the rate limit per API key."""

from __future__ import annotations

import base64
import binascii
import math

from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from console.access import credentials
from console.access.queries import key_of_token, valid_key
from console.api.errors import TooManyAttemptsError
from console.models import ApiKey
from console.redis import rate_limit

# --- authentication ---------------------------------------------------------------------------------------------------
#
# In this order: API key and secret (HTTP Basic, RFC 7617), bearer token (RFC 6750), session of the console.
#
# Keys and tokens are validated by ``console.access.queries``. Error responses do not reveal which part was wrong. Failed API
# key attempts are counted per key and per client address (``console.access.credentials``); too many get 429 with ``Retry-
# After``. A correct secret is accepted even then: otherwise one client with an outdated secret would lock out all clients
# behind the same proxy or NAT, possibly during a failover. Guessing is no risk, since a secret has 256 random bits.


REALM = "Clusterlink"
KEYS_OF_ADDRESS = 10  # an address may have this many times the failures that are allowed for a single key


class ApiKeyAuthentication(BaseAuthentication):
    """HTTP Basic; the user name is the API key, the password its secret."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        """Return the key's owner and the key, or None for a scheme that another class handles.

        Raises AuthenticationFailed for wrong credentials, and TooManyAttemptsError after too many failures.
        """
        scheme, _, encoded = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"basic":
            if scheme and scheme.lower() != b"bearer":
                raise AuthenticationFailed
            return None
        name, secret = _credentials(encoded)
        key = valid_key(key=name, secret=secret, now=timezone.now())
        if key is None:
            raise _failure(request, name)
        return key.user, key

    def authenticate_header(self, _request: Request) -> str:
        """Return the ``WWW-Authenticate`` header, which lists all schemes whichever failed."""
        return f'Basic realm="{REALM}", charset="UTF-8", Bearer realm="{REALM}"'


class BearerAuthentication(BaseAuthentication):
    """Bearer tokens of POST /api/v1/tokens; a token acts as the API key that it was created with."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        """Return the owner of the token's key and the key, or None for another scheme; raise AuthenticationFailed."""
        scheme, _, token = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        key = key_of_token(token=token.strip().decode("latin-1"), now=timezone.now())
        if key is None:
            raise AuthenticationFailed
        return key.user, key


class ConsoleSessionAuthentication(SessionAuthentication):
    """The session of the console's pages; requests that change something need the CSRF token, like the forms of the console."""


def _failure(request: Request, key: str) -> APIException:
    of_key, of_address = (credentials.attempts_at(*what, request) for what in (("api-key", key), ("api-keys", "")))
    wait = max(credentials.count_attempt(of_key), credentials.count_attempt(of_address, names=KEYS_OF_ADDRESS))
    if not wait:
        return AuthenticationFailed()
    credentials.note_refusal(request, action="ThrottleApiKey", resource=f"api-key/{key}")
    return TooManyAttemptsError(wait)


def _credentials(encoded: bytes) -> tuple[str, str]:
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise AuthenticationFailed from None
    name, _, secret = text.partition(":")
    if "\0" in name:  # PostgreSQL raises an error for NUL in a parameter
        raise AuthenticationFailed
    return name, secret


# --- the rate limit per API key ---------------------------------------------------------------------------------------
#
# The algorithm is GCRA (a leaky bucket that stores a timestamp per key). The limit protects the service from a client in a
# loop; it does not protect the Kafka clusters. If Redis is unavailable, requests are allowed, because a failover must not
# depend on it.


class KeyThrottle(BaseThrottle):
    """Refuses requests of an API key or a session above its rate with 429."""

    def __init__(self) -> None:
        """Create a throttle without a wait."""
        self._wait_s = 0.0

    def allow_request(self, request: Request, _view: APIView) -> bool:
        """Count the request; return whether it is within the rate."""
        if settings.API_RATE_PER_S <= 0:
            return True
        client = f"key:{request.auth}" if request.auth else f"user:{request.user.pk}"
        self._wait_s = rate_limit.take(client, per_s=settings.API_RATE_PER_S, burst=settings.API_RATE_BURST)
        return self._wait_s == 0

    def wait(self) -> float:
        """Return the seconds until the next request is allowed, for ``Retry-After``."""
        return math.ceil(self._wait_s)
