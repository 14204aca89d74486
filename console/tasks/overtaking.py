"""Set-ups, restores and take-overs that a failover or a deletion overtakes: they give way between two steps.

A stop waits until they have (``giving_way``). Holds are no fences, though: Redis may lose them, and a process may sleep. So
each step asks the row again, and what came too late all the same is undone here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog
from django.utils import timezone

from console import dispatch, lineage, store
from console.models import MirrorTopic
from console.reconciling import plans, refusals, troubles
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.states import BECOMING, CLOSED_FIRST, MirrorState

GIVE_WAY_S = store.HOLD_S + 3.0  # a worker that was killed holds for HOLD_S; a living one gives way within a second or so
LOOK_EVERY_S = 0.1
CHECK_EVERY_S = 0.5  # while records are set aside
UNDO_ATTEMPTS = 20
UNDO_PAUSE_S = 1.0
_log = structlog.get_logger(__name__)


class OvertakenError(Exception):
    """The mirror is to be stopped or deleted, or has been: the topic is not this task's any more."""


def hold_name(mirror_id: int) -> str:
    """Name the hold of whoever makes a topic a mirror, or deletes it."""
    return f"mirror:{mirror_id}"


def is_wanted(mirror: MirrorTopic) -> bool:
    """Tell whether the row is still in the state it was read in, and shall stay."""
    return MirrorTopic.objects.filter(pk=mirror.pk, state=mirror.state, deletion_requested_at=None).exists()


def check_wanted(mirror: MirrorTopic) -> None:
    """Raise OvertakenError where the row has moved on since it was read, or shall go."""
    if not is_wanted(mirror):
        raise OvertakenError


class Watch:
    """``check_wanted`` for what is done many times a second."""

    def __init__(self, mirror: MirrorTopic) -> None:
        self._mirror = mirror
        self._next_at = 0.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next_at:
            check_wanted(self._mirror)
            self._next_at = time.monotonic() + CHECK_EVERY_S


@contextmanager
def unless_overtaken(mirror: MirrorTopic, *, otherwise: Callable[[LinkEngineError], None]) -> Iterator[None]:
    """Do a task's work on a mirror. What goes wrong is told by ``otherwise``, but for a row that has moved on it is settled."""
    try:
        yield
    except OvertakenError:
        settle(mirror)
    except LinkEngineError as error:
        if is_wanted(mirror):
            otherwise(error)
        else:
            settle(mirror)


@contextmanager
def giving_way(mirror: MirrorTopic) -> Iterator[MirrorTopic | None]:
    """Wait until nobody makes a stopping mirror's topic a mirror any more, and keep others from it; give the row as it is then.

    Gives None where it takes too long: then the reconciler asks again.
    """
    if mirror.prior_state not in BECOMING:
        yield mirror
        return
    with patient_hold(hold_name(mirror.pk), wait_s=GIVE_WAY_S) as ours:
        yield plans.load(mirror.pk) if ours else None


@contextmanager
def patient_hold(name: str, *, wait_s: float) -> Iterator[bool]:
    """Wait for a hold that somebody else may have for a moment; tells whether we got it."""
    deadline = time.monotonic() + wait_s
    while True:
        with store.hold(name) as ours:
            if ours or time.monotonic() >= deadline:
                yield ours
                return
        time.sleep(LOOK_EVERY_S)


def settle(mirror: MirrorTopic) -> None:
    """Leave a topic from which a task was driven away as its row says now; ``mirror`` is the row as the task had read it."""
    fresh = plans.load(mirror.pk)
    _log.info("mirror.overtaken", mirror=mirror.name, was=mirror.state, state=fresh.state if fresh else "")
    if fresh is not None and fresh.state == MirrorState.PENDING_STOPPED:
        dispatch.send("advance_stop", mirror_id=mirror.pk)
    elif fresh is not None and fresh.state != MirrorState.STOPPED:
        return
    else:
        _undo(mirror, fresh)


def _undo(mirror: MirrorTopic, stopped: MirrorTopic | None) -> None:
    """Nobody comes back to a mirror that is stopped or gone: try for long enough, and tell people where that does not help."""
    was_closed = mirror.state in CLOSED_FIRST
    for left in reversed(range(UNDO_ATTEMPTS)):
        try:
            if stopped is not None:
                _reopen(stopped, was_closed=was_closed)
            elif (plans.is_guarded(mirror.link) or was_closed) and not plans.is_contested(mirror):
                jobs.open_topic(mirror.link.destination.address, mirror.name)
        except LinkEngineError as error:
            if not left:
                _tell(mirror, stopped, error)
                return
            time.sleep(UNDO_PAUSE_S)
        else:
            return


def _reopen(stopped: MirrorTopic, *, was_closed: bool) -> None:
    topic_id, refused = jobs.reopen_mirror(replace(plans.stop_of(stopped, generation=0), was_closed=was_closed))
    if refused:
        refusals.add(mirror=stopped, refused=refused, now=timezone.now())
    MirrorTopic.objects.filter(pk=stopped.pk, mirror_topic_id="").update(mirror_topic_id=topic_id)
    lineage.close_lineage(mirror=stopped, now=timezone.now())
    dispatch.send("reconcile_link", link_id=stopped.link_id)


def _tell(mirror: MirrorTopic, stopped: MirrorTopic | None, error: LinkEngineError) -> None:
    _log.error("mirror.not_reopened", mirror=mirror.name, code=error.code)
    if stopped is not None:
        message = (
            f"A task that came late may have closed topic '{mirror.name}' after its mirror was stopped, and it could not be "
            f"opened again: {error.message} If producers are refused, delete the rule DENY WRITE for User:* on the topic."
        )
        troubles.note(mirror=stopped, code=error.code, message=message, now=timezone.now())
