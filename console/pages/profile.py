"""The user's own profile: preferences and sessions; and the page of an invitation, which needs no session."""

from __future__ import annotations

import zoneinfo
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.access import login_throttle
from console.actions import accounts
from console.errors import ConsoleError
from console.models import Account
from console.pages import preferences
from console.pages.forms import ConsoleForm
from console.pages.request_handling import actor_of, done, page, reply, status_of
from console.pages.shell import Crumb
from console.presenters.access import session_row
from console.queries import access as access_queries


class ProfileForm(ConsoleForm):
    """Time zone and density."""

    time_zone = forms.ChoiceField(label="Time zone", required=False, help_text="Of absolute times on all pages.")
    density = forms.ChoiceField(label="Rows of tables", choices=Account.Density.choices)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer the time zones of the system."""
        super().__init__(*args, **kwargs)
        zones = sorted(name for name in zoneinfo.available_timezones() if "/" in name)
        self.fields["time_zone"].choices = [("", "UTC"), *((name, name) for name in zones)]  # type: ignore[attr-defined]


class AcceptForm(ConsoleForm):
    """The first password, twice."""

    new_password = forms.CharField(
        label="Password",
        strip=False,
        help_text="At least 8 characters. Not similar to your name and not a common password.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    repeated = forms.CharField(
        label="Confirm password", strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )

    def clean(self) -> dict[str, Any] | None:
        """Require the same password twice."""
        values = super().clean() or {}
        if not self.errors and values["new_password"] != values["repeated"]:
            self.add_error("repeated", "The passwords do not match. Enter the same password in both fields.")
        return values


@page("access")
@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """Show and store the user's preferences; list the user's sessions."""
    by, now = actor_of(request), timezone.now()
    if request.method == "POST":
        form = ProfileForm(request.POST)
        if form.is_valid():
            account = accounts.save_preferences(**form.cleaned_data, by=by, now=now)
            preferences.remember(request, account)
            return done(request, reverse("pages:profile"), "Profile saved.")
    else:
        stored = Account.objects.filter(user=by.user).first() or Account()
        form = ProfileForm(initial={"time_zone": stored.time_zone, "density": stored.density})
    current = request.session.session_key
    rows = [session_row(row, current_key=current, now=now) for row in access_queries.my_sessions(by=by, now=now)]
    context = {"form": form, "sessions": rows, "second_factor": settings.SECOND_FACTOR, "crumbs": [Crumb(label="Profile")]}
    return reply(request, "session/profile.html", context, status=422 if request.method == "POST" else 200)


@page("access")
@require_POST
def end_session(request: HttpRequest, session_id: int) -> HttpResponse:
    """End one of the user's sessions."""
    accounts.end_session(session_id=session_id, by=actor_of(request), now=timezone.now())
    return done(request, reverse("pages:profile"), "Session ended.")


@page("access")
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """End all sessions of the user except this one."""
    accounts.end_own_sessions(but=request.session.session_key, by=actor_of(request), now=timezone.now())
    return done(request, reverse("pages:profile"), "All other sessions have ended.")


@sensitive_post_parameters("new_password", "repeated")
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Set the first password with the token of an invitation. Attempts are throttled per address."""
    attempts = login_throttle.attempts_at("invitation", "", request)
    wait_s = login_throttle.count(attempts)
    if wait_s:
        login_throttle.note_refusal(request, action="ThrottleInvitation", resource="invitation")
        response = reply(request, "session/invitation.html", {"wait_s": wait_s}, status=429)
        response["Retry-After"] = str(wait_s)
        return response
    form = AcceptForm(request.POST or None)
    context: dict[str, Any] = {"form": form}
    try:
        found = accounts.find_invitation(token=token, now=timezone.now())
        login_throttle.reset(attempts)
        context["name"] = found.user.get_username()
        if request.method == "GET" or not form.is_valid():
            return reply(request, "session/invitation.html", context, status=200 if request.method == "GET" else 422)
        accounts.accept_invitation(
            token=token,
            password=form.cleaned_data["new_password"],
            request_id=getattr(request, "request_id", ""),
            client_address=str(request.META.get("REMOTE_ADDR") or ""),
            now=timezone.now(),
        )
    except ConsoleError as error:
        if form.is_bound and form.refuse(error):
            return reply(request, "session/invitation.html", context, status=status_of(error))
        return reply(request, "session/invitation.html", {"wrong": error.message}, status=404)
    return done(request, reverse("pages:sign-in"), "Password set. Sign in with it.")
