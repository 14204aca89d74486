"""Encrypts the secrets of time-based codes at rest. Imported by django-allauth, if it is installed (``MFA_ADAPTER``)."""

from __future__ import annotations

from allauth.mfa.adapter import DefaultMFAAdapter

from console.models.fields import seal, unseal


class SecretsAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Uses the keys of CLUSTERLINK_CREDENTIALS_KEY."""

    def encrypt(self, text: str) -> str:
        """Return the encrypted text."""
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Return the text."""
        return str(unseal(encrypted_text))
