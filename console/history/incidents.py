"""Events of a link or a mirror in a time span: states, operations, errors, edits and verification runs.

States at a past time are computed backwards from the present states and the state transitions, which are never deleted while
the mirror exists. A deleted mirror is therefore missing in the past, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from django.db.models import QuerySet
from django.utils.translation import gettext

from console.access import Permission, can
from console.actors import Actor
from console.audit import path_of
from console.history.queries import Window
from console.models import AuditEvent, ClusterLink, MirrorTopic, StateTransition, StateTransitionError, VerifyRun
from linkengine.domain.states import MirrorEvent, MirrorState

MOST = 500  # rows of each kind, the newest
MINUTE = timedelta(minutes=1)
EDITS = ("AlterClusterLinkConfigs", "AlterTopicConfigs", "ReparentMirrorTopic")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The mirrors of a link, or a single mirror, with their state transitions since a time, oldest first."""

    names: Mapping[int, str]
    states: Mapping[int, MirrorState]  # present
    transitions: Mapping[int, Sequence[StateTransition]]

    def state_at(self, mirror: int, at: datetime) -> MirrorState | None:
        """Return the state of a mirror just before ``at``; None before its creation."""
        later = next((step for step in self.transitions.get(mirror, ()) if step.at >= at), None)
        if later is None:
            return self.states[mirror]
        return MirrorState(later.from_state) if later.from_state else None

    def within(self, start: datetime, end: datetime) -> list[StateTransition]:
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
    transitions: defaultdict[int, list[StateTransition]] = defaultdict(list)
    for step in StateTransition.objects.filter(mirror__in=mirrors_of(subject).values("pk"), at__gte=start).order_by("pk"):
        transitions[step.mirror_id].append(step)
    return Past(
        names={pk: name for pk, name, _ in rows},
        states={pk: MirrorState(state) for pk, _, state in rows},
        transitions=transitions,
    )


def states_over_time(past: Past, where: Window) -> dict[MirrorState, list[int]]:
    """Return the number of mirrors by state in each step of a span; a mirror counts in its most urgent state of the step."""
    counts = {state: [0] * where.steps for state in URGENCY}
    for mirror in past.states:
        for step, state in enumerate(_states(past, mirror, where)):
            if state is not None:
                counts[state][step] += 1
    return {state: numbers for state, numbers in counts.items() if any(numbers)}


def _states(past: Past, mirror: int, where: Window) -> Sequence[MirrorState | None]:
    state = past.state_at(mirror, where.start)
    steps: list[MirrorState | None] = []
    for transition in past.transitions.get(mirror, ()):
        number = where.step_of(transition.at)
        if not 0 <= number < where.steps:
            continue
        steps += [state] * (number + 1 - len(steps))
        state = MirrorState(transition.to_state)
        steps[number] = min(state, steps[number] or state, key=URGENCY.index)
    return steps + [state] * (where.steps - len(steps))


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


def transition_errors(subject: ClusterLink | MirrorTopic, *, before: datetime) -> QuerySet[StateTransitionError]:
    """Return the errors that began before a time and are unresolved: the rows of resolved errors are deleted."""
    found = StateTransitionError.objects.filter(mirror__in=mirrors_of(subject).values("pk"), since__lt=before)
    return found.select_related("mirror")


def verify_runs(subject: ClusterLink | MirrorTopic, *, start: datetime, end: datetime) -> QuerySet[VerifyRun]:
    """Return the verification runs that ended in a time span."""
    found = VerifyRun.objects.filter(mirror__in=mirrors_of(subject).values("pk"), finished_at__gte=start, finished_at__lt=end)
    return found.select_related("mirror").order_by("-finished_at")


def markers(subject: ClusterLink | MirrorTopic, *, past: Past, start: datetime, end: datetime, by: Actor) -> list[Marker]:
    """Return the markers of a time span, oldest first. Three queries, or two without the permission to view the audit log."""
    found = [
        Marker(at=step.at, kind=_KINDS[step.event], text=step.event, topic=past.names[step.mirror_id])
        for step in past.within(start, end)[-MOST:]
        if step.event in _KINDS
    ]
    found += [
        Marker(at=error.since, kind=MarkerKind.ERROR, text=error.code, topic=error.mirror.name)
        for error in transition_errors(subject, before=end).filter(since__gte=start).order_by("-since")[:MOST]
    ]
    for run in verify_runs(subject, start=start, end=end)[:MOST]:
        if run.finished_at is not None:
            kind = MarkerKind.ERROR if run.status == VerifyRun.Status.DIFFERENT else MarkerKind.VERIFICATION
            text = gettext("verification: %(status)s") % {"status": run.status}
            found.append(Marker(at=run.finished_at, kind=kind, text=text, topic=run.mirror.name))
    edits = audit_events(subject, start=start, end=end, by=by)
    for event in edits.filter(action__in=EDITS, result=AuditEvent.Result.SUCCESS)[:MOST]:
        topic = event.resource.partition("/mirror/")[2]
        found.append(Marker(at=event.at, kind=MarkerKind.EDIT, text=event.action, topic=topic))
    return sorted(found, key=lambda marker: (marker.at, marker.kind, marker.topic))


def grouped(found: Sequence[Marker], where: Window) -> list[tuple[int, MarkerKind, Counter[str]]]:
    """Return the markers by step and kind, with the number of each text."""
    groups: defaultdict[tuple[int, MarkerKind], Counter[str]] = defaultdict(Counter)
    for marker in found:
        groups[where.step_of(marker.at), marker.kind][marker.text] += 1
    return [(step, kind, texts) for (step, kind), texts in sorted(groups.items())]
