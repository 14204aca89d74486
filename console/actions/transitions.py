"""The only place that writes a mirror's state: compare-and-swap along the table of ``linkengine.domain.states``.

Two actors may want to move one mirror at once: the row is updated only where its state is still the one that was read, so
exactly one of them wins and the other reads again and asks the table anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from console.actors import Actor
from console.errors import ConflictError, NotFoundError
from console.models import MirrorTopic, StateTransition
from console.models.links import show_change
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


def apply_to_many(
    *, mirrors: Sequence[MirrorTopic], event: MirrorEvent, by: Actor, now: datetime, **changes: Any
) -> list[MirrorTopic]:
    """Move mirrors of one state along one edge in a few statements and note it; answer those that were still in that state.

    Part of the caller's transaction. Raises IllegalTransitionError where the table has no such edge.
    """
    if not mirrors:
        return []
    old = MirrorState(mirrors[0].state)
    assert all(one.state == old for one in mirrors)
    new = next_state(old, event)
    values = _values(old, new, changes, now=now)
    # the lock makes the list of those that are still as they were read the list of those that are moved
    there = MirrorTopic.objects.select_for_update().filter(pk__in=[one.pk for one in mirrors], state=old)
    still = set(there.values_list("pk", flat=True))
    MirrorTopic.objects.filter(pk__in=still, state=old).update(**values)
    moved = [one for one in mirrors if one.pk in still]
    show_change(*{one.link_id for one in moved})
    StateTransition.objects.bulk_create(
        StateTransition(mirror=one, from_state=old, to_state=new, event=event, by=by.name, at=now) for one in moved
    )
    for one in moved:
        _set(one, values)
    return moved


def note_creation(*, mirror: MirrorTopic, by: Actor, now: datetime) -> None:
    """Write the first line of a mirror's history."""
    StateTransition.objects.create(mirror=mirror, from_state="", to_state=mirror.state, event="create", by=by.name, at=now)


def _try_once(
    mirror: MirrorTopic, event: MirrorEvent, *, by: Actor, now: datetime, detail: str, changes: dict[str, Any]
) -> MirrorTopic | None:
    old = MirrorState(mirror.state)
    new = next_state(old, event)
    values = _values(old, new, changes, now=now)
    with transaction.atomic():
        swapped = MirrorTopic.objects.filter(pk=mirror.pk, state=old).update(**values)
        if not swapped:
            return None
        show_change(mirror.link_id)
        StateTransition.objects.create(
            mirror_id=mirror.pk, from_state=old, to_state=new, event=event, by=by.name, at=now, detail=detail
        )
    _set(mirror, values)
    return mirror


def _values(old: MirrorState, new: MirrorState, changes: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
    values = {"state": new, **changes}
    return values if new is old else values | {"prior_state": old, "state_since": now}


def _set(mirror: MirrorTopic, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(mirror, name, value)


def _read_again(mirror: MirrorTopic) -> MirrorTopic:
    try:
        return MirrorTopic.objects.select_related("link__destination__environment").get(pk=mirror.pk)
    except MirrorTopic.DoesNotExist:
        raise NotFoundError(f"Mirror topic '{mirror.name}' has been deleted.") from None
