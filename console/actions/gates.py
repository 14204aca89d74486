"""The migration gate of a mirror: run its checklist, do without it for a reason, and ask it before a promotion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction

from console import audit, dispatch
from console.access import Permission, check_permission
from console.actions.rows import check_mirror, lock_link
from console.actions.verification import start_verify
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError
from console.gatepolicies import GATED, gate_closed
from console.models import GateRun, MirrorTopic
from console.models.links import show_change
from linkengine.domain.gates import GateCheck, is_green

Status = GateRun.Status
SHORTEST_REASON = 10


def start_gate(*, mirror: MirrorTopic, by: Actor, now: datetime) -> GateRun:
    """Begin a run, with a comparison of every record; answer the one that is under way if there is one."""
    check_permission(by, Permission.VERIFY, mirror=mirror)
    if mirror.state not in GATED:
        raise ConflictError(f"Topic '{mirror.name}' is {mirror.state}: there is nothing to promote.")
    with transaction.atomic():
        lock_link(mirror.link)  # one starter at a time
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
    """Open the gate without a green checklist; who did so and why stays in the audit."""
    check_permission(by, Permission.OPERATE_MIRROR, mirror=mirror)
    words = " ".join(reason.split())
    if len(words) < SHORTEST_REASON:
        message = f"Say why in at least {SHORTEST_REASON} characters: the reason is kept with the promotion."
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
    """Close a run with what it saw; one that was closed meanwhile stays as it is."""
    values = {
        "status": Status.GREEN if is_green(checks) else Status.RED,
        "checks": [asdict(one) for one in checks],
        "finished_at": now,
    }
    GateRun.objects.filter(pk=run.pk, status=Status.RUNNING).update(**values)
    show_change(run.mirror.link_id)


def check_gate(*, mirror: MirrorTopic, now: datetime) -> None:
    """Raise ConflictError where the link has a gate and it is not open for this mirror."""
    reason = gate_closed(mirror, now=now)
    if reason:
        raise ConflictError(reason, code="GATE_CLOSED")
