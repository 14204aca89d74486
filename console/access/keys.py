"""How secrets of API keys are stored."""

import hashlib


def hash_secret(secret: str) -> str:
    """Hash a secret of 256 random bits; nothing slower is needed for what cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()
