"""Field types of ours: JSON that is encrypted at rest.

The key comes from the setting CREDENTIALS_KEYS (Fernet, newest first, so keys can be rotated); without it nothing that was
stored can be read. What is stored never appears in ``repr``, forms or serializers: those ask for it by name.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models


def _cipher() -> MultiFernet:
    return _cipher_of(tuple(settings.CREDENTIALS_KEYS))


@lru_cache(maxsize=4)
def _cipher_of(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


if TYPE_CHECKING:
    _Text = models.TextField[Any, Any]
else:
    _Text = models.TextField  # generic for the type checker only


class EncryptedJSONField(_Text):
    """A JSON value stored as a Fernet token; cannot be searched. Cost: one decryption per row loaded."""

    _pyi_private_set_type: Any  # what django-stubs takes assignments to be
    _pyi_private_get_type: Any

    def get_prep_value(self, value: Any) -> str:
        return _cipher().encrypt(json.dumps(value, sort_keys=True).encode()).decode()

    def from_db_value(self, value: str | None, _expression: object, _connection: object) -> Any:
        return None if value is None else json.loads(_cipher().decrypt(value.encode()))

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> str:
        return self.get_prep_value(self.value_from_object(obj))


def seal(value: Any) -> str:
    """Encrypt a JSON value for a short way over something that keeps no secrets, such as the work queue."""
    return _cipher().encrypt(json.dumps(value).encode()).decode()


def unseal(token: str) -> Any:
    """Read what ``seal`` wrote."""
    return json.loads(_cipher().decrypt(token.encode()))


def renewed(token: str) -> str | None:
    """Answer the token with the newest key, None where it has that already; raise InvalidToken where no key reads it."""
    try:
        Fernet(settings.CREDENTIALS_KEYS[0]).decrypt(token.encode())
    except InvalidToken:
        return _cipher().rotate(token.encode()).decode()
    return None
