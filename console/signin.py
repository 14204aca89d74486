"""Signing in with a name and a password, by the console's page and the administration's: whoever guesses has to wait.

Attempts are counted in Redis per name and address, for all web processes together, before the password is looked at, and
forgotten when one succeeds. Where Redis does not answer nobody is counted: a failover must not wait for a counter.
"""

from __future__ import annotations

import math
from typing import Any

import redis
import structlog
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError

from console import store

AT_ONCE = 10  # attempts before the first wait
PER_S = 0.1  # attempts from then on
_log = structlog.get_logger(__name__)


class SignInForm(AuthenticationForm):
    """Django's form for whoever does not guess; ``wait_s`` tells the others when their next attempt counts."""

    wait_s = 0

    def clean(self) -> dict[str, Any]:
        """Look at the password if it is this name's turn; raise ValidationError otherwise, or where it does not match."""
        turns = f"sign-in:{self.cleaned_data.get('username', '')}:{_address(self.request)}"
        self.wait_s = _wait_s(turns)
        if self.wait_s:
            _log.warning("sign_in.delayed", name=self.cleaned_data.get("username"), client=_address(self.request))
            raise ValidationError(f"Too many attempts. Wait {self.wait_s} seconds, then try again.", code="too_many_attempts")
        values: dict[str, Any] = super().clean()
        _forget(turns)
        return values


class AdminSignInForm(SignInForm, AdminAuthenticationForm):
    """The same for the administration, which takes members of staff only."""


def _address(request: Any) -> str:
    return str(request.META.get("REMOTE_ADDR", "")) if request is not None else ""


def _wait_s(turns: str) -> int:
    try:
        return math.ceil(store.take_turn(turns, per_s=PER_S, burst=AT_ONCE))
    except redis.RedisError as error:
        _log.warning("sign_in.uncounted", error=str(error))
        return 0


def _forget(turns: str) -> None:
    try:
        store.forget_turns(turns)
    except redis.RedisError as error:
        _log.warning("sign_in.uncounted", error=str(error))
