"""Signing in with a name and a password, by the console's page and the administration's: whoever guesses has to wait.

Attempts are counted per name and address (``console.guessing``), before the password is looked at, and forgotten when one
succeeds.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError

from console import guessing


class SignInForm(AuthenticationForm):
    """Django's form for whoever does not guess; ``wait_s`` tells the others when their next attempt counts."""

    wait_s = 0

    def clean(self) -> dict[str, Any]:
        """Look at the password if it is this name's turn; raise ValidationError otherwise, or where it does not match."""
        name = self.cleaned_data.get("username", "")
        attempts = guessing.attempts_at("sign-in", name, self.request)
        self.wait_s = guessing.count(attempts)
        if self.wait_s:
            guessing.note_refusal(self.request, action="ThrottleSignIn", resource=f"user/{name}")
            raise ValidationError(f"Too many attempts. Wait {self.wait_s} seconds, then try again.", code="too_many_attempts")
        values: dict[str, Any] = super().clean()
        guessing.forget(attempts)
        return values


class AdminSignInForm(SignInForm, AdminAuthenticationForm):
    """The same for the administration, which takes members of staff only."""
