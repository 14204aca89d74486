"""The migration gate of a mirror: runs its checklist, overrides it with a reason, and checks it before a promotion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction

from console import audit
from console.access import Permission, check_permission
from console.actions.row_locks import check_mirror, lock_link
from console.actions.verification import start_verify
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError
from console.mirrors.migration_gate import GATED, gate_closed
from console.models import GateRun, MirrorTopic
from console.models.links import show_change
from console.queue import dispatch
from linkengine.domain.gates import GateCheck, is_green

Status = GateRun.Status
SHORTEST_REASON = 10


def start_gate(*, mirror: MirrorTopic, by: Actor, now: datetime) -> GateRun:
    """Start a run of the checklist together with a full verification run; return the run in progress if there is one."""
    check_permission(by, Permission.VERIFY, mirror=mirror)
    if mirror.state not in GATED:
        raise ConflictError(f"Mirror topic '{mirror.name}' is {mirror.state} and cannot be promoted, so no checklist is run.")
    with transaction.atomic():
        lock_link(mirror.link)  # serializes concurrent starts
        check_mirror(mirror)
        running = mirror.gate_runs.filter(status=Status.RUNNING).first()
        if running is not None:
            return running
        comparison = start_verify(mirror=mirror, by=by, now=now, of_now=True)
        run = GateRun.objects.create(
            mirror=mirror, status=Status.RUNNING, requested_by=by.name, requested_at=now, verify_run=comparison
        )
        audit.record(by=by, action="RunMigrationGate", resource=audit.path_of(mirror), now=now, detail={"run": run.pk})
        show_change(mirror.link_id)
    dispatch.send("advance_gate", run_id=run.pk)
    return run


def override_gate(*, mirror: MirrorTopic, reason: str, by: Actor, now: datetime) -> GateRun:
    """Open the gate without a green checklist; the actor and the reason stay in the audit log."""
    check_permission(by, Permission.OPERATE_MIRROR, mirror=mirror)
    words = " ".join(reason.split())
    if len(words) < SHORTEST_REASON:
        message = f"The reason is too short. Give at least {SHORTEST_REASON} characters; the reason is kept with the promotion."
        raise InvalidInputError(message, field="reason")
    with transaction.atomic():
        check_mirror(mirror)
        run = GateRun.objects.create(
            mirror=mirror,
            status=Status.OVERRIDDEN,
            requested_by=by.name,
            requested_at=now,
            finished_at=now,
            reason=words,
        )
        audit.record(by=by, action="OverrideMigrationGate", resource=audit.path_of(mirror), now=now, detail={"reason": words})
        show_change(mirror.link_id)
    return run


def record_checks(*, run: GateRun, checks: Sequence[GateCheck], now: datetime) -> None:
    """Finish a run with its checks; a run that has finished since then is left unchanged."""
    values = {
        "status": Status.GREEN if is_green(checks) else Status.RED,
        "checks": [asdict(check) for check in checks],
        "finished_at": now,
    }
    GateRun.objects.filter(pk=run.pk, status=Status.RUNNING).update(**values)
    show_change(run.mirror.link_id)


def check_gate(*, mirror: MirrorTopic, now: datetime) -> None:
    """Raise ConflictError if the link requires the migration gate and it is not open for this mirror."""
    reason = gate_closed(mirror, now=now)
    if reason:
        raise ConflictError(reason, code="GATE_CLOSED")
