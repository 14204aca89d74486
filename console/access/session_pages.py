"""Sign-in with a second factor, sign-out, password change and theme; the profile of a user, and invitations."""

from __future__ import annotations

import zoneinfo
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import mark_safe
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.access import account_actions, credentials, second_factor
from console.access import queries as access_queries
from console.access.account_actions import end_sessions, record_sign_out
from console.access.credentials import SignInForm
from console.access.presenters import session_row
from console.actors import Actor
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

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

# --- sign-in and sign-out ---------------------------------------------------------------------------------------------
#
# With a second factor the password is the first step, and the code signs in.


_PENDING = "second_factor"  # key of the session: whose password was correct
PENDING_S = 300  # the code has to be entered this soon after the password
PLACES = 5  # a user may have this many times the attempts of a single address
BACKEND = "django.contrib.auth.backends.ModelBackend"
_CODE = {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false"}


class CodeForm(ConsoleForm):
    """A code of the app, or a recovery code."""

    code = forms.CharField(
        label=gettext_lazy("Code"), max_length=20, widget=forms.TextInput(attrs={**_CODE, "autofocus": True})
    )


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the sign-in form; sign in and redirect to the requested page."""
    target = safe_path(request, request.POST.get("next") or request.GET.get("next", ""))
    if request.user.is_authenticated and request.method == "GET":
        return HttpResponseRedirect(target)
    form = SignInForm(request, data=request.POST or None)
    if request.method == "POST" and form.is_valid():
        if second_factor.has_second_factor(form.get_user()):
            _remember_password(request, form.get_user(), target=target)
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
    return _throttled(reply(request, "session/sign_in.html", context, status=status), form.wait_s)


def _remember_password(request: HttpRequest, user: User, *, target: str) -> None:
    """Note in the session that the password of the user was correct; the user is not signed in yet."""
    request.session.cycle_key()
    request.session[_PENDING] = {
        "user": user.pk,
        "hash": user.get_session_auth_hash(),
        "until": timezone.now().timestamp() + PENDING_S,
        "next": target,
    }


@sensitive_post_parameters("code")
@require_http_methods(["GET", "POST"])
def sign_in_code(request: HttpRequest) -> HttpResponse:
    """Require the code of the second factor and sign in. Attempts are throttled per user and address."""
    pending = request.session.get(_PENDING)
    user = _pending_user(pending)
    if pending is None or user is None:
        request.session.pop(_PENDING, None)
        return HttpResponseRedirect(reverse("pages:sign-in"))
    form = CodeForm(request.POST or None)
    if request.method == "GET" or not form.is_valid():
        return reply(request, "session/code.html", {"form": form}, status=200 if request.method == "GET" else 422)
    wait_s = _wait_s(request, user)
    if wait_s:
        form.add_error("code", _too_many(wait_s))
        return _throttled(reply(request, "session/code.html", {"form": form}, status=429), wait_s)
    by = Actor(
        name=user.get_username(),
        user=user,
        request_id=getattr(request, "request_id", ""),
        client_address=str(request.META.get("REMOTE_ADDR") or ""),
    )
    if not account_actions.accept(user=user, code=form.cleaned_data["code"], by=by, now=timezone.now()):
        form.add_error(
            "code", gettext("The code is not valid, or was used already. Enter the next code of the app, or a recovery code.")
        )
        return reply(request, "session/code.html", {"form": form}, status=422)
    credentials.reset_attempts(_attempts(request, user))
    request.session.pop(_PENDING, None)
    login(request, user, backend=BACKEND)
    return HttpResponseRedirect(pending["next"])


def _pending_user(pending: Any) -> User | None:
    """Return the user whose password was accepted; None if that was too long ago, or the user has changed since."""
    if not pending or pending["until"] < timezone.now().timestamp():
        return None
    user = User.objects.filter(pk=pending["user"], is_active=True).first()
    return user if user is not None and constant_time_compare(user.get_session_auth_hash(), pending["hash"]) else None


def safe_path(request: HttpRequest, path: str) -> str:
    """Return ``path`` if it stays on this host, else the start page, to prevent open redirects."""
    allowed = url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return path if path and allowed else reverse("pages:start")


def _too_many(wait_s: int) -> str:
    return gettext("Too many attempts. Wait %(seconds)s seconds, then try again.") % {"seconds": wait_s}


def _throttled(response: HttpResponse, wait_s: int) -> HttpResponse:
    """Return the response, with the seconds to wait if the attempt was throttled."""
    if wait_s:
        response["Retry-After"] = str(wait_s)
    return response


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    if request.user.is_authenticated:
        record_sign_out(by=actor_of(request), now=timezone.now())
    logout(request)
    return HttpResponseRedirect(reverse("pages:sign-in"))


# --- password and second factor of the user ---------------------------------------------------------------------------


_NEW_PASSWORD_HELP = gettext_lazy("At least 8 characters. Not similar to your name and not a common password.")
_SECRET_KEY = "second_factor_secret"  # noqa: S105 - a key of the session


def _password_field(label: StrOrPromise, *, kind: str, help_text: StrOrPromise = "") -> forms.CharField:
    """Return a field for a password. ``kind`` is its ``autocomplete`` token in HTML."""
    widget = forms.PasswordInput(attrs={"autocomplete": kind})
    return forms.CharField(label=label, strip=False, help_text=help_text, widget=widget)


class PasswordForm(ConsoleForm):
    """The current password and, twice, the new password. Neither is ever rendered."""

    password = _password_field(gettext_lazy("Current password"), kind="current-password")
    new_password = _password_field(gettext_lazy("New password"), kind="new-password", help_text=_NEW_PASSWORD_HELP)
    repeated = _password_field(gettext_lazy("Confirm new password"), kind="new-password")

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
        self.wait_s = credentials.count_attempt(attempts)
        if self.wait_s:
            credentials.note_refusal(self._request, action="ThrottlePasswordChange", resource=f"user/{name}")
            self.add_error("password", _too_many(self.wait_s))
        elif not self._request.user.check_password(values["password"]):
            self.add_error("password", gettext("The current password is incorrect. It is case-sensitive."))
        else:
            credentials.reset_attempts(attempts)
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
        account_actions.change_own_password(new=form.cleaned_data["new_password"], by=by, now=timezone.now())
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
    return _throttled(
        reply(request, "session/password.html", {"form": form, "crumbs": crumbs} | more, status=status), form.wait_s
    )


class SecondFactorForm(ConsoleForm):
    """The password and a code, which turn the second factor on or off."""

    password = _password_field(gettext_lazy("Current password"), kind="current-password")
    code = forms.CharField(label=gettext_lazy("Code"), max_length=20, widget=forms.TextInput(attrs=_CODE))


@page("access")
@sensitive_post_parameters("password", "code")
@require_http_methods(["GET", "POST"])
def second_factor_page(request: HttpRequest) -> HttpResponse:
    """Show the second factor; turn it on or off with the password and a code."""
    if not settings.SECOND_FACTOR:
        raise Http404
    by = actor_of(request)
    user = by.user
    assert user is not None  # guaranteed by ``page``
    is_on = second_factor.has_second_factor(user)
    form = SecondFactorForm(request.POST or None)
    if request.method == "GET":
        return _second_factor_form(request, form, is_on=is_on)
    if not form.is_valid():
        return _second_factor_form(request, form, is_on=is_on, status=422)
    wait_s = _wait_s(request, user)
    if wait_s:
        form.add_error("password", _too_many(wait_s))
        return _second_factor_form(request, form, is_on=is_on, status=429)
    if not user.has_usable_password() or not user.check_password(form.cleaned_data["password"]):
        form.add_error("password", gettext("The current password is incorrect. It is case-sensitive."))
        return _second_factor_form(request, form, is_on=is_on, status=422)
    return _turn_on_or_off(request, form, is_on=is_on)


def _turn_on_or_off(request: HttpRequest, form: SecondFactorForm, *, is_on: bool) -> HttpResponse:
    by, now, entered = actor_of(request), timezone.now(), form.cleaned_data["code"]
    assert by.user is not None  # guaranteed by ``page``
    try:
        if not is_on:
            secret = second_factor.decrypted(request.session.get(_SECRET_KEY, ""))
            codes = account_actions.turn_on(secret=secret, code=entered, by=by, now=now)
            request.session.pop(_SECRET_KEY, None)
            credentials.reset_attempts(_attempts(request, by.user))
            return reply(request, "session/second_factor.html", _second_factor_context() | {"codes": codes}, status=201)
        if not account_actions.accept(user=by.user, code=entered, by=by, now=now):
            form.add_error("code", gettext("The code is not valid, or was used already. Enter the next code of the app."))
            return _second_factor_form(request, form, is_on=is_on, status=422)
        account_actions.turn_off(by=by, now=now)
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _second_factor_form(request, form, is_on=is_on, status=status_of(error), problem=problem)
    credentials.reset_attempts(_attempts(request, by.user))
    return done(request, reverse("pages:profile"), gettext("Second factor turned off. The password alone signs you in."))


def _second_factor_form(
    request: HttpRequest, form: SecondFactorForm, *, is_on: bool, status: int = 200, **more: Any
) -> HttpResponse:
    user = actor_of(request).user
    assert user is not None  # guaranteed by ``page``
    context = _second_factor_context() | {"form": form, "is_on": is_on, "has_password": user.has_usable_password()}
    if is_on:
        context["codes_left"] = second_factor.recovery_codes_left(user)
    else:
        secret = second_factor.decrypted(request.session.get(_SECRET_KEY, "")) or second_factor.new_secret()
        request.session.setdefault(_SECRET_KEY, second_factor.encrypted(secret))
        uri = second_factor.uri_of(user, secret)
        context |= {"secret": secret, "uri": uri, "qr": mark_safe(second_factor.qr_of(uri))}  # noqa: S308 - drawn here
    return reply(request, "session/second_factor.html", context | more, status=status)


def _second_factor_context() -> dict[str, Any]:
    return {"crumbs": [Crumb(label=gettext("Profile"), url=reverse("pages:profile")), Crumb(label=gettext("Second factor"))]}


def _attempts(request: HttpRequest, user: User) -> str:
    return credentials.attempts_at("second-factor", user.get_username(), request)


def _wait_s(request: HttpRequest, user: User) -> int:
    """Count an attempt; return 0 or the seconds to wait. Attempts also count per user, since a code has six digits only."""
    of_user = credentials.attempts_of("second-factor", user.get_username())
    wait_s = max(credentials.count_attempt(_attempts(request, user)), credentials.count_attempt(of_user, names=PLACES))
    if wait_s:
        credentials.note_refusal(request, action="ThrottleSecondFactor", resource=f"user/{user.get_username()}")
    return wait_s


# --- profile, sessions and theme --------------------------------------------------------------------------------------


_YEAR_S = 365 * 24 * 3600


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


# --- invitations ------------------------------------------------------------------------------------------------------
#
# The page of an invitation needs no session.


class AcceptForm(ConsoleForm):
    """The first password, twice."""

    new_password = _password_field(gettext_lazy("Password"), kind="new-password", help_text=_NEW_PASSWORD_HELP)
    repeated = _password_field(gettext_lazy("Confirm password"), kind="new-password")

    def clean(self) -> dict[str, Any] | None:
        """Require the same password twice."""
        values = super().clean() or {}
        if not self.errors and values["new_password"] != values["repeated"]:
            self.add_error("repeated", gettext("The passwords do not match. Enter the same password in both fields."))
        return values


@sensitive_post_parameters("new_password", "repeated")
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Set the first password with the token of an invitation. Attempts are throttled per address."""
    attempts = credentials.attempts_at("invitation", "", request)
    wait_s = credentials.count_attempt(attempts)
    if wait_s:
        credentials.note_refusal(request, action="ThrottleInvitation", resource="invitation")
        return _throttled(reply(request, "session/invitation.html", {"wait_s": wait_s}, status=429), wait_s)
    form = AcceptForm(request.POST or None)
    context: dict[str, Any] = {"form": form}
    try:
        found = account_actions.find_invitation(token=token, now=timezone.now())
        credentials.reset_attempts(attempts)
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
