"""Events of a link or a mirror in a time span: states, operations, errors, edits and verification runs.

States at a past time are computed backwards from the present states and the state transitions, which are never deleted while
the mirror exists. A deleted mirror is therefore missing in the past, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate, groupby
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from django.db.models import Q, QuerySet
from django.utils.translation import gettext

from console.access import Permission, can
from console.actors import Actor
from console.audit import path_of
from console.history.queries import Window
from console.models import (
    AuditEvent,
    ClusterLink,
    EndedError,
    MirrorTopic,
    StateTransition,
    StateTransitionError,
    VerifyRun,
)
from linkengine.domain.errors import WAITING
from linkengine.domain.linkrules import PAUSED
from linkengine.domain.states import MirrorEvent, MirrorState

Error = TypeVar("Error", StateTransitionError, EndedError)
MOST = 500  # rows of each kind, the newest
MINUTE = timedelta(minutes=1)
LINK_EDIT = "AlterClusterLinkConfigs"
EDITS = (LINK_EDIT, "AlterTopicConfigs", "ReparentMirrorTopic")
_STATES = {state.value: state for state in MirrorState}  # a look-up takes a tenth of the time of ``MirrorState(value)``
# The state that a step of a chart shows for a mirror is the first of these in which the mirror was during the step.
URGENCY: tuple[MirrorState, ...] = (
    MirrorState.FAILED,
    MirrorState.LINK_FAILED,
    MirrorState.SOURCE_UNAVAILABLE,
    MirrorState.PENDING_STOPPED,
    MirrorState.PENDING_SYNCHRONIZE,
    MirrorState.PENDING_SETUP_FOR_RESTORE,
    MirrorState.PENDING_RESTORE_MIRROR,
    MirrorState.PENDING_MIRROR,
    MirrorState.PENDING_SETUP,
    MirrorState.PAUSED,
    MirrorState.ACTIVE,
    MirrorState.STOPPED,
)


class MarkerKind(StrEnum):
    """Kinds of markers in charts."""

    PAUSE = "pause"
    FAILOVER = "failover"
    EDIT = "edit"
    ERROR = "error"
    VERIFICATION = "verification"


_KINDS: Mapping[str, MarkerKind] = MappingProxyType(
    {
        MirrorEvent.PAUSE: MarkerKind.PAUSE,
        MirrorEvent.RESUME: MarkerKind.PAUSE,
        MirrorEvent.PROMOTE: MarkerKind.FAILOVER,
        MirrorEvent.FAILOVER: MarkerKind.FAILOVER,
        MirrorEvent.REVERSE_AND_START: MarkerKind.FAILOVER,
        MirrorEvent.REVERSE_AND_PAUSE: MarkerKind.FAILOVER,
        MirrorEvent.RESTORE: MarkerKind.FAILOVER,
        MirrorEvent.SOURCE_LOST: MarkerKind.ERROR,
        MirrorEvent.LINK_BROKEN: MarkerKind.ERROR,
        MirrorEvent.FATAL: MarkerKind.ERROR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Something that happened at a time. ``text`` names it, for example ``failover``; ``topic`` is "" for the link itself."""

    at: datetime
    kind: MarkerKind
    text: str
    topic: str = ""


class Change(NamedTuple):
    """A row of StateTransition; cheaper than its model where thousands are read."""

    pk: int
    mirror_id: int
    from_state: str
    to_state: str
    event: str
    by: str
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The mirrors of a link, or a single mirror, with their state transitions since a time, oldest first."""

    names: Mapping[int, str]
    states: Mapping[int, MirrorState]  # present
    transitions: Mapping[int, Sequence[Change | StateTransition]]

    def state_at(self, mirror: int, at: datetime) -> MirrorState | None:
        """Return the state of a mirror just before ``at``; None before its creation."""
        later = next((step for step in self.transitions.get(mirror, ()) if step.at >= at), None)
        if later is None:
            return self.states[mirror]
        return MirrorState(later.from_state) if later.from_state else None

    def within(self, start: datetime, end: datetime) -> list[Change | StateTransition]:
        """Return the transitions of a time span, oldest first."""
        found = [step for steps in self.transitions.values() for step in steps if start <= step.at < end]
        return sorted(found, key=lambda step: (step.at, step.pk))


def mirrors_of(subject: ClusterLink | MirrorTopic) -> QuerySet[MirrorTopic]:
    """Return the mirrors of a link without the scratch copies of drills, or the single mirror."""
    if isinstance(subject, MirrorTopic):
        return MirrorTopic.objects.filter(pk=subject.pk)
    return subject.mirrors.listed()


def read_past(subject: ClusterLink | MirrorTopic, *, start: datetime) -> Past:
    """Read states and transitions since ``start``. Two queries."""
    rows = list(mirrors_of(subject).order_by("name").values_list("pk", "name", "state"))
    transitions: defaultdict[int, list[Change]] = defaultdict(list)
    names = {pk: name for pk, name, _ in rows}
    changes = StateTransition.objects.filter(mirror__in=mirrors_of(subject).values("pk"), at__gte=start).order_by("pk")
    for step in map(Change._make, changes.values_list(*Change._fields)):
        if step.mirror_id in names:  # not created since the first query
            transitions[step.mirror_id].append(step)
    return Past(names=names, states={pk: _STATES[state] for pk, _, state in rows}, transitions=transitions)


def states_over_time(past: Past, where: Window) -> dict[MirrorState, list[int]]:
    """Return the number of mirrors by state in each step of a span; a mirror counts in its most urgent state of the step.

    The costs depend on the number of transitions, not on that of mirrors and steps, since it adds up changes of the numbers.
    """
    changes = {state: [0] * (where.steps + 1) for state in URGENCY}
    for state, number in Counter(state for mirror, state in past.states.items() if mirror not in past.transitions).items():
        changes[state][0] = number
    for mirror in past.transitions:
        for state, first, end in _runs(past, mirror, where):
            changes[state][first] += 1
            changes[state][end] -= 1
    return {state: list(accumulate(row[:-1])) for state, row in changes.items() if any(row)}


def _runs(past: Past, mirror: int, where: Window) -> Iterator[tuple[MirrorState, int, int]]:
    """Yield the states in which a mirror counts, each with its first step and the step after its last."""
    state, first = past.state_at(mirror, where.start), 0
    within = [(where.step_of(step.at), _STATES[step.to_state]) for step in past.transitions[mirror]]
    within = [(number, entered) for number, entered in within if 0 <= number < where.steps]
    numbers = accumulate((number for number, _ in within), max)  # a later row can have an earlier time (``StateTransition``)
    for number, group in groupby(zip(numbers, within, strict=True), key=itemgetter(0)):
        entered = [to_state for _, (_, to_state) in group]
        if state is not None:
            yield state, first, number
            entered.insert(0, state)
        yield min(entered, key=URGENCY.index), number, number + 1
        state, first = entered[-1], number + 1
    if state is not None:
        yield state, first, where.steps


def states_of_minute(past: Past, at: datetime) -> list[tuple[MirrorState, int, list[str]]]:
    """Return each state of a minute's end with the number of mirrors and their names, most urgent first."""
    found: defaultdict[MirrorState, list[str]] = defaultdict(list)
    for mirror, name in past.names.items():
        state = past.state_at(mirror, at + MINUTE)
        if state is not None:
            found[state].append(name)
    return [(state, len(found[state]), found[state]) for state in URGENCY if state in found]


def may_view_audit(subject: ClusterLink | MirrorTopic, *, by: Actor) -> bool:
    """Return whether the actor may view the audit events of the link."""
    link = subject.link if isinstance(subject, MirrorTopic) else subject
    return can(by, Permission.VIEW_AUDIT, cluster=link.destination)


def audit_events(subject: ClusterLink | MirrorTopic, *, start: datetime, end: datetime, by: Actor) -> QuerySet[AuditEvent]:
    """Return the audit events of a link with its mirrors, or of a mirror; none without the permission to view them."""
    if not may_view_audit(subject, by=by):
        return AuditEvent.objects.none()
    path = path_of(subject)
    return AuditEvent.objects.below(path).filter(at__gte=start, at__lt=end)


def errors(
    subject: ClusterLink | MirrorTopic, *, start: datetime, end: datetime, most: int = MOST
) -> list[StateTransitionError | EndedError]:
    """Return the errors that lasted at any time of a span, at most those that began last; oldest first. Two queries."""
    begun = Q(mirror__in=mirrors_of(subject).values("pk"), since__lt=end)
    found: list[StateTransitionError | EndedError] = [
        *_with_name(StateTransitionError.objects.filter(begun))[:most],
        *_with_name(EndedError.objects.filter(begun, until__gte=start))[:most],
    ]
    return sorted(found, key=lambda error: error.since)[-most:]


def _begun_errors(subject: ClusterLink | MirrorTopic, *, start: datetime, end: datetime) -> list[tuple[datetime, str, str]]:
    """Return begin, code and mirror of the errors that began in a span, at most the last; oldest first. Two queries."""
    found: list[tuple[datetime, str, str]] = []
    for model in (StateTransitionError, EndedError):
        rows = model.objects.filter(mirror__in=mirrors_of(subject).values("pk"), since__gte=start, since__lt=end)
        newest = rows.exclude(code__in=WAITING).order_by("-since", "-pk")
        found += newest.values_list("since", "code", "mirror__name")[:MOST]
    return sorted(found)[-MOST:]


def _with_name(rows: QuerySet[Error]) -> QuerySet[Error]:
    """Read the errors that began last first, of their mirrors only the names: to build a thousand whole mirrors takes 20 ms."""
    columns = [column.name for column in rows.model._meta.concrete_fields]  # noqa: SLF001 - Django documents it
    return rows.select_related("mirror").only(*columns, "mirror__name").order_by("-since", "-pk")


def edits(subject: ClusterLink | MirrorTopic, *, start: datetime, end: datetime, by: Actor) -> QuerySet[AuditEvent]:
    """Return the edits that the actor may view, and those that paused or resumed the link: its state is no secret."""
    link = subject.link if isinstance(subject, MirrorTopic) else subject
    pauses = AuditEvent.objects.filter(resource=path_of(link), action=LINK_EDIT, detail__configs__has_key=PAUSED)
    found = pauses | audit_events(subject, start=start, end=end, by=by).filter(action__in=EDITS)
    return found.filter(at__gte=start, at__lt=end, result=AuditEvent.Result.SUCCESS)


def verify_runs(subject: ClusterLink | MirrorTopic, *, start: datetime, end: datetime) -> QuerySet[VerifyRun]:
    """Return the verification runs that ended in a time span."""
    found = VerifyRun.objects.filter(mirror__in=mirrors_of(subject).values("pk"), finished_at__gte=start, finished_at__lt=end)
    return found.select_related("mirror").order_by("-finished_at")


def markers(subject: ClusterLink | MirrorTopic, *, past: Past, start: datetime, end: datetime, by: Actor) -> list[Marker]:
    """Return the markers of a time span, oldest first. Four queries. Waiting is no error."""
    found = [
        Marker(at=step.at, kind=_KINDS[step.event], text=step.event, topic=past.names[step.mirror_id])
        for step in past.within(start, end)[-MOST:]
        if step.event in _KINDS
    ]
    found += [
        Marker(at=since, kind=MarkerKind.ERROR, text=code, topic=name)
        for since, code, name in _begun_errors(subject, start=start, end=end)
    ]
    for run in verify_runs(subject, start=start, end=end)[:MOST]:
        if run.finished_at is not None:
            kind = MarkerKind.ERROR if run.status == VerifyRun.Status.DIFFERENT else MarkerKind.VERIFICATION
            text = gettext("verification: %(status)s") % {"status": run.status}
            found.append(Marker(at=run.finished_at, kind=kind, text=text, topic=run.mirror.name))
    found += [_edit_marker(event) for event in edits(subject, start=start, end=end, by=by)[:MOST]]
    return sorted(found, key=lambda marker: (marker.at, marker.kind, marker.topic))


def _edit_marker(event: AuditEvent) -> Marker:
    configs = event.detail.get("configs", {}) if event.action == LINK_EDIT else {}
    if PAUSED in configs:  # perhaps with others, which the page of the minute shows
        text = gettext("link paused") if configs[PAUSED] == "true" else gettext("link resumed")
        return Marker(at=event.at, kind=MarkerKind.PAUSE, text=text)
    return Marker(at=event.at, kind=MarkerKind.EDIT, text=event.action, topic=event.resource.partition("/mirror/")[2])


def grouped(found: Sequence[Marker], where: Window) -> list[tuple[int, MarkerKind, Counter[str]]]:
    """Return the markers by step and kind, with the number of each text."""
    groups: defaultdict[tuple[int, MarkerKind], Counter[str]] = defaultdict(Counter)
    for marker in found:
        groups[where.step_of(marker.at), marker.kind][marker.text] += 1
    return [(step, kind, texts) for (step, kind), texts in sorted(groups.items())]
