"""Sign-in, sign-out, password change and theme; the profile of a user, and invitations."""

from __future__ import annotations

import zoneinfo
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib.auth import login, logout, update_session_auth_hash
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.access import account_actions, credentials, second_factor_pages
from console.access import actions as access_actions
from console.access import queries as access_queries
from console.access.account_actions import end_sessions, record_sign_out
from console.access.credentials import SignInForm
from console.access.presenters import session_row
from console.access.second_factor import has_second_factor
from console.errors import ConsoleError
from console.http.middleware import language_of
from console.languages import translated
from console.models import Account
from console.web.forms import ConsoleForm
from console.web.request_handling import (
    THEME_COOKIE,
    THEMES,
    Crumb,
    actor_of,
    done,
    page,
    problem_of,
    record_session,
    remember_preferences,
    reply,
    status_of,
)

# --- sign-in, sign-out, password and theme ----------------------------------------------------------------------------


_YEAR_S = 365 * 24 * 3600


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the sign-in form; sign in and redirect to the requested page."""
    target = safe_path(request, request.POST.get("next") or request.GET.get("next", ""))
    if request.user.is_authenticated and request.method == "GET":
        return HttpResponseRedirect(target)
    form = SignInForm(request, data=request.POST or None)
    if request.method == "POST" and form.is_valid():
        if has_second_factor(form.get_user()):
            second_factor_pages.remember_password(request, form.get_user(), target=target)
            return HttpResponseRedirect(reverse("pages:sign-in-code"))
        login(request, form.get_user())
        return HttpResponseRedirect(target)
    return _sign_in_page(request, form, target)


def _sign_in_page(request: HttpRequest, form: SignInForm, target: str) -> HttpResponse:
    failed = request.method == "POST"
    provider = {}
    if settings.OIDC_ISSUER:
        url = reverse("openid_connect_login", args=("oidc",))
        provider = {"provider": settings.OIDC_NAME, "provider_url": f"{url}?{urlencode({'next': target})}"}
    context = {
        **provider,
        "failed": failed,
        "wait_s": form.wait_s,
        "next": target,
        "user_name": request.POST.get("username", ""),
    }
    status = 429 if form.wait_s else 422 if failed else 200
    response = reply(request, "session/sign_in.html", context, status=status)
    if form.wait_s:
        response["Retry-After"] = str(form.wait_s)
    return response


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    if request.user.is_authenticated:
        record_sign_out(by=actor_of(request), now=timezone.now())
    logout(request)
    return HttpResponseRedirect(reverse("pages:sign-in"))


class PasswordForm(ConsoleForm):
    """The current password and, twice, the new password. Neither is ever rendered."""

    password = forms.CharField(
        label=gettext_lazy("Current password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new_password = forms.CharField(
        label=gettext_lazy("New password"),
        strip=False,
        help_text=gettext_lazy("At least 8 characters. Not similar to your name and not a common password."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    repeated = forms.CharField(
        label=gettext_lazy("Confirm new password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request
        self.wait_s = 0

    def clean(self) -> dict[str, Any] | None:
        """Check the current password, throttled like a sign-in, because the session may be stolen."""
        values = super().clean() or {}
        if self.errors:
            return values
        if values["new_password"] != values["repeated"]:
            self.add_error("repeated", gettext("The passwords do not match. Enter the same new password in both fields."))
            return values
        name = self._request.user.get_username()
        attempts = credentials.attempts_at("password", name, self._request)
        self.wait_s = credentials.count(attempts)
        if self.wait_s:
            credentials.note_refusal(self._request, action="ThrottlePasswordChange", resource=f"user/{name}")
            text = gettext("Too many attempts. Wait %(seconds)s seconds, then try again.") % {"seconds": self.wait_s}
            self.add_error("password", text)
        elif not self._request.user.check_password(values["password"]):
            self.add_error("password", gettext("The current password is incorrect. It is case-sensitive."))
        else:
            credentials.reset(attempts)
        return values


@page("access")
@sensitive_post_parameters("password", "new_password", "repeated")
@require_http_methods(["GET", "POST"])
def change_password(request: HttpRequest) -> HttpResponse:
    """Change the user's own password. This session continues; all other sessions of the user end."""
    form = PasswordForm(request.POST or None, request=request)
    if request.method == "GET":
        return _password_page(request, form)
    if not form.is_valid():
        return _password_page(request, form, status=429 if form.wait_s else 422)
    by = actor_of(request)
    try:
        access_actions.change_own_password(new=form.cleaned_data["new_password"], by=by, now=timezone.now())
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _password_page(request, form, status=status_of(error), problem=problem)
    assert by.user is not None  # the action needs a user
    update_session_auth_hash(request, by.user)
    record_session(request, by.user)
    end_sessions(by.user, but=request.session.session_key)
    message = gettext("Password changed. Your other sessions have ended. API keys remain valid.")
    return done(request, reverse("pages:me"), message)


def _password_page(request: HttpRequest, form: PasswordForm, *, status: int = 200, **more: object) -> HttpResponse:
    crumbs = [Crumb(label=gettext("Access"), url=reverse("pages:access")), Crumb(label=gettext("Change password"))]
    response = reply(request, "session/password.html", {"form": form, "crumbs": crumbs} | more, status=status)
    if form.wait_s:
        response["Retry-After"] = str(form.wait_s)
    return response


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Store the theme (light, dark, or "" for the system's) in a cookie; redirect to the same page."""
    response = HttpResponseRedirect(safe_path(request, request.POST.get("next", "")))
    theme = request.POST.get("theme", "")
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, max_age=_YEAR_S, samesite="Lax", secure=request.is_secure())
    else:
        response.delete_cookie(THEME_COOKIE)
    return response


def safe_path(request: HttpRequest, path: str) -> str:
    """Return ``path`` if it stays on this host, else the start page, to prevent open redirects."""
    allowed = url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return path if path and allowed else reverse("pages:start")


# --- the profile of a user, and invitations ---------------------------------------------------------------------------
#
# The page of an invitation needs no session.


class ProfileForm(ConsoleForm):
    """Time zone, language and density."""

    time_zone = forms.ChoiceField(
        label=gettext_lazy("Time zone"), required=False, help_text=gettext_lazy("Of absolute times on all pages.")
    )
    language = forms.ChoiceField(
        label=gettext_lazy("Language"),
        required=False,
        choices=[("", gettext_lazy("Language of the browser")), *settings.LANGUAGES],
        help_text=gettext_lazy("Of all pages. REST, linkctl, logs and the audit log are in English."),
    )
    density = forms.ChoiceField(label=gettext_lazy("Rows of tables"), choices=Account.Density.choices)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer the time zones of the system."""
        super().__init__(*args, **kwargs)
        zones = sorted(name for name in zoneinfo.available_timezones() if "/" in name)
        self.fields["time_zone"].choices = [("", "UTC"), *((name, name) for name in zones)]  # type: ignore[attr-defined]


class AcceptForm(ConsoleForm):
    """The first password, twice."""

    new_password = forms.CharField(
        label=gettext_lazy("Password"),
        strip=False,
        help_text=gettext_lazy("At least 8 characters. Not similar to your name and not a common password."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    repeated = forms.CharField(
        label=gettext_lazy("Confirm password"), strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )

    def clean(self) -> dict[str, Any] | None:
        """Require the same password twice."""
        values = super().clean() or {}
        if not self.errors and values["new_password"] != values["repeated"]:
            self.add_error("repeated", gettext("The passwords do not match. Enter the same password in both fields."))
        return values


@page("access")
@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """Show and store the user's preferences; list the user's sessions."""
    by, now = actor_of(request), timezone.now()
    if request.method == "POST":
        form = ProfileForm(request.POST)
        if form.is_valid():
            account = account_actions.save_preferences(**form.cleaned_data, by=by, now=now)
            remember_preferences(request, account)
            return _saved(request, account)
    else:
        stored = Account.objects.filter(user=by.user).first() or Account()
        form = ProfileForm(initial={name: getattr(stored, name) for name in ProfileForm.base_fields})
    current = request.session.session_key
    rows = [session_row(row, current_key=current, now=now) for row in access_queries.my_sessions(by=by, now=now)]
    context = {
        "form": form,
        "sessions": rows,
        "second_factor": settings.SECOND_FACTOR,
        "crumbs": [Crumb(label=gettext("Profile"))],
    }
    return reply(request, "session/profile.html", context, status=422 if request.method == "POST" else 200)


def _saved(request: HttpRequest, account: Account) -> HttpResponse:
    """Show the profile again, in its language. A cookie keeps the language for the sign-in page of this browser."""
    cookie = settings.LANGUAGE_COOKIE_NAME
    if not account.language:
        request.COOKIES.pop(cookie, None)
    with translation.override(language_of(request)):
        response = done(request, reverse("pages:profile"), gettext("Profile saved."))
    if not account.language:
        response.delete_cookie(cookie, samesite="Lax")
        return response
    response.set_cookie(
        cookie,
        account.language,
        max_age=settings.LANGUAGE_COOKIE_AGE,
        secure=settings.LANGUAGE_COOKIE_SECURE,
        httponly=settings.LANGUAGE_COOKIE_HTTPONLY,
        samesite="Lax",
    )
    return response


@page("access")
@require_POST
def end_session(request: HttpRequest, session_id: int) -> HttpResponse:
    """End one of the user's sessions."""
    account_actions.end_session(session_id=session_id, by=actor_of(request), now=timezone.now())
    return done(request, reverse("pages:profile"), gettext("Session ended."))


@page("access")
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """End all sessions of the user except this one."""
    account_actions.end_own_sessions(but=request.session.session_key, by=actor_of(request), now=timezone.now())
    return done(request, reverse("pages:profile"), gettext("All other sessions have ended."))


@sensitive_post_parameters("new_password", "repeated")
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Set the first password with the token of an invitation. Attempts are throttled per address."""
    attempts = credentials.attempts_at("invitation", "", request)
    wait_s = credentials.count(attempts)
    if wait_s:
        credentials.note_refusal(request, action="ThrottleInvitation", resource="invitation")
        response = reply(request, "session/invitation.html", {"wait_s": wait_s}, status=429)
        response["Retry-After"] = str(wait_s)
        return response
    form = AcceptForm(request.POST or None)
    context: dict[str, Any] = {"form": form}
    try:
        found = account_actions.find_invitation(token=token, now=timezone.now())
        credentials.reset(attempts)
        context["name"] = found.user.get_username()
        if request.method == "GET" or not form.is_valid():
            return reply(request, "session/invitation.html", context, status=200 if request.method == "GET" else 422)
        account_actions.accept_invitation(
            token=token,
            password=form.cleaned_data["new_password"],
            request_id=getattr(request, "request_id", ""),
            client_address=str(request.META.get("REMOTE_ADDR") or ""),
            now=timezone.now(),
        )
    except ConsoleError as error:
        if form.is_bound and form.refuse(error):
            return reply(request, "session/invitation.html", context, status=status_of(error))
        return reply(request, "session/invitation.html", {"wrong": translated(error.message)}, status=404)
    return done(request, reverse("pages:sign-in"), gettext("Password set. Sign in with it."))
