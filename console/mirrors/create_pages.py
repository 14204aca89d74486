"""The form that adds mirror topics to a link, with the list of its source topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import mark_safe
from django.utils.translation import gettext, gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods

from console.access import Permission, can, check_permission
from console.errors import ConflictError, ConsoleError, NotFoundError
from console.languages import translated
from console.links import queries as link_queries
from console.links import topic_queries
from console.links.command_presenters import curl, rest_url
from console.links.pages import crumbs, link_head
from console.links.topic_queries import SourceTopicChoice
from console.mirrors import actions as mirror_actions
from console.mirrors import bulk_actions
from console.models import BulkOperation, ClusterLink
from console.web import numbers
from console.web.forms import ConsoleForm, fingerprint
from console.web.request_handling import actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.linkrules import CONFIG as START_SPEC
from linkengine.domain.linkrules import LONGEST, start_problem

MOST_REPLICAS = 32_767  # the replication factor is an int16 in the Kafka protocol


class TopicNames(forms.SelectMultiple):
    """Names as options of a list, or as words of a text field. Names of topics have no white space."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        return list(dict.fromkeys(word for value in data.getlist(name) for word in value.split()))


class MirrorForm(ConsoleForm):
    """The source topics to mirror, and settings of their mirrors. The template renders the topics."""

    source_topic = forms.Field(widget=TopicNames, required=False)
    start = forms.CharField(
        label=gettext_lazy("Start offset"),
        required=False,
        help_text=mark_safe(  # noqa: S308 - constant
            gettext_lazy(
                '<span class="mono">earliest</span>, <span class="mono">latest</span>, or a time such as '
                '<span class="mono">2026-11-21T03:00:00Z</span>. If empty, the link\'s configuration applies. '
                "Records keep their offsets in any case."
            )
        ),
        widget=forms.TextInput(
            attrs={
                "class": "form-control mono",
                "maxlength": LONGEST,
                "autocomplete": "off",
                "autocapitalize": "none",
                "spellcheck": "false",
            }
        ),
    )
    replication_factor = forms.IntegerField(
        label=gettext_lazy("Replication factor"),
        required=False,
        min_value=1,
        max_value=MOST_REPLICAS,
        help_text=gettext_lazy("If empty, the default of the destination cluster applies."),
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
    )

    def __init__(self, *args: Any, default_start: str, **kwargs: Any) -> None:
        """Show the start that applies if the field is empty."""
        super().__init__(*args, **kwargs)
        self.fields["start"].widget.attrs["placeholder"] = default_start
        wrong = gettext("Enter a whole number from 1 to %(most)s, or leave the field empty.") % {"most": f"{MOST_REPLICAS:,}"}
        self.fields["replication_factor"].error_messages |= dict.fromkeys(("invalid", "min_value", "max_value"), wrong)

    def clean_start(self) -> str:
        """Check the start."""
        start = str(self.cleaned_data["start"])
        problem = start_problem(start) if start else ""
        if problem:
            raise ValidationError(translated(problem))
        return start

    def refuse(self, error: ConsoleError) -> bool:
        """Show the error of an action at its field, or at the topics; return False if it concerns neither."""
        if not error.field and not isinstance(error, NotFoundError):
            return False
        self.refuse_at(error.field if error.field in self.fields else "source_topic", error)
        return True

    @property
    def has_settings(self) -> bool:
        """Whether a setting is filled in or wrong, so that the settings are unfolded."""
        return any(self[name].value() or self[name].errors for name in ("start", "replication_factor"))


@page("links")
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the form, with a list of source topics if it is available; add one mirror topic, or start an operation for several.

    The list of source topics posts its selection with the intent ``choose``, which shows the form for it. The intent ``curl``
    shows the REST requests that add what the form contains.
    """
    by = actor_of(request)
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    if not can(by, Permission.MANAGE_MIRROR, link=link) and not _has_own_topics(link, request):
        check_permission(by, Permission.MANAGE_MIRROR, link=link)
    default_start = mirror_actions.default_start(link)
    if request.method == "GET" or request.POST.get("intent") == "choose":
        topics = request.POST.getlist("source_topic") or request.GET.get("topic", "").split()
        return _show(request, link, MirrorForm(initial={"source_topic": topics}, default_start=default_start))
    form = MirrorForm(request.POST, default_start=default_start)
    if not form.is_valid():
        return _show(request, link, form, status=422)
    if request.POST.get("intent") == "curl":
        return _show(request, link, form, curl=True)
    try:
        return _add(request, link, form.cleaned_data)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        problem = {} if form.refuse(error) else {"problem": problem_of(error)}
        return _show(request, link, form, status=status_of(error), **problem)


def _add(request: HttpRequest, link: ClusterLink, values: Mapping[str, Any]) -> HttpResponse:
    names: Sequence[str] = values["source_topic"]
    if request.POST.get("all") or len(names) > 1:
        return _add_several(request, link, names, factor=values["replication_factor"], start=values["start"])
    mirror = mirror_actions.create_mirror(
        link=link,
        source_topic=names[0] if names else "",
        replication_factor=values["replication_factor"],
        configs={START_SPEC: values["start"]},
        by=actor_of(request),
        now=timezone.now(),
    )
    return done(request, mirror.get_absolute_url(), gettext("Mirror topic %(name)s added.") % {"name": mirror.name})


def _add_several(
    request: HttpRequest, link: ClusterLink, names: Sequence[str], *, factor: int | None, start: str
) -> HttpResponse:
    by = actor_of(request)
    if request.POST.get("all"):
        names = _matching(request, link)
        if request.POST.get("seen") != fingerprint(*names):
            raise ConflictError(
                gettext(
                    "The list of source topics has changed since you opened this page. Nothing was added. Check the number "
                    "below, then add them again."
                )
            )
    started = bulk_actions.start(
        link=link,
        operation=BulkOperation.CREATE,
        topics=dict.fromkeys(names),
        options={"replication_factor": factor, "start": start},
        by=by,
        now=timezone.now(),
    )
    return done(request, started.get_absolute_url())


def _matching(request: HttpRequest, link: ClusterLink) -> list[str]:
    """Return the source topics that can be mirrored and match the filter in the request."""
    values = request.POST if request.method == "POST" else request.GET
    search, standing = values.get("q", "").strip(), values.get("standing", "")
    return topic_queries.matching_names(link=link, by=actor_of(request), search=search, standing=standing)


def _has_own_topics(link: ClusterLink, request: HttpRequest) -> bool:
    """Return True if the user has a role for topics of some names on this cluster. The action checks the name itself."""
    cluster = link.destination_id
    bindings = actor_of(request).bindings
    return any(binding.resource_type == "Topic" and binding.cluster_id == cluster for binding in bindings)


def _show(request: HttpRequest, link: ClusterLink, form: MirrorForm, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    values = request.POST if request.method == "POST" else request.GET
    search, standing = values.get("q", "").strip(), values.get("standing", "")
    chosen = form["source_topic"].value()
    choices = topic_queries.source_topics_for(link=link, by=by, search=search)
    too_many = len(choices) > topic_queries.LIMIT
    matching = _matching(request, link) if standing else [choice.name for choice in choices if choice.available]
    settings = form.cleaned_data if form.is_bound else {}
    context = {
        "link": link_head(link, now=now),
        "crumbs": crumbs(link, last=gettext("Add mirror topic")),
        "environment_name": link.destination.environment.name,
        "listable": bool(choices) and not too_many,
        "too_many": ngettext("%(count)s topic", "%(count)s topics", len(choices)) % {"count": numbers.count(len(choices))}
        if too_many
        else "",
        "choices": [] if too_many else _choice_rows(choices, chosen=chosen),
        "choices_summary": _choices_summary(choices),
        "query": search,
        "standing": standing,
        "searchable": bool(choices or search),
        "matching": len(matching),
        "matching_count": numbers.count(len(matching)),
        "all": bool(values.get("all")),
        "seen": fingerprint(*matching),
        "chosen": chosen,
        "names": "\n".join(chosen),
        "form": form,
        "snippet": "\n".join(
            _command(request, link, topic, settings)
            for topic in (matching if values.get("all") else chosen) or ["<source topic>"]
        ),
    }
    return reply(request, "mirrors/new.html", context | more, status=status)


def _command(request: HttpRequest, link: ClusterLink, topic: str, settings: Mapping[str, Any]) -> str:
    """Return the curl command that adds a mirror topic with the valid settings of the form."""
    body: dict[str, object] = {"source_topic_name": topic}
    if settings.get("replication_factor"):
        body["replication_factor"] = settings["replication_factor"]
    if settings.get("start"):
        body["configs"] = [{"name": START_SPEC, "value": settings["start"]}]
    return curl("POST", rest_url(request, "kafka:mirrors", link.url_args), body)


def _choice_rows(choices: Sequence[SourceTopicChoice], *, chosen: Sequence[str]) -> list[dict[str, object]]:
    """Return the options of the source topic list. The note has partitions and retention, or why a topic is not available.

    Chosen topics that are not among the choices come last, so that a search does not remove them from the selection.
    """
    known, picked = {choice.name for choice in choices}, set(chosen)
    missing = [
        {"name": name, "available": True, "selected": True, "note": gettext("chosen")} for name in chosen if name not in known
    ]
    return [
        {
            "name": choice.name,
            "selected": choice.available and choice.name in picked,
            "available": choice.available,
            "note": _topic_note(choice) if choice.available else choice.reason,
        }
        for choice in choices
    ] + missing


def _topic_note(choice: SourceTopicChoice) -> str:
    text = ngettext(
        "%(count)s partition, %(retention)s retention", "%(count)s partitions, %(retention)s retention", choice.partitions
    )
    return text % {"count": numbers.count(choice.partitions), "retention": numbers.retention(choice.retention_ms)}


def _choices_summary(choices: Sequence[SourceTopicChoice]) -> str:
    """Return how many topics can be mirrored and how many cannot."""
    available = sum(1 for choice in choices if choice.available)
    rest = len(choices) - available
    text = ngettext("%(count)s topic can be mirrored.", "%(count)s topics can be mirrored.", available)
    text %= {"count": numbers.count(available)}
    unavailable = gettext("%(count)s cannot; see the list for the reasons.") % {"count": rest}
    return f"{text} {unavailable}" if rest else text
