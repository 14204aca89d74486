"""The second factor: the step of the sign-in that requires a code, and the page that turns the second factor on and off."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.safestring import mark_safe
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console.access import account_actions, credentials, second_factor
from console.actors import Actor
from console.errors import ConsoleError
from console.web.forms import ConsoleForm
from console.web.request_handling import Crumb, actor_of, done, page, problem_of, reply, status_of

_PENDING, _SECRET = "second_factor", "second_factor_secret"  # keys of the session
PENDING_S = 300  # the code has to be entered this soon after the password
PLACES = 5  # a user may have this many times the attempts of a single address
BACKEND = "django.contrib.auth.backends.ModelBackend"
_CODE = {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false"}


class CodeForm(ConsoleForm):
    """A code of the app, or a recovery code."""

    code = forms.CharField(
        label=gettext_lazy("Code"), max_length=20, widget=forms.TextInput(attrs={**_CODE, "autofocus": True})
    )


class ChangeForm(ConsoleForm):
    """The password and a code, which turn the second factor on or off."""

    password = forms.CharField(
        label=gettext_lazy("Current password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    code = forms.CharField(label=gettext_lazy("Code"), max_length=20, widget=forms.TextInput(attrs=_CODE))


def remember_password(request: HttpRequest, user: User, *, target: str) -> None:
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
def code(request: HttpRequest) -> HttpResponse:
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
        return _throttled(request, "session/code.html", form, wait_s)
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
    credentials.reset(_attempts(request, user))
    request.session.pop(_PENDING, None)
    login(request, user, backend=BACKEND)
    return HttpResponseRedirect(pending["next"])


@page("access")
@sensitive_post_parameters("password", "code")
@require_http_methods(["GET", "POST"])
def settings_page(request: HttpRequest) -> HttpResponse:
    """Show the second factor; turn it on or off with the password and a code."""
    if not settings.SECOND_FACTOR:
        raise Http404
    by = actor_of(request)
    user = by.user
    assert user is not None  # guaranteed by ``page``
    is_on = second_factor.has_second_factor(user)
    form = ChangeForm(request.POST or None)
    if request.method == "GET":
        return _settings_page(request, form, is_on=is_on)
    if not form.is_valid():
        return _settings_page(request, form, is_on=is_on, status=422)
    wait_s = _wait_s(request, user)
    if wait_s:
        form.add_error("password", _too_many(wait_s))
        return _settings_page(request, form, is_on=is_on, status=429)
    if not user.has_usable_password() or not user.check_password(form.cleaned_data["password"]):
        form.add_error("password", gettext("The current password is incorrect. It is case-sensitive."))
        return _settings_page(request, form, is_on=is_on, status=422)
    return _change(request, form, is_on=is_on)


def _change(request: HttpRequest, form: ChangeForm, *, is_on: bool) -> HttpResponse:
    by, now, entered = actor_of(request), timezone.now(), form.cleaned_data["code"]
    assert by.user is not None  # guaranteed by ``page``
    try:
        if not is_on:
            secret = second_factor.decrypted(request.session.get(_SECRET, ""))
            codes = account_actions.turn_on(secret=secret, code=entered, by=by, now=now)
            request.session.pop(_SECRET, None)
            credentials.reset(_attempts(request, by.user))
            return reply(request, "session/second_factor.html", _context() | {"codes": codes}, status=201)
        if not account_actions.accept(user=by.user, code=entered, by=by, now=now):
            form.add_error("code", gettext("The code is not valid, or was used already. Enter the next code of the app."))
            return _settings_page(request, form, is_on=is_on, status=422)
        account_actions.turn_off(by=by, now=now)
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _settings_page(request, form, is_on=is_on, status=status_of(error), problem=problem)
    credentials.reset(_attempts(request, by.user))
    return done(request, reverse("pages:profile"), gettext("Second factor turned off. The password alone signs you in."))


def _settings_page(request: HttpRequest, form: ChangeForm, *, is_on: bool, status: int = 200, **more: Any) -> HttpResponse:
    user = actor_of(request).user
    assert user is not None  # guaranteed by ``page``
    context = _context() | {"form": form, "is_on": is_on, "has_password": user.has_usable_password()}
    if is_on:
        context["codes_left"] = second_factor.recovery_codes_left(user)
    else:
        secret = second_factor.decrypted(request.session.get(_SECRET, "")) or second_factor.new_secret()
        request.session.setdefault(_SECRET, second_factor.encrypted(secret))
        uri = second_factor.uri_of(user, secret)
        context |= {"secret": secret, "uri": uri, "qr": mark_safe(second_factor.qr_of(uri))}  # noqa: S308 - drawn here
    return reply(request, "session/second_factor.html", context | more, status=status)


def _context() -> dict[str, Any]:
    return {"crumbs": [Crumb(label=gettext("Profile"), url=reverse("pages:profile")), Crumb(label=gettext("Second factor"))]}


def _pending_user(pending: Any) -> User | None:
    """Return the user whose password was accepted; None if that was too long ago, or the user has changed since."""
    if not pending or pending["until"] < timezone.now().timestamp():
        return None
    user = User.objects.filter(pk=pending["user"], is_active=True).first()
    return user if user is not None and constant_time_compare(user.get_session_auth_hash(), pending["hash"]) else None


def _attempts(request: HttpRequest, user: User) -> str:
    return credentials.attempts_at("second-factor", user.get_username(), request)


def _wait_s(request: HttpRequest, user: User) -> int:
    """Count an attempt; return 0 or the seconds to wait. Attempts also count per user, since a code has six digits only."""
    of_user = credentials.attempts_of("second-factor", user.get_username())
    wait_s = max(credentials.count(_attempts(request, user)), credentials.count(of_user, names=PLACES))
    if wait_s:
        credentials.note_refusal(request, action="ThrottleSecondFactor", resource=f"user/{user.get_username()}")
    return wait_s


def _too_many(wait_s: int) -> str:
    return gettext("Too many attempts. Wait %(seconds)s seconds, then try again.") % {"seconds": wait_s}


def _throttled(request: HttpRequest, template: str, form: CodeForm, wait_s: int) -> HttpResponse:
    form.add_error("code", _too_many(wait_s))
    response = reply(request, template, {"form": form}, status=429)
    response["Retry-After"] = str(wait_s)
    return response
