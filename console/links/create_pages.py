"""Create a cluster link in steps with an address each. Entered values are kept in a draft on the server.

The start page creates a draft with the switches of the chosen purpose. Each step stores its fields, so the steps can be opened
in any order and on another day. The last step shows everything, and validates or creates the link.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.access import Permission, can, visible_clusters
from console.actors import Actor
from console.clusters.queries import list_environments
from console.errors import ConsoleError, NotFoundError
from console.links import draft_presenters, drafts, pairs
from console.links.checks import LinkValidation
from console.links.command_presenters import LinkCommand, link_commands
from console.links.create_forms import ConfigurationForm, NameForm, OtherClusterForm, OwnClusterForm, StartForm, part_of
from console.links.draft_presenters import (
    CONFIGURATION,
    DESTINATION,
    PRESETS,
    REVIEW,
    SOURCE,
    PreviewRow,
    count_acls,
    count_groups,
    count_topics,
)
from console.links.drafts import OTHER_SIDE, OWN_SIDE, DraftValues, values_of
from console.links.form_presenters import DIRECTIONS, Direction, checklist, distance_rows
from console.models import Cluster, ClusterLink, LinkDraft
from console.web.numbers import moment
from console.web.request_handling import Crumb, actor_of, done, go, page, problem_of, reply, status_of
from linkengine.domain.clusterviews import SourceListing
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkrules import PREFIX_PATTERN
from linkengine.domain.names import check_link_name

_PREFILLED = {"direction": "direction", "destination": "own", "source": "other", "name": "name"}  # query -> field
_LONGEST_SUGGESTION = 12  # of a prefix


@page("links")
@require_http_methods(["GET", "POST"])
def start(request: HttpRequest) -> HttpResponse:
    """Choose purpose and direction, or continue a draft."""
    by, now = actor_of(request), timezone.now()
    clusters = list(visible_clusters(by).order_by("name"))
    if not clusters:
        return _none(request, by=by)
    if request.method == "GET":
        initial = {field: value for name, field in _PREFILLED.items() if (value := request.GET.get(name))}
        if initial.get("direction") not in DIRECTIONS:
            initial.pop("direction", None)
        return _start_form(request, StartForm(initial=initial), clusters)
    form = StartForm(request.POST)
    if not form.is_valid():
        return _start_form(request, form, clusters, status=422)
    try:
        draft = drafts.start(values=form.values(), by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _start_form(request, form, clusters, problem=problem_of(error), status=status_of(error))
    return go(request, draft.get_absolute_url())


@page("links")
@require_POST
def discard(request: HttpRequest, draft_id: int) -> HttpResponse:
    """Delete a draft."""
    by = actor_of(request)
    drafts.discard(draft=drafts.get_draft(draft_id=draft_id, by=by, now=timezone.now()), by=by)
    return done(request, reverse("pages:new-link"), gettext("Draft discarded."))


@page("links")
@sensitive_post_parameters("password", "certificate_pem", "key_pem", "key_password")
@require_http_methods(["GET", "POST"])
def step(request: HttpRequest, draft_id: int, step: str) -> HttpResponse:
    """Show a step of a draft; store it, and test the connection, list the source, validate or create the link."""
    by, now = actor_of(request), timezone.now()
    draft = drafts.get_draft(draft_id=draft_id, by=by, now=now, with_listing=step == CONFIGURATION)
    values = values_of(draft)
    if step not in draft_presenters.steps_of(values):
        raise NotFoundError(gettext("This draft has no step %(step)s.") % {"step": repr(step)})
    clusters = list(visible_clusters(by).select_related("environment").order_by("environment__name", "name"))
    wizard = _Wizard(request=request, draft=draft, values=values, step=step, clusters=clusters)
    return _HANDLERS[step](wizard)


class _Wizard:
    """A request for a step of a draft."""

    def __init__(
        self, *, request: HttpRequest, draft: LinkDraft, values: DraftValues, step: str, clusters: list[Cluster]
    ) -> None:
        self.request, self.draft, self.values, self.step, self.clusters = request, draft, values, step, clusters
        self.by, self.now = actor_of(request), timezone.now()
        self.direction: Direction = draft_presenters.direction_of(values)
        self.intent = request.POST.get("intent", "")

    @property
    def data(self) -> Any:
        return self.request.POST if self.request.method == "POST" else None

    @property
    def names(self) -> dict[str, str]:
        return {cluster.cluster_id: cluster.name for cluster in self.clusters}

    def save(self, form: OwnClusterForm | OtherClusterForm | ConfigurationForm | NameForm) -> None:
        entered = form.entered() if isinstance(form, OtherClusterForm) else ()
        self.draft = drafts.save(draft=self.draft, changes=form.changes(), entered=entered, by=self.by, now=self.now)
        self.values = values_of(self.draft)

    def redirect_to(self, step: str, *, anchor: str = "") -> HttpResponse:
        return go(self.request, f"{draft_presenters.step_url(self.draft.pk, step)}{anchor}")

    def redirect_onward(self) -> HttpResponse:
        """Redirect to the next or, if requested, to the previous step."""
        return self.redirect_to(draft_presenters.neighbour(self.values, self.step, back=self.intent == "back"))

    def show(self, template: str, form: Any, *, status: int = 200, **more: Any) -> HttpResponse:
        context = {
            "form": form,
            "direction": self.direction,
            "steps": draft_presenters.step_views(self.draft.pk, self.values, current=self.step),
            "first": self.step == SOURCE,
            "discard_url": reverse("pages:new-link-discard", args=(self.draft.pk,)),
            "crumbs": [*_crumbs(), Crumb(label=self.values.name or gettext("Draft"))],
        }
        return reply(self.request, template, context | more, status=status)


def _cluster_step(wizard: _Wizard) -> HttpResponse:
    """Show the step of a cluster; store it, or test the connection as well."""
    side = draft_presenters.side_of(wizard.step, wizard.direction)
    facts: dict[str, Any] = {"draft": wizard.values, "direction": wizard.direction, "clusters": wizard.clusters}
    form: OwnClusterForm | OtherClusterForm = (
        OwnClusterForm(wizard.data, **facts) if side == OWN_SIDE else OtherClusterForm(wizard.data, **facts)
    )
    if wizard.request.method == "GET":
        return _show_cluster(wizard, form, side=side)
    if not form.is_valid():
        return wizard.redirect_onward() if wizard.intent == "back" else _show_cluster(wizard, form, side=side, status=422)
    try:
        wizard.save(form)
        if wizard.intent == "test":
            drafts.check_side(draft=wizard.draft, side=side, by=wizard.by, now=wizard.now)
            return wizard.redirect_to(wizard.step, anchor="#checklist")
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _show_cluster(wizard, form, side=side, problem=problem, status=status_of(error))
    return wizard.redirect_onward()


def _show_cluster(wizard: _Wizard, form: Any, *, side: str, status: int = 200, **more: Any) -> HttpResponse:
    tested = drafts.checks_of(wizard.draft).get(side)
    if tested is not None and status == 200:
        more["checklist"] = checklist(tested.checks, tested_at=tested.tested_at, now=wizard.now)
    title = wizard.direction.own if side == OWN_SIDE else wizard.direction.other
    return wizard.show(f"links/new_{side}.html", form, status=status, title=title, **more)


def _configuration_step(wizard: _Wizard) -> HttpResponse:
    """Show switches and filters; store them, preview them, or list the source."""
    form = ConfigurationForm(wizard.data, draft=wizard.values, suggested_prefix=_suggested_prefix(wizard))
    if wizard.request.method == "GET":
        return _show_configuration(wizard, form, wizard.values)
    if not form.is_valid():
        return wizard.redirect_onward() if wizard.intent == "back" else _show_configuration(wizard, form, None, status=422)
    if wizard.intent == "preview":
        return _show_configuration(wizard, form, _changed(wizard.values, form))
    try:
        wizard.save(form)
        if wizard.intent == "list":
            drafts.list_source(draft=wizard.draft, by=wizard.by, now=wizard.now)
            return wizard.redirect_to(CONFIGURATION, anchor="#preview-title")
    except ConsoleError as error:
        return _show_configuration(wizard, form, wizard.values, problem=_problem(wizard, error), status=status_of(error))
    return wizard.redirect_onward()


def _show_configuration(
    wizard: _Wizard, form: ConfigurationForm, values: DraftValues | None, *, status: int = 200, **more: Any
) -> HttpResponse:
    """Show the form with the preview of these values; without values, which are not valid, the page shows no counts."""
    listing = _listing(wizard)
    context = {
        "rows": _preview(wizard, values, listing) if values is not None and listing is not None else [],
        "invalid": values is None,
        "listed": moment(wizard.draft.listed_at if listing is not None else None, now=wizard.now),
        "url": draft_presenters.step_url(wizard.draft.pk, CONFIGURATION),
    }
    return wizard.show("links/new_configuration.html", form, status=status, **context, **more)


def _changed(values: DraftValues, form: ConfigurationForm) -> DraftValues:
    return replace(values, **form.changes())


def _listing(wizard: _Wizard) -> SourceListing | None:
    """Return the last list of the source, None if there is none, or if the user may no longer use these credentials."""
    values = wizard.values
    other = next((cluster for cluster in wizard.clusters if cluster.cluster_id == values.other), None)
    # an inbound link is listed with the credentials of its paired link
    may_list = values.has_own_connection or (
        other is not None and (values.connection_mode == "INBOUND" or can(wizard.by, Permission.USE_CREDENTIALS, cluster=other))
    )
    return drafts.listing_of(wizard.draft) if may_list and wizard.draft.listed_at is not None else None


def _preview(wizard: _Wizard, values: DraftValues, listing: SourceListing) -> list[PreviewRow]:
    """Return what the filters match in the last list of the source."""
    own = next((cluster for cluster in wizard.clusters if cluster.cluster_id == values.own), None)
    rows = []
    if values.auto_create and own is not None:
        known = {
            cluster.cluster_id: cluster.name for cluster in wizard.clusters if can(wizard.by, Permission.VIEW, cluster=cluster)
        }
        counts = count_topics(listing=listing, values=values, destination=own, cluster_names=known, by=wizard.by)
        sentence = ngettext(
            "Mirror topics are created for %(matched)s of %(total)s source topic.",
            "Mirror topics are created for %(matched)s of %(total)s source topics.",
            counts.total or 0,
        )
        rows.append(draft_presenters.preview_row(gettext("Topics"), sentence, counts))
    if values.sync_offsets:
        counts = count_groups(listing=listing, values=values)
        sentence = ngettext(
            "Synced: %(matched)s of %(total)s consumer group.",
            "Synced: %(matched)s of %(total)s consumer groups.",
            counts.total or 0,
        )
        rows.append(draft_presenters.preview_row(gettext("Consumer groups"), sentence, counts))
    if values.sync_acls:
        counts = count_acls(listing=listing, values=values)
        sentence = ngettext(
            "Synced: %(matched)s of %(total)s ACL.", "Synced: %(matched)s of %(total)s ACLs.", counts.total or 0
        )
        rows.append(draft_presenters.preview_row(gettext("ACLs"), sentence, counts))
    return rows


def _suggested_prefix(wizard: _Wizard) -> str:
    """Return the name of the source as a prefix, if it can be one."""
    name = wizard.names.get(wizard.values.other, "")
    suggestion = f"{name[: _LONGEST_SUGGESTION - 1]}." if name else ""
    return suggestion if PREFIX_PATTERN.fullmatch(suggestion) else ""


def _suggested_name(wizard: _Wizard) -> str:
    """Return a name such as us-west-to-us-east; "" if it is no valid name, is taken, or the link has no single direction."""
    values, names = wizard.values, wizard.names
    places = [names.get(values.other, ""), names.get(values.own, "")]
    if not all(places) or values.link_mode == "BIDIRECTIONAL":
        return ""
    source, destination = reversed(places) if values.link_mode == "SOURCE" else places
    suggestion = f"{source}-to-{destination}"
    try:
        check_link_name(suggestion)
    except LinkEngineError:
        return ""
    taken = ClusterLink.objects.filter(destination__cluster_id=values.own, name=suggestion).exists()
    return "" if taken else suggestion


def _review_step(wizard: _Wizard) -> HttpResponse:
    """Show everything; store the name, validate or create the link."""
    suggested = _suggested_name(wizard) if wizard.data is None and not wizard.values.name else ""
    form = NameForm(wizard.data, draft=wizard.values, direction=wizard.direction, suggested_name=suggested)
    if wizard.request.method == "GET":
        return _show_review(wizard, form)
    if not form.is_valid():
        return wizard.redirect_onward() if wizard.intent == "back" else _show_review(wizard, form, status=422)
    try:
        wizard.save(form)
        if wizard.intent in ("back", "commands"):
            return wizard.redirect_onward() if wizard.intent == "back" else wizard.redirect_to(REVIEW, anchor="#commands-title")
        launched = drafts.launch(draft=wizard.draft, validate_only=wizard.intent == "validate", by=wizard.by, now=wizard.now)
    except ConsoleError as error:
        problem = {} if form.refuse(error) else _problem(wizard, error)
        return _show_review(wizard, form, problem=problem, status=status_of(error))
    if isinstance(launched, LinkValidation):
        return _show_review(wizard, form, validated=True, distances=distance_rows(launched.distances or ()))
    created = gettext("Cluster link %(link)s created.") % {"link": launched.name}
    return done(wizard.request, launched.get_absolute_url(), f"{created} {_next_step(wizard, launched)}")


def _show_review(wizard: _Wizard, form: NameForm, *, status: int = 200, **more: Any) -> HttpResponse:
    values = wizard.values
    is_complete = bool(values.name and values.own and values.has_other)
    context = {
        "summary": draft_presenters.summary_rows(values, wizard.names),
        "configs": draft_presenters.config_rows(values),
        "commands": _commands(wizard) if is_complete else [],
        "missing": _missing(wizard),
        "tests": _tests(wizard),
    }
    return wizard.show("links/new_review.html", form, status=status, **context, **more)


def _commands(wizard: _Wizard) -> list[LinkCommand]:
    values = wizard.values
    other = next((cluster for cluster in wizard.clusters if cluster.cluster_id == values.other), None)
    return link_commands(
        values,
        base_url=wizard.request.build_absolute_uri("/")[:-1],
        path=reverse("kafka:links", args=(values.own,), query={"link_name": values.name}),
        registered_servers=other.bootstrap_servers if other else values.connection.get("bootstrap.servers", ""),
    )


def _missing(wizard: _Wizard) -> list[tuple[str, str]]:
    """Return label and URL of the steps that are not complete."""
    parts = {OWN_SIDE: bool(wizard.values.own), OTHER_SIDE: wizard.values.has_other}
    labels = {OWN_SIDE: wizard.direction.own, OTHER_SIDE: wizard.direction.other}
    return [
        (labels[part], draft_presenters.step_url(wizard.draft.pk, draft_presenters.step_of(part, wizard.direction)))
        for part, complete in parts.items()
        if not complete
    ]


def _tests(wizard: _Wizard) -> list[tuple[str, str, Any]]:
    """Return label, URL and last connection test of each cluster; None if it was not tested since its last change."""
    tested = drafts.checks_of(wizard.draft)
    found = []
    for key in (SOURCE, DESTINATION):
        side = draft_presenters.side_of(key, wizard.direction)
        test = tested.get(side)
        label = wizard.direction.own if side == OWN_SIDE else wizard.direction.other
        view = checklist(test.checks, tested_at=test.tested_at, now=wizard.now) if test else None
        found.append((label, draft_presenters.step_url(wizard.draft.pk, key), view))
    return found


def _problem(wizard: _Wizard, error: ConsoleError) -> dict[str, str]:
    """Return an error with the step that corrects it, if that is another step."""
    problem, part = problem_of(error), part_of(error)
    step = draft_presenters.step_of(part, wizard.direction)
    if not part or step == wizard.step or step not in draft_presenters.steps_of(wizard.values):
        return problem
    label = next(
        view.label for view in draft_presenters.step_views(wizard.draft.pk, wizard.values, current="") if view.key == step
    )
    return problem | {"step_url": draft_presenters.step_url(wizard.draft.pk, step), "step_label": label}


def _next_step(wizard: _Wizard, link: ClusterLink) -> str:
    paired = pairs.other_side(link) is not None
    if not pairs.has_two_sides(link) and wizard.values.auto_create:
        return gettext("Mirror topics are created automatically within five minutes.")
    if not paired:
        return wizard.direction.next_step
    if wizard.direction.has_mirrors:
        return gettext("The paired link already exists. Next step: add mirror topics.")
    return gettext("The paired link already exists. Next step: add mirror topics to the paired link.")


def _start_form(
    request: HttpRequest, form: StartForm, clusters: list[Cluster], *, status: int = 200, **more: Any
) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    names = {cluster.cluster_id: cluster.name for cluster in clusters}
    context = {
        "form": form,
        "presets": PRESETS.values(),
        "directions": DIRECTIONS.values(),
        "drafts": [
            draft_presenters.draft_row(draft, names, now=now) for draft in drafts.own_drafts(by=by, now=now).defer("listing")
        ],
        "crumbs": _crumbs(),
    }
    return reply(request, "links/new.html", context | more, status=status)


def _none(request: HttpRequest, *, by: Actor) -> HttpResponse:
    """Show what to do first if the user may see no cluster."""
    environments = list_environments(by=by)
    may_register = any(can(by, Permission.MANAGE_CLUSTER, environment=environment) for environment in environments)
    return reply(request, "links/new_none.html", {"crumbs": _crumbs(), "may_register": may_register})


def _crumbs() -> list[Crumb]:
    return [
        Crumb(label=gettext("Cluster links"), url=reverse("pages:links")),
        Crumb(label=gettext("Create cluster link"), url=reverse("pages:new-link")),
    ]


_HANDLERS: dict[str, Callable[[_Wizard], HttpResponse]] = {
    SOURCE: _cluster_step,
    DESTINATION: _cluster_step,
    CONFIGURATION: _configuration_step,
    REVIEW: _review_step,
}
