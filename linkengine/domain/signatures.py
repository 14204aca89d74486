"""Signatures (HMAC-SHA256) of what travels through Redis: a message without a valid signature has no effect.

A signature covers a purpose and a list of words. Each word is preceded by its length, so that no two lists have the same
bytes; the purpose keeps a signature from being valid for another kind of message.

Keys rotate as the credentials keys do: the first key signs, all keys verify. A signer without keys signs nothing and accepts
nothing.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Self

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

REFUSED_COUNTS = "refused"  # the Redis hash with the number of refused messages by kind
_REMEMBERED = 1_000
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and verifies with the keys of a purpose."""

    keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of_texts(cls, keys: Iterable[str]) -> Self:
        """Return a signer from the keys in hexadecimal, newest first."""
        return cls(tuple(bytes.fromhex(key) for key in keys))

    def texts(self) -> tuple[str, ...]:
        """Return the keys in hexadecimal: secrets, for a plan on its way to an executor."""
        return tuple(key.hex() for key in self.keys)

    def sign(self, purpose: str, *words: str) -> str:
        """Return the signature by the newest key; raise ValueError without a key."""
        if not self.keys:
            raise ValueError("there is no key to sign with")
        return _mac(self.keys[0], purpose, words)

    def signatures(self, purpose: str, *words: str) -> list[str]:
        """Return the signatures by all keys, for messages that are found by their text."""
        return [_mac(key, purpose, words) for key in self.keys]

    def verifies(self, signature: object, purpose: str, *words: str) -> bool:
        """Return whether any of the keys made the signature; False for anything that is not a signature."""
        if not isinstance(signature, str) or not signature.isascii():
            return False
        return any(hmac.compare_digest(signature, _mac(key, purpose, words)) for key in self.keys)


def derive(credentials_key: str, info: str) -> bytes:
    """Return the key that a credentials key (Fernet, as text) gives for a purpose (HKDF-SHA256)."""
    kdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info.encode())
    return kdf.derive(urlsafe_b64decode(credentials_key))


class SeenRefusals:
    """The refused messages that this process has reported: a message that stays in Redis is reported only once."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()

    def is_new(self, text: str) -> bool:
        """Return True for a text that is not among the last 1,000 reported texts, and remember it."""
        digest = sha256(text.encode(errors="replace")).hexdigest()
        with self._lock:
            if digest in self._seen:
                return False
            self._seen[digest] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        return True


def _mac(key: bytes, purpose: str, words: Iterable[str]) -> str:
    encoded = [word.encode(errors="surrogatepass") for word in (purpose, *words)]
    return hmac.digest(key, b"".join([len(word).to_bytes(8, "big") + word for word in encoded]), "sha256").hex()
