"""Create a cluster link: one calm page; validate only, the same as curl, or create."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console.access import visible_clusters
from console.actions import links as link_actions
from console.actors import Actor
from console.errors import ConsoleError
from console.models import Cluster
from console.pages.doors import actor_of, done, page, problem_of, reply, status_of
from console.pages.forms import ConnectionForm
from console.pages.shell import Crumb
from console.presenters.curl import config_list, curl
from console.presenters.links import link_url

_NAME_ATTRIBUTES = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class CreateLinkForm(ConnectionForm):
    """Source, destination, name. The connection fields count for a source that is not registered."""

    source_kind = forms.ChoiceField(choices=[("registered", ""), ("other", "")], initial="registered")
    source = forms.ChoiceField(label="Source cluster", required=False)
    source_cluster_id = forms.CharField(
        label="Source cluster ID",
        required=False,
        max_length=64,
        help_text="Left empty, the cluster is asked for it. If given, it must be right.",
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )
    destination = forms.ChoiceField(label="Destination cluster")
    name = forms.CharField(
        label="Link name", max_length=200, help_text="Cannot be changed later.", widget=forms.TextInput(attrs=_NAME_ATTRIBUTES)
    )
    topic_prefix = forms.CharField(
        label="Prefix of mirror topics",
        required=False,
        max_length=12,
        help_text="For example west. makes orders into west.orders. Cannot be changed later.",
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )

    mode = forms.ChoiceField(
        label="Direction",
        required=False,
        initial="DESTINATION",
        choices=[("DESTINATION", "To the destination only"), ("BIDIRECTIONAL", "Bidirectional: reversible and restorable")],
        help_text="A bidirectional link is created at both clusters under one name; its mirror topics can be reversed.",
    )

    def __init__(self, *args: Any, clusters: list[Cluster], **kwargs: Any) -> None:
        """Offer the clusters that the person may see."""
        super().__init__(*args, **kwargs)
        choices = [("", "Choose a cluster"), *((one.cluster_id, f"{one.name} ({one.environment.name})") for one in clusters)]
        for name in ("source", "destination"):
            self.fields[name].choices = choices  # type: ignore[attr-defined]
        if not self.asks_connection():
            for name in ConnectionForm.base_fields:
                self.fields[name].required = False

    def asks_connection(self) -> bool:
        return bool(self.data.get("source_kind", "registered") == "other")

    def clean(self) -> dict[str, Any] | None:
        """Ask for a registered source where that way was chosen."""
        values = super().clean() or {}
        if not self.asks_connection() and not values.get("source"):
            self.add_error("source", "Choose the source cluster.")
        return values

    def source_id(self) -> str:
        values = self.cleaned_data
        return str(values["source_cluster_id"] if self.asks_connection() else values["source"])

    def configs(self) -> dict[str, str | None]:
        """Answer the configs of the link; a registered source brings its own connection."""
        connection: dict[str, str] = self.properties() if self.asks_connection() else {}
        prefix = self.cleaned_data["topic_prefix"]
        mode = {"link.mode": "BIDIRECTIONAL"} if self.cleaned_data["mode"] == "BIDIRECTIONAL" else {}
        return {**connection, **({"cluster.link.prefix": prefix} if prefix else {}), **mode}


@page("links")
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """Show the form; check, show as curl, or create."""
    by = actor_of(request)
    clusters = list(visible_clusters(by).select_related("environment").order_by("environment__name", "name"))
    if request.method == "GET":
        initial = {"source": request.GET.get("source", ""), "destination": request.GET.get("destination", "")}
        return _form(request, CreateLinkForm(clusters=clusters, initial=initial))
    form = CreateLinkForm(request.POST, clusters=clusters)
    if not form.is_valid():
        return _form(request, form, status=422)
    if request.POST.get("intent") == "curl":
        return _form(request, form, snippet=_snippet(request, form))
    return _carry_out(request, form, clusters=clusters, by=by)


def _carry_out(request: HttpRequest, form: CreateLinkForm, *, clusters: list[Cluster], by: Actor) -> HttpResponse:
    values = form.cleaned_data
    try:
        link = link_actions.create_link(
            destination=next(one for one in clusters if one.cluster_id == values["destination"]),
            name=values["name"],
            source_cluster_id=form.source_id(),
            configs=form.configs(),
            validate_only=request.POST.get("intent") == "validate",
            by=by,
            now=timezone.now(),
        )
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _form(request, form, problem=problem, status=status_of(error))
    if link is None:
        return _form(request, form, validated=True)
    return done(request, link_url(link), f"Cluster link {link.name} is created. Add the topics to mirror.")


def _form(request: HttpRequest, form: CreateLinkForm, *, status: int = 200, **more: object) -> HttpResponse:
    crumbs = [Crumb(label="Cluster links", url="/links/"), Crumb(label="Create cluster link")]
    return reply(request, "links/new.html", {"form": form, "crumbs": crumbs, **more}, status=status)


def _snippet(request: HttpRequest, form: CreateLinkForm) -> str:
    values = form.cleaned_data
    url = request.build_absolute_uri(f"/kafka/v3/clusters/{values['destination']}/links?link_name={values['name']}")
    return curl("POST", url, {"source_cluster_id": form.source_id(), "configs": config_list(form.configs())})
