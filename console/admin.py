"""Pages of Django's admin site, for superusers: users, organizations, environments, clusters, roles, API keys, audit.

Clusters, roles and API keys are changed through the actions of ``console.clusters`` and ``console.access``, which check
permissions and write the audit log. Changes of all other rows are recorded there by this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from console import audit
from console.access import actions as access_actions
from console.access.credentials import UserNameField
from console.actors import Actor
from console.clusters import actions as cluster_actions
from console.errors import ConsoleError
from console.languages import translated
from console.models import ApiKey, AuditEvent, Cluster, Environment, Organization, RoleBinding

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


def record_change(request: HttpRequest, verb: str, obj: Model, *, path: str, **detail: Any) -> None:
    """Add an audit event for a change that is not made by an action of the console."""
    action = f"{verb}{type(obj).__name__}"
    audit.record(by=actor_of(request), action=action, resource=path, now=timezone.now(), detail=detail)


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
            api_key, secret = access_actions.create_api_key(**form.cleaned_data, by=actor_of(request), now=timezone.now())
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
            access_actions.delete_api_key(api_key=obj, by=actor_of(request), now=timezone.now())


# --- organizations, environments and clusters -------------------------------------------------------------------------
#
# Credentials of a cluster can be written here but not read.


class _NodeAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Base of the pages for organizations and environments: sets the creation time and records changes in the audit log."""

    exclude = ("created_at",)

    def save_model(self, request: HttpRequest, obj: Any, form: forms.Form, change: bool) -> None:  # noqa: FBT001 - Django's signature
        if not change:
            obj.created_at = timezone.now()
        super().save_model(request, obj, form, change)
        verb, path = "Update" if change else "Create", audit.path_of(obj)
        record_change(request, verb, obj, path=path, name=str(obj), changed=form.changed_data)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        path = audit.path_of(obj)
        super().delete_model(request, obj)
        record_change(request, "Delete", obj, path=path, name=str(obj))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)


@admin.register(Organization)
class OrganizationAdmin(_NodeAdmin):
    """Organizations, the roots of the tree."""

    list_display = ("name", "created_at")


@admin.register(Environment)
class EnvironmentAdmin(_NodeAdmin):
    """Groups of clusters."""

    # The operations that need an approval are chosen on a page of the console, with a permission of their own.
    exclude = ("created_at", "approval_operations")  # type: ignore[assignment]
    list_display = ("name", "organization", "slug")
    view_on_site = False
    prepopulated_fields = {"slug": ("name",)}

    def get_readonly_fields(self, request: HttpRequest, obj: Environment | None = None) -> Any:
        return () if obj is None else ("organization",)  # a move would change access rights, without a check or audit row


class ClusterForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that takes Kafka client properties as lines of text and never shows the stored properties."""

    properties_text = forms.CharField(
        label=gettext_lazy("Client properties"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 8, "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "One name=value per line: bootstrap.servers, security.protocol, sasl.mechanism, sasl.jaas.config, ssl.*. "
            "Stored encrypted and never shown again. Leave empty to keep the stored properties."
        ),
    )

    class Meta:
        model = Cluster
        fields = ("environment", "name")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        text = values.get("properties_text", "")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        wrong = [line.partition("=")[0] for line in lines if "=" not in line]
        if wrong:
            message = gettext("A line has no equals sign. Write each property as name=value on a line of its own.")
            raise forms.ValidationError(message)
        if not lines and self.instance.pk is None:
            message = gettext("Client properties are missing. Enter those that connect to the new cluster.")
            raise forms.ValidationError(message)
        values["properties"] = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
        if values["properties"]:
            self._probe(values["properties"])
        return values

    def _probe(self, properties: dict[str, str]) -> None:
        try:
            cluster_actions.probe_properties(properties)
        except ConsoleError as error:
            raise forms.ValidationError(translated(error.message)) from error


@admin.register(Cluster)
class ClusterAdmin(RefusableAdmin):
    """Registered clusters. Saving probes the cluster first; permissions are checked as in the console and the REST API."""

    form = ClusterForm
    view_on_site = False
    list_display = ("name", "cluster_id", "environment", "kafka_version", "brokers", "probed_at", "error_code")
    readonly_fields = (
        "cluster_id",
        "bootstrap_servers",
        "kafka_version",
        "brokers",
        "has_authorizer",
        "probed_at",
        "error_message",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Cluster | None = None) -> Any:
        fixed = super().get_readonly_fields(request, obj)
        return fixed if obj is None else ("environment", *fixed)  # a move would change access rights, unchecked

    def save_model(self, request: HttpRequest, obj: Cluster, form: forms.ModelForm, change: bool) -> None:  # type: ignore[type-arg]  # noqa: FBT001
        properties, by, now = form.cleaned_data["properties"], actor_of(request), timezone.now()
        with refusals_shown(request):
            if not change:
                obj.pk = cluster_actions.register_cluster(
                    environment=obj.environment, name=obj.name, properties=properties, by=by, now=now
                ).pk
                return
            stored = Cluster.objects.get(pk=obj.pk)  # ``obj`` already has the values of the form
            if properties:
                cluster_actions.update_properties(cluster=stored, properties=properties, by=by, now=now)
            cluster_actions.rename(cluster=stored, name=obj.name, by=by, now=now)

    def delete_model(self, request: HttpRequest, obj: Cluster) -> None:
        with refusals_shown(request):
            cluster_actions.unregister(cluster=obj, by=actor_of(request), now=timezone.now())


# --- users and Django's own groups ------------------------------------------------------------------------------------
#
# The console's own pages invite users and manage service accounts and groups (``console.access.user_pages``).


admin.site.unregister([User, Group])


class AuditedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages whose changes are audit events."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record_change(request, "Create", obj, path=_path(obj))
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Record a change; Django also calls this after it has set the password of a user."""
        record_change(request, "Update", obj, path=_path(obj), changed=message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        for row in queryset:
            record_change(request, "Delete", row, path=_path(row))
        return super().log_deletions(request, queryset)


@admin.register(User)
class AuditedUserAdmin(AuditedAdmin, UserAdmin):  # type: ignore[type-arg]
    """Users."""


@admin.register(Group)
class AuditedGroupAdmin(AuditedAdmin, GroupAdmin):
    """Django's groups, which carry permissions of this site only. The console has groups of its own, for roles."""


def _path(obj: Model) -> str:
    """Return the resource name of a user, of a row that belongs to a user, or of a group of Django."""
    owner = getattr(obj, "user", obj)  # identities and second factors belong to a user
    return f"user/{owner.get_username()}" if isinstance(owner, User) else f"admin-group/{obj}"


# --- identities and second factors of django-allauth ------------------------------------------------------------------
#
# With the pages that django-allauth registers, rows can be added and edited. An identity that is added or edited would let its
# holder sign in as any user. So these pages are replaced or removed; superusers may delete the rows. Without the settings of
# the identity provider and of the second factor there are none.


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
