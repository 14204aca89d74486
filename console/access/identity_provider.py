"""Sign-in with OpenID Connect: what of django-allauth applies, and which users of the provider may sign in as whom.

Imported by django-allauth, if it is configured. A user of the provider is identified by issuer and subject, never by name or
e-mail address: otherwise the provider's users could choose to be any local user. The first sign-in creates a user, whose name
must be free. Rights come from roles only; the provider's groups give the roles of groups that a superuser has mapped. Neither a
claim nor a group makes a superuser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.openid_connect import views
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models.signals import pre_save
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop
from requests import RequestException

from console import audit
from console.access.account_actions import RESERVED_NAMES
from console.access.actions import follow_provider
from console.access.credentials import NOT_SIGNED_IN
from console.actors import ENGINE, Actor
from console.models import Account

_NAME = re.compile(r"[\w.@+-]{1,150}")  # as Django's validator of user names
_log = structlog.get_logger(__name__)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """No messages, no e-mail and no further steps: the provider has authenticated the user, with its own second factor."""

    def get_login_stages(self) -> list[str]:
        """Return no stages."""
        return []

    def add_message(self, *_args: Any, **_more: Any) -> None:
        """Show no message."""

    def send_mail(self, *_args: Any, **_more: Any) -> None:
        """Send no mail."""

    def is_open_for_signup(self, _request: HttpRequest) -> bool:
        """Refuse registrations; ``ProviderAdapter`` decides about users of the provider."""
        return False

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        """Return to the sign-in page."""
        reason = gettext("User '%(name)s' is deactivated. Ask an administrator of your organization.")
        return _back(request, reason % {"name": user.get_username()})


class ProviderAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Decides about a user of the provider after the provider has authenticated the user."""

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Check the claims; follow the groups of a known user. A refusal returns to the sign-in page."""
        claims, subject = claims_of(sociallogin.account.extra_data), sociallogin.account.uid
        if sociallogin.state.get("process") not in (None, "login"):
            _refuse(request, gettext_noop("A sign-in of the provider cannot be connected to another user."), subject)
        if claims is None:
            text = gettext_noop("The provider's responses name different users. Ask the administrator of the provider.")
            _refuse(request, text, subject)
        groups, required = groups_of(claims), settings.OIDC_REQUIRED_GROUP
        if required and required not in groups:
            text = gettext_noop("You are not in the group '%(group)s' of the provider. Ask for membership.")
            _refuse(request, text, subject, group=required)
        sociallogin.email_addresses = []
        if sociallogin.is_existing:
            follow_provider(user=sociallogin.user, external_names=groups, now=timezone.now())
        else:
            sociallogin.user = _new_user(request, claims, subject)

    def get_requests_session(self) -> Any:
        """Return a session for the requests to the provider: no redirects, which could lead a secret elsewhere, and https only.

        An exception is a provider on this machine, as in tests (``https_or_loopback``).
        """
        session = super().get_requests_session()
        session.max_redirects = 0
        if settings.OIDC_ISSUER.startswith("https:"):
            del session.adapters["http://"]  # also for endpoints that the provider's configuration names
        return session

    def authenticate_by_email(self, _sociallogin: Any) -> None:
        """Find no user by an e-mail address."""

    def list_apps(self, request: HttpRequest, provider: Any = None, client_id: Any = None) -> list[Any]:
        """Return the provider of the settings only: rows of the database, which staff may add, are not used."""
        return [app for app in super().list_apps(request, provider, client_id) if app.pk is None]

    def is_open_for_signup(self, _request: HttpRequest, _sociallogin: Any) -> bool:
        """Accept new users; ``pre_social_login`` has checked them."""
        return True

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        """Store a new user at the first sign-in, without roles except those of mapped groups."""
        user: User = super().save_user(request, sociallogin, form)
        now = timezone.now()
        Account.objects.create(user=user, created_at=now, created_by=ENGINE.name)
        detail = {"provider": settings.OIDC_ISSUER, "subject": sociallogin.account.uid}
        audit.record(by=ENGINE, action="CreateUser", resource=f"user/{user.get_username()}", now=now, detail=detail)
        groups = groups_of(claims_of(sociallogin.account.extra_data) or {})
        follow_provider(user=user, external_names=groups, now=now)
        return user

    def on_authentication_error(
        self, request: HttpRequest, _provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Return to the sign-in page. The log has the reason, which may come from the provider."""
        del extra_context
        _log.warning("oidc.failed", error=str(error), reason=repr(exception))
        reason = gettext("The sign-in with the provider failed or was canceled. Try again; the log of the service has details.")
        raise ImmediateHttpResponse(_back(request, reason))


def urls() -> list[URLPattern]:
    """Return the two URLs of the sign-in."""
    start = path("sign-in/<slug:provider_id>/login/", _guarded(views.login), name="openid_connect_login")
    end = path("sign-in/<slug:provider_id>/login/callback/", _guarded(views.callback), name="openid_connect_callback")
    return [start, end]


def _guarded(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Return the view with a return to the sign-in page if the provider is not available, or its configuration is malformed."""

    @wraps(view)
    def guarded(request: HttpRequest, provider_id: str) -> HttpResponse:
        try:
            return view(request, provider_id)
        except (RequestException, KeyError, ValueError) as error:
            _log.warning("oidc.unavailable", reason=repr(error), exc_info=True)
            reason = gettext("The identity provider is not available. Try again later; the log of the service has details.")
            return _back(request, reason)

    return guarded


def refuse_other_issuer(instance: SocialAccount, **_more: Any) -> None:
    """Refuse the sign-in of a known subject at another issuer than before, before django-allauth stores its claims.

    Subjects are unique within an issuer only (OpenID Connect Core 1.0, section 5.7). After the setting was changed to another
    provider, they may be other users.
    """
    stored = SocialAccount.objects.filter(pk=instance.pk).values_list("extra_data", flat=True).first()
    if stored is None or _issuer_of(stored) == _issuer_of(instance.extra_data):
        return
    text = gettext_noop(
        "This user belongs to the provider that was configured before. Ask an administrator to delete the social account."
    )
    _refuse(context.request, text, instance.uid)


pre_save.connect(refuse_other_issuer, sender=SocialAccount, dispatch_uid="console.access.identity_provider")


def _issuer_of(stored: dict[str, Any]) -> object:
    return (stored.get("id_token") or {}).get("iss")


def claims_of(stored: dict[str, Any]) -> dict[str, Any] | None:
    """Return the claims of the ID token and of the userinfo endpoint together; None if their subjects differ.

    A userinfo response for another subject must not be used (OpenID Connect Core 1.0, section 5.3.2). An e-mail address that
    the provider has not verified is left out: users may choose it freely, so it must become neither a name nor a group.
    """
    token, userinfo = stored.get("id_token") or {}, stored.get("userinfo") or {}
    if not token or (userinfo and token.get("sub") != userinfo.get("sub")):
        return None
    return {**_verified(userinfo), **_verified(token)}


def _verified(claims: dict[str, Any]) -> dict[str, Any]:
    """Return the claims without an e-mail address that is not verified."""
    is_verified = claims.get("email_verified") is True
    return {name: value for name, value in claims.items() if name != "email" or is_verified}


def groups_of(claims: dict[str, Any]) -> list[str]:
    """Return the groups in the claim that is configured; a claim of another form counts as no group."""
    found = claims.get(settings.OIDC_GROUPS_CLAIM)
    found = [found] if isinstance(found, str) else found
    return [name for name in found if isinstance(name, str) and name] if isinstance(found, list) else []


def _new_user(request: HttpRequest, claims: dict[str, Any], subject: str) -> User:
    name = claims.get(settings.OIDC_USER_CLAIM)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() in RESERVED_NAMES:
        text = gettext_noop("The claim '%(claim)s' of the provider is missing, not verified, or not a valid user name.")
        _refuse(request, text, subject, claim=settings.OIDC_USER_CLAIM)
    if User.objects.filter(username__iexact=name).exists():
        text = gettext_noop(
            "A user with the name '%(name)s' exists already and does not belong to the provider. Ask an administrator."
        )
        _refuse(request, text, subject, name=name)
    return User(username=name)


def _refuse(request: HttpRequest, text: str, subject: str, **values: str) -> NoReturn:
    """Return to the sign-in page, with an audit row in English: the provider has authenticated the user."""
    address = str(request.META.get("REMOTE_ADDR") or "")
    by = Actor(name=NOT_SIGNED_IN, user=None, request_id=getattr(request, "request_id", ""), client_address=address)
    audit.record_denial(by=by, action="SignIn", resource=f"provider-subject/{subject}", reason=text % values)
    raise ImmediateHttpResponse(_back(request, gettext(text) % values))


def _back(request: HttpRequest, reason: str) -> HttpResponse:
    messages.error(request, reason)
    return HttpResponseRedirect(reverse("pages:sign-in"))
