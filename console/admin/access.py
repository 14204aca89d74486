"""Admin pages of role bindings and API keys, which can be added and deleted but not edited."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from console.access.user_field import UserNameField
from console.actions import access, api_keys
from console.admin.common import RefusableAdmin, actor_of, refusals_shown, was_refused
from console.models import ApiKey, RoleBinding


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
            binding = access.grant_role(**form.cleaned_data, by=actor_of(request), now=timezone.now())
            obj.pk = binding.pk

    def delete_model(self, request: HttpRequest, obj: RoleBinding) -> None:
        with refusals_shown(request):
            access.revoke_role(binding=obj, by=actor_of(request), now=timezone.now())


@admin.register(ApiKey)
class ApiKeyAdmin(_AddRemoveAdmin):
    """API keys. The secret is shown once, in the response to the form: a Django message would store it in a cookie."""

    list_display = ("key", "user", "description", "role", "created_at", "expires_at", "last_used_at")
    fields = ("user", "description", "expires_at")

    def save_model(self, request: HttpRequest, obj: ApiKey, form: forms.Form, change: bool) -> None:  # noqa: FBT001 - Django's signature
        with refusals_shown(request):
            api_key, secret = api_keys.create_api_key(**form.cleaned_data, by=actor_of(request), now=timezone.now())
            obj.pk, obj.key = api_key.pk, api_key.key
            request.new_secret = secret  # type: ignore[attr-defined]

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        if was_refused(request):
            return super().response_add(request, obj, post_url_continue)
        context = {
            **self.admin_site.each_context(request),
            "title": f"API key {obj.key} created",
            "opts": self.opts,
            "key": obj.key,
            "secret": request.new_secret,  # type: ignore[attr-defined]
        }
        response = TemplateResponse(request, "admin/console/apikey/made.html", context)
        response["Cache-Control"] = "no-store"  # the back button must not show the secret again
        return response

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        with refusals_shown(request):
            api_keys.delete_api_key(api_key=obj, by=actor_of(request), now=timezone.now())
