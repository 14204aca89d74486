"""Hashes the secrets of API keys for storage."""

import hashlib


def hash_secret(secret: str) -> str:
    """Return the SHA-256 of a secret of 256 random bits; a slow password hash is not needed, since it cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()
