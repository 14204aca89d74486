"""What a destination refused after a mirror was stopped: stored in the newest failover report, shown on the mirror.

The report keeps each refused step; a step that a retry resolves gets the time. The mirror shows CONFIGS_REFUSED as long as a
step is unresolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import transaction

from console.models import MirrorTopic, StateTransitionError, StopReport
from console.models.links import show_change
from console.models.mirrors import CONFIGS_REFUSED
from console.reconciling import transition_errors
from linkengine.domain.mirrorjobs import FILLERS, RefusedStep

_NAMED = 3  # in the message; the report lists all


def note(*, mirror: MirrorTopic, refused: Sequence[RefusedStep], now: datetime) -> None:
    """Show refused steps on the mirror. An empty list ends what was shown before."""
    if refused:
        transition_errors.note(mirror=mirror, code=CONFIGS_REFUSED, message=_message(refused), now=now)
    else:
        transition_errors.end(mirror=mirror, codes=[CONFIGS_REFUSED])


def note_many(refused: Mapping[MirrorTopic, Sequence[RefusedStep]], *, now: datetime) -> None:
    """Do what ``note`` does for many mirrors; a single statement if nothing is refused."""
    sound = [mirror for mirror, steps in refused.items() if not steps]
    StateTransitionError.objects.filter(mirror__in=sound, code=CONFIGS_REFUSED).delete()
    for mirror, steps in refused.items():
        if steps:
            note(mirror=mirror, refused=steps, now=now)


def add(*, mirror: MirrorTopic, refused: Sequence[RefusedStep], now: datetime) -> None:
    """Add steps that were refused later to the newest report, and show them."""
    with transaction.atomic():
        report = StopReport.objects.select_for_update().filter(mirror=mirror).first()
        if report is not None:
            known = {step.name for step in report.unresolved}
            report.refused = [*report.refused, *(_row(step) for step in refused if step.name not in known)]
            report.save(update_fields=["refused"])
        note(mirror=mirror, refused=refused, now=now)
        show_change(mirror.link_id)


def settle(*, mirror: MirrorTopic, refused: Sequence[RefusedStep], now: datetime) -> None:
    """Store the outcome of a retry: steps refused again get the new reason, all other configs are resolved."""
    again = {step.name: step for step in refused}
    with transaction.atomic():
        report = StopReport.objects.select_for_update().filter(mirror=mirror).first()
        left = list(refused)
        if report is not None:
            known = {step.name for step in report.unresolved}
            rows = [_settled(row, again, now=now) for row in report.refused]
            report.refused = [*rows, *(_row(step) for step in refused if step.name not in known)]
            report.save(update_fields=["refused"])
            left += [step for step in report.unresolved if step.name == FILLERS]
        note(mirror=mirror, refused=left, now=now)
        show_change(mirror.link_id)


def _row(step: RefusedStep) -> dict[str, Any]:
    return {**asdict(step), "resolved_at": None}


def _settled(row: dict[str, Any], again: dict[str, RefusedStep], *, now: datetime) -> dict[str, Any]:
    if row["resolved_at"] is not None or row["name"] == FILLERS:
        return row
    step = again.get(row["name"])
    return _row(step) if step is not None else {**row, "resolved_at": now.isoformat()}


def _message(refused: Sequence[RefusedStep]) -> str:
    configs = [step for step in refused if step.name != FILLERS]
    sentences = []
    if configs:
        named = ", ".join(f"{step.name}={step.value or '(cluster default)'}" for step in configs[:_NAMED])
        more = f" and {len(configs) - _NAMED} more" if len(configs) > _NAMED else ""
        sentences.append(
            f"The topic is writable, but the destination refused {named}{more}, so the mirror's values stay in effect "
            f"(unlimited retention, for example). Reason: {configs[0].message} Change the policy or the permission and retry, "
            "or set the configs with another tool."
        )
    sentences += [
        f"Empty records below the mirror's start could not be removed: {step.message} Remove them with kafka-delete-records."
        for step in refused
        if step.name == FILLERS
    ]
    return " ".join(sentences)
