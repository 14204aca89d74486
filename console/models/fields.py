"""Field types: JSON that is encrypted at rest, text with any characters, and the hash of such a text.

The key comes from the setting CREDENTIALS_KEYS (Fernet, newest first, so that keys can be rotated). A value that no key
decrypts is loaded as ``UnreadableProperties``: the row can be loaded, shown and saved, and only a use of the value fails. So a
mirror can be failed over although the credentials of its source were lost. Encrypted values never appear in ``repr``, forms or
serializers unless these name the field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models

from linkengine.domain.errors import ErrorCode, LinkEngineError


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


class UnreadableProperties(Mapping[str, str]):
    """Stored properties that no key decrypts. Every use raises LinkEngineError, so they never count as empty."""

    def __init__(self, token: str) -> None:
        """Store the encrypted value, which a save writes back unchanged: the missing key may be added later."""
        self.token = token

    def __getitem__(self, name: str) -> str:
        raise _unreadable()

    def __iter__(self) -> Iterator[str]:
        raise _unreadable()

    def __len__(self) -> int:
        raise _unreadable()


def _unreadable() -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MISCONFIGURATION_ERROR,
        "The stored connection properties cannot be decrypted, since no key in CLUSTERLINK_CREDENTIALS_KEY fits. Add the key "
        "with which they were stored at the end of that setting, or enter the properties of this cluster or link again.",
    )


def readable(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return stored properties, or empty ones if no key decrypts them: to show them or replace them, never to connect."""
    return {} if isinstance(properties, UnreadableProperties) else properties


class EncryptedJSONField(_Text):
    """A JSON object stored as a Fernet token; cannot be searched. Cost: a decryption per loaded row."""

    _pyi_private_set_type: Any  # what django-stubs takes assignments to be
    _pyi_private_get_type: Any

    def get_prep_value(self, value: Any) -> str:
        if isinstance(value, UnreadableProperties):
            return value.token
        return _cipher().encrypt(json.dumps(value, sort_keys=True).encode()).decode()

    def from_db_value(self, value: str | None, _expression: object, _connection: object) -> Any:
        if value is None:
            return None
        try:
            return json.loads(_cipher().decrypt(value.encode()))
        except InvalidToken:
            return UnreadableProperties(value)

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
