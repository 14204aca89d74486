"""Admin pages of users and of Django's own groups; each change is an audit event.

The console's own pages invite users and manage service accounts and groups (``console.access.user_pages``).
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from console import audit
from console.admin.access import actor_of

admin.site.unregister([User, Group])


class AuditedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages whose changes are audit events."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        _record(request, "Create", obj)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Record a change; Django also calls this after it has set the password of a user."""
        _record(request, "Update", obj, changed=message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        for row in queryset:
            _record(request, "Delete", row)
        return super().log_deletions(request, queryset)


@admin.register(User)
class AuditedUserAdmin(AuditedAdmin, UserAdmin):  # type: ignore[type-arg]
    """Users."""


@admin.register(Group)
class AuditedGroupAdmin(AuditedAdmin, GroupAdmin):
    """Django's groups, which carry permissions of this site only. The console has groups of its own, for roles."""


def _record(request: HttpRequest, verb: str, obj: Model, **detail: Any) -> None:
    kind = type(obj).__name__
    audit.record(by=actor_of(request), action=f"{verb}{kind}", resource=_path(obj), now=timezone.now(), detail=detail)


def _path(obj: Model) -> str:
    owner = getattr(obj, "user", obj)  # identities and second factors belong to a user
    return f"user/{owner.get_username()}" if isinstance(owner, User) else f"admin-group/{obj}"
