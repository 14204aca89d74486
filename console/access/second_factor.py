"""Time-based codes (TOTP, RFC 6238) and recovery codes as the second factor of a password.

Rows and arithmetic are those of django-allauth, which remembers used codes in the cache of a single process. Here the counter
of the last accepted code is stored in the row, under a lock, so that all processes together accept a code once (RFC 6238,
section 5.2). Without the setting SECOND_FACTOR nothing of django-allauth is loaded, and no user has a second factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.module_loading import import_string

from console.models.fields import seal, unseal

_TOTP, _RECOVERY = "totp", "recovery_codes"
_SECRETS = ("secret", "seed")  # encrypted values in the data of a row
_COUNTER = "counter"  # of the last accepted code, in the data of the row
_AUTH = "allauth.mfa.totp.internal.auth"


def has_second_factor(user: User) -> bool:
    """Return whether the user has set up time-based codes."""
    return bool(settings.SECOND_FACTOR) and bool(_rows(user).filter(type=_TOTP).exists())


def new_secret() -> str:
    """Return a new secret, in base32."""
    return str(import_string(f"{_AUTH}.generate_totp_secret")())


def encrypted(secret: str) -> str:
    """Return a secret that is not confirmed yet as the session may store it: sessions are rows of the database."""
    return seal(secret)


def decrypted(stored: str) -> str:
    """Return the secret of a session; "" if there is none."""
    return str(unseal(stored)) if stored else ""


def uri_of(user: User, secret: str) -> str:
    """Return the address of a secret that authenticator apps read from a QR code."""
    return str(secrets_adapter().build_totp_url(user, secret))


def qr_of(uri: str) -> str:
    """Return the QR code of an address as SVG."""
    return str(secrets_adapter().build_totp_svg(uri))


def activate(user: User, secret: str, code: str) -> list[str] | None:
    """Store the secret of a user and return new recovery codes; None if the code does not belong to the secret.

    Call it in a transaction.
    """
    counter = _counter_of(secret, code)
    if counter is None:
        return None
    _rows(user).delete()
    _model().objects.create(user=user, type=_TOTP, data={"secret": encrypted(secret), _COUNTER: counter})
    return list(_recovery().activate(user).get_unused_codes())


def deactivate(user: User) -> bool:
    """Delete secret and recovery codes of a user; return whether there were any."""
    deleted, _ = _rows(user).delete()
    return bool(deleted)


def accept_code(user: User, code: str) -> bool:
    """Return whether a code is valid now, and use it up: it is not accepted a second time."""
    with transaction.atomic():
        row = _rows(user).select_for_update().filter(type=_TOTP).first()
        if row is None:
            return False
        counter = _counter_of(decrypted(row.data["secret"]), code)
        if counter is None or counter <= row.data.get(_COUNTER, -1):
            return False
        row.data[_COUNTER] = counter
        row.save(update_fields=["data"])
        row.record_usage()
    return True


def accept_recovery_code(user: User, code: str) -> bool:
    """Return whether a recovery code is valid, and use it up. django-allauth locks the row."""
    row = _rows(user).filter(type=_RECOVERY).first()
    return row is not None and bool(_recovery()(row).validate_code(code.strip()))


def recovery_codes_left(user: User) -> int:
    """Return the number of unused recovery codes."""
    row = _rows(user).filter(type=_RECOVERY).first()
    return len(_recovery()(row).get_unused_codes()) if row is not None else 0


def secrets_adapter() -> Any:
    """Return the adapter of django-allauth (setting ``MFA_ADAPTER``), which encrypts secrets like all stored credentials."""
    adapter = import_string("allauth.mfa.adapter.DefaultMFAAdapter")()
    adapter.encrypt, adapter.decrypt = seal, unseal
    return adapter


def renew_secrets(renewed: Callable[[str], str | None], *, check: bool) -> Iterator[bool]:
    """Encrypt all secrets with the newest key; yields for each whether it had another key. ``check`` changes nothing.

    ``renewed`` returns a token encrypted with the newest key, or None if it is already.
    """
    if not settings.SECOND_FACTOR:
        return
    for key in list(_model().objects.values_list("pk", flat=True)):
        with transaction.atomic():
            row = _model().objects.select_for_update().filter(pk=key).first()
            found = {name: renewed(row.data[name]) for name in _SECRETS if row is not None and name in row.data}
            changed = {name: token for name, token in found.items() if token is not None}
            if changed and not check:
                row.data |= changed
                row.save(update_fields=["data"])
        yield bool(changed)


def _counter_of(secret: str, code: str) -> int | None:
    """Return the counter for which the code is valid; None if it is not valid now."""
    digits = "".join(code.split())
    value_of, text_of = import_string(f"{_AUTH}.hotp_value"), import_string(f"{_AUTH}.format_hotp_value")
    same = import_string("django.utils.crypto.constant_time_compare")
    counters = import_string(f"{_AUTH}.yield_hotp_counters_from_time")()
    return next((int(counter) for counter in counters if same(digits, text_of(value_of(secret, counter)))), None)


def _model() -> Any:
    return import_string("allauth.mfa.models.Authenticator")


def _rows(user: User) -> Any:
    return _model().objects.filter(user=user)


def _recovery() -> Any:
    return import_string("allauth.mfa.recovery_codes.internal.auth.RecoveryCodes")
