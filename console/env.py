"""Typed readers of the environment, the only place of the console that looks at it.

Every variable is described in ``.env.example``. A missing or unreadable one stops the start with a sentence that names it; a
value itself is never repeated, since it may be a secret. Secrets may also come from a file: ``<NAME>_FILE`` holds its path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from linkengine.domain.networks import parse_network

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_MAKE_A_KEY = "It has to be 32 bytes in url-safe base64, 44 characters; .env.example says how to make one."
_POSTGRES_SCHEMES = ("postgres", "postgresql")
SQLITE_BUSY_TIMEOUT_S = 20  # writers queue up; the longest transaction of ours takes well below a second


@dataclass(frozen=True, slots=True)
class Environment:
    """Reads one mapping of variables; ``os.environ`` unless a test says otherwise."""

    variables: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def text(self, name: str, default: str | None = None) -> str:
        """Answer a variable that must be set unless there is a default."""
        value = self.variables.get(name, "")
        if value or default is not None:
            return value or str(default)
        raise ImproperlyConfigured(f"The environment variable {name} is not set. See .env.example for what it means.")

    def secret(self, name: str) -> str:
        """Answer a secret, from the variable or from the file that ``<name>_FILE`` names."""
        path = self.variables.get(f"{name}_FILE", "")
        if not path:
            return self.text(name)
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}.") from error

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Answer a yes or no."""
        value = self.variables.get(name, "true" if default else "").lower()
        if value in _TRUE or value in _FALSE:
            return value in _TRUE
        raise ImproperlyConfigured(f"{name} must be true or false. See .env.example.")

    def number(self, name: str, default: int) -> int:
        """Answer a whole number."""
        try:
            return int(self.variables.get(name) or default)
        except ValueError:
            raise ImproperlyConfigured(f"{name} must be a whole number. See .env.example.") from None

    def words(self, name: str, default: str | None = None) -> list[str]:
        """Answer a list separated by commas."""
        return [word.strip() for word in self.text(name, default).split(",") if word.strip()]

    def networks(self, name: str, default: str | None = None) -> tuple[str, ...]:
        """Return IP networks separated by commas; a single address is one as well. The word none stands for an empty list."""
        words = self.words(name, default)
        if words == ["none"]:
            return ()
        for number, word in enumerate(words, start=1):
            try:
                parse_network(word)
            except ValueError:
                raise ImproperlyConfigured(
                    f"Entry {number} of {len(words)} in {name} is not an IP network. Write 10.0.0.0/8, 2001:db8::/32 or one "
                    "address, without bits beyond the prefix length; host names are not taken. See .env.example."
                ) from None
        return tuple(words)

    def cipher_keys(self, name: str) -> list[str]:
        """Answer Fernet keys separated by commas, each tried: one that is no key would fail only when it is needed."""
        keys = [word.strip() for word in self.secret(name).split(",") if word.strip()]
        for number, key in enumerate(keys, start=1):
            try:
                Fernet(key)
            except ValueError:
                raise ImproperlyConfigured(f"Key {number} of {len(keys)} in {name} is no Fernet key. {_MAKE_A_KEY}") from None
        if not keys:
            raise ImproperlyConfigured(f"{name} names no key. {_MAKE_A_KEY}")
        return keys

    def database(self, name: str) -> dict[str, Any]:
        """Answer Django's settings for ``sqlite:///path`` (relative) or ``sqlite:////path`` or ``postgres://…``."""
        url = self.secret(name)
        scheme = urlsplit(url).scheme
        if scheme == "sqlite":
            return sqlite_settings(url.removeprefix("sqlite:///"))
        if scheme in _POSTGRES_SCHEMES:
            return postgres_settings(url)
        raise ImproperlyConfigured(f"{name} must begin with sqlite:/// or postgres://. See .env.example.")


def sqlite_settings(path: str) -> dict[str, Any]:
    """Many short writers, readers that never wait: write-ahead log, and transactions that take the write lock at their start.

    (A transaction that reads first and upgrades later fails at once with "database is locked", whatever the timeout.)
    """
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            "timeout": SQLITE_BUSY_TIMEOUT_S,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
        },
        "TEST": {"NAME": f"{path}.test"},  # a file, so that two connections lock each other as they do in earnest
    }


def postgres_settings(url: str) -> dict[str, Any]:
    """Read ``postgres://user:password@host:port/name?sslmode=require``; a socket folder may be given as ``?host=/folder``."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,  # threads of the worker come and go
        "OPTIONS": {"connect_timeout": 5, **options},
    }
