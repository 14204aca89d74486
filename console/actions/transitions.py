"""The only place that writes a mirror's state: compare-and-swap along the table of ``linkengine.domain.states``.

Two actors may want to move one mirror at once: the row is updated only where its state is still the one that was read, so
exactly one of them wins and the other reads again and asks the table anew.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from console.actors import Actor
from console.errors import ConflictError, NotFoundError
from console.models import ClusterLink, MirrorTopic, StateTransition
from linkengine.domain.errors import IllegalTransitionError
from linkengine.domain.states import MirrorEvent, MirrorState, next_state

ATTEMPTS = 3  # losing the race twice in a row takes two others; three times, somebody is looping


def apply_event(
    *, mirror: MirrorTopic, event: MirrorEvent, by: Actor, now: datetime, detail: str = "", **changes: Any
) -> MirrorTopic:
    """Move the mirror along one edge and note it; answer the row as it is now, with ``changes`` set on it too.

    Raises IllegalTransitionError where the table has no such edge from the present state, ConflictError when the state keeps
    changing underneath, NotFoundError when the row has gone.
    """
    for _ in range(ATTEMPTS):
        try:
            moved = _try_once(mirror, event, by=by, now=now, detail=detail, changes=changes)
        except IllegalTransitionError:
            fresh = _read_again(mirror)
            if fresh.state == mirror.state:
                raise
            mirror = fresh  # the caller's row was old; the table is asked about the present one
            continue
        if moved is not None:
            return moved
        mirror = _read_again(mirror)
    raise ConflictError(f"Somebody else is changing mirror topic '{mirror.name}' at the same time. Look again, then retry.")


def note_creation(*, mirror: MirrorTopic, by: Actor, now: datetime) -> None:
    """Write the first line of a mirror's history."""
    StateTransition.objects.create(mirror=mirror, from_state="", to_state=mirror.state, event="create", by=by.name, at=now)


def _try_once(
    mirror: MirrorTopic, event: MirrorEvent, *, by: Actor, now: datetime, detail: str, changes: dict[str, Any]
) -> MirrorTopic | None:
    old = MirrorState(mirror.state)
    new = next_state(old, event)
    values = {"state": new, **changes}
    if new is not old:
        values |= {"prior_state": old, "state_since": now}
    with transaction.atomic():
        swapped = MirrorTopic.objects.filter(pk=mirror.pk, state=old).update(**values)
        if not swapped:
            return None
        ClusterLink.objects.filter(pk=mirror.link_id).update(sequence=F("sequence") + 1)
        StateTransition.objects.create(
            mirror_id=mirror.pk, from_state=old, to_state=new, event=event, by=by.name, at=now, detail=detail
        )
    for name, value in values.items():
        setattr(mirror, name, value)
    return mirror


def _read_again(mirror: MirrorTopic) -> MirrorTopic:
    try:
        return MirrorTopic.objects.select_related("link__destination__environment").get(pk=mirror.pk)
    except MirrorTopic.DoesNotExist:
        raise NotFoundError(f"Mirror topic '{mirror.name}' has been deleted.") from None
