"""Shared by all pages: request handling (sign-in, errors, htmx fragments), preferences, and the frame (navigation, theme)."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext, gettext_noop

from console.access import approvals
from console.access.account_actions import record_sign_in
from console.actors import Actor
from console.errors import ConsoleError
from console.http.errors import PAGE_STATUS
from console.http.middleware import LANGUAGE
from console.languages import translated
from console.models import Account, UserSession
from console.web.errors import help_for

# --- the frame of all pages -------------------------------------------------------------------------------------------


THEMES = ("light", "dark")
THEME_COOKIE = "theme"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An entry of the navigation."""

    key: str
    label: str  # in English; the template translates it
    icon: str
    page: str  # name of its URL pattern

    @property
    def url(self) -> str:
        """Return the URL of its page."""
        return reverse(self.page)


SECTIONS = (
    Section(key="environments", label=gettext_noop("Environments"), icon="collection", page="pages:environments"),
    Section(key="links", label=gettext_noop("Cluster links"), icon="diagram-3", page="pages:links"),
    Section(key="topics", label=gettext_noop("Topics"), icon="hdd-network", page="pages:topics"),
    Section(key="operations", label=gettext_noop("Operations"), icon="arrow-repeat", page="pages:operations"),
    Section(key="access", label=gettext_noop("Access"), icon="shield-lock", page="pages:access"),
    Section(key="audit", label=gettext_noop("Audit log"), icon="journal-text", page="pages:audit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The values of the frame. ``theme`` is "" to follow the system."""

    user_name: str
    section: str
    theme: str
    environment: str  # environment of the page, "" if it shows several
    sections: Sequence[Section] = SECTIONS
    density: str = ""  # "compact" for tables with low rows
    zone: str = "UTC"  # of absolute times
    search: str = ""
    undecided: int = 0  # approval requests that wait for a decision of the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Crumb:
    """A breadcrumb. The last breadcrumb has no URL."""

    label: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A tab below a heading."""

    label: str
    url: str
    current: bool


def shell(request: HttpRequest, *, by: Actor | None, section: str, environment: str) -> Shell:
    """Return the values of the frame; the environment switcher loads its list when it is opened."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return Shell(
        user_name=by.name if by else "",
        section=section,
        theme=theme if theme in THEMES else "",
        environment=environment,
        density=request.session.get(DENSITY, "") if by else "",
        zone=str(timezone.get_current_timezone()),  # its key: Django's name of it is not known to browsers for a fixed offset
        search=request.GET.get("q", "") if request.path == reverse("pages:search") else "",
        undecided=approvals.undecided(by=by) if by else 0,
    )


# --- preferences and sessions -----------------------------------------------------------------------------------------
#
# Time zone, language and density are stored in the account and copied to the session at sign-in, so that no page needs a query
# for them.


TIME_ZONE, DENSITY = "time_zone", "density"  # keys of the session
LONGEST_AGENT, LONGEST_ADDRESS = 200, 64


def record_sign_ins() -> None:
    """Connect the receiver of sign-ins: of the console, of the admin site and of an identity provider."""
    user_logged_in.connect(_signed_in, dispatch_uid="console.web.request_handling")


def zone_of(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the time zone of a name, or None (the default, UTC) for an empty or unknown name."""
    try:
        return zoneinfo.ZoneInfo(name) if name else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return None


def remember_preferences(request: HttpRequest, account: Account | None) -> None:
    """Copy the preferences of an account to the session."""
    request.session[TIME_ZONE] = account.time_zone if account else ""
    request.session[LANGUAGE] = account.language if account else ""
    request.session[DENSITY] = account.density if account else ""


def record_session(request: HttpRequest, user: User) -> None:
    """Store the row of the request's session, and delete rows of sessions of the user that have ended."""
    if not request.session.session_key:
        request.session.create()
    alive = Session.objects.filter(expire_date__gt=timezone.now()).values("session_key")
    UserSession.objects.filter(user=user).exclude(session_key__in=alive).delete()
    values = {
        "user": user,
        "started_at": timezone.now(),
        "client_address": str(request.META.get("REMOTE_ADDR") or "")[:LONGEST_ADDRESS],
        "user_agent": str(request.META.get("HTTP_USER_AGENT") or "").replace("\0", "")[:LONGEST_AGENT],
    }
    UserSession.objects.update_or_create(session_key=request.session.session_key, defaults=values)


def _signed_in(sender: Any, request: HttpRequest, user: User, **_more: Any) -> None:
    remember_preferences(request, Account.objects.filter(user=user).first())
    record_session(request, user)
    request_id = getattr(request, "request_id", "")  # of the middleware: empty for a session that no HTTP request has created
    if request_id:
        address = str(request.META.get("REMOTE_ADDR") or "")
        by = Actor(name=user.get_username(), user=user, request_id=request_id, client_address=address)
        record_sign_in(path=request.path, by=by, now=timezone.now())


# --- requests, errors and fragments -----------------------------------------------------------------------------------


View = Callable[..., HttpResponse]
# Element ids that htmx requests; named partials of the templates.
FRAGMENTS = ("live", "head", "history", "dialog", "switcher", "minute", "readiness", "preview", "form")
POLLING = ("live", "head", "history")  # fragments that are polled


def actor_of(request: HttpRequest) -> Actor:
    """Return the actor of this request, always the same object, because it caches the roles."""
    actor: Actor | None = getattr(request, "page_actor", None)
    if actor is None:
        actor = Actor(
            name=request.user.get_username(),
            user=request.user,  # type: ignore[arg-type]
            request_id=getattr(request, "request_id", ""),
            client_address=request.META.get("REMOTE_ADDR", ""),
            for_fragment=bool(fragment_of(request)),
        )
        request.page_actor = actor  # type: ignore[attr-defined]
    return actor


def page(section: str) -> Callable[[View], View]:
    """Decorate a view: require a signed-in user, and show errors of queries and actions as pages."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            request.section = section  # type: ignore[attr-defined]
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            try:
                with timezone.override(zone_of(request.session.get(TIME_ZONE, ""))):
                    return view(request, *args, **kwargs)
            except ConsoleError as error:
                return refusal(request, error)
            except PermissionDenied:
                return reply(request, "failures/denied.html", {}, status=403)

        return guarded

    return decorate


def fragment_of(request: HttpRequest) -> str:
    """Return the fragment that htmx requested; "" for the whole page."""
    target = request.htmx.target if request.htmx else None  # type: ignore[attr-defined]
    return target if target in FRAGMENTS else ""


def reply(request: HttpRequest, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
    """Render the page, or the fragment that htmx requested, from the same context."""
    target = fragment_of(request)
    values = dict(context)
    if target and status not in {403, 404, 503}:
        response = render(request, f"{template}#{target}", values, status=status)
    else:
        by = actor_of(request) if request.user.is_authenticated else None
        section = getattr(request, "section", "")
        values["shell"] = shell(request, by=by, section=section, environment=str(values.get("environment_name", "")))
        response = render(request, template, values, status=status)
        if target in POLLING and status in {403, 404}:
            response["HX-Refresh"] = "true"  # the object is gone: the open page must reload and stop polling
    patch_vary_headers(response, ["HX-Request", "HX-Target"])
    return response


def done(request: HttpRequest, url: str, message: str = "") -> HttpResponse:
    """Redirect to ``url`` after a successful POST, with a message to show there."""
    if message:
        messages.success(request, message)
    return go(request, url)


def go(request: HttpRequest, url: str) -> HttpResponse:
    """Redirect the browser to ``url``, also from an htmx request."""
    if request.htmx:  # type: ignore[attr-defined]
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)


def problem_of(error: ConsoleError) -> dict[str, str]:
    """Return an error for the page: code, message, meaning and fix."""
    known = help_for(error.code)
    return {
        "code": error.code,
        "message": translated(error.message),
        "meaning": known.meaning,
        "fix": known.fix if known.meaning else "",
    }


def status_of(error: ConsoleError) -> int:
    """Return the status with which the form is shown again: 409 for a conflict, else 422."""
    return 409 if error.kind == "conflict" else 422


def refusal(request: HttpRequest, error: ConsoleError) -> HttpResponse:
    """Return an error page, for errors before anything else could be shown."""
    status = PAGE_STATUS[error.kind]
    template = {403: "failures/denied.html", 404: "failures/missing.html"}.get(status, "failures/refused.html")
    return reply(request, template, {"problem": problem_of(error)}, status=status)


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    if request.method not in {"GET", "HEAD"}:  # a POST cannot be repeated after the sign-in
        messages.warning(request, gettext("Your session has ended. Nothing was changed."))
    return go(request, f"{reverse('pages:sign-in')}?next={quote(_way_back(request))}")


def _way_back(request: HttpRequest) -> str:
    if request.htmx:  # type: ignore[attr-defined]
        return str(request.htmx.current_url_abs_path or "/")  # type: ignore[attr-defined]
    if request.method in {"GET", "HEAD"}:
        return request.get_full_path()
    sent_from = urlsplit(request.headers.get("Referer", ""))
    return urlunsplit(("", "", sent_from.path or "/", sent_from.query, "")) if sent_from.netloc == request.get_host() else "/"
