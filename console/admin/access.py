"""Admin pages of role bindings, API keys and the audit log; shared parts of all admin pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext

from console.access import actions as access_actions
from console.access import key_actions
from console.access.credentials import UserNameField
from console.actors import Actor
from console.errors import ConsoleError
from console.languages import translated
from console.models import ApiKey, AuditEvent, RoleBinding

# --- the audit log ----------------------------------------------------------------------------------------------------
#
# Read-only for all users.


@admin.register(AuditEvent)
class AuditEventAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Audit events, newest first."""

    list_display = ("at", "actor", "action", "resource", "result", "client_address", "request_id")
    list_filter = ("result", "action")
    search_fields = ("actor", "resource", "request_id")
    date_hierarchy = "at"

    def has_add_permission(self, _request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False


# --- shared by the admin pages ----------------------------------------------------------------------------------------
#
# Django's ``ModelAdmin`` reports and logs a change after ``save_model`` returns, even if the action in it was refused.
# ``RefusableAdmin`` suppresses that and shows the form again.


def actor_of(request: HttpRequest) -> Actor:
    """Return the signed-in superuser as the actor."""
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
        messages.error(request, translated(error.message))


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


# --- role bindings and API keys ---------------------------------------------------------------------------------------
#
# They can be added and deleted but not edited.


class _NamedUserForm(forms.ModelForm):  # type: ignore[type-arg]
    user = UserNameField()


class _PrincipalForm(forms.ModelForm):  # type: ignore[type-arg]
    user = UserNameField(required=False)  # or a group; the action checks that there is one of them


class _AddRemoveAdmin(RefusableAdmin):
    form: type[forms.ModelForm] = _NamedUserForm  # type: ignore[type-arg]

    def has_change_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, _obj: Any = None) -> bool:
        return self.has_delete_permission(request)


@admin.register(RoleBinding)
class RoleBindingAdmin(_AddRemoveAdmin):
    """Role bindings: which user or group has which role at which place."""

    form = _PrincipalForm
    list_display = (
        "user",
        "group",
        "role",
        "organization",
        "environment",
        "cluster",
        "resource_type",
        "resource_name",
        "prefixed",
        "expires_at",
    )
    list_filter = ("role",)
    exclude = ("granted_at", "granted_by")

    def save_model(self, request: HttpRequest, obj: RoleBinding, form: forms.Form, change: bool) -> None:  # noqa: FBT001 - Django's signature
        with refusals_shown(request):
            binding = access_actions.grant_role(**form.cleaned_data, by=actor_of(request), now=timezone.now())
            obj.pk = binding.pk

    def delete_model(self, request: HttpRequest, obj: RoleBinding) -> None:
        with refusals_shown(request):
            access_actions.revoke_role(binding=obj, by=actor_of(request), now=timezone.now())


@admin.register(ApiKey)
class ApiKeyAdmin(_AddRemoveAdmin):
    """API keys. The secret is shown once, in the response to the form: a Django message would store it in a cookie."""

    list_display = ("key", "user", "description", "role", "created_at", "expires_at", "last_used_at")
    fields = ("user", "description", "expires_at")

    def save_model(self, request: HttpRequest, obj: ApiKey, form: forms.Form, change: bool) -> None:  # noqa: FBT001 - Django's signature
        with refusals_shown(request):
            api_key, secret = key_actions.create_api_key(**form.cleaned_data, by=actor_of(request), now=timezone.now())
            obj.pk, obj.key = api_key.pk, api_key.key
            request.new_secret = secret  # type: ignore[attr-defined]

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        if was_refused(request):
            return super().response_add(request, obj, post_url_continue)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("API key %(key)s created") % {"key": obj.key},
            "opts": self.opts,
            "key": obj.key,
            "secret": request.new_secret,  # type: ignore[attr-defined]
        }
        response = TemplateResponse(request, "admin/console/apikey/made.html", context)
        response["Cache-Control"] = "no-store"  # the back button must not show the secret again
        return response

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        with refusals_shown(request):
            key_actions.delete_api_key(api_key=obj, by=actor_of(request), now=timezone.now())
