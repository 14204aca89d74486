"""Admin pages of organizations, environments and clusters. Credentials of a cluster can be written here but not read."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from console import audit
from console.admin.access import RefusableAdmin, actor_of, refusals_shown
from console.clusters import actions as cluster_actions
from console.errors import ConsoleError
from console.languages import translated
from console.models import Cluster, Environment, Organization


class _GroupAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Base of the pages for organizations and environments: sets the creation time and records changes in the audit log."""

    exclude = ("created_at",)

    def save_model(self, request: HttpRequest, obj: Any, form: forms.Form, change: bool) -> None:  # noqa: FBT001 - Django's signature
        if not change:
            obj.created_at = timezone.now()
        super().save_model(request, obj, form, change)
        _record(request, obj, "Update" if change else "Create", path=audit.path_of(obj), changed=form.changed_data)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        path = audit.path_of(obj)
        super().delete_model(request, obj)
        _record(request, obj, "Delete", path=path)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)


def _record(request: HttpRequest, obj: Any, verb: str, *, path: str, **detail: Any) -> None:
    action, detail = f"{verb}{type(obj).__name__}", {"name": str(obj), **detail}
    audit.record(by=actor_of(request), action=action, resource=path, now=timezone.now(), detail=detail)


@admin.register(Organization)
class OrganizationAdmin(_GroupAdmin):
    """Organizations, the roots of the tree."""

    list_display = ("name", "created_at")


@admin.register(Environment)
class EnvironmentAdmin(_GroupAdmin):
    """Groups of clusters."""

    # The operations that need an approval are chosen on a page of the console, with a permission of their own.
    exclude = ("created_at", "approval_operations")  # type: ignore[assignment]
    list_display = ("name", "organization", "slug")
    view_on_site = False
    prepopulated_fields = {"slug": ("name",)}

    def get_readonly_fields(self, request: HttpRequest, obj: Environment | None = None) -> Any:
        return () if obj is None else ("organization",)  # a move would change who has access, without a check or audit row


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
        return fixed if obj is None else ("environment", *fixed)  # a move would change who has access, unchecked

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
