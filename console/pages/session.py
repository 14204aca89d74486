"""Sign-in, sign-out, password change and theme."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib.auth import login, logout, update_session_auth_hash
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.access import login_throttle
from console.access.second_factor import has_second_factor
from console.access.sign_in import SignInForm
from console.actions import access as access_actions
from console.actions.accounts import end_sessions, record_sign_out
from console.errors import ConsoleError
from console.pages import secondfactor
from console.pages.forms import ConsoleForm
from console.pages.preferences import record_session
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.pages.shell import THEME_COOKIE, THEMES, Crumb

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
            secondfactor.remember_password(request, form.get_user(), target=target)
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
    """The current password and, twice, the new one. None of them is ever rendered."""

    password = forms.CharField(
        label="Current password", strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )
    new_password = forms.CharField(
        label="New password",
        strip=False,
        help_text="At least 8 characters. Not similar to your name and not a common password.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    repeated = forms.CharField(
        label="Confirm new password", strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
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
            self.add_error("repeated", "The passwords do not match. Enter the same new password in both fields.")
            return values
        name = self._request.user.get_username()
        attempts = login_throttle.attempts_at("password", name, self._request)
        self.wait_s = login_throttle.count(attempts)
        if self.wait_s:
            login_throttle.note_refusal(self._request, action="ThrottlePasswordChange", resource=f"user/{name}")
            self.add_error("password", f"Too many attempts. Wait {self.wait_s} seconds, then try again.")
        elif not self._request.user.check_password(values["password"]):
            self.add_error("password", "The current password is incorrect. It is case-sensitive.")
        else:
            login_throttle.reset(attempts)
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
    return done(request, reverse("pages:me"), "Password changed. Your other sessions have ended. API keys remain valid.")


def _password_page(request: HttpRequest, form: PasswordForm, *, status: int = 200, **more: object) -> HttpResponse:
    crumbs = [Crumb(label="Access", url=reverse("pages:access")), Crumb(label="Change password")]
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
