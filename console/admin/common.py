"""What the administration pages share: who acts, how a refusal is shown, and that nothing is said to be done then."""

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
    """Answer the signed-in member of staff."""
    user = request.user
    assert isinstance(user, User)
    address = request.META.get("REMOTE_ADDR", "")
    return Actor(
        name=user.get_username(), user=user, request_id=getattr(request, "request_id", ""), client_address=str(address)
    )


@contextmanager
def refusals_shown(request: HttpRequest) -> Iterator[None]:
    """Turn a refusal into a message; the page itself goes on."""
    try:
        yield
    except ConsoleError as error:
        request.refused = True  # type: ignore[attr-defined]
        messages.error(request, error.message)


def was_refused(request: HttpRequest) -> bool:
    """Tell whether an action has refused what this request asked for."""
    return getattr(request, "refused", False)


class RefusableAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Saves and deletes through actions: where one refuses, nothing is noted or said to be done, and a form is shown again."""

    def message_user(self, request: HttpRequest, message: Any, level: Any = messages.INFO, *rest: Any, **more: Any) -> None:
        if not (was_refused(request) and level == messages.SUCCESS):
            super().message_user(request, message, level, *rest, **more)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Nothing: Django would note them before the action has said yes; the action's own row in the audit is the record."""

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for one in queryset:
            self.delete_model(request, one)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return None if was_refused(request) else super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return None if was_refused(request) else super().log_change(request, obj, message)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return _again(request) if was_refused(request) else super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return _again(request) if was_refused(request) else super().response_change(request, obj)


def _again(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(request.get_full_path())
