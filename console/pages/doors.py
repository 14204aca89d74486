"""The door of every page: who comes in, what is answered when an action or a query refuses, how a fragment is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.cache import patch_vary_headers

from console.actors import Actor
from console.errors import ConsoleError
from console.pages.shell import shell
from console.presenters.errors import help_for

View = Callable[..., HttpResponse]
STATUS = {"bad_request": 400, "invalid": 422, "not_found": 404, "denied": 403, "conflict": 409, "unavailable": 503}
FRAGMENTS = ("live", "history", "dialog", "switcher")  # ids of the elements that htmx fills; named partials of the templates
POLLING = ("live", "history")  # those that are asked for again and again


def actor_of(request: HttpRequest) -> Actor:
    """Answer the actor of this request; always the same one, since it remembers the roles it has read."""
    actor: Actor | None = getattr(request, "page_actor", None)
    if actor is None:
        actor = Actor(
            name=request.user.get_username(),
            user=request.user,  # type: ignore[arg-type]
            request_id=getattr(request, "request_id", ""),
            client_address=request.META.get("REMOTE_ADDR", ""),
        )
        request.page_actor = actor  # type: ignore[attr-defined]
    return actor


def page(section: str) -> Callable[[View], View]:
    """Decorate a page: only for people who are signed in; refusals of queries and actions become pages of their own."""

    def decorate(view: View) -> View:
        @wraps(view)
        def door(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            request.section = section  # type: ignore[attr-defined]
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            try:
                return view(request, *args, **kwargs)
            except ConsoleError as error:
                return refusal(request, error)
            except PermissionDenied:
                return reply(request, "failures/denied.html", {}, status=403)

        return door

    return decorate


def reply(request: HttpRequest, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
    """Render the page, or the part of it that htmx asked for. Both come from the same values."""
    target = request.htmx.target if request.htmx else None  # type: ignore[attr-defined]
    values = dict(context)
    if target in FRAGMENTS and status not in {403, 404, 503}:
        response = render(request, f"{template}#{target}", values, status=status)
    else:
        by = actor_of(request) if request.user.is_authenticated else None
        section = getattr(request, "section", "")
        values["shell"] = shell(request, by=by, section=section, environment=str(values.get("environment_name", "")))
        response = render(request, template, values, status=status)
        if target in POLLING and status in {403, 404}:
            response["HX-Refresh"] = "true"  # what the open page shows is gone: it must neither stay nor go on asking
    patch_vary_headers(response, ["HX-Request", "HX-Target"])
    return response


def done(request: HttpRequest, url: str, message: str = "") -> HttpResponse:
    """Answer a post that was carried out: go to ``url`` and say there what was done."""
    if message:
        messages.success(request, message)
    return go(request, url)


def go(request: HttpRequest, url: str) -> HttpResponse:
    """Send the browser to ``url``, also out of a fragment."""
    if request.htmx:  # type: ignore[attr-defined]
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)


def problem_of(error: ConsoleError) -> dict[str, str]:
    """Word a refusal for the page that stays open: code, message, what it means, what to do."""
    known = help_for(error.code)
    return {"code": error.code, "message": error.message, "meaning": known.meaning, "fix": known.fix if known.meaning else ""}


def status_of(error: ConsoleError) -> int:
    """Answer the status with which the same form is shown again: 409 for the wrong state, else 422."""
    return 409 if error.kind == "conflict" else 422


def refusal(request: HttpRequest, error: ConsoleError) -> HttpResponse:
    """Answer a page of its own for what was refused before anything could be shown."""
    status = STATUS[error.kind]
    template = {403: "failures/denied.html", 404: "failures/missing.html"}.get(status, "failures/refused.html")
    problem = problem_of(error) | {"request_id": getattr(request, "request_id", "")}
    return reply(request, template, {"problem": problem}, status=status)


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    if request.method not in {"GET", "HEAD"}:  # nobody can go back to what was sent, only to the page it was sent from
        messages.warning(request, "You were signed out; nothing was changed.")
    return go(request, f"/sign-in/?next={quote(_way_back(request))}")


def _way_back(request: HttpRequest) -> str:
    if request.htmx:  # type: ignore[attr-defined]
        return str(request.htmx.current_url_abs_path or "/")  # type: ignore[attr-defined]
    if request.method in {"GET", "HEAD"}:
        return request.get_full_path()
    sent_from = urlsplit(request.headers.get("Referer", ""))
    return urlunsplit(("", "", sent_from.path or "/", sent_from.query, "")) if sent_from.netloc == request.get_host() else "/"
