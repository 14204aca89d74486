"""Signing keys, derived from the credentials keys (HKDF-SHA256), one set per purpose.

They need no setting of their own and rotate with the credentials keys: each credentials key gives one signing key, in the same
order, so the newest signs and all verify (docs/operations.md, "Backups and keys").
"""

from __future__ import annotations

import base64
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from linkengine.domain.signatures import Signer

_KEY_BYTES = 32


def queue_signer() -> Signer:
    """Return the signer of messages in the work queue."""
    return _signer(tuple(settings.CREDENTIALS_KEYS), "queue")


def reply_signer() -> Signer:
    """Return the signer of replies to waiting processes."""
    return _signer(tuple(settings.CREDENTIALS_KEYS), "reply")


def link_signer(link_key: str) -> Signer:
    """Return the signer of one link's orders, reports and losses; executors get its keys with the copy plan."""
    return _signer(tuple(settings.CREDENTIALS_KEYS), f"link {link_key}")


@lru_cache(maxsize=4096)
def _signer(keys: tuple[str, ...], purpose: str) -> Signer:
    return Signer(tuple(derive(key, purpose) for key in keys))


def derive(credentials_key: str, purpose: str) -> bytes:
    """Return the signing key that a credentials key gives for a purpose."""
    info = f"clusterlink signing key 1: {purpose}".encode()
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info).derive(base64.urlsafe_b64decode(credentials_key))
