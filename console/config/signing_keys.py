"""Signing keys, derived from the credentials keys (HKDF-SHA256), a set per purpose.

They need no setting of their own and rotate with the credentials keys: each credentials key yields a signing key, in the
same order, so the newest signs and all verify (docs/operations/configure.md).
"""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from linkengine.domain.signatures import Signer, derive


def queue_signer() -> Signer:
    """Return the signer of messages in the work queue."""
    return _signer(tuple(settings.CREDENTIALS_KEYS), "queue")


def reply_signer() -> Signer:
    """Return the signer of replies to waiting processes."""
    return _signer(tuple(settings.CREDENTIALS_KEYS), "reply")


def link_signer(link_key: str) -> Signer:
    """Return the signer of a link's reports and losses; copy workers get its keys with the link's plan."""
    return _signer(tuple(settings.CREDENTIALS_KEYS), f"link {link_key}")


def worker_secrets() -> tuple[str, ...]:
    """Return the secrets, newest first, that give each copy worker its key (``linkengine.coordination.pool.key_for``)."""
    return tuple(settings.CREDENTIALS_KEYS)


@lru_cache(maxsize=4096)
def _signer(keys: tuple[str, ...], purpose: str) -> Signer:
    return Signer(tuple(derive(key, f"clusterlink signing key 1: {purpose}") for key in keys))
