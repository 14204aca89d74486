"""Field types: JSON that is encrypted at rest, text with any characters, and the hash of such a text.

The key comes from the setting CREDENTIALS_KEYS (Fernet, newest first, so that keys can be rotated). Without it stored values
cannot be read. Encrypted values never appear in ``repr``, forms or serializers unless these name the field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
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
    _String = models.TextField[str, str]
    _Chars = models.CharField[str, str]
else:
    _Text, _String, _Chars = models.TextField, models.TextField, models.CharField  # generic for the type checker only


class EncryptedJSONField(_Text):
    """A JSON value stored as a Fernet token; cannot be searched. Cost: a decryption per loaded row."""

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


_ESCAPE = "\x1a"  # SUBSTITUTE; followed by "0" it means NUL, doubled it means itself


class AnyTextField(_String):
    """Text with any characters: PostgreSQL stores no NUL in text, which Kafka allows in the name of a consumer group."""

    def get_prep_value(self, value: Any) -> Any:
        return value.replace(_ESCAPE, _ESCAPE * 2).replace("\0", f"{_ESCAPE}0") if isinstance(value, str) else value

    def from_db_value(self, value: str | None, _expression: object, _connection: object) -> Any:
        if value is None or _ESCAPE not in value:
            return value
        return "".join(_unescaped(value))


def _unescaped(text: str) -> Iterator[str]:
    characters = iter(text)
    for character in characters:
        yield character if character != _ESCAPE else {"0": "\0"}.get(next(characters, ""), _ESCAPE)


class KeyOfField(_Chars):
    """The SHA-256 of another field, for unique constraints: a PostgreSQL index entry is limited to 2,700 bytes."""

    def __init__(self, of: str = "", **options: Any) -> None:
        """Store the name of the hashed field."""
        self.of = of
        super().__init__(**{"max_length": 64, "editable": False, "default": "", **options})

    def deconstruct(self) -> Any:
        name, path, args, options = super().deconstruct()
        return name, path, args, {**options, "of": self.of}

    def pre_save(self, row: models.Model, add: bool) -> str:  # noqa: FBT001 - Django's signature
        key = key_of(getattr(row, self.of))
        setattr(row, self.attname, key)
        return key


def key_of(text: str) -> str:
    """Return the value of a ``KeyOfField`` for a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def seal(value: Any) -> str:
    """Encrypt a JSON value for transport through something that is not confidential, such as the work queue."""
    return _cipher().encrypt(json.dumps(value).encode()).decode()


def unseal(token: str) -> Any:
    """Decrypt a value that ``seal`` encrypted."""
    return json.loads(_cipher().decrypt(token.encode()))


def renewed(token: str) -> str | None:
    """Return the token encrypted with the newest key, None if it already is. Raises InvalidToken if no key decrypts it."""
    try:
        Fernet(settings.CREDENTIALS_KEYS[0]).decrypt(token.encode())
    except InvalidToken:
        return _cipher().rotate(token.encode()).decode()
    return None
