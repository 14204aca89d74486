"""Approvals: requests, decisions, and the operations of an environment that need one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django import forms
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext, pgettext, pgettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import approvals, visible_links
from console.access.approvals import APPROVABLE, covered, may_decide, needs_approval, open_requests
from console.access.pages import access_context
from console.access.queries import governed_environments, visible_requests
from console.actors import Actor
from console.errors import ConsoleError
from console.mirrors.operation_presenters import VERBS
from console.models import ApprovalRequest, ClusterLink, MirrorTopic
from console.web.forms import ConsoleForm
from console.web.lists import Column, Filter, Listing
from console.web.numbers import count, moment
from console.web.request_handling import actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.states import MirrorEvent

Status = ApprovalRequest.Status


class RequestForm(ConsoleForm):
    """Link, operation, topics and reason."""

    link = forms.ChoiceField(label=gettext_lazy("Cluster link"))
    operation = forms.ChoiceField(label=gettext_lazy("Operation"))
    topics = forms.CharField(
        label=gettext_lazy("Mirror topics"),
        required=False,
        help_text=gettext_lazy("One name per line. Empty: all mirror topics of the link."),
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "form-control mono"}),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=500, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, by: Actor, **kwargs: Any) -> None:
        """Offer the links that the user may see."""
        super().__init__(*args, **kwargs)
        links = visible_links(by).select_related("destination__environment__organization", "source__environment")
        self.links = {str(link.pk): link for link in links.order_by("destination__name", "name")}
        choices = [(key, f"{link.destination.name} / {link.name}") for key, link in self.links.items()]
        self.fields["link"].choices = choices  # type: ignore[attr-defined]
        self.fields["operation"].choices = [(event.value, _label(event)) for event in APPROVABLE]  # type: ignore[attr-defined]


class DecisionForm(ConsoleForm):
    """Reason and duration of a decision."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=500,
        help_text=gettext_lazy("Required to reject."),
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    lasts = forms.ChoiceField(
        label=gettext_lazy("The approval is in force for"),
        choices=[("1", gettext_lazy("1 hour")), ("4", gettext_lazy("4 hours")), ("24", gettext_lazy("24 hours"))],
        initial="1",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalNeed:
    """The approvals that an operation needs, for its confirmation: which are there, requested, or missing."""

    link: int
    operation: str
    missing: frozenset[str]  # names of the mirror topics that are not approved
    rows: Sequence[dict[str, Any]]  # open requests of the user

    @property
    def topics(self) -> str:
        """The names for the form of a request; empty, for all of the link, if there are too many to name."""
        return "\n".join(sorted(self.missing)) if len(self.missing) <= approvals.MOST_TOPICS else ""


def approval_need(
    link: ClusterLink, operation: MirrorEvent | None, mirrors: Sequence[MirrorTopic], *, by: Actor, now: datetime
) -> ApprovalNeed | None:
    """Return the approvals that an operation on mirrors of the link needs; None if it needs none. Two queries if it does."""
    if operation is None or not needs_approval(link, operation, by=by):
        return None
    requests = open_requests(link, operation, by=by)
    missing = {mirror.name for mirror in mirrors} - {mirror.name for mirror in covered(mirrors, operation, requests)}
    rows = [
        {
            "url": request.get_absolute_url(),
            "what": _what(request),
            "approver": request.decided_by.get_username() if request.is_approved and request.decided_by else "",
            "decision_reason": request.decision_reason,
            "expires": moment(request.expires_at, now=now),
        }
        for request in requests
    ]
    return ApprovalNeed(link=link.pk, operation=operation.value, missing=frozenset(missing), rows=rows)


# As the pages and the CSV file show them. Open and approved requests expire.
_STATUS_LABELS: Mapping[str, str] = MappingProxyType(
    {
        Status.REQUESTED: gettext_noop("Waiting"),
        Status.APPROVED: gettext_noop("Approved"),
        Status.REJECTED: gettext_noop("Rejected"),
        Status.WITHDRAWN: gettext_noop("Withdrawn"),
        "EXPIRED": gettext_noop("Expired"),
    }
)


def _has_status(status: str) -> Q:
    """Return the condition for requests that are shown with a status; open and approved ones expire."""
    now = timezone.now()
    if status == "EXPIRED":
        return Q(status__in=(Status.REQUESTED, Status.APPROVED), expires_at__lte=now)
    return Q(status=status) & (Q(expires_at__gt=now) if status in (Status.REQUESTED, Status.APPROVED) else Q())


REQUESTS = Listing(
    noun=gettext_noop("approval request"),
    plural=gettext_noop("approval requests"),
    columns=(
        Column(title=pgettext_lazy("approval", "Request"), key="operation", by=("operation",)),
        Column(title=gettext_lazy("Cluster link"), key="link", by=("link__destination__name", "link__name")),
        Column(title=gettext_lazy("Status")),
        Column(title=gettext_lazy("Requested"), key="requested", by=("requested_at",), descends=True),
        Column(title=gettext_lazy("Expires"), key="expires", by=("expires_at",), descends=True),
    ),
    default="-requested",
    search=("link__name", "user__username", "reason"),
    search_label=gettext_lazy("Link, user or reason"),
    filters=(
        Filter(
            name="status",
            label=gettext_lazy("Status"),
            every=gettext_lazy("All statuses"),
            options=[(code, gettext_lazy(label)) for code, label in _STATUS_LABELS.items()],
            by=_has_status,
        ),
    ),
    export={
        "request": "pk",
        "operation": "operation",
        "cluster_id": "link.destination.cluster_id",
        "link": "link.name",
        "mirror_topics": lambda row: " ".join(row.topics) or "all",
        "reason": "reason",
        "requested_by": "user.username",
        "requested_at": "requested_at",
        "status": lambda row: _status(row, now=timezone.now()),
        "decided_by": lambda row: row.decided_by and row.decided_by.get_username(),
        "decided_at": "decided_at",
        "decision_reason": "decision_reason",
        "expires_at": "expires_at",
    },
)


@page("access")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List approval requests, and the environments whose rule the user may change."""
    by, now = actor_of(request), timezone.now()
    listed = REQUESTS.read(request)
    found = listed.select(visible_requests(by=by))
    if listed.format:
        return listed.csv("approval-requests", found)
    rows = [_row(row, now=now) for row in listed.page(found)]
    environments = [
        {"name": row.name, "slug": row.slug, "operations": ", ".join(_label(MirrorEvent(n)) for n in row.approval_operations)}
        for row in governed_environments(by=by)
    ]
    context = {"list": listed, "rows": rows, "environments": environments}
    return reply(request, "access/approvals.html", access_context("approvals") | context)


@page("access")
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """Request an approval. With ``prefill`` the fields are those of a confirmation, whose topics are too many for a URL."""
    by, now = actor_of(request), timezone.now()
    shows = request.method == "GET" or "prefill" in request.POST
    initial = request.POST.dict() if "prefill" in request.POST else request.GET.dict()
    form = RequestForm(None if shows else request.POST, by=by, initial=initial)
    context = access_context("approvals", last=gettext("Request approval")) | {"form": form}
    if shows or not form.is_valid():
        return reply(request, "access/approval_new.html", context, status=200 if shows else 422)
    values = form.cleaned_data
    try:
        stored = approvals.request_approval(
            link=form.links[values["link"]],
            operation=MirrorEvent(values["operation"]),
            topics=values["topics"].split(),
            reason=values["reason"],
            by=by,
            now=now,
        )
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        problem = {} if form.refuse(error) else problem_of(error)
        return reply(request, "access/approval_new.html", context | {"problem": problem}, status=status_of(error))
    message = gettext("Approval requested. Send the address of this page to another user.")
    return done(request, stored.get_absolute_url(), message)


@page("access")
@require_GET
def detail(request: HttpRequest, request_id: int) -> HttpResponse:
    """Show a request."""
    found = get_object_or_404(visible_requests(by=actor_of(request)), pk=request_id)
    return _show(request, found, DecisionForm())


@page("access")
@require_POST
def decide(request: HttpRequest, request_id: int, verb: str) -> HttpResponse:
    """Approve, reject or withdraw a request."""
    by, now = actor_of(request), timezone.now()
    found = get_object_or_404(visible_requests(by=by), pk=request_id)
    if verb == "withdraw":
        approvals.withdraw(request=found, by=by, now=now)
        return done(request, found.get_absolute_url(), gettext("Withdrawn."))
    if verb not in ("approve", "reject"):
        raise Http404
    form = DecisionForm(request.POST)
    if not form.is_valid():
        return _show(request, found, form, status=422)
    reason, lasts = form.cleaned_data["reason"], timedelta(hours=int(form.cleaned_data["lasts"]))
    try:
        if verb == "approve":
            approvals.approve(request=found, reason=reason, lasts=lasts, by=by, now=now)
        else:
            approvals.reject(request=found, reason=reason, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        problem = {} if form.refuse(error) else problem_of(error)
        return _show(request, found, form, status=status_of(error), problem=problem)
    return done(request, found.get_absolute_url(), gettext("Approved.") if verb == "approve" else gettext("Rejected."))


@page("access")
@require_http_methods(["GET", "POST"])
def choose_operations(request: HttpRequest, slug: str) -> HttpResponse:
    """Choose the operations of an environment that need an approval."""
    by, now = actor_of(request), timezone.now()
    environment = next((row for row in governed_environments(by=by) if row.slug == slug), None)
    if environment is None:
        raise Http404
    if request.method == "POST":
        chosen = request.POST.getlist("operations")
        approvals.set_approval_operations(environment=environment, operations=chosen, by=by, now=now)
        message = gettext("Saved for environment %(name)s.") % {"name": environment.name}
        return done(request, reverse("pages:approvals"), message)
    operations = [
        {"value": event.value, "label": _label(event), "checked": event.value in environment.approval_operations}
        for event in APPROVABLE
    ]
    context = access_context("approvals", last=environment.name) | {"environment": environment, "operations": operations}
    return reply(request, "access/approval_operations.html", context)


def _show(
    request: HttpRequest, found: ApprovalRequest, form: DecisionForm, *, status: int = 200, **more: object
) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    alive = found.expires_at > now and found.status in (Status.REQUESTED, Status.APPROVED)
    decides = may_decide(found, by=by)
    own = by.user is not None and by.user.pk == found.user_id
    context = {
        "row": _row(found, now=now),
        "form": form,
        "may_decide": decides,
        "may_withdraw": alive and (own or decides),
    }
    return reply(
        request,
        "access/approval.html",
        access_context("approvals", last=pgettext("approval", "Request")) | context | more,
        status=status,
    )


def _row(found: ApprovalRequest, *, now: datetime) -> dict[str, Any]:
    is_open = found.status == Status.REQUESTED and found.expires_at > now
    return {
        "key": found.pk,
        "url": found.get_absolute_url(),
        "title": f"{_label(MirrorEvent(found.operation))}: {_what(found)}",
        "link": f"{found.link.destination.name} / {found.link.name}",
        "status": gettext(_status(found, now=now)),
        "topics": found.topics,
        "reason": found.reason,
        "requester": found.user.get_username(),
        "requested": moment(found.requested_at, now=now),
        "decider": found.decided_by.get_username() if found.decided_by else gettext("a deleted user"),
        "decided": moment(found.decided_at, now=now),
        "decision_reason": found.decision_reason,
        "expires": moment(found.expires_at, now=now),
        "is_open": is_open,
    }


def _status(found: ApprovalRequest, *, now: datetime) -> str:
    if found.expires_at <= now and found.status in (Status.REQUESTED, Status.APPROVED):
        return _STATUS_LABELS["EXPIRED"]
    return _STATUS_LABELS[found.status]


def _what(found: ApprovalRequest) -> str:
    """Return what a request covers, in words."""
    number = len(found.topics)
    if not number:
        return gettext("all topics")
    return ngettext("%(count)s topic", "%(count)s topics", number) % {"count": count(number)}


def _label(event: MirrorEvent) -> str:
    return gettext(VERBS[event].label)
