"""Operations on a mirror topic: with a confirmation that shows the effects; exported records, reparenting, verification."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast
from urllib.parse import urlencode

from django.db.models import prefetch_related_objects
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, pgettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, check_permission
from console.access.approvals import CODE as APPROVAL_NEEDED
from console.access.approvals import approved, refusal_of
from console.actors import Actor
from console.errors import ConflictError, ConsoleError, DeniedError, NotFoundError
from console.links import queries as link_queries
from console.links.command_presenters import operation_command
from console.links.group_presenters import readable_name
from console.links.health_queries import health_of_mirror
from console.links.pages import crumbs
from console.links.pairs import RelatedRows
from console.mirrors import diverged_exports, operation_actions, reversals
from console.mirrors import queries as mirror_queries
from console.mirrors.operation_presenters import VERBS, BulkVerb, Verb, explanation, needs_typed_name, reversibility
from console.mirrors.operation_queries import REVERSALS, Preview, cautions_of, preview
from console.mirrors.pages import mirror_head, show_refusal
from console.mirrors.queries import MirrorSummary
from console.mirrors.reparenting import reparent
from console.mirrors.reversals import risks_of
from console.mirrors.rules import permission_for, why_not
from console.models import ClusterLink, MirrorTopic
from console.verification import actions as verification_actions
from console.verification.rules import gates_closed
from console.web import numbers
from console.web.health_presenters import HealthView, mirror_health_view
from console.web.numbers import readable_config
from console.web.request_handling import actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.states import MirrorEvent

# --- operations with a confirmation -----------------------------------------------------------------------------------
#
# The confirmation is a page. With JavaScript, the same form opens in a dialog.


NAMES_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """The records at risk, or the lag, shown before an operation."""

    label: str
    value: str
    age: str
    words: str  # note


@page("links")
@require_http_methods(["GET", "POST"])
def operate(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str, *, operation: str) -> HttpResponse:
    """Show the confirmation; perform the operation. 409 if the state of the mirror does not allow it."""
    by, now, verb = actor_of(request), timezone.now(), verb_of(operation)
    mirror = _find(cluster_id, link_name, mirror_name, verb=verb, by=by)
    check_permission(by, permission_for(verb.event), mirror=mirror)
    if request.method == "GET":
        problem = refused(mirror, verb.event, now=now) or _unapproved(mirror, verb.event, by=by)
        return _confirmation(request, mirror, verb, problem=problem, refused=bool(problem), status=409 if problem else 200)
    typed = needs_typed_name(verb.event, bidirectional=_is_bidirectional(mirror.link))
    if typed and request.POST.get("confirm", "").strip() != mirror.name:
        message, seen = gettext("The name does not match the mirror topic name."), request.POST.get("seen", "")
        return _confirmation(request, mirror, verb, wrong_name=message, seen=seen, status=422)
    try:
        _perform(request, mirror, verb, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied" and error.code != APPROVAL_NEEDED:
            raise
        fresh = _find(cluster_id, link_name, mirror_name, verb=verb, by=by)
        impossible = error.code == APPROVAL_NEEDED or bool(refused(fresh, verb.event, now=now))
        status = 409 if impossible else status_of(error)
        return _confirmation(request, fresh, verb, problem=problem_of(error), refused=impossible, status=status)
    url = mirror.link.get_absolute_url() if verb.event is MirrorEvent.DELETE else mirror.get_absolute_url()
    return done(request, url, gettext(verb.done) % {"name": mirror.name})


def _perform(request: HttpRequest, mirror: MirrorTopic, verb: Verb, *, by: Actor, now: datetime) -> None:
    if verb.event is MirrorEvent.DELETE:
        operation_actions.delete_as_seen(mirror=mirror, seen=request.POST.get("seen", ""), by=by, now=now)
    else:
        operation_actions.operate(mirror=mirror, operation=verb.event, by=by, now=now)


def _unapproved(mirror: MirrorTopic, event: MirrorEvent, *, by: Actor) -> dict[str, str]:
    """Return the problem that the operation needs an approval that is not there; empty if it needs none or has it."""
    if approved([mirror], event, by=by):
        return {}
    return problem_of(DeniedError(refusal_of(mirror.link), code="APPROVAL_NEEDED"))


def _find(cluster_id: str, link_name: str, mirror_name: str, *, verb: Verb, by: Actor) -> MirrorTopic:
    """Return the mirror. For a restore it may be a new object for an ordinary topic whose former mirror is stopped."""
    try:
        return mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    except NotFoundError:
        if verb.event is not MirrorEvent.RESTORE:
            raise
        link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        found = reversals.candidate(link, mirror_name, by)
        if found is None:
            raise
        return found


def effects_of(mirror: MirrorTopic, verb: Verb, effects: Preview | None) -> dict[str, object]:
    """Return the effects of an operation for the page: changed configs, clamped consumer groups, diverged offsets."""
    offsets = effects.groups_clamped if effects else ()
    points = None
    if verb.event is MirrorEvent.RESTORE:
        points = reversals.count_divergence(mirror.link, [mirror]).get(mirror.name)
    return {
        "groups": [replace(offset, group=readable_name(offset.group)) for offset in offsets[:NAMES_SHOWN]],
        "group_count": len({offset.group for offset in offsets}),
        "more_offsets": max(0, len(offsets) - NAMES_SHOWN),
        "configs": [
            (name, None if value is None else readable_config(name, value))
            for name, value in sorted(effects.configs_to_change.items() if effects else ())
        ],
        "restores": verb.event is MirrorEvent.RESTORE,
        "dropped": None if points is None else numbers.count(sum(point.diverged for point in points)),
        "points": [point for point in points or () if point.diverged][:NAMES_SHOWN],
    }


def risk_of(summary: MirrorSummary, verb: Verb, effects: Preview) -> Risk | None:
    """Return the records that a failover or deletion loses, or the lag of a promotion; None for other operations."""
    if verb.event is MirrorEvent.DELETE:
        held = effects.records_at_risk
        return Risk(
            label=gettext("Records to be deleted"),
            value=gettext("unknown") if held is None else numbers.count(held),
            age="",
            words=gettext("Counted as offsets, by the last report. A topic that is no longer mirrored has no reports."),
        )
    if not verb.loses_lag and verb.event is not MirrorEvent.PROMOTE:
        return None
    total = effects.records_at_risk if verb.loses_lag else effects.records_to_copy
    notes = []
    if total is None:
        notes.append(gettext("The number of missing records is unknown: not all partitions have been measured."))
    elif verb.loses_lag and total != summary.total_lag:
        notes.append(
            gettext("Some offsets are behind an open transaction; aborted records and markers among them are not losses.")
        )
    notes.append(
        gettext("The source is not contacted again; records produced since the last sample are not counted.")
        if verb.loses_lag
        else gettext("The promotion waits until the lag is 0.")
    )
    return Risk(
        label=gettext("Records at risk") if verb.loses_lag else gettext("Lag, all partitions"),
        value=gettext("unknown") if total is None else numbers.count(total),
        age=numbers.lag_time(summary.lag_ms) if summary.lag_ms is not None else "",
        words=" ".join(notes),
    )


def _confirmation(request: HttpRequest, mirror: MirrorTopic, verb: Verb, *, status: int = 200, **more: object) -> HttpResponse:
    now, bidirectional = timezone.now(), _is_bidirectional(mirror.link)
    head = mirror_head(mirror, now=now)
    effects = preview(mirror, verb.event) if mirror.pk else None
    requested = {"link": mirror.link_id, "operation": verb.event.value, "topics": mirror.name}
    context = {
        "mirror": head,
        "health": _health(mirror, now=now) if mirror.pk else None,
        "verb": verb,
        "explains": explanation(verb, state=mirror.state, since=mirror.state_since),
        "seen": operation_actions.seen_state(mirror) if verb.event is MirrorEvent.DELETE else "",
        "action": reverse("pages:mirror-operation", args=(*mirror.url_args, verb.event)),
        "back": head.url if mirror.pk else mirror.link.get_absolute_url(),  # a topic that was never a mirror has no page
        "typed": needs_typed_name(verb.event, bidirectional=bidirectional),
        "reversibility": reversibility(verb.event, bidirectional=bidirectional),
        "risk": risk_of(mirror_queries.summarize(mirror, now=now), verb, effects) if effects else None,
        "effect": effects_of(mirror, verb, effects),
        "warnings": _warnings(mirror, verb.event, by=actor_of(request)) if mirror.pk else (),
        "confirm": request.POST.get("confirm", ""),
        "command": operation_command(request, mirror.link, verb.event, [mirror.name]),
        "approval_url": f"{reverse('pages:new-approval')}?{urlencode(requested)}",
        "crumbs": crumbs(mirror.link, last=gettext("%(doing)s %(name)s") % {"doing": gettext(verb.label), "name": mirror.name}),
        "environment_name": mirror.link.destination.environment.name,
    }
    return reply(request, "mirrors/operate.html", context | more, status=status)


def _health(mirror: MirrorTopic, *, now: datetime) -> HealthView:
    status, task_error = health_of_mirror(mirror, now=now)
    return mirror_health_view(status, mirror.link, task_error=task_error)


def _warnings(mirror: MirrorTopic, event: MirrorEvent, *, by: Actor) -> tuple[str, ...]:
    possible = event in REVERSALS and not why_not(mirror, event)
    risks = risks_of(mirror.link, [mirror]).get(mirror.name) if possible else None
    return cautions_of(mirror, event, by=by, risks=risks)


def verb_of(operation: str) -> Verb:
    """Return the display of an operation; raise NotFoundError if it does not exist."""
    verb = next((verb for event, verb in VERBS.items() if event == operation), None)
    if verb is None:
        raise NotFoundError(gettext("Mirror topics have no operation %(name)s.") % {"name": repr(operation)})
    return verb


def _is_bidirectional(link: ClusterLink) -> bool:
    return link.mode == "BIDIRECTIONAL"


# --- topics for which an operation is refused now ---------------------------------------------------------------------


# Operations whose rules need no queries: all selected topics are checked, of the others only those that are listed.
_FREE = (MirrorEvent.PAUSE, MirrorEvent.RESUME, MirrorEvent.FAILOVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The selected topics for which an operation would be refused now."""

    rows: Sequence[tuple[str, str]]  # (name, reason)
    total: int  # selected topics
    complete: bool  # False if only the listed topics were checked

    @property
    def possible(self) -> int:
        """Return the number of topics that the operation would change; an upper bound unless ``complete``."""
        return self.total - len(self.rows)

    @property
    def words(self) -> str:
        """Return the number of topics that the operation would change, for the heading of a confirmation."""
        values = {"number": numbers.count(self.possible), "total": numbers.count(self.total)}
        if not self.complete:
            return pgettext("mirror topics", "at most %(number)s of %(total)s") % values
        if not self.rows:
            return pgettext("mirror topics", "%(total)s") % values
        return pgettext("mirror topics", "%(number)s of %(total)s") % values

    @property
    def names(self) -> set[str]:
        """Return the names of the topics."""
        return {name for name, _reason in self.rows}


def refused(mirror: MirrorTopic, event: MirrorEvent, *, now: datetime) -> dict[str, str]:
    """Return why an operation is not possible now; empty if it is possible."""
    return refused_of([mirror], event, now=now).get(mirror.name, {})


def refused_of(
    mirrors: Sequence[MirrorTopic], event: MirrorEvent, *, related: RelatedRows | None = None, now: datetime
) -> dict[str, dict[str, str]]:
    """Return why an operation is not possible now on mirrors of a link, by name, without those on which it is possible.

    The number of queries depends on the operation only.
    """
    related = RelatedRows(mirrors) if related is None else related
    reasons = {mirror.name: why_not(mirror, event, related=related) for mirror in mirrors}
    possible = [mirror for mirror in mirrors if not reasons[mirror.name]]
    closed = gates_closed(possible, now=now) if event is MirrorEvent.PROMOTE else {}
    return {
        **{name: problem_of(ConflictError(reason)) for name, reason in reasons.items() if reason},
        **{name: problem_of(ConflictError(reason, code="GATE_CLOSED")) for name, reason in closed.items()},
    }


def refusals_of(
    link: ClusterLink,
    chosen: Sequence[MirrorSummary],
    verb: BulkVerb,
    *,
    unapproved: Collection[str],
    related: RelatedRows | None = None,
    now: datetime,
) -> Refusals:
    """Return the selected topics for which the operation would be refused now. ``unapproved`` are names without an approval."""
    prefetch_related_objects([link], "configs")  # read once for the gate checks of all topics
    checked = checked_of(chosen, verb)
    for summary in checked:
        summary.mirror.link = link
    problems = refused_of([summary.mirror for summary in checked], verb.event, related=related, now=now) if verb.event else {}
    rows = []
    for summary in checked:
        if summary.mirror.name in problems:
            rows.append((summary.mirror.name, problems[summary.mirror.name]["message"]))
        elif summary.mirror.name in unapproved:
            rows.append((summary.mirror.name, gettext("This operation needs the approval of a second user.")))
    return Refusals(rows=rows, total=len(chosen), complete=len(checked) == len(chosen))


def checked_of(chosen: Sequence[MirrorSummary], verb: BulkVerb) -> Sequence[MirrorSummary]:
    """Return the topics for which a confirmation checks whether the operation is possible."""
    return chosen if verb.event in _FREE else chosen[:NAMES_SHOWN]


# --- exported records, reparenting, verification ----------------------------------------------------------------------


@page("links")
@require_GET
def records(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str, *, restore_id: int) -> HttpResponse:
    """Send the file. It contains records of the topic, so it requires the permission to read records."""
    by = actor_of(request)
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    check_permission(by, Permission.READ_RECORDS, mirror=mirror)
    return cast("HttpResponse", diverged_exports.download_response(mirror.restores.filter(pk=restore_id).first(), restore_id))


@page("links")
@require_POST
def move(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Move the mirror; show a page with the reason if it is not possible."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    try:
        moved = reparent(mirror=mirror, link_name=request.POST.get("link_name", ""), validate_only=False, by=by, now=now)
    except ConsoleError as error:
        return show_refusal(request, mirror, error)
    message = gettext("Mirror topic '%(name)s' moved to cluster link '%(link_name)s'. Resume it to continue copying.")
    message %= {"name": mirror.name, "link_name": moved.link.name}
    return done(request, moved.mirror.get_absolute_url(), message)


@page("links")
@require_POST
def verify(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Start a verification run. The tab Verification shows its progress."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    try:
        verification_actions.start_verify(mirror=mirror, by=by, now=now)
    except ConsoleError as error:
        return show_refusal(request, mirror, error)
    return done(request, f"{reverse('pages:mirror-verification', args=mirror.url_args)}#verify")
