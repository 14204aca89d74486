"""Sign-in forms of the console and of the admin site, with throttling.

Attempts are counted per name and address (``console.access.login_throttle``) before the password is checked. A successful
attempt resets the count.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError

from console.access import login_throttle
from console.access.second_factor import has_second_factor


class SignInForm(AuthenticationForm):
    """Django's form with throttling; ``wait_s`` is the time until the next attempt is accepted."""

    wait_s = 0

    def clean(self) -> dict[str, Any]:
        """Check the password unless the attempt is throttled. Raises ValidationError."""
        name = self.cleaned_data.get("username", "")
        attempts = login_throttle.attempts_at("sign-in", name, self.request)
        self.wait_s = login_throttle.count(attempts)
        if self.wait_s:
            login_throttle.note_refusal(self.request, action="ThrottleSignIn", resource=f"user/{name}")
            raise ValidationError(f"Too many attempts. Wait {self.wait_s} seconds, then try again.", code="too_many_attempts")
        values: dict[str, Any] = super().clean()
        login_throttle.reset(attempts)
        return values


class AdminSignInForm(SignInForm, AdminAuthenticationForm):
    """The sign-in form of the admin site, which accepts staff members only, and no users with a second factor."""

    def confirm_login_allowed(self, user: Any) -> None:
        """Raise ValidationError for a user who has to enter a code, for which this form has no step."""
        super().confirm_login_allowed(user)
        if has_second_factor(user):
            message = "You use a second factor. Sign in to the console, then open the administration with the same session."
            raise ValidationError(message, code="second_factor")
