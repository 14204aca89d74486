"""API keys: hashes of their secrets for storage, and bearer tokens.

A token is an API key and an expiry time, signed with this installation's ``SECRET_KEY``. No token is stored. The API key is
looked up whenever a token is used, so deleting the key also invalidates its tokens. Tokens consist of the characters that
RFC 6750, section 2.1, allows.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from django.core import signing

_SALT = "console.access.api_keys"


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
