"""Pauses or fails over many mirrors of a link with a few SQL statements, since a failover of 1,000 mirrors has to be quick.

Applies only to operations that change no other rows. Mirrors whose state has changed, or for which the operation is refused,
are left to ``operations.operate``, which raises the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.db import transaction

from console import audit
from console.access import can
from console.access.approvals import approved
from console.actions import transitions
from console.actors import Actor
from console.mirrors.rules import permission_for, why_not
from console.models import AuditEvent, MirrorTopic, StateTransitionError
from console.models.mirrors import CONFIGS_REFUSED, STAYING
from console.queue import dispatch
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason, next_state

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


def operate(mirrors: Sequence[MirrorTopic], operation: MirrorEvent, *, by: Actor, now: datetime) -> dict[str, MirrorTopic]:
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
            moved += _move(rows, MirrorState(state), operation, by=by, now=now)
    _send(moved, operation)
    return {mirror.name: mirror for mirror in moved}


def _move(
    rows: Sequence[MirrorTopic], old: MirrorState, operation: MirrorEvent, *, by: Actor, now: datetime
) -> list[MirrorTopic]:
    """Apply one transition to rows that share a state, by compare-and-swap, with history and audit rows."""
    moved = transitions.apply_to_many(mirrors=rows, event=operation, by=by, now=now, **changes_of(operation))
    StateTransitionError.objects.filter(mirror__in=moved).exclude(code__in=[*STAYING, CONFIGS_REFUSED]).delete()
    detail = {"from": old, "to": next_state(old, operation)}
    AuditEvent.objects.bulk_create(
        audit.draft(by=by, action=AUDIT_NAMES[operation], resource=audit.path_of(mirror), now=now, detail=detail)
        for mirror in moved
    )
    return moved


def _send(moved: Iterable[MirrorTopic], operation: MirrorEvent) -> None:
    for link_id in {mirror.link_id for mirror in moved}:
        if operation is _E.FAILOVER:
            dispatch.send("stop_many", link_id=link_id)
        dispatch.send("reconcile_link", link_id=link_id)
