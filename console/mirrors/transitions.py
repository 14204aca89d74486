"""Writes a mirror's state, by compare-and-swap along the transition table of ``linkengine.domain.states``.

No other module writes the state. When two actors change a mirror at the same time, each UPDATE names the state that was read
(``WHERE state = old``), so exactly one of them matches. The other reads the row again and looks its event up from the new
state.
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
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import OPERATIONS, MirrorEvent, MirrorState, next_state

# The events after which the state no longer shows the result of an earlier operation. Two belong to operations on the topic of
# the other side; the engine's other events carry an operation out.
OPERATING = OPERATIONS | {MirrorEvent.BECOME_MIRROR, MirrorEvent.REVERSAL_ENDED}
ATTEMPTS = 3  # each lost attempt needs another actor's change; three in a row mean that another process loops


def apply_event(
    *, mirror: MirrorTopic, event: MirrorEvent, by: Actor, now: datetime, detail: str = "", **changes: Any
) -> MirrorTopic:
    """Apply an event to the mirror's state, add it to the history, and return the updated row; ``changes`` are set too.

    Raises IllegalTransitionError if the table has no transition for the event from the current state, ConflictError if the
    state changed during every attempt, and NotFoundError if the mirror has been deleted.
    """
    for _ in range(ATTEMPTS):
        try:
            moved = _try_once(mirror, event, by=by, now=now, detail=detail, changes=changes)
        except IllegalTransitionError:
            fresh = _read_again(mirror)
            if fresh.state == mirror.state:
                raise
            mirror = fresh  # the caller's row was stale; retry from the current state
            continue
        if moved is not None:
            return moved
        mirror = _read_again(mirror)
    raise ConflictError(
        gettext_lazy(
            "Mirror topic '%(topic)s' is being changed by another request, so nothing was done. Check its state, then retry.",
            topic=mirror.name,
        )
    )


def apply_to_many(
    *, mirrors: Sequence[MirrorTopic], event: MirrorEvent, by: Actor, now: datetime, detail: str = "", **changes: Any
) -> list[MirrorTopic]:
    """Apply an event to mirrors that share a state with a few SQL statements; return those that were still in that state.

    Needs the caller's transaction. Adds the event to each mirror's history. Raises IllegalTransitionError if the table has no
    transition for the event.
    """
    if not mirrors:
        return []
    old = MirrorState(mirrors[0].state)
    assert all(mirror.state == old for mirror in mirrors)
    new = next_state(old, event)
    values = _values(old, event, changes, now=now)
    # the lock guarantees that exactly the rows found in the old state are the rows that are updated
    unchanged = MirrorTopic.objects.select_for_update().filter(pk__in=[mirror.pk for mirror in mirrors], state=old)
    keys = set(unchanged.values_list("pk", flat=True))
    MirrorTopic.objects.filter(pk__in=keys, state=old).update(**values)
    moved = [mirror for mirror in mirrors if mirror.pk in keys]
    show_change(*{mirror.link_id for mirror in moved})
    StateTransition.objects.bulk_create(
        StateTransition(mirror=mirror, from_state=old, to_state=new, event=event, by=by.name, at=now, detail=detail)
        for mirror in moved
    )
    for mirror in moved:
        _set(mirror, values)
    return moved


def note_creation(*, mirror: MirrorTopic, by: Actor, now: datetime) -> None:
    """Add the event ``create`` as the first entry of a mirror's history."""
    StateTransition.objects.create(mirror=mirror, from_state="", to_state=mirror.state, event="create", by=by.name, at=now)


def _try_once(
    mirror: MirrorTopic, event: MirrorEvent, *, by: Actor, now: datetime, detail: str, changes: dict[str, Any]
) -> MirrorTopic | None:
    old = MirrorState(mirror.state)
    new = next_state(old, event)
    values = _values(old, event, changes, now=now)
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


def _values(old: MirrorState, event: MirrorEvent, changes: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
    new = next_state(old, event)
    values = {"state": new, **changes}
    if event in OPERATING:
        values["operated_at"] = now
    return values if new is old else values | {"prior_state": old, "state_since": now}


def _set(mirror: MirrorTopic, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(mirror, name, value)


def _read_again(mirror: MirrorTopic) -> MirrorTopic:
    try:
        return MirrorTopic.objects.select_related("link__destination__environment").get(pk=mirror.pk)
    except MirrorTopic.DoesNotExist:
        raise NotFoundError(
            gettext_lazy("Mirror topic '%(topic)s' has been deleted. Create it again if it is still needed.", topic=mirror.name)
        ) from None
