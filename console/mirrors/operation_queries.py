"""Operations on mirror topics: effects, warnings, which are possible, and what followed requests on several topics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from django.db.models import Case, CharField, Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext

from console.access import Permission, can, role_needed, visible_mirrors, visible_operations
from console.actors import Actor
from console.errors import NotFoundError
from console.links.pairs import RelatedRows, copies_of
from console.links.rules import syncs_offsets
from console.mirrors import figures
from console.mirrors.rules import OFFERED, permission_for, why_not
from console.models import AuditEvent, BulkOperation, BulkOperationTopic, ClusterLink, GroupOffset, MirrorPartition, MirrorTopic
from console.verification.rules import gate_closed
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from linkengine.domain.configs import configs_at_stop
from linkengine.domain.groups import GroupStatus
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import BECOMING, MirrorEvent, MirrorState, next_state

# --- effects of an operation ------------------------------------------------------------------------------------------
#
# Figures are those of the last reports. Unknown is None, never 0. The diverged records of a restore are read from the cluster
# instead (``console.mirrors.reversals``), because the topic is an ordinary topic without samples.


_E = MirrorEvent
_DRAINS = (_E.PROMOTE, _E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE)  # these wait until source and mirror are in sync
_STOPS = (*_DRAINS, _E.FAILOVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAtRisk:
    """A consumer group whose source offset is beyond the end of the mirror."""

    group: str  # name on the destination
    partition: int
    offset: int
    clamped_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effects of an operation on a mirror. ``reason`` says why it is not possible now."""

    mirror_topic_name: str
    operation: MirrorEvent
    allowed: bool
    reason: str = ""
    state_after: str = ""
    records_at_risk: int | None = None  # offsets not copied or deleted, as of the last report
    records_to_copy: int | None = None  # offsets to copy first, as of the last report
    groups_clamped: tuple[GroupAtRisk, ...] = ()
    configs_to_change: Mapping[str, str | None] = field(default_factory=dict)  # None: reset to the cluster default


def preview(mirror: MirrorTopic, operation: MirrorEvent, *, source_partitions: int | None = None) -> Preview:
    """Return the effects of an operation. A few SQL queries; the clusters are not contacted.

    ``source_partitions`` is the mirror's value of ``figures.source_partitions``, if it was read for many mirrors.
    """
    reason = why_not(mirror, operation) or (gate_closed(mirror, now=timezone.now()) if operation is _E.PROMOTE else "")
    stops = operation in _STOPS and mirror.state not in BECOMING  # a topic that is becoming a mirror keeps its configs
    return Preview(
        mirror_topic_name=mirror.name,
        operation=operation,
        allowed=not reason,
        reason=reason,
        state_after="" if reason else next_state(MirrorState(mirror.state), operation),
        records_at_risk=_at_risk(mirror, operation, source_partitions),
        records_to_copy=_to_copy(mirror, operation, source_partitions),
        groups_clamped=tuple(groups_at_risk(mirror.link, [mirror]).get(mirror.pk, ())) if operation is _E.FAILOVER else (),
        configs_to_change=_configs(mirror) if stops else {},
    )


def _at_risk(mirror: MirrorTopic, operation: MirrorEvent, source_partitions: int | None) -> int | None:
    if operation is _E.FAILOVER:
        return figures.records_at_risk(mirror, source_partitions=_listed(mirror, source_partitions))
    if operation is _E.DELETE:
        return figures.records_held(mirror)
    return None if operation is _E.RESTORE else 0  # records written after mirroring stopped are not counted


def _to_copy(mirror: MirrorTopic, operation: MirrorEvent, source_partitions: int | None) -> int | None:
    if operation not in _DRAINS:
        return 0
    return figures.records_to_copy(mirror, source_partitions=_listed(mirror, source_partitions))


def _listed(mirror: MirrorTopic, source_partitions: int | None) -> int:
    return figures.source_partitions([mirror])[mirror.pk] if source_partitions is None else source_partitions


def groups_at_risk(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Mapping[int, Sequence[MirrorPartition]] | None = None
) -> dict[int, list[GroupAtRisk]]:
    """Return the groups that a failover would clamp, by primary key of the mirror.

    ``rows`` are the current partitions by primary key of the mirror; without them the partitions must be prefetched.
    """
    if not syncs_offsets(link):
        return {}  # groups are not changed without consumer offset sync
    current = {mirror.pk: mirror.partitions.all() for mirror in mirrors} if rows is None else rows
    ends = {(mirror.pk, row.partition): row.mirror_end for mirror in mirrors for row in current.get(mirror.pk, ())}
    stopping = [mirror.pk for mirror in mirrors if mirror.state not in (*BECOMING, MirrorState.STOPPED)]
    synced = GroupOffset.objects.filter(mirror__in=stopping).exclude(group__status=GroupStatus.EXCLUDED)
    at_risk: dict[int, list[GroupAtRisk]] = defaultdict(list)
    for known in synced.select_related("group"):
        end = ends.get((known.mirror_id, known.partition))
        if end is not None and known.source_offset > end:
            offsets = {"offset": known.source_offset, "clamped_to": end, "partition": known.partition}
            at_risk[known.mirror_id].append(GroupAtRisk(group=known.group.destination_name, **offsets))
    return at_risk


def _configs(mirror: MirrorTopic) -> dict[str, str | None]:
    include = [name.strip() for name in mirror.link.config("topic.config.sync.include").split(",") if name.strip()] or None
    change = configs_at_stop(mirror.source_configs, include=include, overrides=mirror.config_overrides)
    return {**change.values, **dict.fromkeys(change.deletions)}


# --- warnings ---------------------------------------------------------------------------------------------------------
#
# They do not prevent the operation. They are in the language of the page and never stored; REST requests are in English.


REVERSALS = (MirrorEvent.REVERSE_AND_START, MirrorEvent.REVERSE_AND_PAUSE)
WARNED = (*REVERSALS, MirrorEvent.DELETE)  # the operations that can have warnings
_NAMED = 3  # mirrors listed in a warning
IDS_NAMED = 10  # transactional ids listed in a warning


def cautions_of(
    mirror: MirrorTopic, operation: MirrorEvent, *, by: Actor, risks: ReversalRisks | None = None
) -> tuple[str, ...]:
    """Return the warnings before an operation. ``risks`` are the risks of a reversal, if they were read from the clusters."""
    read = {mirror.name: risks} if risks is not None else {}
    return cautions_of_many([mirror], operation, by=by, risks=read)[mirror.pk]


def cautions_of_many(
    mirrors: Sequence[MirrorTopic],
    operation: MirrorEvent,
    *,
    by: Actor,
    risks: Mapping[str, ReversalRisks],
    related: RelatedRows | None = None,
) -> dict[int, tuple[str, ...]]:
    """Return the warnings before an operation on mirrors of a link, by primary key. At most one query for all of them.

    ``risks`` are the risks of a reversal by mirror topic, if they were read from the clusters. The partitions must be
    prefetched. ``related`` are the rows of these mirrors and others, if they were read.
    """
    beside = RelatedRows(mirrors) if related is None else related
    if operation in REVERSALS:
        found = {
            mirror.pk: _of_reversal(mirror, risks.get(mirror.name), transactional=beside.has_transactions(mirror))
            for mirror in mirrors
        }
    elif operation is MirrorEvent.DELETE and mirrors:
        found = {mirror.pk: [_deletion_warning(mirror.name, beside.copies.get(mirror.name, ()), by=by)] for mirror in mirrors}
    else:
        found = {mirror.pk: [] for mirror in mirrors}
    return {pk: tuple(warning for warning in warnings if warning) for pk, warnings in found.items()}


def mirrored_elsewhere(cluster_id: str, topic: str, *, by: Actor) -> str:
    """Return the warning on mirrors that copy from a topic, "" if there are none. Lists only those that the actor may see."""
    return _deletion_warning(topic, copies_of(cluster_id, [topic]).get(topic, ()), by=by)


def _deletion_warning(topic: str, copies: Sequence[MirrorTopic], *, by: Actor) -> str:
    """Return the warning on the mirrors that copy from a topic, "" if there are none."""
    listed = [mirror for mirror in copies if mirror.drill_id is None]
    if not listed:
        return ""
    named = [
        gettext("'%(name)s' on cluster '%(cluster)s' (link '%(link)s')")
        % {"name": mirror.name, "cluster": mirror.link.destination.name, "link": mirror.link.name}
        for mirror in listed
        if can(by, Permission.VIEW, mirror=mirror)
    ][:_NAMED]
    others = len(listed) - len(named)
    more = []
    if others:
        text = gettext("%(count)s more") if named else gettext("%(count)s on other clusters")
        more = [text % {"count": others}]
    return gettext(
        "Mirror topics copy from '%(topic)s': %(mirrors)s. They become FAILED once it is deleted. Fail them over first, so "
        "that they become ordinary topics."
    ) % {"topic": topic, "mirrors": ", ".join([*named, *more])}


def unclean_elections(topic: str, clusters: tuple[str, ...] | None) -> str:
    """Return the warning on unclean leader election on these clusters (None: could not be read); "" if there are none."""
    if clusters is None:
        return gettext("Whether unclean.leader.election.enable is on for '%(topic)s' could not be read on both clusters.") % {
            "topic": topic
        }
    if not clusters:
        return ""
    return gettext(
        "unclean.leader.election.enable is on for '%(topic)s' on %(clusters)s. A leader election there may lose records that "
        "the other side has, and the sides then differ after the reversal. Set it to false first."
    ) % {"topic": topic, "clusters": gettext(" and ").join(clusters)}


def _of_reversal(mirror: MirrorTopic, risks: ReversalRisks | None, *, transactional: bool) -> list[str]:
    """Return the warnings before a reversal, some empty. ``transactional``: the mirror has copied or aborted transactions."""
    writers = risks.writers if risks is not None else None
    named = transactional_ids(mirror.source_topic, risks.writers) if risks is not None else ""
    elections = unclean_elections(mirror.name, risks.unclean_on) if risks is not None else ""
    counts = [row.held_back for row in mirror.partitions.all()]
    waiting = sum(count for count in counts if count is not None)
    writes = bool(writers and (writers.ids or writers.unnamed_open))
    if not waiting and not writes and not transactional:
        return [named, elections]
    if waiting:
        advice = gettext(
            "Transactional producers write to '%(topic)s'. %(count)s offsets wait behind open transactions now. A transaction "
            "that is open when the reversal begins can no longer write to this topic and ends by its timeout; the reversal "
            "waits for it. Stop these producers first, and reverse topics that share transactions one at a time."
        )
    else:
        advice = gettext(
            "Transactional producers write to '%(topic)s'. A transaction that is open when the reversal begins can no longer "
            "write to this topic and ends by its timeout; the reversal waits for it. Stop these producers first, and reverse "
            "topics that share transactions one at a time."
        )
    return [advice % {"topic": mirror.source_topic, "count": f"{waiting:,}"}, named, elections]


def transactional_ids(topic: str, writers: TransactionalWriters | None) -> str:
    """Return the warning on transactional ids that write to a topic (None: could not be read); "" if there are none."""
    if writers is None:
        return gettext("The transactional ids that write to '%(topic)s' could not be read; there may be some.") % {
            "topic": topic
        }
    sentences = []
    if writers.ids:
        shown = [
            gettext("%(name)s (transaction open)") % {"name": name} if name in writers.open_ids else name
            for name in _open_first(writers)
        ]
        more = [gettext("%(count)s more") % {"count": f"{len(shown) - IDS_NAMED:,}"}] if len(shown) > IDS_NAMED else []
        text = gettext("Transactional ids that wrote to '%(topic)s' recently: %(ids)s.")
        sentences.append(text % {"topic": topic, "ids": ", ".join([*shown[:IDS_NAMED], *more])})
    if writers.unnamed_open:
        text = gettext("Open transactions in '%(topic)s' whose transactional id is unknown: %(count)s.")
        sentences.append(text % {"topic": topic, "count": f"{writers.unnamed_open:,}"})
    if not writers.complete:
        sentences.append(
            gettext(
                "More transactional ids may write to '%(topic)s': the link's principal at the source lacks DESCRIBE on some "
                "transactional ids, and these cannot be listed."
            )
            % {"topic": topic}
        )
    return " ".join(sentences)


def _open_first(writers: TransactionalWriters) -> list[str]:
    return sorted(writers.ids, key=lambda name: (name not in writers.open_ids, name))


# --- possible operations ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChoice:
    """An operation, whether it is possible now, and if not, why."""

    event: MirrorEvent
    allowed: bool
    reason: str = ""


def allowed(mirror: MirrorTopic, by: Actor) -> list[OperationChoice]:
    """Return the operations. Queries only the actor's bindings if the link and the clusters of the mirror are loaded."""
    related = RelatedRows([mirror])
    return [_choice(mirror, event, related, by) for event in OFFERED]


def _choice(mirror: MirrorTopic, event: MirrorEvent, related: RelatedRows, by: Actor) -> OperationChoice:
    permission = permission_for(event)
    if not can(by, permission, mirror=mirror):
        return OperationChoice(
            event=event,
            allowed=False,
            reason=gettext("Requires the role %(role)s or a higher one.") % {"role": role_needed(permission)},
        )
    reason = why_not(mirror, event, related=related)
    return OperationChoice(event=event, allowed=not reason, reason=reason)


# --- requests on several mirror topics: what followed -----------------------------------------------------------------
#
# A request is accepted at once; a promotion may then wait for hours. The outcome of a topic is derived from the present state
# of its mirror, as long as no other operation has changed the mirror since (``MirrorTopic.operated_at``).


_S = MirrorState
_Status = BulkOperationTopic.Status


class TopicOutcome(StrEnum):
    """The outcome of an operation for a topic; the first four are those of ``BulkOperationTopic.Status``."""

    WAITING = "WAITING"
    ACCEPTED = "ACCEPTED"  # of an operation that is complete when it is accepted, or whose result is not in the state
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    REQUESTED = "REQUESTED"  # accepted, and not at its end yet
    ENDED = "ENDED"  # the mirror is in a state that the operation leads to, or was deleted by it
    MIRROR_FAILED = "MIRROR_FAILED"  # the mirror is FAILED, or the cluster refused to delete its topic
    CHANGED = "CHANGED"  # another operation has changed the mirror since, or it is gone
    LINK_DELETED = "LINK_DELETED"  # accepted; what followed is not known, since the rows of the mirrors are gone with the link


FAILURES = frozenset({TopicOutcome.FAILED, TopicOutcome.MIRROR_FAILED})
_MIRRORING = frozenset({_S.ACTIVE, _S.SOURCE_UNAVAILABLE, _S.LINK_FAILED})
# The states in which an operation has ended. A reversal stops the mirror in the transaction that makes its source a mirror.
ENDS: Mapping[str, frozenset[MirrorState]] = MappingProxyType(
    {
        BulkOperation.CREATE: _MIRRORING,
        _E.PROMOTE: frozenset({_S.STOPPED}),
        _E.FAILOVER: frozenset({_S.STOPPED}),
        _E.REVERSE_AND_START: frozenset({_S.STOPPED}),
        _E.REVERSE_AND_PAUSE: frozenset({_S.STOPPED}),
        _E.RESTORE: _MIRRORING,
        _E.DELETE: frozenset(),  # the mirror is gone
    }
)


def with_outcome(topics: QuerySet[BulkOperationTopic]) -> QuerySet[Any]:
    """Add ``outcome`` to topics of operations. A join of mirrors and operations, and no further query."""
    deletes, gone = Q(operation__operation=_E.DELETE), Q(mirror__state__isnull=True)
    creates = Q(operation__operation=BulkOperation.CREATE)
    unchanged = (creates & Q(mirror__operated_at__isnull=True) & ~gone) | (~creates & Q(mirror__operated_at=F("done_at")))
    operations: dict[frozenset[MirrorState], list[str]] = defaultdict(list)  # by the states that they end in
    for operation, states in ENDS.items():
        operations[states].append(operation)
    ended = Q(pk__in=())
    for states, ending in operations.items():
        ended |= Q(operation__operation__in=ending, mirror__state__in=states)
    of_unchanged = Case(
        When(deletes | Q(mirror__state=_S.FAILED), then=Value(TopicOutcome.MIRROR_FAILED)),
        When(ended, then=Value(TopicOutcome.ENDED)),
        default=Value(TopicOutcome.REQUESTED),
    )
    outcome = Case(
        When(~Q(status=_Status.ACCEPTED) | ~Q(operation__operation__in=list(ENDS)), then=F("status")),
        When(operation__link__isnull=True, then=Value(TopicOutcome.LINK_DELETED)),
        When(deletes & gone & Q(mirror_id__isnull=False), then=Value(TopicOutcome.ENDED)),
        When(deletes & Q(mirror__deletion_requested_at__isnull=False), then=Value(TopicOutcome.REQUESTED)),
        When(unchanged, then=of_unchanged),
        default=Value(TopicOutcome.CHANGED),
        output_field=CharField(),
    )
    return topics.annotate(outcome=outcome)


# --- requests on several mirror topics: rows and counts ---------------------------------------------------------------


def get_operation(*, operation_id: int, by: Actor) -> BulkOperation:
    """Return an operation with its link; raise NotFoundError if it is not visible."""
    operation = visible_operations(by).filter(pk=operation_id).first()
    if operation is None:
        raise NotFoundError(
            gettext_lazy("Operation %(operation_id)s does not exist, or is older than 90 days.", operation_id=operation_id),
            code="UNKNOWN_OPERATION",
        )
    return operation


def deletion_of_link(operation: BulkOperation) -> AuditEvent | None:
    """Return the audit event of the deletion of the operation's link; None if it has its link, or without the event. One query.

    A link of the same name may have been created and deleted since, so it is the first deletion after the request.
    """
    if operation.link_id is not None:
        return None
    resource = f"cluster/{operation.destination_cluster_id}/link/{operation.link_name}"
    found = AuditEvent.objects.filter(action="DeleteClusterLink", resource=resource, result=AuditEvent.Result.SUCCESS)
    return found.filter(at__gte=operation.requested_at).order_by("at", "pk").first()


def count_topics(operations: Iterable[BulkOperation]) -> dict[int, Counter[str]]:
    """Return the number of topics by ``TopicOutcome`` of each operation, by primary key. One query."""
    found: dict[int, Counter[str]] = {operation.pk: Counter() for operation in operations}
    rows = with_outcome(BulkOperationTopic.objects.filter(operation__in=list(found)).order_by())
    for key, outcome, number in rows.values_list("operation", "outcome").annotate(number=Count("pk")):
        found[key][outcome] = number
    return found


def with_counts(operations: QuerySet[BulkOperation]) -> QuerySet[BulkOperation]:
    """Add ``topic_count``, ``done`` (the topics that are not waiting) and ``failed`` to operations. No further query."""
    topics = BulkOperationTopic.objects.filter(operation=OuterRef("pk"))
    return operations.annotate(
        topic_count=_number_of(topics),
        done=_number_of(topics.exclude(status=_Status.WAITING)),
        failed=_number_of(topics.filter(status=_Status.FAILED)),
    )


def operation_status(operation: BulkOperation, outcomes: Collection[str]) -> str:
    """Return the status of an operation whose topics have these outcomes: the first of ``STATUSES`` that applies."""
    for status, deciding in STATUSES.items():
        if not deciding.isdisjoint(outcomes) or (status == "CANCELED" and operation.canceled_by):
            return status
    return "FINISHED"


# The status of an operation is the first of which a topic has an outcome; an operation that a user canceled is CANCELED.
STATUSES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "RUNNING": frozenset({TopicOutcome.WAITING}),
        "REQUESTED": frozenset({TopicOutcome.REQUESTED}),
        "CANCELED": frozenset(),
        "FINISHED_WITH_FAILURES": FAILURES,
        "CHANGED": frozenset({TopicOutcome.CHANGED}),
        "LINK_DELETED": frozenset({TopicOutcome.LINK_DELETED}),
        "FINISHED": frozenset(),
    }
)


def has_status(wanted: str) -> Q:
    """Return the condition for operations with a status, by the rule of ``operation_status``."""
    topics = with_outcome(BulkOperationTopic.objects.filter(operation=OuterRef("pk")))
    earlier = Q()
    for status, deciding in STATUSES.items():
        applies = ~Q(canceled_by="") if status == "CANCELED" else Q(Exists(topics.filter(outcome__in=list(deciding))))
        if status == wanted:
            return earlier if status == "FINISHED" else earlier & applies
        earlier &= ~applies
    return Q(pk__in=())


def _number_of(topics: QuerySet[BulkOperationTopic]) -> Coalesce:
    counts = topics.order_by().values("operation").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counts, output_field=IntegerField()), 0)


def topics_of(operation: BulkOperation) -> QuerySet[Any]:
    """Return the topics of an operation with ``outcome`` and ``rank`` (0 for failures), failed topics first, then by name."""
    rank = Case(When(outcome__in=list(FAILURES), then=Value(0)), default=Value(1))
    found: QuerySet[Any] = with_outcome(operation.topics.all()).annotate(rank=rank)
    return found.order_by("rank", "name")


def mirrors_by_name(link: ClusterLink | None, names: Iterable[str], *, by: Actor) -> dict[str, MirrorTopic]:
    """Return the visible mirrors of a link with these names, and their transition errors. Two queries; none without a link."""
    if link is None:
        return {}
    found = visible_mirrors(by).filter(link=link, name__in=list(names))
    fields = ("name", "state", "stop_reason", "error_code", "error_message", "link_id")
    mirrors = {mirror.name: mirror for mirror in found.only(*fields).prefetch_related("transition_errors")}
    for mirror in mirrors.values():
        mirror.link = link
    return mirrors
