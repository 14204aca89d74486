"""Shared by the admin pages: the actor, and messages for changes that an action refuses.

Django's ``ModelAdmin`` reports and logs a change after ``save_model`` returns, even if the action in it was refused.
``RefusableAdmin`` suppresses that and shows the form again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from console.actors import Actor
from console.errors import ConsoleError


def actor_of(request: HttpRequest) -> Actor:
    """Return the signed-in staff user as the actor."""
    user = request.user
    assert isinstance(user, User)
    address = request.META.get("REMOTE_ADDR", "")
    return Actor(
        name=user.get_username(), user=user, request_id=getattr(request, "request_id", ""), client_address=str(address)
    )


@contextmanager
def refusals_shown(request: HttpRequest) -> Iterator[None]:
    """Show a ConsoleError as a message and mark the request as refused; the request itself continues."""
    try:
        yield
    except ConsoleError as error:
        request.refused = True  # type: ignore[attr-defined]
        messages.error(request, error.message)


def was_refused(request: HttpRequest) -> bool:
    """Return whether an action has refused a change of this request."""
    return getattr(request, "refused", False)


class RefusableAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """A ModelAdmin that saves and deletes through actions; after a refusal it logs no success and shows the form again."""

    def message_user(self, request: HttpRequest, message: Any, level: Any = messages.INFO, *rest: Any, **more: Any) -> None:
        if not (was_refused(request) and level == messages.SUCCESS):
            super().message_user(request, message, level, *rest, **more)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Do nothing: Django logs deletions before the action has allowed them. The action writes its own audit row."""

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return None if was_refused(request) else super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return None if was_refused(request) else super().log_change(request, obj, message)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return _same_form(request) if was_refused(request) else super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return _same_form(request) if was_refused(request) else super().response_change(request, obj)


def _same_form(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(request.get_full_path())
