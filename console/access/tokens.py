"""Bearer tokens: the name of an API key and an end, signed by this installation (``SECRET_KEY``); nothing is stored.

A token is worth what its key is worth at the moment it is used, so deleting the key makes its tokens useless. Written in the
characters that RFC 6750 allows.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.core import signing

_SALT = "console.access.tokens"


def write_token(key: str, *, expires_at: datetime) -> str:
    """Make a token of an API key."""
    return _signer().sign_object({"key": key, "end": int(expires_at.timestamp())})


def read_token(token: str, *, now: datetime) -> str | None:
    """Answer the API key of a token; None where it was not made here, was changed, or has expired."""
    try:
        found = _signer().unsign_object(token)
    except signing.BadSignature:
        return None
    return str(found["key"]) if datetime.fromtimestamp(found["end"], UTC) > now else None


def _signer() -> signing.Signer:
    return signing.Signer(sep=".", salt=_SALT)
