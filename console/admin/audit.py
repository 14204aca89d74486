"""Admin page of the audit log, read-only for all users."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from console.models import AuditEvent


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
