"""Admin pages of django-allauth: identities of the identity provider, and second factors. Superusers may delete them.

With the pages that django-allauth registers, rows can be added and edited. An identity that is added or edited would let its
holder sign in as any user. So these pages are replaced or removed. Without the settings there are none.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest

from console.admin.users import AuditedAdmin

# App -> its admin module, which registers pages, and the columns of the models whose rows may be deleted.
_APPS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "account": ("allauth.account.admin", {}),
    "mfa": ("allauth.mfa.admin", {"Authenticator": ("user", "type", "created_at", "last_used_at")}),
    "socialaccount": ("allauth.socialaccount.admin", {"SocialAccount": ("user", "uid", "provider", "last_login")}),
}


class DeletableAdmin(AuditedAdmin):
    """Rows that can only be deleted. Encrypted secrets and claims of the provider are not shown."""

    list_display_links = None
    exclude = ("data", "extra_data")

    def has_add_permission(self, _request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False


def register() -> None:
    """Replace the pages of the installed apps of django-allauth."""
    for label, (module, deletable) in _APPS.items():
        if not apps.is_installed(module.removesuffix(".admin")):
            continue
        import_module(module)  # registers its pages now, so that these do not replace the console's later
        for model in apps.get_app_config(label).get_models():
            if admin.site.is_registered(model):
                admin.site.unregister(model)
            if model.__name__ in deletable:
                columns = {"list_display": deletable[model.__name__]}
                admin.site.register(model, type(f"{model.__name__}Admin", (DeletableAdmin,), columns))


register()
