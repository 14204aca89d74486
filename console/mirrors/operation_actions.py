"""Operations of users on one or many mirror topics: pause, resume, promote, fail over, reverse, restore, recover, delete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.db import transaction

from console import audit
from console.access import Permission, can, check_permission, links_with_sight, visible_mirrors
from console.access.approvals import approved, check_approved
from console.actors import Actor
from console.errors import ConflictError, ConsoleError, DeniedError, InvalidInputError, NotFoundError, from_engine
from console.links import pairs
from console.mirrors import actions as mirror_actions
from console.mirrors import reversals, transitions
from console.mirrors.rules import matching, permission_for, why_not
from console.models import AuditEvent, ClusterLink, MirrorTopic, RoleBinding, StateTransitionError
from console.models.mirrors import CONFIGS_REFUSED, STAYING
from console.queue import dispatch
from console.verification.actions import check_gate
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.mirrorjobs import RestorePoint
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent, MirrorState, StopReason, next_state

# --- many mirrors with a few SQL statements ---------------------------------------------------------------------------
#
# A failover of 1,000 mirrors has to be quick. Applies only to operations that change no other rows. Mirrors whose state has
# changed, or for which the operation is refused, are left to ``operate``, which raises the reason.


_E = MirrorEvent
FEW = 20  # below this, one transaction per mirror is as quick
AUDIT_NAMES: Mapping[MirrorEvent, str] = MappingProxyType(
    {
        _E.PAUSE: "PauseMirrorTopic",
        _E.RESUME: "ResumeMirrorTopic",
        _E.PROMOTE: "PromoteMirrorTopic",
        _E.FAILOVER: "FailoverMirrorTopic",
        _E.REVERSE_AND_START: "ReverseAndStartMirrorTopic",
        _E.REVERSE_AND_PAUSE: "ReverseAndPauseMirrorTopic",
        _E.RESTORE: "TruncateAndRestoreMirrorTopic",
        _E.RECOVER: "RecoverMirrorTopic",
    }
)
# A promotion may have to pass the mirror's migration gate; reversals and restores change other rows too.
SIMPLE = (_E.PAUSE, _E.FAILOVER)
_ALONE = (MirrorState.PENDING_MIRROR, MirrorState.PENDING_SETUP_FOR_RESTORE, MirrorState.PENDING_RESTORE_MIRROR)


def changes_of(operation: MirrorEvent) -> dict[str, Any]:
    """Return the fields that an operation sets beside the state: errors and retries are reset."""
    changes: dict[str, Any] = {
        "error_code": "",
        "error_message": "",
        "error_since": None,
        "retry_count": 0,
        "retry_at": None,
        "drained_at": None,
    }
    if operation in (_E.PROMOTE, _E.FAILOVER):
        changes["stop_reason"] = StopReason.PROMOTE if operation is _E.PROMOTE else StopReason.FAILOVER
    return changes


def operate_together(
    mirrors: Sequence[MirrorTopic], operation: MirrorEvent, *, by: Actor, now: datetime
) -> dict[str, MirrorTopic]:
    """Apply the operation to all mirrors that can be changed together and return them by name; the others are unchanged."""
    if operation not in SIMPLE or len(mirrors) < FEW:
        return {}
    permission = permission_for(operation)
    eligible = [
        mirror
        for mirror in approved(mirrors, operation, by=by)
        if mirror.state not in _ALONE and can(by, permission, mirror=mirror) and not why_not(mirror, operation)
    ]
    by_state: dict[str, list[MirrorTopic]] = defaultdict(list)
    for mirror in eligible:
        by_state[mirror.state].append(mirror)
    moved: list[MirrorTopic] = []
    with transaction.atomic():
        for state, rows in by_state.items():
            moved += _move_together(rows, MirrorState(state), operation, by=by, now=now)
    _send(moved, operation)
    return {mirror.name: mirror for mirror in moved}


def _move_together(
    rows: Sequence[MirrorTopic], old: MirrorState, operation: MirrorEvent, *, by: Actor, now: datetime
) -> list[MirrorTopic]:
    """Apply one transition to rows that share a state, by compare-and-swap, with history and audit rows."""
    moved = transitions.apply_to_many(mirrors=rows, event=operation, by=by, now=now, **changes_of(operation))
    StateTransitionError.objects.filter(mirror__in=moved).exclude(code__in=[*STAYING, CONFIGS_REFUSED]).end(now=now)
    detail = {"from": old, "to": next_state(old, operation)}
    AuditEvent.objects.bulk_create(
        audit.unsaved_event(by=by, action=AUDIT_NAMES[operation], resource=audit.path_of(mirror), now=now, detail=detail)
        for mirror in moved
    )
    return moved


def _send(moved: Iterable[MirrorTopic], operation: MirrorEvent) -> None:
    for link_id in {mirror.link_id for mirror in moved}:
        if operation is _E.FAILOVER:
            dispatch.send("stop_many", link_id=link_id)
        dispatch.send("reconcile_link", link_id=link_id)


# --- operations of users ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult:
    """The result for one topic of a batch; ``error_code`` is an HTTP status, as in Confluent's REST API."""

    mirror_topic_name: str
    error_code: int | None = None
    error_message: str | None = None
    code: str = ""  # of the error, as in ``console.errors``
    mirror: MirrorTopic | None = None
    truncation: tuple[RestorePoint, ...] | None = None  # the records that a restore would drop; None if unknown


def operate(
    *, mirror: MirrorTopic, operation: MirrorEvent, validate_only: bool = False, by: Actor, now: datetime
) -> MirrorTopic:
    """Start an operation on a mirror and return its row; raise ConflictError with the reason if it is not possible now."""
    check_permission(by, permission_for(operation), mirror=mirror)
    check_approved(mirror, operation, by=by)
    if operation is _E.DELETE:
        if not validate_only:
            mirror_actions.request_deletion(mirror=mirror, by=by, now=now)
        return mirror
    reason = why_not(mirror, operation)
    if reason:
        raise ConflictError(reason)
    if operation is _E.PROMOTE:
        check_gate(mirror=mirror, now=now)
    if operation in BIDIRECTIONAL_ONLY:
        _check_other_side(mirror, by)
    if operation is _E.RESTORE:
        reversals.check_deletable(mirror)
    if validate_only:
        return mirror
    return _apply(mirror, operation, by=by, now=now)


def seen_state(mirror: MirrorTopic) -> str:
    """Return a token of the mirror's current state for a confirmation form, which posts it to ``delete_as_seen``."""
    return f"{mirror.state} {mirror.state_since.isoformat()}"


def delete_as_seen(*, mirror: MirrorTopic, seen: str, by: Actor, now: datetime) -> None:
    """Delete the mirror; raise ConflictError if its state has changed since the confirmation form showed it (``seen``).

    The mirror may have become the only copy of records that applications write. The row is locked until the deletion is stored.
    """
    check_permission(by, permission_for(_E.DELETE), mirror=mirror)
    with transaction.atomic():
        fresh = MirrorTopic.objects.select_for_update().filter(pk=mirror.pk).first()
        if fresh is not None and seen_state(fresh) != seen:
            raise ConflictError(
                gettext_lazy(
                    "Nothing was deleted: mirror topic '%(topic)s' has changed since this page was opened and is "
                    "%(state)s now. Read below what would be deleted now; then confirm or cancel.",
                    topic=mirror.name,
                    state=fresh.state,
                )
            )
        mirror_actions.request_deletion(mirror=mirror, by=by, now=now)


def fail_over(*, mirror: MirrorTopic, by: Actor, now: datetime) -> MirrorTopic:
    """Fail over one mirror as part of a larger change, whose permission the caller has checked."""
    check_approved(mirror, _E.FAILOVER, by=by)
    return _apply(mirror, _E.FAILOVER, checked=False, by=by, now=now)


def operate_many(
    *,
    link: ClusterLink,
    names: Sequence[str] | None = None,
    pattern: str | None = None,
    operation: MirrorEvent,
    validate_only: bool = False,
    by: Actor,
    now: datetime,
) -> list[OperationResult]:
    """Operate on the named mirrors, or on all whose whole name matches a regular expression; each succeeds or fails separately.

    Before a restore, the records that it would drop are counted on the cluster; the count is None if the cluster does not
    respond.
    """
    by_name = {mirror.name: mirror for mirror in _mirrors_of(link, by)}
    if operation is _E.RESTORE:
        by_name = {topic.name: topic for topic in reversals.candidates(link, by)} | by_name
    chosen = list(dict.fromkeys(names)) if names else _matching(by_name, pattern)
    counted: Mapping[str, tuple[RestorePoint, ...]] = {}
    if operation is _E.RESTORE:
        counted = reversals.count_divergence(link, [by_name[name] for name in chosen if name in by_name])
    done = {} if validate_only else operate_together([by_name[n] for n in chosen if n in by_name], operation, by=by, now=now)
    results = []
    for name in chosen:
        if name in done:
            results.append(OperationResult(mirror_topic_name=name, mirror=done[name]))
            continue
        mirror = by_name.get(name)
        results.append(
            operate_row(mirror, operation, validate_only=validate_only, by=by, now=now)
            if mirror
            else refusal_of(name, unknown_mirror(name, link))
        )
    return [
        replace(result, truncation=counted.get(result.mirror_topic_name)) if result.error_code is None else result
        for result in results
    ]


def _apply(mirror: MirrorTopic, operation: MirrorEvent, *, checked: bool = True, by: Actor, now: datetime) -> MirrorTopic:
    """Change the rows, add an audit row and queue the engine's tasks; ``checked`` repeats the rules on the current row."""
    changes = changes_of(operation)
    try:
        with transaction.atomic():
            if checked:
                mirror = _recheck(mirror, operation)
            before = mirror.state
            mirror = _move(mirror, operation, by=by, now=now, changes=changes)
            StateTransitionError.objects.filter(mirror=mirror).exclude(code__in=[*STAYING, CONFIGS_REFUSED]).end(now=now)
            detail = {"from": before, "to": mirror.state}
            audit.record(by=by, action=AUDIT_NAMES[operation], resource=audit.path_of(mirror), now=now, detail=detail)
    except LinkEngineError as error:
        raise from_engine(error) from error
    dispatch.send("reconcile_link", link_id=mirror.link_id)
    if mirror.state == MirrorState.PENDING_STOPPED:
        dispatch.send("advance_stop", mirror_id=mirror.pk)
    return mirror


def _recheck(mirror: MirrorTopic, operation: MirrorEvent) -> MirrorTopic:
    """Return the current row; raise ConflictError if the rules no longer allow the operation.

    The row is locked, except for reversals and restores, which would deadlock: a reversal locks the other side's row first, and
    a restore both rows by key (``reversals``). Their transitions are compare-and-swap as well.
    """
    if mirror.pk is None:  # a topic that was never a mirror
        return mirror
    rows = MirrorTopic.objects.select_related("link__destination__environment")
    if operation not in BIDIRECTIONAL_ONLY:
        rows = rows.select_for_update(of=("self",))
    fresh = rows.filter(pk=mirror.pk).first()
    if fresh is None:
        raise NotFoundError(
            gettext_lazy("Mirror topic '%(topic)s' has been deleted. Create it again if it is still needed.", topic=mirror.name)
        )
    reason = why_not(fresh, operation)
    if reason:
        raise ConflictError(reason)
    return fresh


def _move(mirror: MirrorTopic, operation: MirrorEvent, *, by: Actor, now: datetime, changes: dict[str, Any]) -> MirrorTopic:
    """Apply the operation to the row and to the rows that change with it."""
    if operation in reversals.REVERSALS:
        return reversals.begin_reversal(mirror=mirror, operation=operation, by=by, now=now)
    if operation is _E.RESTORE:
        return reversals.begin_restore(mirror=mirror, by=by, now=now)
    became_mirror = mirror.state == MirrorState.PENDING_MIRROR
    mirror = transitions.apply_event(mirror=mirror, event=operation, by=by, now=now, **changes)
    if operation is _E.FAILOVER and became_mirror:
        reversals.end_at_other_side(mirror=mirror, now=now)
    if operation in (_E.RESUME, _E.RECOVER):
        return reversals.resume_reversal(mirror=mirror, by=by, now=now)
    return mirror


def _check_other_side(mirror: MirrorTopic, by: Actor) -> None:
    """Raise DeniedError unless the actor may also operate the topic on the other side, which changes too."""
    other = pairs.other_side(mirror.link)
    if other is not None:
        topic = RoleBinding.ResourceType.TOPIC
        check_permission(by, Permission.OPERATE_MIRROR, link=other, resource_type=topic, resource_name=mirror.source_topic)


def operate_row(
    mirror: MirrorTopic, operation: MirrorEvent, *, validate_only: bool = False, seen: str = "", by: Actor, now: datetime
) -> OperationResult:
    """Operate on a mirror and return the result; ``seen`` is the state that the confirmation of a deletion showed, if any."""
    try:
        if seen and operation is _E.DELETE:
            delete_as_seen(mirror=mirror, seen=seen, by=by, now=now)
        else:
            mirror = operate(mirror=mirror, operation=operation, validate_only=validate_only, by=by, now=now)
    except ConsoleError as error:
        return refusal_of(mirror.name, error, mirror=mirror)
    return OperationResult(mirror_topic_name=mirror.name, mirror=mirror)


def refusal_of(name: str, error: ConsoleError, *, mirror: MirrorTopic | None = None) -> OperationResult:
    """Return the result for a topic whose operation was refused."""
    status = 403 if isinstance(error, DeniedError) else 404 if isinstance(error, NotFoundError) else 400
    found = None if status == 404 else mirror
    return OperationResult(
        mirror_topic_name=name, error_code=status, error_message=error.message, code=error.code, mirror=found
    )


def _mirrors_of(link: ClusterLink, by: Actor) -> list[MirrorTopic]:
    return list(visible_mirrors(by).filter(link=link).with_links(links_with_sight(by)))


def _matching(by_name: Mapping[str, MirrorTopic], pattern: str | None) -> list[str]:
    if not pattern:
        message = gettext_lazy(
            "The request names no mirror topics. List them in mirror_topic_names, or give a regular expression "
            "in mirror_topic_name_pattern."
        )
        raise InvalidInputError(message, field="mirror_topic_names")
    return matching(by_name, pattern)


def unknown_mirror(name: str, link: ClusterLink) -> NotFoundError:
    """Return the error for a name of a topic that is not, or not visibly, a mirror of the link."""
    return NotFoundError(
        gettext_lazy(
            "Topic '%(name)s' is not a mirror topic of cluster link '%(link)s'. Check "
            "the name, and that you have a role on it.",
            name=name,
            link=link.name,
        ),
        code="UNKNOWN_MIRROR",
    )
