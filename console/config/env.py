"""Typed readers of environment variables. No other module of the console reads the environment.

Every variable is described in ``.env.example``. A missing or malformed variable stops the start with an error that names it but
never repeats its value, which may be a secret. Secrets may also come from a file: ``<NAME>_FILE`` has its path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from linkengine.domain.addresses import parse_network
from linkengine.redisaddress import SENTINEL_SCHEMES, BadRedisAddressError, parse_sentinel, with_password

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_MAKE_A_KEY = "It has to be 32 bytes in url-safe base64, 44 characters; .env.example says how to make one."
_POSTGRES_SCHEMES = ("postgres", "postgresql")
_POSTGRES_PORT = "5432"
# s to open a connection, per host; ms until a peer that acknowledges nothing counts as lost, as after a power failure
_POSTGRES_TIMEOUTS = {"connect_timeout": 3, "tcp_user_timeout": 10_000}
SQLITE_BUSY_TIMEOUT_S = 20  # writers queue up; the longest transaction takes well below a second


@dataclass(frozen=True, slots=True)
class EnvironmentVariables:
    """Reads a mapping of variables: ``os.environ``, or another mapping in tests."""

    variables: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a variable. Raises ImproperlyConfigured if it is not set and there is no default."""
        value = self.variables.get(name, "")
        if value or default is not None:
            return value or str(default)
        raise ImproperlyConfigured(f"The environment variable {name} is not set. See .env.example for what it means.")

    def secret(self, name: str, default: str | None = None) -> str:
        """Return a secret, from the variable or from the file that ``<name>_FILE`` names."""
        path = self.variables.get(f"{name}_FILE", "")
        if not path:
            return self.text(name, default)
        try:
            secret = Path(path).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which is not a text file in UTF-8.") from None
        if not secret:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which is empty.")
        return secret

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean."""
        value = self.variables.get(name, "true" if default else "").lower()
        if value in _TRUE or value in _FALSE:
            return value in _TRUE
        raise ImproperlyConfigured(f"{name} must be true or false. See .env.example.")

    def number(self, name: str, default: int) -> int:
        """Return an integer."""
        try:
            return int(self.variables.get(name) or default)
        except ValueError:
            raise ImproperlyConfigured(f"{name} must be a whole number. See .env.example.") from None

    def words(self, name: str, default: str | None = None) -> list[str]:
        """Return a comma-separated list."""
        return [word.strip() for word in self.text(name, default).split(",") if word.strip()]

    def networks(self, name: str, default: str | None = None) -> tuple[str, ...]:
        """Return comma-separated IP networks or addresses. The word none means an empty list."""
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
        """Return comma-separated Fernet keys. Each is tried, since an invalid key would fail only when it is used."""
        keys = [word.strip() for word in self.secret(name).split(",") if word.strip()]
        for number, key in enumerate(keys, start=1):
            try:
                Fernet(key)
            except ValueError:
                raise ImproperlyConfigured(f"Key {number} of {len(keys)} in {name} is no Fernet key. {_MAKE_A_KEY}") from None
        if not keys:
            raise ImproperlyConfigured(f"{name} names no key. {_MAKE_A_KEY}")
        return keys

    def redis(self, name: str, password_name: str = "") -> str:
        """Return the address of Redis, with the password of the variable ``password_name`` unless the address has its own."""
        url = self.secret(name)
        if password_name:
            url = with_password(url, self.secret(password_name, ""))
        try:
            if urlsplit(url).scheme in SENTINEL_SCHEMES:
                parse_sentinel(url)
        except BadRedisAddressError as error:
            raise ImproperlyConfigured(f"{name} cannot be read: {error} See .env.example.") from None
        return url

    def database(self, name: str, password_name: str = "") -> dict[str, Any]:
        """Return Django's settings for ``sqlite:///path`` (relative), ``sqlite:////path`` or ``postgres://…``.

        The variable ``password_name`` has the password if the address has none.
        """
        url = self.secret(name)
        scheme = urlsplit(url).scheme
        if scheme == "sqlite":
            return sqlite_settings(url.removeprefix("sqlite:///"))
        if scheme in _POSTGRES_SCHEMES:
            try:
                found = postgres_settings(url)
            except ValueError as error:
                raise ImproperlyConfigured(f"{name} cannot be read: {error} See .env.example.") from None
            if password_name and not found["PASSWORD"]:
                found["PASSWORD"] = self.secret(password_name, "")
            return found
        raise ImproperlyConfigured(f"{name} must begin with sqlite:/// or postgres://. See .env.example.")


def spark_address(url: str, token: str) -> str:
    """Return the address of Spark Connect with its token, if any.

    PySpark sends a ``token`` over TLS only and refuses it otherwise. It sends other parameters as headers of each call, so
    without TLS the header itself is set.
    """
    if not token:
        return url
    value = quote(token, safe="")
    parameter = f"token={value}" if "use_ssl=true" in url.lower() else f"authorization=Bearer%20{value}"
    return f"{url};{parameter}" if "/;" in url else f"{url.rstrip('/')}/;{parameter}"


def https_or_loopback(name: str, url: str) -> str:
    """Return the address of an identity provider; raise ImproperlyConfigured unless it is https, or a port of this machine.

    Without TLS an attacker on the network path could sign in as any user: the signature of an ID token from the token endpoint
    is not checked (OpenID Connect Core 1.0, section 3.1.3.7).
    """
    parts = urlsplit(url)
    if not url or (parts.scheme == "https" and parts.hostname):
        return url
    if parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"):
        return url
    raise ImproperlyConfigured(f"{name} has to be an https address, for example https://login.example.com/realms/main.")


def sqlite_settings(path: str) -> dict[str, Any]:
    """Return settings for SQLite in WAL mode: readers never wait, and each transaction takes the write lock at its start.

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
        "TEST": {"NAME": f"{path}.test"},  # a file, so that two connections lock each other as in production
    }


def postgres_settings(url: str) -> dict[str, Any]:
    """Parse ``postgres://user:password@host:port,host:port/name?option=value``. Raises ValueError.

    Several hosts are tried in turn, and ``target_session_attrs=read-write`` selects the primary. A socket folder may be given
    as ``?host=/folder``. Options are libpq's.
    """
    parts = urlsplit(url)
    user_info, _, hosts = parts.netloc.rpartition("@")
    user, _, password = user_info.partition(":")
    addresses = [_host_and_port(host) for host in hosts.split(",")] if hosts else []
    options = dict(parse_qsl(parts.query))
    multiple = len(addresses) > 1
    ports = [port or (_POSTGRES_PORT if multiple else "") for _, port in addresses]
    return {
        "ENGINE": "console.postgres",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(user),
        "PASSWORD": unquote(password),
        "HOST": options.pop("host", ",".join(host for host, _ in addresses)),
        "PORT": options.pop("port", ",".join(ports)),
        "CONN_MAX_AGE": 0,  # threads come and go: console.postgres keeps their connections for others
        "OPTIONS": {**_POSTGRES_TIMEOUTS, **({"connect_timeout": 2} if multiple else {}), **options},
    }


def _host_and_port(text: str) -> tuple[str, str]:
    parts = urlsplit(f"//{text.strip()}")
    if not parts.hostname:
        raise ValueError("a host is missing between commas, or in front of a port.")
    try:
        return parts.hostname, str(parts.port or "")
    except ValueError:
        raise ValueError(f"the port of {parts.hostname} is not a number up to 65535.") from None
